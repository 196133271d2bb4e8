"""Taking session files into the archive, each from where the last import of it stopped.

Claude Code and Codex only ever add lines, so their files are followed: read in batches, and from
where they were settled when they have grown. Other files, compressed ones among them, are read as a
whole when they change; the archive recognises what it holds.

A host writes one message in several lines, and a result long after its call. So the end of a file
may still change. The line from which it may is where the next reading begins.

Claude Code keeps a large output beside the session's file, as `SESSION/tool-results/CALL.txt`, and
leaves a preview in it: such a file becomes an output of that session.
"""

import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import blake2b
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
    parse,
    put_file,
    read_conversation,
    text_of,
    tool_calls,
    tool_results,
)
from context_compaction.archive.documents import TITLE_TOOL
from context_compaction.formats.session_files.hosts import (
    HISTORY_READERS,
    kind_of,
    needs_whole_file,
    settled_count,
)
from context_compaction.formats.session_files.model import SessionHistory, archive_id
from context_compaction.formats.session_files.odd_messages import extra_texts, parse_entries
from context_compaction.formats.session_files.read import decompress, whole_file
from context_compaction.formats.session_files.rows import Lines, read_lines

BATCH_BYTES = 8 * 1024 * 1024  # so that a file of any size is imported in bounded memory
_FIRST_BYTES = 64 * 1024  # nearly always enough to tell the sort of file
_TAIL_BYTES = 4_096  # compared to tell a file that grew from one that was written again
_READ_MESSAGES = 500
_FOLLOWED = ("claude-code", "codex")
_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".jsonl.zst")
# The name that the result of a call gives to the file of its output.
_SAVED_AS = re.compile(r"tool-results[/\\]([\w.-]+)\.txt")


@dataclass(slots=True)
class Imported:
    """The result for one file.

    Attributes:
        path: The file.
        sessions: The sessions that it holds messages of, as far as they were read.
        written: Messages that the archive did not hold yet.
        outputs: Outputs that were stored; one may have been there already.
        notes: What was left out, for people.
        problem: Why nothing, or not all, was taken.
        is_conversation: Whether it holds one at all.
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
    """How far a file has been imported. Losing it costs a second reading and nothing else.

    Attributes:
        stamp: Size, time stamp and inode that the file had.
        kind: The sort of session file, "messages", "output", or "none" without a conversation.
        session_id: The session that the file names first.
        offset: Byte from which the next import reads; 0 where it reads the whole file again.
        line: Lines before it.
        tail_crc: CRC-32 of the bytes just before `offset`.
        heads: By session, the head of the history that ends there.
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
    """Messages that go to one session in one call, and the line of each."""

    history: SessionHistory
    session_id: str
    messages: tuple[Message, ...]
    lines: tuple[int, ...]
    begins_anew: bool


@dataclass(frozen=True, slots=True)
class _Cut:
    """The content of a batch.

    Attributes:
        pieces: By session and history, in order.
        session_id: The session that the file names first, as far as it names one.
        settled_line: What begins at this line or later may still change; 0 where nothing may.
        notes: What was left out.
        asides: The words of its rows that are no messages.
    """

    pieces: list[_Piece]
    session_id: str | None
    settled_line: int
    notes: list[str]
    asides: tuple[tuple[str, str], ...] = ()


def session_files(paths: Sequence[Path], archive_folder: Path) -> list[Path]:
    """The files named, and in folders those that may hold a conversation; each once, in order."""
    found: dict[Path, None] = {}
    for path in map(Path.absolute, paths):
        if not path.is_dir():
            found[path] = None
            continue
        for folder, folders, names in os.walk(path):
            if Path(folder) == archive_folder:
                folders.clear()
                continue
            folders.sort()
            inner = [Path(folder, name) for name in sorted(names)]
            found |= dict.fromkeys(
                file for file in inner if file.name.endswith(_ENDINGS) or is_output(file)
            )
    return list(found)


def files_to_import(archive_folder: Path, paths: Sequence[Path]) -> list[Path]:
    """Those of `paths` that are not as they were at their last import; outputs come last."""

    def is_changed(path: Path) -> bool:
        known = _known_position(archive_folder, path)
        try:
            return known is None or known.stamp != stamp_of(path)
        except OSError:
            return True  # its import reports the problem

    return sorted(filter(is_changed, paths), key=is_output)


