"""Import session files into the archive. Each import continues where the last one stopped.

Claude Code and Codex only append lines to their files. So these files are read in batches, and
when a file has grown, only its new lines are read. All other files, and compressed files, are read
in full when they change; the archive recognizes messages that it already has.

The end of a file may still change, because a host writes one message in several lines, and a
result long after its call. The next import starts at the first line that may change.

Claude Code keeps a large output in `SESSION/tool-results/CALL.txt`, and a preview of it in the
session file. This file is imported as an output of the session.
"""

import errno
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import starmap
from pathlib import Path

import aiofiles
from anyio import to_thread
from context_compaction import (
    Archive,
    ArchiveError,
    Blob,
    InvalidMessageError,
    Message,
    NotFoundError,
    SettingsError,
    UnknownFormatError,
    make_folder,
    output_id_of,
    put_file,
    read_conversation,
)
from context_compaction.archive.documents import HOST_TOOL, TITLE_TOOL
from context_compaction.formats.session_files import hosts, model
from context_compaction.formats.session_files.read import decompress, lines_of_file

from mcp_server_compaction.hosts.chat_exports import Chat, chats_in, chats_in_zip, is_export

_CHAT_FORMAT = "openai-chat"
# Files are read in batches of this size, so that memory is bounded.
BATCH_BYTES = 8 * 1024 * 1024
# The host of a file is usually known after this many bytes.
_FIRST_BYTES = 64 * 1024
_CHECKED_BYTES = 4_096
_FOLLOWED = ("claude-code", "codex")
_SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst")


@dataclass(slots=True)
class Imported:
    """The result of the import of one file.

    Attributes:
        path: Path of the file.
        sessions: IDs of the sessions whose messages were read.
        written: Number of messages that were new to the archive.
        outputs: Number of stored outputs, including those that the archive already had.
        notes: A sentence for each line or message that was skipped or changed.
        problem: Why the file was not imported, or not completely; empty after a success.
        is_conversation: Whether the file contains a conversation.
    """

    path: Path
    sessions: set[str] = field(default_factory=set[str])
    written: int = 0
    outputs: int = 0
    notes: list[str] = field(default_factory=list[str])
    problem: str = ""
    is_conversation: bool = True


