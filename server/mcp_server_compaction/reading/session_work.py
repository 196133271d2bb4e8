"""Files and plan of a session, as the tool calls in its messages leave them."""

import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeAlias
from unicodedata import normalize
from weakref import WeakKeyDictionary

from anyio import to_thread
from cachetools import LRUCache
from context_compaction import (
    Archive,
    ArchivedMessage,
    KnownFile,
    Message,
    NotFoundError,
    ToolCall,
    follow_files,
    named_arguments,
    parse,
    plan_of,
    result_text,
    tool_calls,
    tool_results,
)

_NAMED_PATHS = 10
# Files and numbers of messages, by session, branch head and number of the last message.
_RecentFiles: TypeAlias = (
    "LRUCache[tuple[str, str | None, int | None], tuple[dict[str, KnownFile], list[int]]]"
)
_RECENT_FILES: WeakKeyDictionary[Archive, _RecentFiles] = WeakKeyDictionary()


async def file_text(
    archive: Archive, session_id: str, head: str | None, path: str, until: int | None
) -> tuple[str, str]:
    """Return the text of a file after message `until`, and a note about it.

    Args:
        archive: The archive of the session.
        session_id: ID of the session.
        head: Head of the branch; None for the newest branch.
        path: Path in the tool calls, relative or absolute, or the end of it.
        until: Number of the last message to read; None for all messages.

    Raises:
        NotFoundError: The session or file does not exist, or the text of the file is unknown.
    """
    files, seqs = await _files(archive, session_id, head, until)
    file, others = _matching_files(files, path, session_id)
    text, note = _known_text(file, seqs, session_id)
    also = "".join(f" Another file: {_file_line(other, seqs)}." for other in others[:_NAMED_PATHS])
    return text, note + also


async def file_list(archive: Archive, session_id: str, head: str | None) -> str:
    """Return one line for each file, last used first: path, known part and last message."""
    files, seqs = await _files(archive, session_id, head, None)
    return "".join(f"{_file_line(file, seqs)}\n" for file in reversed(files.values()))


async def _files(
    archive: Archive, session_id: str, head: str | None, until: int | None
) -> tuple[dict[str, KnownFile], list[int]]:
    """Return the files after message `until`, and the numbers of the messages.

    A branch never changes, so the files of recent calls are kept: with 100,000 messages they take
    seconds, and people look at one file after the other.
    """
    head = head or await _newest_head(archive, session_id)
    known = _RECENT_FILES.setdefault(archive, LRUCache(2))
    key = session_id, head, until
    if key not in known:
        messages, seqs = await _branch_messages(archive, session_id, head, until)
        known[key] = await to_thread.run_sync(follow_files, messages), seqs
    return known[key]


async def _newest_head(archive: Archive, session_id: str) -> str | None:
    branches, _ = await archive.branches(session_id, limit=1)
    return branches[0].head if branches else None


async def _branch_messages(
    archive: Archive, session_id: str, head: str | None, until: int | None
) -> tuple[tuple[Message, ...], list[int]]:
    """Return the messages of a branch up to number `until`, and their numbers."""
    head = head or await _newest_head(archive, session_id)
    if head is None:
        return (), []
    last = sys.maxsize if until is None else until
    archived = await archive.read_messages(session_id, 0, last, head=head)
    return await to_thread.run_sync(_parse_messages, archived)


def _parse_messages(archived: Sequence[ArchivedMessage]) -> tuple[tuple[Message, ...], list[int]]:
    messages: list[Message] = []
    seqs: list[int] = []
    for format_name, group in groupby(archived, key=lambda item: item.format):
        items = list(group)
        for message in parse([item.raw for item in items], format=format_name):
            seqs.append(items[message.index or 0].seq)
            index = len(messages)
            messages.append(message if message.index == index else replace(message, index=index))
    return tuple(messages), seqs


