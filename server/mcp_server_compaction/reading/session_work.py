"""The files and the plan of a session, as its calls leave them."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from unicodedata import normalize

from anyio import to_thread
from context_compaction import (
    Archive,
    ArchivedMessage,
    Message,
    NotFoundError,
    ToolCall,
    named_arguments,
    parse,
    plan_of,
    result_text,
    tool_calls,
    tool_results,
)
from context_compaction.activity.files import follow_files
from context_compaction.activity.known_file import KnownFile

_NAMED_PATHS = 10


async def file_text(
    archive: Archive, session_id: str, head: str | None, path: str, until: int | None
) -> tuple[str, str]:
    """The text of a file after message `until`, and a note about it.

    Args:
        archive: Where the session is.
        session_id: The session.
        head: The history; its newest branch for None.
        path: The path as the calls name it, relative or absolute, or its end.
        until: Number of the last message that counts; all of them for None.

    Raises:
        NotFoundError: There is no such session or file, or its text is not known.
    """
    messages, seqs = await history_messages(archive, session_id, head, until)
    files = await to_thread.run_sync(follow_files, messages)
    file, others = _named(files, path, session_id)
    text, note = _known_text(file, seqs, session_id)
    also = "".join(f" Another file: {_line(other, seqs)}." for other in others[:_NAMED_PATHS])
    return text, note + also


async def file_list(archive: Archive, session_id: str, head: str | None) -> str:
    """Every file of a session on a line: its path, how much is known of it, its last message."""
    messages, seqs = await history_messages(archive, session_id, head, None)
    files = await to_thread.run_sync(follow_files, messages)
    return "".join(f"{_line(file, seqs)}\n" for file in reversed(files.values()))


async def history_messages(
    archive: Archive, session_id: str, head: str | None, until: int | None
) -> tuple[tuple[Message, ...], list[int]]:
    """The messages of one history up to number `until`, and the number of each."""
    if head is None:
        branches, _ = await archive.branches(session_id, limit=1)
        head = branches[0].head if branches else None
    history = None if head is None else await archive.history(session_id, head)
    if history is None or not history.seqs:
        return (), []
    last = max(history.seqs) if until is None else until
    found = await archive.read_messages(session_id, min(history.seqs), last, head=head)
    return await to_thread.run_sync(_parsed, found)


def _parsed(found: Sequence[ArchivedMessage]) -> tuple[tuple[Message, ...], list[int]]:
    messages: list[Message] = []
    seqs: list[int] = []
    for format_name, group in groupby(found, key=lambda item: item.format):
        items = list(group)
        for message in parse([item.raw for item in items], format=format_name):
            seqs.append(items[message.index or 0].seq)
            messages.append(replace(message, index=len(messages)))
    return tuple(messages), seqs


def _named(
    files: dict[str, KnownFile], path: str, session_id: str
) -> tuple[KnownFile, list[KnownFile]]:
    """The file that `path` means, and others that it could mean.

    That is the file of this very path; else, of those where one path is the end of the other, the
    one used last that was not deleted.
    """
    asked = _plain(path)
    plain = {name: _plain(name) for name in files}
    candidates = [
        files[name]
        for name, other in plain.items()
        if other == asked or other.endswith(f"/{asked.lstrip('/')}") or asked.endswith(f"/{other}")
    ]
    if not candidates:
        shown = ", ".join(list(reversed(files))[:_NAMED_PATHS]) or "none"
        left = len(files) - _NAMED_PATHS
        raise NotFoundError(
            f"Session {session_id} has no file {path[:200]!r} by then. Its files: {shown}"
            f"{f' and {left} more' if left > 0 else ''}. "
            f"transcript://{session_id}/files lists them."
        )
    best = max(
        candidates,
        key=lambda file: (plain[file.path] == asked, not file.is_deleted, file.used_at),
    )
    return best, [file for file in candidates if file is not best and not file.is_deleted]


def _plain(path: str) -> str:
    """A path without `./`; accents are one character, which they are not on a Mac."""
    return normalize("NFC", posixpath.normpath(path.replace("\\", "/")))


def _known_text(file: KnownFile, seqs: Sequence[int], session_id: str) -> tuple[str, str]:
    if file.is_deleted:
        deleted_at = seqs[file.written_at]
        raise NotFoundError(
            f"{file.path} was deleted at message {deleted_at}. Read it as of an earlier one: "
            f"transcript://{session_id}/files/{file.path}@{max(0, deleted_at - 1)}."
        )
    doubt = ""
    if file.unsure_since is not None:
        doubt = f" Unsure since message {seqs[file.unsure_since]}."
    if file.text is not None:
        last = seqs[max(file.read_at, file.written_at)]
        return file.text, f" {file.path} as its calls leave it: message {last}.{doubt}"
    parts = "".join(
        f"Lines {part.start_line}-{part.stop_line}:\n{part.text}\n" for part in file.parts
    )
    if not parts:
        raise NotFoundError(
            f"The text of {file.path} is not known: it was never shown. Its last use is "
            f"transcript://{session_id}/messages/{seqs[file.used_at]}."
        )
    return parts, f" Only these lines of {file.path} are known.{doubt}"


def _line(file: KnownFile, seqs: Sequence[int]) -> str:
    if file.is_deleted:
        known = "deleted"
    elif file.text is not None:
        known = f"whole, {file.text.count(chr(10)) + 1} lines"
    else:
        known = "in parts" if file.parts else "text not known"
    unsure = "" if file.unsure_since is None else ", unsure"
    changed = ", changed" if file.was_written else ""
    return f"{file.path}  {known}{unsure}{changed}; last message {seqs[file.used_at]}"


_WAITING = frozenset({"pending", "todo", "not_started", "open", ""})
_LEFT_OUT = "left out"
_ENDED = frozenset({"completed", "done", "cancelled", "deleted", _LEFT_OUT})
_TASK_NUMBER = re.compile(r"#(\d+)\b")


@dataclass(slots=True)
class PlanItem:
    """One item of a plan, with its states and the number of the message that gave each."""

    text: str
    states: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def span(self, last: int) -> tuple[int, int]:
        """The messages from the first in which it was under way to the one that ended it."""
        begun = [seq for state, seq in self.states if state not in _WAITING]
        state, seq = self.states[-1]
        if not begun:
            return seq, last
        return begun[0], seq if state in _ENDED else last


async def plan(archive: Archive, session_id: str, head: str | None) -> str:
    """Each item of the newest plan on a line, with what reads the work on it; then its text.

    Raises:
        NotFoundError: There is no such session, or no plan.
    """
    messages, seqs = await history_messages(archive, session_id, head, None)
    items, text = await to_thread.run_sync(_plan, messages, seqs)
    if not items and text is None:
        raise NotFoundError(
            f"No call of {session_id} wrote a plan. Plans that are files are read as files: "
            f"transcript://{session_id}/files."
        )
    rows: list[str] = []
    for number, item in enumerate(items, 1):
        states = ", ".join(f"{state or 'listed'} at {seq}" for state, seq in item.states)
        start, stop = item.span(seqs[-1])
        rows.append(
            f"{number}. {item.text}: {states}; transcript://{session_id}/messages/{start}-{stop}\n"
        )
    if text is not None:
        rows.append(f"The plan as message {text[0]} wrote it:\n{text[1]}\n")
    return "".join(rows)


async def item_span(
    archive: Archive, session_id: str, head: str | None, number: int
) -> tuple[int, int]:
    """The first and the last message of the work on item `number` of the newest plan, from 1.

    Raises:
        NotFoundError: There is no such session or item.
    """
    messages, seqs = await history_messages(archive, session_id, head, None)
    items, _ = await to_thread.run_sync(_plan, messages, seqs)
    if not 1 <= number <= len(items):
        held = f"has the items 1 to {len(items)}" if items else "has no items"
        raise NotFoundError(f"There is no item {number}: the plan of {session_id} {held}.")
    return items[number - 1].span(seqs[-1])


def _plan(
    messages: Sequence[Message], seqs: Sequence[int]
) -> tuple[list[PlanItem], tuple[int, str] | None]:
    """The items of the newest plan, then earlier ones; and the newest plan that is one text.

    An item is recognized by its text, or by the number that the tool gave it. The number of the
    message comes with a plan that is one text.
    """
    items: dict[str, PlanItem] = {}
    newest: list[str] = []
    text: tuple[int, str] | None = None
    numbers = _task_numbers(messages)
    for message, seq in zip(messages, seqs, strict=True):
        for call in tool_calls(message):
            if written := _plan_text(call):
                text = seq, written
                continue
            is_single = _is_single(call)
            states = _single_state(call, numbers) if is_single else dict(map(_split, plan_of(call)))
            if not states:
                continue
            for name in [*states, *(() if is_single else newest)]:
                item = items.setdefault(name, PlanItem(name))
                state = states.get(name, _LEFT_OUT)
                if not item.states or item.states[-1][0] != state:
                    item.states.append((state, seq))
            newest = [*newest, *states] if is_single else list(states)
    return [items[name] for name in dict.fromkeys([*newest, *items])], text


def _plan_text(call: ToolCall) -> str:
    """The plan that a call wrote as one text of several lines."""
    text = named_arguments(call).get("plan")
    is_text = isinstance(text, str) and "\n" in text.strip() and bool(plan_of(call))
    return str(text).strip() if is_text else ""


def _split(line: str) -> tuple[str, str]:
    """Text and state of a line "[state] text"."""
    state, found, text = line.removeprefix("[").partition("] ")
    return (text, state) if found and line.startswith("[") else (line, "")


def _is_single(call: ToolCall) -> bool:
    """Whether a call makes or changes one item, as Claude Code's TaskCreate and TaskUpdate do."""
    is_task = "task" in call.name.casefold()
    return is_task and not {"subject", "taskId"}.isdisjoint(named_arguments(call))


def _task_numbers(messages: Sequence[Message]) -> dict[str, str]:
    """By the number that its tool gave it, each item that was made by a call of its own."""
    made: dict[str, str] = {}
    numbers: dict[str, str] = {}
    for message in messages:
        for call in filter(_is_single, tool_calls(message)):
            given = named_arguments(call)
            if "taskId" not in given:
                made[call.call_id] = str(given["subject"])
        for result in tool_results(message):
            subject = made.get(result.call_id)
            found = _TASK_NUMBER.search(result_text(result)) if subject else None
            if subject and found:
                numbers.setdefault(found[1], subject)
    return numbers


def _single_state(call: ToolCall, numbers: Mapping[str, str]) -> dict[str, str]:
    given = named_arguments(call)
    text = numbers.get(str(given.get("taskId"))) or given.get("subject")
    state = given.get("status") or ("" if "taskId" in given else "pending")
    return {" ".join(str(text).split()): str(state)} if text and state else {}
