"""Taking session files into the archive, each from where the last import of it stopped.

Claude Code and Codex only ever add lines, so their files are followed: read in batches, and from
where they were settled when they have grown. Other files, compressed ones among them, are read as a
whole when they change; the archive recognises what it holds.

Claude Code keeps a large output beside the session's file, as `SESSION/tool-results/CALL.txt`, and
leaves a preview in it: such a file becomes an output of that session.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import aiofiles
from anyio import to_thread
from context_compaction.archive import Archive
from context_compaction.errors import (
    InvalidMessageError,
    NotFoundError,
    SettingsError,
    UnknownFormatError,
)
from context_compaction.formats.session_files.histories import READERS, needs_whole
from context_compaction.formats.session_files.hosts import kind_of
from context_compaction.formats.session_files.read import read_conversation
from context_compaction.messages.edits import Blob, output_id_of

from mcp_server_compaction.hosts.import_batches import (
    Batch,
    BatchPiece,
    batch_of,
    before,
    cut_batch,
    from_line,
    whole_batch,
)
from mcp_server_compaction.hosts.import_calls import Calls
from mcp_server_compaction.hosts.import_journal import (
    Journal,
    Position,
    resumable,
    stamp_of,
    tail_crc,
)

BATCH_BYTES = 8 * 1024 * 1024  # so that a file of any size is imported in bounded memory
_FIRST_BYTES = 64 * 1024  # nearly always enough to tell what sort of file it is
_FOLLOWED = ("claude-code", "codex")
_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")

Report = Callable[[int], None]


@dataclass(slots=True)
class Imported:
    """What became of one file.

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


async def import_file(
    archive: Archive, journal: Journal, calls: Calls, path: Path, *, report_bytes: Report
) -> Imported:
    """Archive what is new in a file, and note how far it was read.

    Args:
        archive: Where to.
        journal: What is known of the file.
        calls: Those of `archive`; one for a whole import.
        path: The file.
        report_bytes: Told of bytes read.

    Raises:
        ArchiveError: The archive fails; the next import goes on where this one stopped.
    """
    outcome = Imported(path)
    try:
        stamp = await to_thread.run_sync(stamp_of, path)
        position = await _import_changed(archive, journal, calls, stamp, outcome, report_bytes)
    except (InvalidMessageError, SettingsError) as error:
        outcome.problem = str(error)
    except OSError as error:
        outcome.problem = f"{path} cannot be read: {error.strerror or error}."
    else:
        await to_thread.run_sync(journal.save, path, position)
    return outcome


async def _import_changed(
    archive: Archive,
    journal: Journal,
    calls: Calls,
    stamp: tuple[int, int, int],
    outcome: Imported,
    report_bytes: Report,
) -> Position:
    path = outcome.path
    known = await to_thread.run_sync(journal.load, path)
    resumed = await to_thread.run_sync(resumable, path, known, stamp)
    position = replace(resumed, stamp=stamp) if resumed else Position(stamp)
    report_bytes(position.offset)
    try:
        if not resumed:
            position = Position(stamp, kind=await _kind_of_file(path))
        try:
            return await _import(archive, calls, position, outcome, report_bytes)
        except NotFoundError:  # the session was deleted since: all of it is new again
            fresh = Position(stamp, kind=position.kind)
            return await _import(archive, calls, fresh, outcome, report_bytes)
    except UnknownFormatError as error:
        outcome.is_conversation = False
        outcome.problem = str(error)
        return Position(stamp, kind="none")


def is_output(path: Path) -> bool:
    """Whether a host keeps one output of a tool in the file `path`."""
    return path.parent.name == "tool-results"


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
            found |= dict.fromkeys(filter(_may_be_session, inner))
    return list(found)


def _may_be_session(path: Path) -> bool:
    return path.name.endswith(_ENDINGS) or is_output(path)


def files_to_import(journal: Journal, paths: Sequence[Path]) -> list[Path]:
    """Those of `paths` that are not as they were at their last import."""

    def is_changed(path: Path) -> bool:
        known = journal.load(path)
        try:
            return known is None or known.stamp != stamp_of(path)
        except OSError:
            return True  # its import says what is wrong

    return [path for path in paths if is_changed(path)]


async def _kind_of_file(path: Path) -> str:
    """The sort of session file, found from its first lines; "messages" for all others."""
    if is_output(path):
        return "output"
    if path.suffix != ".jsonl":
        return "messages"
    start = Position((0, 0, 0))
    batch = await _read_batch(path, start, _FIRST_BYTES)
    if kind_of(batch.rows) == "messages" and not batch.at_end:
        batch = await _read_batch(path, start, BATCH_BYTES)
    return kind_of(batch.rows)