def _matching_files(
    files: dict[str, KnownFile], path: str, session_id: str
) -> tuple[KnownFile, list[KnownFile]]:
    """Return the file that `path` most likely means, and other files that it could mean.

    A file matches if one path is the end of the other. An equal path is preferred, then a file that
    was not deleted, then the file used last.
    """
    normalized_path = _normalize_path(path)
    normalized = {name: _normalize_path(name) for name in files}
    candidates = [
        files[name]
        for name, other in normalized.items()
        if other == normalized_path
        or other.endswith(f"/{normalized_path.lstrip('/')}")
        or normalized_path.endswith(f"/{other}")
    ]
    if not candidates:
        listed = ", ".join(list(reversed(files))[:_NAMED_PATHS]) or "none"
        raise NotFoundError(
            f"Session {session_id} has no file {path[:200]!r} at this message. Its last files: "
            f"{listed}. List all files with transcript://{session_id}/files."
        )
    best = max(
        candidates,
        key=lambda file: (
            normalized[file.path] == normalized_path,
            not file.is_deleted,
            file.used_at,
        ),
    )
    return best, [file for file in candidates if file is not best and not file.is_deleted]


def _normalize_path(path: str) -> str:
    """Return `path` without `./` and with composed accents, because macOS decomposes them."""
    return normalize("NFC", posixpath.normpath(path.replace("\\", "/")))


def _known_text(file: KnownFile, seqs: Sequence[int], session_id: str) -> tuple[str, str]:
    if file.is_deleted:
        deleted_at = seqs[file.written_at]
        raise NotFoundError(
            f"{file.path} was deleted at message {deleted_at}. Read it as of an earlier message: "
            f"transcript://{session_id}/files/{file.path}@{max(0, deleted_at - 1)}."
        )
    unsure = ""
    if file.unsure_since is not None:
        unsure = f" Unsure since message {seqs[file.unsure_since]}."
    if file.text is None:
        raise NotFoundError(
            f"The text of {file.path} is unknown, because no message shows it. Read its last use: "
            f"transcript://{session_id}/messages/{seqs[file.used_at]}."
        )
    if file.is_whole:
        last = seqs[max(file.read_at, file.written_at)]
        return file.text, f" {file.path} as of message {last}.{unsure}"
    part = f"Lines {file.start_line}-{file.stop_line}:\n{file.text}\n"
    return part, f" Only these lines of {file.path} are known.{unsure}"


def _file_line(file: KnownFile, seqs: Sequence[int]) -> str:
    if file.is_deleted:
        known = "deleted"
    elif file.text is None:
        known = "unknown text"
    else:
        known = f"whole text, {file.stop_line} lines" if file.is_whole else "some lines"
    unsure = "" if file.unsure_since is None else ", unsure"
    changed = ", changed" if file.was_written else ""
    return f"{file.path}  {known}{unsure}{changed}; last message {seqs[file.used_at]}"


_NOT_STARTED = frozenset({"pending", "todo", "not_started", "open", ""})
_REMOVED = "removed"
_ENDED = frozenset({"completed", "done", "cancelled", "deleted", _REMOVED})
_TASK_NUMBER = re.compile(r"#(\d+)\b")


# Each state of a plan item, with the number of the message that set it.
States: TypeAlias = list[tuple[str, int]]


def _span(states: States, last: int) -> tuple[int, int]:
    """Return the numbers of the first and last message of the work on a plan item.

    Args:
        states: States of the item.
        last: Number of the last message of the session.
    """
    started = [seq for state, seq in states if state not in _NOT_STARTED]
    state, seq = states[-1]
    if not started:
        return seq, last
    return started[0], seq if state in _ENDED else last


async def plan_text(archive: Archive, session_id: str, head: str | None) -> str:
    """Return a line with states and a pointer for each plan item, then the plan written as text.

    Raises:
        NotFoundError: The session does not exist or has no plan.
    """
    messages, seqs = await _branch_messages(archive, session_id, head, None)
    items, written = await to_thread.run_sync(_read_plan, messages, seqs)
    if not items and written is None:
        raise NotFoundError(
            f"Session {session_id} has no plan. For plans in files, list the files with "
            f"transcript://{session_id}/files."
        )
    lines: list[str] = []
    for number, (item, states) in enumerate(items.items(), 1):
        shown = ", ".join(f"{state or 'listed'} at {seq}" for state, seq in states)
        start, stop = _span(states, seqs[-1])
        pointer = f"transcript://{session_id}/messages/{start}-{stop}"
        lines.append(f"{number}. {item}: {shown}; {pointer}\n")
    if written is not None:
        lines.append(f"Plan written by message {written[0]}:\n{written[1]}\n")
    return "".join(lines)


