"""What a hook does that takes longer than a moment: store an output, archive a session.

The latter runs as a process of its own (`python -m`), told by its standard input what to do.
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio
from context_compaction.archive import Archive
from context_compaction.archive.opening import open_archive
from context_compaction.messages import placeholders
from context_compaction.messages.edits import make_blob
from context_compaction.redaction import REDACTION_MODES, RedactionMode
from context_compaction.settings import Settings

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.hook import HookCall, log_failure
from mcp_server_compaction.hosts.hook_events import as_list, as_object

# Cursor drops what has more than 10,000 characters, Claude Code puts it into a file.
_NOTES_CHARS = 8_000
_NOTES_TOKENS = 2_000
_NICENESS = 10


def store_output(call: HookCall, text: str) -> str:
    """Archive a tool's output; the marker that replaces it.

    Raises:
        ArchiveError: It could not be stored.
    """
    from context_compaction.layers.preview import preview

    tool_name = str(call.payload.get("tool_name") or "unknown")
    call_id = call.payload.get("tool_use_id")
    blob = make_blob(text, tool_name=tool_name, call_id=call_id and str(call_id))

    async def commit() -> None:
        async with open_archive(call.archive, redaction=_redaction(call)) as archive:
            await archive.commit(call.session_id, blobs=[blob])

    anyio.run(commit)
    shown = preview(text, max_chars=Settings().preview_chars)
    return placeholders.persisted([blob], shown, tool_name, len(text))


def _redaction(call: HookCall) -> RedactionMode:
    # The cautious reading of a word that means nothing.
    return call.redaction if call.redaction in REDACTION_MODES else "on"


async def archive_session(call: HookCall) -> None:
    """Archive what is new in a session, and where its context is about to go, make notes of it."""
    async with open_archive(call.archive, redaction=_redaction(call)) as archive:
        messages, format_name = await _take_in(call, archive)
    if not messages or call.kind not in {"compacting", "ending"}:
        return
    notes = await _notes(call, messages, format_name)
    path = call.state_file("notes.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    if notes:
        part = path.with_suffix(".part")
        part.write_text(notes, "utf-8")
        part.replace(path)
    if call.kind == "compacting":
        call.state_file("pending").touch()


async def _take_in(call: HookCall, archive: Archive) -> tuple[Sequence[Json], str]:
    """Archive the session; the messages of its context, and their format."""
    from context_compaction import formats

    from mcp_server_compaction.hosts.foreign_sessions import read_foreign

    path = call.payload.get("transcript_path")
    listed = read_foreign(call.host, call.payload)
    if listed is not None:
        if listed:
            parsed = formats.parse(listed, format="anthropic")
            await archive.append(call.session_id, parsed, format="anthropic")
        return listed, "anthropic"
    if not isinstance(path, str) or not await anyio.Path(path).is_file():
        return [], ""
    return await _import(call, archive, Path(path))


async def _import(call: HookCall, archive: Archive, path: Path) -> tuple[Sequence[Json], str]:
    from context_compaction.formats.session_files.read import read_conversation

    from mcp_server_compaction.hosts.import_calls import Calls
    from mcp_server_compaction.hosts.import_journal import Journal
    from mcp_server_compaction.hosts.importing import files_to_import, import_file, is_output

    # Claude Code keeps sub-agents and large outputs in a folder beside the session's file.
    beside = path.with_suffix("")
    found = [path, *sorted(beside.rglob("*.jsonl")), *sorted(beside.rglob("*.txt"))]
    journal = Journal(call.archive_folder)
    calls = Calls(archive)
    for file in sorted(files_to_import(journal, found), key=is_output):
        if file.suffix == ".jsonl" or is_output(file):
            outcome = await import_file(archive, journal, calls, file, report_bytes=lambda _: None)
            if outcome.problem:
                log_failure(call.archive_folder, f"{file}: {outcome.problem}")
    if call.kind not in {"compacting", "ending"}:
        return [], ""
    conversation = read_conversation(await anyio.Path(path).read_bytes(), name=path.name)
    sources = [message.source for message in conversation.messages]
    return sources, conversation.format


async def _notes(call: HookCall, messages: Sequence[Json], format_name: str) -> str:
    """The summary that replaces the whole session, made without a model.

    In an archive of its own, which goes away: the real one must not take it for a compaction.
    """
    from context_compaction import CompactRequest, compact

    request = CompactRequest(
        mode="full",
        format=format_name,
        session_id=call.session_id,
        target_tokens=_NOTES_TOKENS,
        summarizer="extractive",
    )
    with tempfile.TemporaryDirectory() as folder:
        async with open_archive(Path(folder), index_root=Path(folder, "index")) as archive:
            result = await compact(list(messages), request, archive=archive)
    for message in result.messages or ():
        for text in _texts(message):
            if text.startswith("<context_summary "):
                return text[:_NOTES_CHARS]
    return ""


def _texts(message: Json) -> list[str]:
    content = as_object(message).get("content")
    if isinstance(content, str):
        return [content]
    blocks = as_list(content) or [message]
    texts = [as_object(block).get("text") for block in blocks]
    return [text for text in texts if isinstance(text, str)]


def main() -> None:
    """Do what standard input asks for; whatever fails is logged."""
    job = json.load(sys.stdin)
    folder = Path(job["archive_folder"])
    call = HookCall(
        job["event"],
        job["host"],
        folder,
        job["redaction"],
        job["payload"],
        job.get("archive_address"),
    )
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    try:
        anyio.run(archive_session, call)
    except Exception as error:  # noqa: BLE001 - nobody waits for this process: the log says it
        log_failure(folder, f"{call.host} {call.event}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
