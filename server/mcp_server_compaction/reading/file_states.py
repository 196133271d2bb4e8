"""The text of a file at the end of a session, or as of one of its messages, by its calls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from unicodedata import normalize

from anyio import to_thread
from context_compaction import formats
from context_compaction.activity.file_paths import plain_path
from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.archive import Archive, ArchivedMessage
from context_compaction.errors import NotFoundError
from context_compaction.messages.model import Message

_NAMED_PATHS = 10


@dataclass(frozen=True, slots=True)
class FileAtMessage:
    """The text of a file, as far as it is known, and what is known beside it."""

    text: str
    note: str


async def file_state(
    archive: Archive, session_id: str, head: str | None, path: str, until: int | None
) -> FileAtMessage:
    """The file at `path`, or one that is named by a longer or shorter path, after message `until`.

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
    files = await to_thread.run_sync(replay_files, messages)
    file, others = _named(files, path, session_id)
    state = _state(file, seqs, session_id)
    also = "".join(f" Another file {_line(other, seqs)}." for other in others[:_NAMED_PATHS])
    return replace(state, note=state.note + also)


async def replayed_session(
    archive: Archive, session_id: str, most: int
) -> tuple[tuple[Message, ...], list[int], dict[str, ReplayedFile]]:
    """The last messages of a session's newest branch, at most so many, and what they tell.

    That is the number of each, and the files at the end, as far as these messages show them.
    """
    messages, seqs = await history_messages(archive, session_id, None, None, most)
    return messages, seqs, await to_thread.run_sync(replay_files, messages)


async def file_list(archive: Archive, session_id: str, head: str | None) -> str:
    """Every file of a session on a line: its path, what is known of it, its last message."""
    messages, seqs = await history_messages(archive, session_id, head, None)
    files = await to_thread.run_sync(replay_files, messages)
    return "".join(f"{_line(file, seqs)}\n" for file in reversed(files.values()))


async def history_messages(
    archive: Archive,
    session_id: str,
    head: str | None,
    until: int | None,
    most: int | None = None,
) -> tuple[tuple[Message, ...], list[int]]:
    """The messages of one history up to number `until`, and the number of each.

    Only the last of them where there are more than `most`.
    """
    if head is None:
        branches, _ = await archive.branches(session_id, limit=1)
        head = branches[0].head if branches else None
    if head is None:
        return (), []
    history = await archive.history(session_id, head)
    if not history.seqs:
        return (), []
    last = max(history.seqs) if until is None else until
    first = min(history.seqs[-most:] if most else history.seqs)
    found = await archive.read_messages(session_id, first, last, head=head)
    return await to_thread.run_sync(_parsed, found)


def _parsed(found: Sequence[ArchivedMessage]) -> tuple[tuple[Message, ...], list[int]]:
    messages: list[Message] = []
    seqs: list[int] = []
    for format_name, group in groupby(found, key=lambda item: item.format):
        items = list(group)
        for message in formats.parse([item.raw for item in items], format=format_name):
            seqs.append(items[message.index or 0].seq)
            messages.append(replace(message, index=len(messages)))
    return tuple(messages), seqs


def _named(
    files: dict[str, ReplayedFile], path: str, session_id: str
) -> tuple[ReplayedFile, list[ReplayedFile]]:
    """The file that `path` means, and others that it could mean.

    That is the one which the calls name so; else, of those whose path ends so or is the end of
    `path`, one that still stands, the one used last. An accent is the same, as a character of its
    own (as a Mac's own listings have it) or not.
    """
    asked = normalize("NFC", plain_path(path))
    ending = [
        file
        for name, file in files.items()
        if (plain := normalize("NFC", plain_path(name))) == asked
        or plain.endswith(f"/{asked.lstrip('/')}")
        or asked.endswith(f"/{plain}")
    ]
    if not ending:
        shown = ", ".join(list(reversed(files))[:_NAMED_PATHS]) or "none"
        left = len(files) - _NAMED_PATHS
        raise NotFoundError(
            f"Session {session_id} has no file {path[:200]!r} by then. Its files: {shown}"
            f"{f' and {left} more' if left > 0 else ''}. "
            f"transcript://{session_id}/files lists them."
        )
    best = files.get(plain_path(path)) or max(
        ending, key=lambda file: (not file.is_deleted, file.used_at)
    )
    return best, [file for file in ending if file is not best and not file.is_deleted]


def _state(file: ReplayedFile, seqs: Sequence[int], session_id: str) -> FileAtMessage:
    if file.is_deleted:
        raise NotFoundError(
            f"{file.path} was deleted at message {seqs[file.changed_at]}. Read it as of an earlier "
            f"one: transcript://{session_id}/files/{file.path}@{max(0, seqs[file.changed_at] - 1)}."
        )
    if file.text is not None:
        return FileAtMessage(file.text, _whole_note(file, seqs))
    why = f" since message {seqs[file.lost_at]}: {file.lost}" if file.lost else ""
    if not file.parts and file.last_text is not None:
        missed = ", ".join(str(seqs[at]) for at in file.missed)
        return FileAtMessage(
            file.last_text,
            f" NOT as it stands: {file.path} is not known{why}. This is its text before, with "
            f"the changes since but for those of message {missed}.",
        )
    if not (file.parts or file.loose):
        raise NotFoundError(
            f"The text of {file.path} is not known{why or ': it was never shown'}. Its last use is "
            f"transcript://{session_id}/messages/{seqs[file.used_at]}."
        )
    shown = [
        f"{'About lines' if part.is_moved else 'Lines'} {part.start_line}-{part.stop_line}:\n"
        f"{part.text}\n"
        for part in file.parts
    ]
    shown += [f"Somewhere in it, by message {seqs[p.at]}:\n{p.text}\n" for p in file.loose]
    note = f" Only these lines of {file.path} are known{why}.{_doubt(file, seqs)}"
    return FileAtMessage("".join(shown), note)


def _whole_note(file: ReplayedFile, seqs: Sequence[int]) -> str:
    edits = f", then {file.edits} edits" if file.edits else ""
    seen = f"message {seqs[file.seen_at]}{edits}"
    return f" {file.path} as its calls leave it: {seen}.{_doubt(file, seqs)}"


def _doubt(file: ReplayedFile, seqs: Sequence[int]) -> str:
    doubt = file.doubt
    return f" Unsure since message {seqs[doubt.at]}: {doubt.reason}." if doubt else ""


def _line(file: ReplayedFile, seqs: Sequence[int]) -> str:
    if file.is_deleted:
        known = "deleted"
    elif file.text is not None:
        known = f"whole, {file.text.count(chr(10)) + 1} lines"
    else:
        known = "in parts" if file.parts or file.loose else "text not known"
    known += ", unsure" if file.doubt else ""
    used = f"read {file.reads}, changed {file.writes}; last message {seqs[file.used_at]}"
    return f"{file.path}  {known}; {used}"