@dataclass(frozen=True, slots=True)
class _Position:
    """How much of a file was imported. Without it the file is only read again.

    Attributes:
        stamp: Size, modification time and inode of the file.
        kind: Host of the session file, or "messages", "output", "export" (a zip file with
            chats), or "none" for other content.
        session_id: ID of the first session in the file.
        offset: Position in bytes where the next import starts. 0 reads the whole file again.
        line: Number of lines before `offset`.
        tail_crc: CRC-32 of the last bytes before `offset`, to detect a rewritten file.
        heads: Branch head of each session at `offset`.
    """

    stamp: tuple[int, int, int]
    kind: str = ""
    session_id: str | None = None
    offset: int = 0
    line: int = 0
    tail_crc: int = 0
    heads: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class _Piece:
    """Messages to append to one session in one call.

    Attributes:
        history: The part of a file that contains them.
        session_id: ID of the archived session.
        messages: The messages.
        lines: Line of each message.
        is_new_start: Whether no message of the session precedes them.
    """

    history: model.Session
    session_id: str
    messages: tuple[Message, ...]
    lines: tuple[int, ...]
    is_new_start: bool


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a batch.

    Attributes:
        session_id: ID of the first session in the file; None if no row has been read that names it.
        notes: A sentence for each line or message that was skipped or changed.
        pieces: The messages, in the order in which they must be archived.
        open_line: First line of the messages that may still change; 0 if there are no messages.
        extra_texts: Type and text of rows that are not messages.
    """

    session_id: str | None
    notes: Sequence[str]
    pieces: Sequence[_Piece] = ()
    open_line: int = 0
    extra_texts: Sequence[tuple[str, str]] = ()


def session_files(paths: Sequence[Path], archive_folder: Path) -> list[Path]:
    """Return the given files, and all files in given folders that may contain a conversation."""
    files: dict[Path, None] = {}
    for path in map(Path.absolute, paths):
        if not path.is_dir():
            files[path] = None
            continue
        for folder, folders, names in os.walk(path):
            if Path(folder) == archive_folder:
                folders.clear()
                continue
            folders.sort()
            inner = [Path(folder, name) for name in sorted(names)]
            files |= dict.fromkeys(
                file for file in inner if file.name.endswith(_SUFFIXES) or is_output(file)
            )
    return list(files)


def files_to_import(archive_folder: Path, paths: Sequence[Path]) -> list[Path]:
    """Return the files that changed since their last import, outputs last."""

    def is_changed(path: Path) -> bool:
        known = _known_position(archive_folder, path)
        try:
            return known is None or known.stamp != stamp_of(path)
        except OSError:
            return True  # the import reports the problem

    return sorted(filter(is_changed, paths), key=is_output)


def is_output(path: Path) -> bool:
    """Whether the file contains one output of a tool of Claude Code."""
    return path.parent.name == "tool-results"


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Return size, modification time and inode, of which at least one changes with the file.

    Raises:
        OSError: The file does not exist or cannot be read, or it is a pipe, socket or device, whose
            reader could wait forever.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return status.st_size, status.st_mtime_ns, status.st_ino


class Importer:
    """Imports files into an archive. Outputs must be imported after the files of their sessions.

    Args:
        archive: The archive.
        archive_folder: Folder in which this computer records how far it has imported each file.
    """

    def __init__(self, archive: Archive, archive_folder: Path) -> None:
        self._archive = archive
        self._folder = archive_folder

    async def import_file(self, path: Path) -> Imported:
        """Archive the new messages of a file, and record how far it was read.

        Raises:
            ArchiveError: The archive failed. The next import continues where this one stopped.
        """
        outcome = Imported(path)
        try:
            stamp = await to_thread.run_sync(stamp_of, path)
            position = await self._import_changed(stamp, outcome)
        except (InvalidMessageError, SettingsError) as error:
            outcome.problem = str(error)
        except OSError as error:
            outcome.problem = f"Cannot read {path}: {error.strerror or error}."
        else:
            await to_thread.run_sync(_save_position, self._folder, path, position)
        return outcome

    async def _import_changed(self, stamp: tuple[int, int, int], outcome: Imported) -> _Position:
        path = outcome.path
        known = await to_thread.run_sync(_known_position, self._folder, path)
        is_extended = await to_thread.run_sync(_is_extended, path, known, stamp)
        if known and is_extended:
            position = replace(known, stamp=stamp)
        else:
            position = _Position(stamp, kind=await _kind_of_file(path))
        try:
            try:
                return await self._import(position, outcome)
            except NotFoundError:  # the session was deleted, so all its messages are new again
                return await self._import(_Position(stamp, kind=position.kind), outcome)
        except UnknownFormatError as error:
            outcome.is_conversation = False
            outcome.problem = str(error)
            return _Position(stamp, kind="none")

    async def _import(self, position: _Position, outcome: Imported) -> _Position:
        if position.kind in _FOLLOWED:
            return await self._follow(position, outcome)
        if position.kind == "export":
            await self._import_chats(chats_in_zip(outcome.path, outcome.notes.append), outcome)
            return position
        async with aiofiles.open(outcome.path, "rb") as file:
            data = await file.read()
        if position.kind == "output":
            await self._import_output(data, outcome)
        else:
            await self._import_completely(data, position, outcome)
        return position

    async def _import_output(self, data: bytes, outcome: Imported) -> None:
        path = outcome.path
        session_id = model.archive_id(path.parent.parent.name)
        # The name of the file is usually the ID of the call.
        blob = Blob(output_id_of(data), data, "text/plain", call_id=path.stem)
        await self._archive.commit(session_id, blobs=[blob])
        outcome.sessions.add(session_id)
        outcome.outputs += 1

    async def _import_completely(self, data: bytes, position: _Position, outcome: Imported) -> None:
        """Import a file of a host that is not followed, or any other conversation."""
        name = outcome.path.name
        if is_export(data):
            await self._import_chats(chats_in(data, outcome.notes.append), outcome)
            return
        batch = await to_thread.run_sync(lambda: lines_of_file(decompress(data, name)))
        kind = hosts.kind_of(batch.rows)
        if kind in hosts.HISTORY_READERS:
            start = replace(position, kind=kind, offset=0, line=0)
            content = await to_thread.run_sync(_content_of, batch, start, outcome.path)
            await self._append(content.pieces, {}, outcome)
            await self._add_extra_texts(content, outcome)
            return
        conversation = await to_thread.run_sync(partial(read_conversation, data, name=name))
        # Imported here because it loads the whole library, which takes too long for a hook.
        from context_compaction import append_to_session

        session_id, result = await append_to_session(
            conversation.messages,
            format=conversation.format,
            named=conversation.session_id,
            archive=self._archive,
        )
        outcome.sessions.add(session_id)
        outcome.written += result.written
        outcome.notes += conversation.notes
        await add_texts(self._archive, session_id, conversation.extra_texts)

    async def _import_chats(self, chats: Iterator[Chat], outcome: Imported) -> None:
        """Import exported chats, each as a session. Branches that the user left come first."""
        while (chat := await to_thread.run_sync(next, chats, None)) is not None:
            session_id = model.archive_id(chat.name)
            branches = [tuple(starmap(model.Entry, branch)) for branch in chat.branches]
            try:
                pieces = [
                    _piece(
                        model.Session(kind="export", format=_CHAT_FORMAT, entries=branch),
                        session_id,
                        outcome.notes,
                    )
                    for branch in branches
                ]
                await self._append(pieces, {}, outcome)
            except InvalidMessageError as error:
                outcome.notes.append(f"The chat {chat.title!r} was skipped: {error}")
                continue
            if chat.title:
                titles = [("custom-title", chat.title)]
                await add_texts(self._archive, session_id, titles)

    async def _follow(self, position: _Position, outcome: Imported) -> _Position:
        """Import a file of lines from `position`, and return where its settled part ends.

        Messages after that point are archived as well, and read again when the file has grown.
        """
        path = outcome.path
        batch_bytes = BATCH_BYTES
        while True:
            batch = await _read_batch(path, position, batch_bytes)
            if position.offset and hosts.needs_earlier_rows(batch.rows, position.kind):
                position, batch_bytes = _Position(position.stamp, kind=position.kind), -1
                continue
            content = await to_thread.run_sync(_content_of, batch, position, path)
            settled, open_pieces = _split(content.pieces, content.open_line)
            heads = await self._append(settled, position.heads, outcome)
            if batch.at_end:
                await self._append(open_pieces, heads, outcome)
            await self._add_extra_texts(content, outcome)
            offset, line = batch.end
            if content.open_line:
                offset, line = batch.offsets[content.open_line], content.open_line - 1
            if offset == position.offset:  # one message is longer than the batch
                batch_bytes *= 2
            crc = await to_thread.run_sync(_crc_before, path, offset)
            position = _Position(
                position.stamp, position.kind, content.session_id, offset, line, crc, heads
            )
            if batch.at_end:
                return position

    async def _append(
        self, pieces: Sequence[_Piece], heads: Mapping[str, str], outcome: Imported
    ) -> dict[str, str]:
        """Append each piece to its session, and return the branch head of each session."""
        new_heads = dict(heads)
        for piece in pieces:
            parent = piece.history.parent_session_id
            result = await self._archive.append(
                piece.session_id,
                piece.messages,
                format=piece.history.format,
                parent_session_id=parent and model.archive_id(parent),
                after="" if piece.is_new_start else new_heads.get(piece.session_id, ""),
            )
            new_heads[piece.session_id] = result.head
            outcome.sessions.add(piece.session_id)
            outcome.written += result.written
        return new_heads

    async def _add_extra_texts(self, content: _Content, outcome: Imported) -> None:
        session_id = content.session_id or model.archive_id(outcome.path.stem)
        if session_id in outcome.sessions:
            await add_texts(self._archive, session_id, content.extra_texts)
        outcome.notes += [note for note in content.notes if note not in outcome.notes]


async def add_texts(archive: Archive, session_id: str, texts: Sequence[tuple[str, str]]) -> None:
    """Store texts that are not messages, with their types, as outputs of a session."""
    if not texts:
        return
    info = await archive.session_info(session_id)
    blobs: list[Blob] = []
    for kind, text in texts:
        data = text.encode("utf-8", "surrogatepass")
        tool = TITLE_TOOL if kind == "custom-title" else kind
        blobs.append(Blob(output_id_of(data), data, "text/plain", tool, seq=info.next_seq - 1))
    await archive.commit(session_id, blobs=blobs)


def _position_file(archive_folder: Path, path: Path) -> Path:
    key = blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return archive_folder / "imports" / key[:2] / f"{key}.json"


def _known_position(archive_folder: Path, path: Path) -> _Position | None:
    """Return how far a file was imported; None if that is unknown."""
    try:
        fields = json.loads(_position_file(archive_folder, path).read_bytes())
        return _Position(**fields | {"stamp": tuple(fields["stamp"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _save_position(archive_folder: Path, path: Path, position: _Position) -> None:
    file = _position_file(archive_folder, path)
    try:
        make_folder(file.parent)
        put_file(file, json.dumps(asdict(position)).encode("ascii"))
    except OSError as error:
        raise ArchiveError(f"Cannot write {file}: {error.strerror}.") from error


def _is_extended(path: Path, known: _Position | None, stamp: tuple[int, int, int]) -> bool:
    """Whether the file still begins with the part that was imported."""
    if not known or not known.offset or known.stamp[2] != stamp[2] or stamp[0] < known.offset:
        return False
    return _crc_before(path, known.offset) == known.tail_crc


def _crc_before(path: Path, offset: int) -> int:
    length = min(offset, _CHECKED_BYTES)
    with path.open("rb") as file:
        file.seek(offset - length)
        return zlib.crc32(file.read(length))


async def _kind_of_file(path: Path) -> str:
    """Return the host of a session file, found from its first lines; "messages" for other files."""
    if is_output(path):
        return "output"
    if await to_thread.run_sync(zipfile.is_zipfile, path):
        return "export"
    if path.suffix != ".jsonl":
        return "messages"
    start = _Position((0, 0, 0))
    batch = await _read_batch(path, start, _FIRST_BYTES)
    if hosts.kind_of(batch.rows) == "messages" and not batch.at_end:
        batch = await _read_batch(path, start, BATCH_BYTES)
    return hosts.kind_of(batch.rows)


async def _read_batch(path: Path, position: _Position, batch_bytes: int) -> model.Lines:
    """Read lines from `position`. A negative `batch_bytes` reads all lines."""
    async with aiofiles.open(path, "rb") as file:
        await file.seek(position.offset)
        data = await file.read(batch_bytes)
    at_end = batch_bytes < 0 or len(data) < batch_bytes
    read = partial(
        model.read_lines, data, offset=position.offset, line=position.line, at_end=at_end
    )
    return await to_thread.run_sync(read)


def _content_of(batch: model.Lines, position: _Position, path: Path) -> _Content:
    """Parse a batch, and find the first line that may still change.

    Only the session of the newest message can change, because the other sessions are complete.
    """
    histories = hosts.HISTORY_READERS[position.kind](batch.rows, position.offset == 0)
    named = (history.session_id for history in histories if not history.is_subagent)
    session_id = position.session_id or next(filter(None, named), None)
    session_id = session_id and model.archive_id(session_id)
    notes = list(batch.notes)
    pieces = [
        _piece(history, session_id or model.archive_id(path.stem), notes) for history in histories
    ]
    pieces = [piece for piece in pieces if piece.messages]
    if not pieces:
        return _Content(session_id, notes)
    live = [piece for piece in pieces if not piece.history.is_abandoned]
    newest = max(live or pieces, key=lambda piece: piece.lines[-1])
    count = hosts.settled_count(newest.messages)
    is_all_open = count == 0 and newest.is_new_start
    open_line = newest.history.start_line if is_all_open else newest.lines[count]
    entries = [entry for history in histories for entry in history.entries]
    texts = [*model.extra_texts(batch, entries)]
    if position.offset == 0:
        about = (o for row in batch.rows for o in (row.value, row.object("payload")))
        texts.append((HOST_TOOL, f"{position.kind} {model.first_text(about, 'cwd') or ''}"))
    return _Content(session_id, notes, pieces, open_line, texts)


def _piece(history: model.Session, session_id: str, notes: list[str]) -> _Piece:
    """Parse the messages of a history, and add new notes to `notes`."""
    entries, messages, new_notes = model.parse_entries(history.entries, history.format)
    notes += [note for note in new_notes if note not in notes]
    if history.is_subagent and history.session_id:
        session_id = model.archive_id(history.session_id)
    lines = tuple(entry.line or 0 for entry in entries)
    return _Piece(history, session_id, messages, lines, history.is_new_start)


def _split(pieces: Sequence[_Piece], line: int) -> tuple[list[_Piece], list[_Piece]]:
    """Separate messages that begin before `line`, and abandoned branches, from all others."""
    before: list[_Piece] = []
    after: list[_Piece] = []
    for piece in pieces:
        is_abandoned = piece.history.is_abandoned
        count = sum(is_abandoned or number < line for number in piece.lines)
        if count:
            before.append(replace(piece, messages=piece.messages[:count]))
        if count < len(piece.lines):
            is_new_start = piece.is_new_start and count == 0
            after.append(replace(piece, messages=piece.messages[count:], is_new_start=is_new_start))
    return before, after
