"""Layer: after history was replaced, restore recently used files, within a budget.

It takes file texts and never opens a file: the pipeline reads them, where the roots allow it, or
else takes the last content that the transcript contains.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import TypeAlias

from context_compaction.activity.outline import (
    is_data,
    is_test,
    outline,
    parts_around,
    without_documentation,
)
from context_compaction.layers.base import FileText
from context_compaction.layers.preview import ranked
from context_compaction.layers.recent_files import (
    FEW_NEWS,
    OPEN_TASK,
    STEERING_TOKENS,
    RecentFile,
    is_shown,
    lines_shown,
)
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Messages, make_message
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

# Of a part that is too long so much says something.
_LEAST_PART_TOKENS = 80
# So many definitions are no more than its own name.
_FEW_ROWS = 2
# What a line of a plan or a specification says stands at its beginning, the reasons behind it. Cut
# shorter than this a rule is lost itself.
_CUT_ROWS_CHARS = (300, 200, 140)
_BEGINS_BLOCK = re.compile(r"#{1,6} |\s{0,3}(?:[-*+]|\d{1,4}[.)]) |\|")
_GAP_TOKENS = 3
# A small file costs little more than its outline.
_SMALL_FILE_TOKENS = 250
# How something is laid out has this much room before any part of it.
_OUTLINE_TOKENS = 500
# One that was not made anew comes back whole where that takes no more than this part of the room.
_WHOLE_PART = 6
# One in work, where the room is to be filled.
_LARGE_PART = 3
_NAMES = 4
# So many lines one after the other that a kept message has too are the same place.
_SHOWN_LINES = 8
_REST_SHOWN = "the rest as a kept message shows it"
_PART = "Lines "
_CHANGED_LAST = ", changed last"
_LOOSE = "Changed last, where is not known:\n"
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
    if is_filled and files:
        shown = lines_shown(messages)
        files = [_beside(file, shown) for file in files]
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


def _beside(file: FileText, shown: Set[str]) -> FileText:
    """`file` with the places of what is `shown`, without changes and named parts shown whole.

    Of one that is shown but for a few lines, as a host hands in a project's rules, these are parts.
    """
    pieces = file.parts if file.text is None else ((1, file.text),)
    rows = {at + n: row.strip() for at, text in pieces for n, row in enumerate(text.split("\n"))}
    told = {at for at, row in rows.items() if any(map(str.isalnum, row))}
    news = {at for at in told if rows[at] not in shown}
    beside = replace(file, shown=frozenset(rows.keys() - news))
    if file.text is not None and len(news) <= FEW_NEWS * len(told):
        spans = tuple((at, at) for at in sorted(news))
        note = "; ".join(filter(None, (file.note, _REST_SHOWN)))
        return replace(
            beside, text=None, note=note, touched=spans, use="work", named=(), parts=pieces
        )
    touched, named = (
        tuple(span for span in spans if not news.isdisjoint(range(span[0], span[1] + 1)))
        for spans in (file.touched, file.named)
    )
    loose = tuple(text for text in file.loose if not is_shown(text, shown))
    return replace(beside, touched=touched, named=named, loose=loose)


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

    First what steers the work, whole, and the parts or the outline of what is in work; then as much
    more of each as its share of the room allows, and of what is in work at last all that fits.
    Where the room is to be filled, what was only read has what that leaves, and what was changed
    earlier an outline of what is left then.
    """
    bare = placeholders.restored_files([""], [""])
    left_tokens = room_tokens - count.message(make_message("user", bare))
    texts = [(n, file) for n, file in enumerate(files) if file.is_told]
    wanted = [(n, file) for n, file in texts if file.use != "earlier"]
    wanted = wanted if is_filled else wanted[: settings.restore_files]
    parts = max(_LARGE_PART, sum(file.use == "work" for _, file in wanted))
    chosen: dict[int, tuple[str, str]] = {}
    for stage in ("least", "share", "all", "read"):
        is_last = stage == "read"
        some = [item for item in wanted if (is_filled and item[1].use == "read") == is_last]
        share_tokens = max(_SMALL_FILE_TOKENS, left_tokens // max(_WHOLE_PART, len(some)))
        if stage == "all":
            most = max(0, settings.restore_files - len(wanted))
            is_plenty = left_tokens >= _PLENTY_TOKENS
            some = list(_of_the_rest(texts, most, is_filled=is_filled, is_plenty=is_plenty))
        for n, file in some:
            held_tokens = count.text(chosen[n][1]) + 1 if n in chosen else 0
            room_tokens = left_tokens + held_tokens
            most_tokens = min(largest_tokens(file, settings), room_tokens)
            part_tokens = outline_tokens = min(most_tokens, share_tokens + held_tokens)
            whole_tokens = part_tokens
            if is_filled and stage == "all":
                whole_tokens = room_tokens - 1
                most_tokens = whole_tokens if file.use == "work" else most_tokens
                part_tokens = most_tokens
            elif is_filled:
                # Of what was only read an outline is enough, where room is of account.
                whole_tokens = room_tokens // parts if file.use == "work" else _SMALL_FILE_TOKENS
                most_tokens = whole_tokens if file.use == "read" else most_tokens
            forms = (
                _least_forms(file, count, most_tokens, share_tokens)
                if stage == "least"
                else _fuller_forms(
                    file, count, most_tokens, part_tokens, outline_tokens, whole_tokens
                )
            )
            for action, part in forms:
                more_tokens = count.text(part) + 1 - held_tokens
                if 0 < more_tokens <= left_tokens:
                    chosen[n] = (action, part)
                    left_tokens -= more_tokens
                    break
    if is_filled:
        left = [(n, file) for n, file in texts if file.use == "earlier" and n not in chosen]
        for n, part in _outlines_of_earlier(left, count, left_tokens):
            chosen[n] = ("outlined", part)
            left_tokens -= count.text(part) + 1
    shown = [(n, action, part) for n, (action, part) in sorted(chosen.items())]
    missing = [(n, file) for n, file in enumerate(files) if n not in chosen]
    return [*shown, *_names(missing, count, left_tokens)]


def _of_the_rest(
    texts: Sequence[tuple[int, FileText]], most: int, *, is_filled: bool, is_plenty: bool
) -> Iterator[tuple[int, FileText]]:
    """What comes where all that is wanted has its share: open files, and changes of earlier.

    Code that was changed earlier is seldom asked for, values that were changed are.
    """
    if is_filled:
        yield from ((n, file) for n, file in texts if file.use in ("steering", "work"))
    earlier = [(n, file) for n, file in texts if file.use == "earlier"][:most]
    for n, file in earlier:
        if is_data(file.text or "", file.path) if is_filled else is_plenty:
            yield n, file


def _outlines_of_earlier(
    files: Sequence[tuple[int, FileText]], count: MessageCounter, left_tokens: int
) -> Iterator[tuple[int, str]]:
    """How the files changed earlier are laid out, where nothing else wants the room."""
    for n, file in files:
        most_tokens = min(left_tokens - _label_tokens(file, count), _OUTLINE_TOKENS)
        if most_tokens < _LEAST_PART_TOKENS:
            return
        for _, part in _outline_of(file, _outline_rows(file, (), count, most_tokens)):
            left_tokens -= count.text(part) + 1
            yield n, part


def _names(
    files: Sequence[tuple[int, FileText]], count: MessageCounter, left_tokens: int
) -> Iterator[_Chosen]:
    """The first wanted ones of `files` by name."""
    wanted = [(n, _name_of(file, count)) for n, file in files if file.use != "earlier"]
    for n, name in wanted[:_NAMES]:
        left_tokens -= count.text(f", {name}")
        if left_tokens >= 0:
            yield n, "named", name


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


def _least_forms(
    file: FileText, count: MessageCounter, most_tokens: int, share_tokens: int
) -> Iterator[tuple[str, str]]:
    """The forms of `file` that precede more of any other; none for one that was only read."""
    if file.use == "read":
        return
    if file.use == "steering" or count.text(file.text or "") <= _SMALL_FILE_TOKENS:
        yield from _whole(file, count, most_tokens)
    part_tokens = most_tokens // 2
    if file.use == "steering":
        rows = _cut_rows(file, count, most_tokens - _label_tokens(file, count))
        yield from _outline_of(file, rows)
    elif not file.named:
        part_tokens = min(part_tokens, max(share_tokens, _OUTLINE_TOKENS))
    yield from _outline_of(file, _outlined(file, count, part_tokens))


def _fuller_forms(
    file: FileText,
    count: MessageCounter,
    most_tokens: int,
    part_tokens: int,
    outline_tokens: int,
    whole_tokens: int,
) -> Iterator[tuple[str, str]]:
    """More of `file`, the fullest form first: whole, or its outline and parts.

    Of one that is named its parts are enough. One that has neither outline nor parts is wanted
    whole, or not at all.
    """
    if file.use == "named":
        return
    outlined = _outlined(file, count, part_tokens, outline_tokens)
    if not file.named:
        is_whole = file.use == "steering" or not outlined
        yield from _whole(file, count, most_tokens if is_whole else whole_tokens)
    yield from _outline_of(file, outlined)


def _whole(file: FileText, count: MessageCounter, most_tokens: int) -> Iterator[tuple[str, str]]:
    """All of `file`, with what later changes put into it nobody knows where; else without that."""
    text = file.text
    if text is not None and (text_tokens := count.text(text)) <= most_tokens:
        whole = placeholders.restored_file(file.path, text, file.note)
        left_tokens = most_tokens - text_tokens - _label_tokens(file, count)
        for _, part in _outline_of(file, _loose_parts(file, count, left_tokens)):
            yield "restored", f"{whole}\n{part}"
        yield "restored", whole


def _outline_of(file: FileText, body: str) -> Iterator[tuple[str, str]]:
    if not body:
        return
    size = "" if file.text is None else f"{_lines_in(file.text)} lines"
    notes = "; ".join(filter(None, (size, file.note)))
    has_parts_alone = file.use == "steering" or body.startswith((_PART, _LOOSE))
    label = "Parts" if has_parts_alone else "Outline"
    yield "outlined", placeholders.quoted(f"{label} of: {file.path} ({notes})\n{body}")


def _outline_rows(
    file: FileText, shown: Sequence[range], count: MessageCounter, max_tokens: int
) -> str:
    """The outline of `file` beside what is `shown`; none of tests, whose names say little."""
    if is_test(file.path) or file.text is None:
        return ""
    rows = outline(file.text, file.path).split("\n")
    rows = [row for row in rows if not any(_number(row) in span for span in shown)]
    return _fitting(rows, count, max_tokens)


def _number(row: str) -> int:
    """The number of the line that a row of an outline tells; 0 for another."""
    number = row.partition(":")[0]
    return int(number) if number.isdecimal() else 0


def _outlined(
    file: FileText, count: MessageCounter, max_tokens: int, outline_tokens: int | None = None
) -> str:
    """The outline of `file` and the parts of it that matter, within `max_tokens`.

    Of a text that steers the work every line is told in short, where that is enough for it, or
    else what is open in it and what shares words with what is next. The outline may take
    `outline_tokens` of it.
    """
    left_tokens = max_tokens - _label_tokens(file, count)
    if file.use == "steering":
        return _cut_rows(file, count, left_tokens) or _passages(file, count, left_tokens)
    parts = _telling_parts(file, count, left_tokens)
    left_tokens -= sum(count.text(part) + 1 for part in parts)
    loose = _loose_parts(file, count, left_tokens)
    left_tokens -= count.text(loose) + 1 if loose else 0
    if outline_tokens is not None:
        left_tokens = min(left_tokens, outline_tokens)
    shown = list(parts.values())
    rows = "" if file.named and parts else _outline_rows(file, shown, count, left_tokens)
    return "\n".join(filter(None, [rows, *parts, loose]))


def _label_tokens(file: FileText, count: MessageCounter) -> int:
    return count.text(f"Outline of: {file.path} ({file.note}) 10000 lines")


def _passages(file: FileText, count: MessageCounter, max_tokens: int) -> str:
    """What is open in a text, was changed last or is next, below its headings; "" without such.

    In whole paragraphs and items, the most wanted first; none that a kept message shows.
    """
    rows = (file.text or "").split("\n")
    blocks = list(_blocks(rows))
    texts = ["\n".join(rows[block.start : block.stop]) for block in blocks]
    heads = [at for at, told in enumerate(texts) if told.startswith("#")]
    tasks = (at for at, told in enumerate(texts) if OPEN_TASK.match(told))
    changed = (
        at
        for first, last in file.touched
        for at, block in enumerate(blocks)
        if block.start < last and first <= block.stop
    )
    chosen: set[int] = set()
    for at in dict.fromkeys((*tasks, *changed, *ranked(texts, file.sought))):
        is_there = file.shown.issuperset(range(blocks[at].start + 1, blocks[at].stop + 1))
        if at in heads or is_there:
            continue  # by itself a heading says nothing
        above = heads[bisect_right(heads, at) - 1 : bisect_right(heads, at)]
        more = {at, *above} - chosen
        max_tokens -= sum(count.text(texts[new]) + _GAP_TOKENS for new in more)
        if max_tokens < 0:
            break
        chosen |= more
    gaps = ("" if at - 1 in chosen or not at else "…\n" for at in sorted(chosen))
    return "\n".join(gap + texts[at] for gap, at in zip(gaps, sorted(chosen), strict=True))


def _blocks(rows: Sequence[str]) -> Iterator[range]:
    """The paragraphs, items, rows of tables and headings of prose, by the places of their lines."""
    start = 0
    for at, row in enumerate((*rows, "")):
        if not row.strip() or _BEGINS_BLOCK.match(row):
            if start < at and rows[start].strip():
                yield range(start, at)
            start = at if row.strip() else at + 1


def _cut_rows(file: FileText, count: MessageCounter, max_tokens: int) -> str:
    """All lines of a text, each cut at so many characters that they fit; "" where none do."""
    rows = [row.rstrip() for row in (file.text or "").split("\n") if row.strip()]
    for chars in _CUT_ROWS_CHARS:
        cut = "\n".join(row if len(row) <= chars else f"{row[:chars]}…" for row in rows)
        if count.text(cut) <= max_tokens:
            return cut
    return ""


def _telling_parts(file: FileText, count: MessageCounter, left_tokens: int) -> dict[str, range]:
    """The parts of `file` that were changed last or are spoken of, as many as fit."""
    parts: dict[str, range] = {}
    for why, choices in _told_of(file):
        for n, (start, whole) in enumerate(choices):
            span = range(start, start + len(whole))
            if any(span.start < other.stop and other.start < span.stop for other in parts.values()):
                continue
            lines = _without_shown(span, file.shown)
            rows = whole[lines.start - start : lines.stop - start]
            label = f"{_PART}{lines.start}-{lines.stop - 1}{why}:\n"
            part = label + "\n".join(without_documentation(rows)).rstrip()
            more_tokens = count.text(part) + 1
            is_last = n == len(choices) - 1
            # A whole function leaves room for what else there is.
            if more_tokens > (left_tokens if is_last else left_tokens // 2):
                told = outline("\n".join(rows), file.path, lines.start).split("\n")
                is_told = bool(why) or len(told) > _FEW_ROWS
                if not (is_last and is_told) or left_tokens < _LEAST_PART_TOKENS:
                    continue
                told = told if len(told) > _FEW_ROWS else [*rows]
                part = label + _fitting(told, count, left_tokens - count.text(label) - _GAP_TOKENS)
                more_tokens = count.text(part) + 1
            parts[part] = span
            left_tokens -= more_tokens
            break
    return parts


def _loose_parts(file: FileText, count: MessageCounter, left_tokens: int) -> str:
    """What was changed last in `file`, nobody knows where, as much as fits."""
    told: list[str] = []
    left_tokens -= count.text(_LOOSE)
    for text in file.loose:
        rows = without_documentation(text.strip("\n").split("\n"))
        part = "\n".join(rows)
        if count.text(part) + _GAP_TOKENS > left_tokens:
            if left_tokens < _LEAST_PART_TOKENS:
                break
            defined = [row.partition(": ")[2] for row in outline(part, file.path).split("\n")]
            rows = defined if len(defined) > _FEW_ROWS else rows
            part = _fitting(rows, count, left_tokens - 2 * _GAP_TOKENS)
        left_tokens -= count.text(part) + _GAP_TOKENS
        told.append(part)
    return _LOOSE + "\n…\n".join(told) if any(told) else ""


def _told_of(file: FileText) -> Iterator[tuple[str, list[tuple[int, Sequence[str]]]]]:
    """What was changed last in `file`, then what is named: why, and how much of it, most first.

    Of each the number of its first line, and its lines.
    """
    pieces = file.parts if file.text is None else ((1, file.text),)
    wanted = [(_CHANGED_LAST, span) for span in file.touched]
    for why, (first, last) in [*wanted, *(("", span) for span in file.named)]:
        for at, text in pieces:
            rows = text.split("\n")
            if at <= first < at + len(rows):
                last = min(last, at + len(rows) - 1)
                spans = [(first - at + 1, last - at + 1)]
                spans = parts_around(text, file.path, *spans[0]) if why else spans
                yield why, [(at + start - 1, rows[start - 1 : stop]) for start, stop in spans]


def _without_shown(lines: range, shown: Set[int]) -> range:
    """`lines` without what the kept messages show of them at either end, where that is a part.

    A few lines that stand elsewhere as well ("return None") are none.
    """
    start = next((at for at in lines if at not in shown), lines.start)
    stop = next((at + 1 for at in reversed(lines) if at not in shown), lines.stop)
    start = start if start - lines.start >= _SHOWN_LINES else lines.start
    return range(start, stop if lines.stop - stop >= _SHOWN_LINES else lines.stop)


def _fitting(rows: Sequence[str], count: MessageCounter, max_tokens: int) -> str:
    """As many of `rows` as fit in `max_tokens`, the outermost first, and how many more."""
    kept: set[int] = set()
    left_tokens = max_tokens
    for at in sorted(range(len(rows)), key=lambda at: (_depth(rows[at]), at)):
        left_tokens -= count.text(rows[at]) + 1
        if left_tokens < 0:
            break
        kept.add(at)
    left_out = len(rows) - len(kept)
    more = [f"… {left_out} more"] if left_out else []
    return "\n".join([*(rows[at] for at in sorted(kept)), *more]) if kept else ""


def _depth(row: str) -> int:
    """How far in a row of an outline is; 0 for a line of another text."""
    told = row.partition(": ")[2] if _number(row) else ""
    return len(told) - len(told.lstrip())