async def _import(
    archive: Archive, calls: Calls, position: Position, outcome: Imported, report_bytes: Report
) -> Position:
    if position.kind in _FOLLOWED:
        return await _follow(archive, position, outcome, report_bytes)
    async with aiofiles.open(outcome.path, "rb") as file:
        data = await file.read()
    if position.kind == "output":
        await _import_output(archive, calls, data, outcome)
    else:
        await _import_whole(archive, data, outcome, position)
    report_bytes(position.stamp[0])
    return position


async def _import_output(archive: Archive, calls: Calls, data: bytes, outcome: Imported) -> None:
    path = outcome.path
    session_id = path.parent.parent.name
    call = await calls.of_file(session_id, path.stem)
    blob = Blob(output_id_of(data), data, "text/plain", call.tool_name, call.call_id)
    await archive.commit(session_id, blobs=[blob])
    outcome.sessions.add(session_id)
    outcome.outputs += 1


async def _import_whole(
    archive: Archive, data: bytes, outcome: Imported, position: Position
) -> None:
    """A session file that is not followed, a plain list of messages, or any other conversation."""
    name = outcome.path.name
    batch = await to_thread.run_sync(whole_batch, data, name)
    kind = kind_of(batch.rows)
    if kind in READERS:
        whole = replace(position, kind=kind, offset=0, line=0)
        cut = await to_thread.run_sync(cut_batch, batch, whole, outcome.path)
        await _append(archive, cut.pieces, {}, outcome)
        outcome.notes += cut.notes
        return
    found = await to_thread.run_sync(partial(read_conversation, data, name=name))
    # Here and not above: it loads the whole library, which a hook has no time for.
    from context_compaction.session.load import append_to_session

    session_id, result = await append_to_session(
        found.messages, format=found.format, named=found.session_id, archive=archive
    )
    outcome.sessions.add(session_id)
    outcome.written += result.written
    outcome.notes += found.notes


async def _follow(
    archive: Archive, position: Position, outcome: Imported, report_bytes: Report
) -> Position:
    """Import a file of lines from `position` on; where it is settled now.

    What is settled is never read again. The rest is archived too, and read again when the file has
    grown.
    """
    batch_bytes = BATCH_BYTES
    while True:
        batch = await _read_batch(outcome.path, position, batch_bytes)
        if position.offset and position.kind == "codex" and needs_whole(batch.rows):
            position, batch_bytes = Position(position.stamp, kind=position.kind), -1
            continue
        before_batch = position.offset
        position = await _take(archive, batch, position, outcome)
        if batch.at_end:
            report_bytes(batch.end[0] - before_batch)
            return position
        report_bytes(position.offset - before_batch)
        if position.offset == before_batch:
            batch_bytes *= 2


async def _take(archive: Archive, batch: Batch, position: Position, outcome: Imported) -> Position:
    """Archive what is settled of a batch, at the file's end the rest too; where it is settled."""
    path = outcome.path
    cut = await to_thread.run_sync(cut_batch, batch, position, path)
    line = cut.settled_line
    offset, lines = (batch.offsets[line], line - 1) if line else batch.end
    heads = position.heads
    if offset > position.offset:
        heads = await _append(archive, before(cut.pieces, line), heads, outcome)
    if batch.at_end:
        await _append(archive, from_line(cut.pieces, line), heads, outcome)
    outcome.notes += [note for note in cut.notes if note not in outcome.notes]
    crc = await to_thread.run_sync(tail_crc, path, offset)
    return Position(position.stamp, position.kind, cut.session_id, offset, lines, crc, heads)


async def _read_batch(path: Path, position: Position, batch_bytes: int) -> Batch:
    async with aiofiles.open(path, "rb") as file:
        await file.seek(position.offset)
        data = await file.read(batch_bytes)
        at_end = batch_bytes < 0 or len(data) < batch_bytes
    return await to_thread.run_sync(batch_of, data, position, at_end)


async def _append(
    archive: Archive, pieces: Sequence[BatchPiece], before: Mapping[str, str], outcome: Imported
) -> dict[str, str]:
    """Append each piece after what its session holds; the histories that then end there."""
    heads = dict(before)
    for piece in pieces:
        result = await archive.append(
            piece.session_id,
            piece.messages,
            format=piece.history.format,
            parent_session_id=piece.history.parent_session_id,
            after="" if piece.begins_anew else heads.get(piece.session_id, ""),
        )
        heads[piece.session_id] = result.head
        outcome.sessions.add(piece.session_id)
        outcome.written += result.written
    return heads