def is_output(path: Path) -> bool:
    """Whether a host keeps one output of a tool in the file `path`."""
    return path.parent.name == "tool-results"


def stamp_of(path: Path) -> tuple[int, int, int]:
    """Size, time stamp and inode: one of them changes when the file does.

    Raises:
        OSError: The file is gone or may not be read, or it is a pipe, socket or device: one of
            those keeps its reader waiting, or has no end.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return found.st_size, found.st_mtime_ns, found.st_ino


class Importer:
    """One run of imports into an archive; outputs are imported after the sessions they belong to.

    Args:
        archive: Where to.
        archive_folder: Where this machine notes how far it has imported its files.
    """

    def __init__(self, archive: Archive, archive_folder: Path) -> None:
        self._archive = archive
        self._folder = archive_folder
        self._calls_session = ""
        self._calls: dict[str, tuple[str, str | None]] = {}

    async def import_file(self, path: Path) -> Imported:
        """Archive what is new in a file, and note how far it was read.

        Raises:
            ArchiveError: The archive fails; the next import goes on where this one stopped.
        """
        outcome = Imported(path)
        try:
            stamp = await to_thread.run_sync(stamp_of, path)
            position = await self._import_changed(stamp, outcome)
        except (InvalidMessageError, SettingsError) as error:
            outcome.problem = str(error)
        except OSError as error:
            outcome.problem = f"{path} cannot be read: {error.strerror or error}."
        else:
            await to_thread.run_sync(_save_position, self._folder, path, position)
        return outcome

    async def _import_changed(self, stamp: tuple[int, int, int], outcome: Imported) -> _Position:
        path = outcome.path
        known = await to_thread.run_sync(_known_position, self._folder, path)
        resumed = await to_thread.run_sync(_resumable, path, known, stamp)
        try:
            if resumed:
                position = replace(resumed, stamp=stamp)
            else:
                position = _Position(stamp, kind=await _kind_of_file(path))
            try:
                return await self._import(position, outcome)
            except NotFoundError:  # the session was deleted since: all of it is new again
                return await self._import(_Position(stamp, kind=position.kind), outcome)
        except UnknownFormatError as error:
            outcome.is_conversation = False
            outcome.problem = str(error)
            return _Position(stamp, kind="none")

    async def _import(self, position: _Position, outcome: Imported) -> _Position:
        if position.kind in _FOLLOWED:
            return await self._follow(position, outcome)
        async with aiofiles.open(outcome.path, "rb") as file:
            data = await file.read()
        if position.kind == "output":
            await self._import_output(data, outcome)
        else:
            await self._import_whole(data, outcome, position)
        return position

    async def _import_output(self, data: bytes, outcome: Imported) -> None:
        path = outcome.path
        session_id = archive_id(path.parent.parent.name)
        if session_id != self._calls_session:
            self._calls = await self._calls_of(session_id)
            self._calls_session = session_id
        call_id, tool_name = self._calls.get(path.stem, (path.stem, None))
        blob = Blob(output_id_of(data), data, "text/plain", tool_name, call_id)
        await self._archive.commit(session_id, blobs=[blob])
        outcome.sessions.add(session_id)
        outcome.outputs += 1

    async def _calls_of(self, session_id: str) -> dict[str, tuple[str, str | None]]:
        """Call id and tool of a session's outputs, by the names that their files may have.

        Such a file is named after its call, or by a name that the call's result gives.
        """
        tools: dict[str, str] = {}
        names: dict[str, str] = {}
        start = 0
        while True:
            try:
                found = await self._archive.read_messages(
                    session_id, start, start + _READ_MESSAGES - 1
                )
            except NotFoundError:  # its messages were not imported
                break
            if not found:
                break
            start = found[-1].seq + 1
            for archived in found:
                try:
                    [message] = parse([archived.raw], format=archived.format)
                except InvalidMessageError:  # damaged input is archived too
                    continue
                tools |= {call.call_id: call.name for call in tool_calls(message)}
                for result in tool_results(message):
                    saved = _SAVED_AS.findall(text_of(result.content))
                    names |= dict.fromkeys(saved, result.call_id)
        names |= {call_id: call_id for call_id in tools}
        return {name: (call_id, tools.get(call_id)) for name, call_id in names.items()}

    async def _import_whole(self, data: bytes, outcome: Imported, position: _Position) -> None:
        """A session file that is not followed, a list of messages, or any other conversation."""
        name = outcome.path.name
        batch = await to_thread.run_sync(lambda: whole_file(decompress(data, name)))
        kind = kind_of(batch.rows)
        if kind in HISTORY_READERS:
            whole = replace(position, kind=kind, offset=0, line=0)
            cut = await to_thread.run_sync(_cut, batch, whole, outcome.path)
            await self._append(cut.pieces, {}, outcome)
            await self._add_asides(
                cut.session_id or archive_id(outcome.path.stem), cut.asides, outcome
            )
            outcome.notes += cut.notes
            return
        found = await to_thread.run_sync(partial(read_conversation, data, name=name))
        # Here and not above: it loads the whole library, which a hook has no time for.
        from context_compaction import append_to_session

        session_id, result = await append_to_session(
            found.messages, format=found.format, named=found.session_id, archive=self._archive
        )
        outcome.sessions.add(session_id)
        outcome.written += result.written
        await self._add_asides(session_id, found.extra_texts, outcome)
        outcome.notes += found.notes

    async def _follow(self, position: _Position, outcome: Imported) -> _Position:
        """Import a file of lines from `position` on; where it is settled now.

        What is settled is never read again. The rest is archived too, and read again when the file
        has grown.
        """
        batch_bytes = BATCH_BYTES
        while True:
            batch = await _read_batch(outcome.path, position, batch_bytes)
            if position.offset and needs_whole_file(batch.rows, position.kind):
                position, batch_bytes = _Position(position.stamp, kind=position.kind), -1
                continue
            offset_before = position.offset
            position = await self._take(batch, position, outcome)
            if batch.at_end:
                return position
            if position.offset == offset_before:
                batch_bytes *= 2

    async def _take(self, batch: Lines, position: _Position, outcome: Imported) -> _Position:
        """Archive what is settled of a batch, at the file's end the rest too."""
        path = outcome.path
        cut = await to_thread.run_sync(_cut, batch, position, path)
        line = cut.settled_line
        settled, rest = _split(cut.pieces, line)
        offset, lines = (batch.offsets[line], line - 1) if line else batch.end
        heads = position.heads
        heads = await self._append(settled, heads, outcome)
        if batch.at_end:
            await self._append(rest, heads, outcome)
        await self._add_asides(cut.session_id or archive_id(path.stem), cut.asides, outcome)
        outcome.notes += [note for note in cut.notes if note not in outcome.notes]
        crc = await to_thread.run_sync(_tail_crc, path, offset)
        return _Position(position.stamp, position.kind, cut.session_id, offset, lines, crc, heads)

    async def _add_asides(
        self, session_id: str, asides: Sequence[tuple[str, str]], outcome: Imported
    ) -> None:
        """Store what a file says beside its messages, as outputs of its session."""
        if session_id in outcome.sessions:
            await add_texts(self._archive, session_id, asides)

    async def _append(
        self, pieces: Sequence[_Piece], before: Mapping[str, str], outcome: Imported
    ) -> dict[str, str]:
        """Append each piece after what its session holds; the heads that its session then has."""
        heads = dict(before)
        for piece in pieces:
            parent = piece.history.parent_session_id
            result = await self._archive.append(
                piece.session_id,
                piece.messages,
                format=piece.history.format,
                parent_session_id=parent and archive_id(parent),
                after="" if piece.begins_anew else heads.get(piece.session_id, ""),
            )
            heads[piece.session_id] = result.head
            outcome.sessions.add(piece.session_id)
            outcome.written += result.written
        return heads


