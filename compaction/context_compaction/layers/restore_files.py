"""Layer: after history was replaced, restore recently used files, within a budget.

It takes file texts and never opens a file: the pipeline reads them, where the roots allow it, or
else takes the last content that the transcript contains.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from context_compaction.activity.outline import (
    is_data,
    is_test,
    outline,
    part_around,
    without_documentation,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.recent_files import STEERING_TOKENS, RecentFile
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Messages, make_message
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

_TOUCHED_PARTS = 3
# What a line of a plan or a specification says stands at its beginning, the reasons behind it.
_CUT_ROWS_CHARS = (300, 200, 140, 100, 70)
# A small file costs little more than its outline.
_SMALL_FILE_TOKENS = 250
# How something is laid out has this much room before any part of it.
_OUTLINE_TOKENS = 500
# One that was not made anew comes back whole where that takes no more than this part of the room.
_WHOLE_PART = 6
# One in work, where the room is to be filled.
_LARGE_PART = 3
_NAMES = 4
_PART = "Lines "
_PLENTY_TOKENS = 5_000


def restore_files(
    messages: Messages,
    *,
    count: MessageCounter,
    settings: Settings,
    files: Sequence[FileText],
    at: int,
    limit_tokens: int,
    is_filled: bool = False,
) -> Step:
    """Insert one message with `files` at position `at`; those without a text are only named.

    Args:
        messages: The list.
        count: The token counter.
        settings: `restore_files`, `restore_file_tokens`, `restore_total_tokens`.
        files: The files to restore, highest priority first.
        at: The position, between a summary and what follows it.
        limit_tokens: The most tokens that all messages may count afterwards.
        is_filled: Whether as much is wanted as there is room for.
    """
    room_tokens = min(settings.restore_total_tokens, limit_tokens - count.messages(messages))
    chosen = _chosen(files, count, settings, room_tokens, is_filled=is_filled)
    while chosen:
        texts = [part for _, action, part in chosen if action != "named"]
        names = [part for _, action, part in chosen if action == "named"]
        message = make_message("user", placeholders.restored_files(texts, names))
        if count.message(message) <= room_tokens:
            edits = tuple(
                Edit("restore", action, None, 0, count.text(part), note=files[n].path)
                for n, action, part in chosen
            )
            return Step((*messages[:at], message, *messages[at:]), edits)
        chosen.pop()
    return Step(messages)


# Which file, how it comes back, and its text.
_Chosen: TypeAlias = tuple[int, str, str]


def _chosen(
    files: Sequence[FileText],
    count: MessageCounter,
    settings: Settings,
    room_tokens: int,
    *,
    is_filled: bool,
) -> list[_Chosen]:
    """What is restored of `files`, by priority; wanted ones without their text last, by name.

    First what steers the work, whole, and the outline of what is in work; then as much more
    of each as its share of the room allows. Where the room is to be filled, what is in work
    comes back whole before that, and the others after it.
    """
    bare = placeholders.restored_files([""], [""])
    left_tokens = room_tokens - count.message(make_message("user", bare))
    texts_of = [(n, file) for n, file in enumerate(files) if file.text is not None]
    wanted = [(n, file) for n, file in texts_of if file.use != "earlier"]
    wanted = wanted[: settings.restore_files]
    work = [(n, file) for n, file in wanted if file.use == "work"]
    # What was changed earlier is seldom asked for: it comes where room is of no account.
    earlier = [(n, file) for n, file in texts_of if file.use == "earlier"]
    earlier = earlier[: max(0, settings.restore_files - len(wanted))]
    chosen: dict[int, tuple[str, str]] = {}
    passes = [
        (_first_forms, wanted),
        *([(_whole_in_part, work)] if is_filled else []),
        (_forms, wanted),
        *([(_whole_in_all, [*work, *earlier])] if is_filled else [(_in_plenty, earlier)]),
    ]
    for forms_of, some in passes:
        share_tokens = max(_SMALL_FILE_TOKENS, left_tokens // max(_WHOLE_PART, len(wanted)))
        for n, file in some:
            held_tokens = count.text(chosen[n][1]) + 1 if n in chosen else 0
            room = _Room(left_tokens + held_tokens, share_tokens + held_tokens)
            most_tokens = min(largest_tokens(file, settings), room.left_tokens)
            for action, part in forms_of(file, count, most_tokens, room):
                more_tokens = count.text(part) + 1 - held_tokens
                if 0 < more_tokens <= left_tokens:
                    chosen[n] = (action, part)
                    left_tokens -= more_tokens
                    break
    texts = [(n, action, part) for n, (action, part) in sorted(chosen.items())]
    named: list[_Chosen] = []
    for n, file in enumerate(files):
        name = _name_of(file, count)
        more_tokens = count.text(f", {name}")
        is_wanted = n not in chosen and file.use != "earlier" and len(named) < _NAMES
        if is_wanted and more_tokens <= left_tokens:
            named.append((n, "named", name))
            left_tokens -= more_tokens
    return [*texts, *named]


def _name_of(file: FileText, count: MessageCounter) -> str:
    """One file by name, with the tokens that reading it would take."""
    if file.text is None:
        return placeholders.quoted(f"{file.path} ({file.note})" if file.note else file.path)
    size = f"{_lines_in(file.text)} lines, {count.text(file.text):,} tokens"
    return placeholders.quoted(f"{file.path} ({size})")


def _lines_in(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def largest_tokens(file: RecentFile | FileText, settings: Settings) -> int:
    """The most tokens of `file` where it is restored whole."""
    most_tokens = settings.restore_file_tokens
    return max(most_tokens, STEERING_TOKENS) if file.use == "steering" else most_tokens


@dataclass(frozen=True, slots=True)
class _Room:
    """The room for one file: all that is left, and its share of that."""

    left_tokens: int
    share_tokens: int


def _first_forms(
    file: FileText, count: MessageCounter, most_tokens: int, room: _Room
) -> Iterator[tuple[str, str]]:
    """The forms of `file` that precede more of any other; none for one that was only read."""
    if file.use == "read":
        return
    if file.use == "steering" or count.text(file.text or "") <= _SMALL_FILE_TOKENS:
        yield from _whole(file, count, most_tokens)
    if file.use == "steering":
        yield from _outline_of(file, _outlined(file, count, most_tokens))
    elif file.named:
        yield from _outline_of(file, _outlined(file, count, most_tokens // 2))
    else:
        rows_tokens = min(most_tokens // 2, max(room.share_tokens, _OUTLINE_TOKENS))
        yield from _outline_of(file, _outline_rows(file, count, rows_tokens))


def _forms(
    file: FileText, count: MessageCounter, most_tokens: int, room: _Room
) -> Iterator[tuple[str, str]]:
    """The forms in which `file` may be restored, the fullest first: whole, or as an outline.

    Above its share of the room most of it was not touched, and an outline contains enough, as it
    does of one that is only named.
    """
    if file.use == "named":
        return
    share_tokens = min(most_tokens, max(room.share_tokens, _SMALL_FILE_TOKENS))
    outlined = _outlined(file, count, share_tokens)
    is_whole = file.use == "steering" or not outlined
    yield from _whole(file, count, most_tokens if is_whole else share_tokens)
    yield from _outline_of(file, outlined)


def _whole_in_part(
    file: FileText, count: MessageCounter, most_tokens: int, room: _Room
) -> Iterator[tuple[str, str]]:
    """`file` whole, where it leaves most of the room to the others."""
    if not file.named and file.use == "work":
        yield from _whole(file, count, max(most_tokens, room.left_tokens) // _LARGE_PART)


def _whole_in_all(
    file: FileText, count: MessageCounter, most_tokens: int, room: _Room
) -> Iterator[tuple[str, str]]:
    """`file` whole, where there is room for it, or more of what the newest words name in it.

    Code that was changed earlier is not asked for, values that were changed are.
    """
    if file.named:
        yield from _outline_of(file, _outlined(file, count, room.left_tokens // 2))
    elif file.use != "earlier" or is_data(file.text or ""):
        yield from _whole(file, count, max(most_tokens, room.left_tokens - 1))


def _in_plenty(
    file: FileText, count: MessageCounter, most_tokens: int, room: _Room
) -> Iterator[tuple[str, str]]:
    """The forms of `file` where there is room for much more."""
    if room.left_tokens >= _PLENTY_TOKENS:
        yield from _forms(file, count, most_tokens, room)


def _whole(file: FileText, count: MessageCounter, most_tokens: int) -> Iterator[tuple[str, str]]:
    text = file.text or ""
    if count.text(text) <= most_tokens:
        note = f" ({file.note})" if file.note else ""
        whole = shown_file(file.path, text)
        yield "restored", placeholders.quoted(f"File: {file.path}{note}\n{whole}")


def _outline_of(file: FileText, body: str) -> Iterator[tuple[str, str]]:
    if not body:
        return
    notes = "; ".join(filter(None, (f"{_lines_in(file.text or '')} lines", file.note)))
    label = "Parts" if body.startswith(_PART) else "Outline"
    yield "outlined", placeholders.quoted(f"{label} of: {file.path} ({notes})\n{body}")


def _outline_rows(file: FileText, count: MessageCounter, max_tokens: int) -> str:
    """The outline of `file`, at most `max_tokens`; none of tests, whose names say little."""
    if is_test(file.path):
        return ""
    return _fitting(outline(file.text or "", file.path).split("\n"), count, max_tokens)


def _outlined(file: FileText, count: MessageCounter, max_tokens: int) -> str:
    """The outline of `file` and the parts of it that matter, within `max_tokens`.

    Of a text that steers the work every line is told in short, where that is enough for it.
    """
    left_tokens = max_tokens - count.text(f"Outline of: {file.path} ({file.note}) 10000 lines")
    if file.use == "steering" and (rows := _cut_rows(file.text or "", count, left_tokens)):
        return rows
    if file.named and (parts := _telling_parts(file, count, left_tokens)):
        return "\n".join(parts)
    parts = _telling_parts(file, count, left_tokens * 2 // 3)
    left_tokens -= sum(count.text(part) + 1 for part in parts)
    return "\n".join(filter(None, [_outline_rows(file, count, left_tokens), *parts]))


def _cut_rows(text: str, count: MessageCounter, max_tokens: int) -> str:
    """All lines of `text`, each cut at so many characters that they fit; "" where none do."""
    rows = [row.rstrip() for row in text.split("\n") if row.strip()]
    for chars in _CUT_ROWS_CHARS:
        cut = "\n".join(row if len(row) <= chars else f"{row[:chars]}…" for row in rows)
        if count.text(cut) <= max_tokens:
            return cut
    return ""


def _telling_parts(file: FileText, count: MessageCounter, left_tokens: int) -> list[str]:
    """The parts of `file` that are spoken of or were changed last, as many as fit."""
    text = file.text or ""
    rows = text.split("\n")
    parts: list[str] = []
    shown: list[range] = []
    touched = [
        (*part_around(text, file.path, *span), ", changed last")
        for span in file.touched[:_TOUCHED_PARTS]
    ]
    for start, stop, why in (*((*span, "") for span in file.named), *touched):
        span = range(max(1, start), min(len(rows), stop) + 1)
        if any(span.start < other.stop and other.start < span.stop for other in shown):
            continue
        passage = "\n".join(without_documentation(rows[span.start - 1 : span.stop - 1])).rstrip()
        part = f"{_PART}{span.start}-{span.stop - 1}{why}:\n{passage}"
        if (more_tokens := count.text(part) + 1) <= left_tokens:
            parts.append(part)
            shown.append(span)
            left_tokens -= more_tokens
    return parts


def _fitting(rows: Sequence[str], count: MessageCounter, max_tokens: int) -> str:
    """As many of the first `rows` as fit in `max_tokens`, and how many more there are."""
    kept: list[str] = []
    left_tokens = max_tokens
    for row in rows:
        left_tokens -= count.text(row) + 1
        if left_tokens < 0:
            break
        kept.append(row)
    left_out = len(rows) - len(kept)
    return "\n".join([*kept, f"… {left_out} more" if left_out else ""]).rstrip() if kept else ""


def shown_file(path: str, text: str) -> str:
    """The text of a restored file under its first line."""
    return placeholders.quoted(f"{text}\nEnd of file: {path}")