async def plan_item_span(
    archive: Archive, session_id: str, head: str | None, number: int
) -> tuple[int, int]:
    """Return the numbers of the first and last message of the work on a plan item.

    Args:
        archive: The archive of the session.
        session_id: ID of the session.
        head: Head of the branch; None for the newest branch.
        number: Number of the item, from 1.

    Raises:
        NotFoundError: The session or item does not exist.
    """
    messages, seqs = await _branch_messages(archive, session_id, head, None)
    items, _ = await to_thread.run_sync(_read_plan, messages, seqs)
    if not 1 <= number <= len(items):
        existing = f"items 1 to {len(items)}" if items else "no items"
        raise NotFoundError(
            f"There is no plan item {number}. The plan of session {session_id} has {existing}."
        )
    return _span([*items.values()][number - 1], seqs[-1])


def _read_plan(
    messages: Sequence[Message], seqs: Sequence[int]
) -> tuple[dict[str, States], tuple[int, str] | None]:
    """Return the plan items, the newest plan first, and the newest plan written as one text.

    Items with equal text are one item. The text comes with the number of its message.
    """
    items: dict[str, States] = {}
    newest_names: list[str] = []
    written: tuple[int, str] | None = None
    subjects = _task_subjects(messages)
    for message, seq in zip(messages, seqs, strict=True):
        for call in tool_calls(message):
            if text := _written_plan(call):
                written = seq, text
            elif _is_task_call(call):
                states = _task_state(call, subjects)
                _record_states(items, states, seq)
                newest_names += states
            elif states := dict(map(_split_state, plan_of(call))):
                removed = dict.fromkeys(newest_names, _REMOVED)
                _record_states(items, states | removed | states, seq)
                newest_names = list(states)
    return {name: items[name] for name in [*newest_names, *items]}, written


def _record_states(items: dict[str, States], states: Mapping[str, str], seq: int) -> None:
    for name, state in states.items():
        known = items.setdefault(name, [])
        if not known or known[-1][0] != state:
            known.append((state, seq))


def _written_plan(call: ToolCall) -> str:
    """Return the plan that a call writes as one text of several lines, or an empty string."""
    text = named_arguments(call).get("plan")
    is_text = isinstance(text, str) and "\n" in text.strip() and bool(plan_of(call))
    return str(text).strip() if is_text else ""


def _split_state(line: str) -> tuple[str, str]:
    """Return text and state of a line "[state] text"."""
    state, separator, text = line.removeprefix("[").partition("] ")
    return (text, state) if separator and line.startswith("[") else (line, "")


def _is_task_call(call: ToolCall) -> bool:
    """Whether a call creates or updates one item, as TaskCreate and TaskUpdate of Claude Code."""
    is_task = "task" in call.name.casefold()
    return is_task and not {"subject", "taskId"}.isdisjoint(named_arguments(call))


def _task_subjects(messages: Sequence[Message]) -> dict[str, str]:
    """Return the text of each item created by a call of its own, by the number in its result."""
    subjects_by_call: dict[str, str] = {}
    subjects: dict[str, str] = {}
    for message in messages:
        for call in filter(_is_task_call, tool_calls(message)):
            arguments = named_arguments(call)
            if "taskId" not in arguments:
                subjects_by_call[call.call_id] = str(arguments["subject"])
        for result in tool_results(message):
            subject = subjects_by_call.get(result.call_id)
            number = _TASK_NUMBER.search(result_text(result)) if subject else None
            if subject and number:
                subjects.setdefault(number[1], subject)
    return subjects


def _task_state(call: ToolCall, subjects: Mapping[str, str]) -> dict[str, str]:
    """Return the text of the item that a call changes, with its new state; empty if unknown."""
    arguments = named_arguments(call)
    text = subjects.get(str(arguments.get("taskId"))) or arguments.get("subject")
    state = arguments.get("status") or ("" if "taskId" in arguments else "pending")
    return {" ".join(str(text).split()): str(state)} if text and state else {}