async def add_texts(archive: Archive, session_id: str, texts: Sequence[tuple[str, str]]) -> None:
    """Store texts that are no messages, each with its type, as outputs of their session."""
    if texts:
        info = await archive.session_info(session_id)
        blobs = [_aside(*text, info.message_count - 1) for text in texts]
        await archive.commit(session_id, blobs=blobs)


def _place_of_position(archive_folder: Path, path: Path) -> Path:
    key = blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return archive_folder / "imports" / key[:2] / f"{key}.json"


def _known_position(archive_folder: Path, path: Path) -> _Position | None:
    """How far `path` was imported; None where that is unknown."""
    try:
        found = json.loads(_place_of_position(archive_folder, path).read_bytes())
        return _Position(**found | {"stamp": tuple(found["stamp"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _save_position(archive_folder: Path, path: Path, position: _Position) -> None:
    place = _place_of_position(archive_folder, path)
    try:
        make_folder(place.parent)
        put_file(place, json.dumps(asdict(position)).encode("ascii"))
    except OSError as error:
        raise ArchiveError(f"{place} cannot be written: {error.strerror}.") from error


def _resumable(
    path: Path, known: _Position | None, stamp: tuple[int, int, int]
) -> _Position | None:
    """`known`, if the file still begins with what was imported."""
    if known is None or not known.offset or known.stamp[2] != stamp[2] or stamp[0] < known.offset:
        return None
    return known if _tail_crc(path, known.offset) == known.tail_crc else None


def _tail_crc(path: Path, offset: int) -> int:
    length = min(offset, _TAIL_BYTES)
    with path.open("rb") as file:
        file.seek(offset - length)
        return zlib.crc32(file.read(length))


async def _kind_of_file(path: Path) -> str:
    """The sort of session file, found from its first lines; "messages" for all others."""
    if is_output(path):
        return "output"
    if path.suffix != ".jsonl":
        return "messages"
    start = _Position((0, 0, 0))
    batch = await _read_batch(path, start, _FIRST_BYTES)
    if kind_of(batch.rows) == "messages" and not batch.at_end:
        batch = await _read_batch(path, start, BATCH_BYTES)
    return kind_of(batch.rows)


async def _read_batch(path: Path, position: _Position, batch_bytes: int) -> Lines:
    async with aiofiles.open(path, "rb") as file:
        await file.seek(position.offset)
        data = await file.read(batch_bytes)
        at_end = batch_bytes < 0 or len(data) < batch_bytes
    read = partial(read_lines, data, offset=position.offset, line=position.line, at_end=at_end)
    return await to_thread.run_sync(read)


def _cut(batch: Lines, position: _Position, path: Path) -> _Cut:
    """The content of a batch, and from where it may still change.

    The session that spoke last decides: the others have been written to the end.
    """
    histories = HISTORY_READERS[position.kind](batch.rows, position.offset == 0)
    named = (item.session_id for item in histories if not item.is_subagent)
    session_id = position.session_id or next(filter(None, named), None)
    session_id = session_id and archive_id(session_id)
    notes = list(batch.notes)
    pieces = [_piece(history, session_id or archive_id(path.stem), notes) for history in histories]
    pieces = [piece for piece in pieces if piece.messages]
    if not pieces:
        return _Cut([], session_id, 0, notes)
    live = [piece for piece in pieces if not piece.history.is_abandoned]
    last = max(live or pieces, key=lambda piece: piece.lines[-1])
    settled = settled_count(last.messages)
    is_all_open = settled == 0 and last.begins_anew
    line = last.history.start_line if is_all_open else last.lines[settled]
    entries = [entry for history in histories for entry in history.entries]
    return _Cut(pieces, session_id, line, notes, extra_texts(batch, entries))


def _aside(kind: str, text: str, seq: int) -> Blob:
    data = text.encode("utf-8", "surrogatepass")
    tool = TITLE_TOOL if kind == "custom-title" else kind
    return Blob(output_id_of(data), data, "text/plain", tool, seq=seq)


def _piece(history: SessionHistory, session_id: str, notes: list[str]) -> _Piece:
    """The messages of a history."""
    entries, messages, found = parse_entries(history.entries, history.format)
    notes += [note for note in found if note not in notes]
    own_session = history.session_id if history.is_subagent else None
    lines = tuple(entry.line or 0 for entry in entries)
    name = archive_id(own_session) if own_session else session_id
    return _Piece(history, name, messages, lines, history.is_new_start)


def _split(pieces: Sequence[_Piece], line: int) -> tuple[list[_Piece], list[_Piece]]:
    """The messages that begin before `line`, and those that go on after them; all for 0."""
    settled: list[_Piece] = []
    rest: list[_Piece] = []
    for piece in pieces:
        is_settled = not line or piece.history.is_abandoned
        count = sum(is_settled or number < line for number in piece.lines)
        if count:
            settled.append(replace(piece, messages=piece.messages[:count]))
        if count < len(piece.lines):
            begins_anew = piece.begins_anew and count == 0
            rest.append(replace(piece, messages=piece.messages[count:], begins_anew=begins_anew))
    return settled, rest
