"""The command `hook EVENT`, which hosts run. It never blocks or fails the host.

It reads an event from standard input, and writes an answer or nothing. Failures are written to the
log in the archive folder. Longer work runs in a second process, for which the host does not wait.
A host runs a hook for every tool call, so only the standard library is imported at the start.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mcp_server_compaction.hosts import Json, hook_events
from mcp_server_compaction.program import ARCHIVE_VARIABLE, archive_place

if TYPE_CHECKING:
    from context_compaction import Archive, Conversation, RedactionMode

_LOG_BYTES = 1_000_000
# Hosts write the size of the context within this many bytes of a transcript's end.
_TAIL_BYTES = 256 * 1024
_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
# A row that Claude Code or Codex writes when it compacts a session.
_BOUNDARY = re.compile(rb'"subtype": ?"compact_boundary"|"type": ?"compacted"')
# Claude Code saves at most this much of an output.
_OUTPUT_BYTES = 64 * 1024 * 1024
# Models of Claude have this context window, or one of five times this size.
_WINDOW_TOKENS = 200_000
# Hosts compact at about five sixths of the window. The model gets a warning before that.
_NEARLY_FULL = 0.7
# Cursor drops texts above 10,000 characters, and Claude Code moves them into a file.
_NOTES_CHARS = 8_000


@dataclass(frozen=True, slots=True)
class HookCall:
    """One run of a hook.

    Attributes:
        event: Name of the event in the host.
        host: Name of the host.
        archive_folder: Folder of the archive, or folder for local files of a remote archive.
        redaction: How secrets are treated: "off", "warn" or "on".
        payload: The event as the host sent it.
        session_id: ID of the archived session: the host's ID, or the ID of the session that
            `resume` continued.
        archive_address: Address of a remote archive; None if the archive is a folder.
    """

    event: str
    host: str
    archive_folder: Path
    redaction: str
    payload: Mapping[str, Json]
    session_id: str
    archive_address: str | None = field(default=None, repr=False)

    @property
    def transcript(self) -> Path:
        """Path of the host's session file; the null device if the event has none."""
        return Path(str(self.payload.get("transcript_path") or os.devnull))

    @property
    def kind(self) -> hook_events.Kind | None:
        """Kind of the event; None if the event needs no action."""
        return hook_events.KINDS[self.host].get(self.event)

    def state_file(self, name: str) -> Path:
        """Return a file that stores state of this session; it is deleted with the session."""
        key = hashlib.blake2b(
            self.session_id.encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        return self.archive_folder / "hooks" / key / name

    def opened(self) -> "contextlib.AbstractAsyncContextManager[Archive]":
        """Open the archive for the block of an `async with` statement."""
        from context_compaction import REDACTION_MODES, open_archive

        # An unknown mode is treated as "on", which is the safest.
        mode: RedactionMode = self.redaction if self.redaction in REDACTION_MODES else "on"
        return open_archive(self.archive_address or self.archive_folder, redaction=mode)


def run_hook(arguments: Sequence[str]) -> None:
    """Answer one event of a host. This function never raises an exception."""
    folder: Path | None = None
    try:
        options = _parser().parse_args(arguments)
        folder, address = archive_place(options.archive or os.environ.get(ARCHIVE_VARIABLE))
        payload = _payload_of(sys.stdin.buffer.read() or b"{}")
        session_id = _resumed_id(options.host, payload) or hook_events.session_id_of(payload)
        call = HookCall(
            options.event, options.host, folder, options.redaction, payload, session_id, address
        )
        if call.kind is None or not session_id or hook_events.runs_in_cursor(call.host, payload):
            return
        if options.is_background:
            import anyio

            anyio.run(_archive, call)
            return
        if call.kind in {"compacting", "archive", "ending"}:
            _start_background(arguments, payload)
        answer = _answer_to(call)
        if answer is not None:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    # Every failure is caught, because the host must continue as if there were no hook.
    except Exception as error:  # noqa: BLE001
        _log(folder, f"{' '.join(arguments)}: {type(error).__name__}: {error}")


def _payload_of(data: bytes) -> Json:
    try:
        return json.loads(data)
    except ValueError:  # a byte that is not UTF-8, or a very long number
        from context_compaction import decode_json

        return decode_json(data.decode("utf-8", "replace"))


def _resumed_id(host: str, payload: Mapping[str, Json]) -> str | None:
    """Return the ID of the archived session that `resume` continued; None if no session was."""
    path = Path(str(payload.get("transcript_path") or os.devnull))
    if host == "opencode":  # its database has no mark, but the imported file still exists
        path = _sessions_folder(host) / f"{hook_events.session_id_of(payload)}.json"
    return hook_events.archived_id_in(path)


def _sessions_folder(host: str) -> Path:
    from mcp_server_compaction.hosts.catalog import this_user
    from mcp_server_compaction.hosts.session_files import sessions_folder

    return sessions_folder(host, this_user())


class _QuietParser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing them, because hosts may show the output."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _QuietParser(add_help=False)
    parser.add_argument("event")
    parser.add_argument("--host", default="claude-code", choices=tuple(hook_events.KINDS))
    parser.add_argument("--archive")
    parser.add_argument("--redaction", default=os.environ.get("MCP_COMPACTION_REDACTION") or "warn")
    parser.add_argument("--background", dest="is_background", action="store_true")
    return parser


def _start_background(arguments: Sequence[str], payload: Json) -> None:
    """Start a second process that archives the transcript and outlives this process."""
    import subprocess
    import tempfile

    from context_compaction.system import without_window

    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(payload).encode("utf-8"))
        file.seek(0)
        subprocess.Popen(  # noqa: S603 - this program, with the arguments of the host
            [sys.executable, "-m", "mcp_server_compaction", "hook", *arguments, "--background"],
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **without_window(),
        )


def _answer_to(call: HookCall) -> Json:
    """Return the answer to the host; None if it needs no answer."""
    if call.kind == "tool":
        full_output = _full_output(call)
        store = partial(_store_output, call, is_full=full_output is not None)
        return hook_events.shortened_result(call.host, call.payload, store, full_output)
    source = call.payload.get("source")
    text = ""
    if call.kind == "prompt":
        text = _note_before_prompt(call)
    elif call.kind == "start" and source in {"compact", "resume", "fork"}:
        text = _reminder(call) if source == "compact" or _was_compacted(call) else ""
    elif call.kind == "compacting" and call.host == "opencode":
        text = _reminder(call)
    return hook_events.added_context(call.host, call.event, text) if text else None


def _full_output(call: HookCall) -> str | None:
    """Return the content of the file in which the host saved a tool's full output.

    None if the file is outside the host's own folder, because the path may come from a tool.
    """
    named = hook_events.full_output_file(call.host, call.payload)
    if not named:
        return None
    root = _sessions_folder(call.host)
    folder = (root.parent if call.host == "opencode" else root).resolve()
    path = Path(named).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(_OUTPUT_BYTES + 1)
    return data.decode("utf-8", "replace") if len(data) <= _OUTPUT_BYTES else None


def _store_output(call: HookCall, text: str, is_numbered: bool, *, is_full: bool) -> str:
    """Archive a tool's output, and return the marker that replaces it.

    If the host numbers the lines, the first lines are kept before the marker, so that each line
    has its correct number.
    """
    import anyio
    from context_compaction import Settings, is_cut, make_blob, persisted, preview, redact

    tool_name = str(call.payload.get("tool_name") or "unknown")
    call_id = call.payload.get("tool_use_id")
    blob = make_blob(text, tool_name=tool_name, call_id=call_id and str(call_id))

    async def commit() -> str:
        async with call.opened() as archive:
            await archive.commit(call.session_id, blobs=[blob])
            return redact(text) if archive.redaction == "on" else text

    safe_text = anyio.run(commit)
    preview_chars = Settings().preview_chars
    if is_numbered:
        head = safe_text[:preview_chars].rpartition("\n")[0] or safe_text[:preview_chars]
        shown = f"The first {len(head)} characters are above."
        return f"{head}\n{persisted([blob], shown, tool_name, len(text))}"
    stored = "Full text"
    if not is_full and (is_cut(text) or hook_events.full_output_file(call.host, call.payload)):
        stored = "Text as truncated by the host (the rest was not passed on)"
    shown = preview(safe_text, max_chars=preview_chars)
    return persisted([blob], shown, tool_name, len(text), stored=stored)


def _reminder(call: HookCall) -> str:
    """Return the text for a model whose context was compacted or contains a resumed session."""
    pointer = (
        f'This session is archived as session_id "{call.session_id}". Before you ask the user '
        "again or repeat work, search it with search_transcript and read originals with "
        "read_persisted_output."
    )
    with contextlib.suppress(OSError):
        notes = call.state_file("notes.md").read_text("utf-8")
        return f"{pointer}\n\nNotes from the archived session:\n{notes}"
    return pointer


def _note_before_prompt(call: HookCall) -> str:
    """Return a text for the model to read before the user's prompt; empty if none is needed."""
    pending = call.state_file("pending")
    if call.host in hook_events.NOTES_AT_PROMPT and pending.exists():
        pending.unlink()
        return _reminder(call)
    used_tokens, window_tokens = _context_size(call.transcript)
    hinted = call.state_file("hinted")
    if used_tokens < window_tokens * _NEARLY_FULL:
        hinted.unlink(missing_ok=True)
        return ""
    if hinted.exists():
        return ""
    hinted.parent.mkdir(parents=True, exist_ok=True)
    hinted.touch()
    return (
        f"The context holds about {used_tokens // 1_000}K of {window_tokens // 1_000}K tokens and "
        "will be compacted soon. Finish the current step and list what is still open. Everything "
        f'stays searchable: search_transcript with session_id "{call.session_id}".'
    )


def _was_compacted(call: HookCall) -> bool:
    """Whether a part of the session is no longer in the host's context."""
    if call.state_file("compacted").exists() or call.session_id != hook_events.session_id_of(
        call.payload
    ):
        return True
    if not call.transcript.is_file():
        return False
    with call.transcript.open("rb") as file:
        return any(map(_BOUNDARY.search, file))


def _context_size(path: Path) -> tuple[int, int]:
    """Return the tokens in the context and in its window, from the newest count in a transcript.

    Claude Code writes the API's usage with each response, Codex writes its own count. Counts
    before a compaction are ignored. Without any count the context is assumed to be empty.
    """
    if not path.is_file():  # reading a pipe could wait forever
        return 0, _WINDOW_TOKENS
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        lines = file.read().splitlines()
    for line in reversed(lines):
        if _BOUNDARY.search(line):
            break
        try:
            row = hook_events.as_object(json.loads(line))
        except (ValueError, RecursionError):  # the tail begins within a line
            continue
        info = hook_events.as_object(hook_events.as_object(row.get("payload")).get("info"))
        window = info.get("model_context_window")
        used = hook_events.as_object(info.get("last_token_usage")).get("total_tokens")
        if isinstance(used, int) and isinstance(window, int):
            return used, window
        message = hook_events.as_object(row.get("message"))
        counts = [hook_events.as_object(message.get("usage")).get(name) for name in _USAGE]
        used = sum(count for count in counts if isinstance(count, int))
        if used and not row.get("isSidechain"):
            is_long = "[1m]" in str(message.get("model")) or used > _WINDOW_TOKENS
            return used, 5 * _WINDOW_TOKENS if is_long else _WINDOW_TOKENS
    return 0, _WINDOW_TOKENS


async def _archive(call: HookCall) -> None:
    """Archive new messages of a session, and write notes before its context is lost."""
    from context_compaction import make_folder, put_file, session_notes

    if hasattr(os, "nice"):
        os.nice(10)
    async with call.opened() as archive:
        if call.host in {"claude-code", "codex"}:
            conversation = await _archive_transcript(call, archive)
        else:
            conversation = await _archive_chat(call, archive)
        if conversation is None or not conversation.messages:
            return
        if call.kind not in {"compacting", "ending"}:
            return
        notes = await session_notes(
            conversation.payload,
            format=conversation.format,
            session_id=call.session_id,
            archive=archive,
            max_tokens=_NOTES_CHARS // 4,
        )
    path = call.state_file("notes.md")
    make_folder(path.parent)
    if notes:
        put_file(path, notes[:_NOTES_CHARS].encode("utf-8"))
    if call.kind == "compacting":
        call.state_file("pending").touch()
        call.state_file("compacted").touch()


async def _archive_transcript(call: HookCall, archive: "Archive") -> "Conversation | None":
    """Archive a session of Claude Code or Codex, and return its context; None if it has no file."""
    import anyio
    from context_compaction import read_conversation

    from mcp_server_compaction.hosts.importing import Importer, files_to_import, is_output

    path = call.transcript
    if not path.is_file():
        return None
    # Claude Code keeps sub-agents and large outputs in a folder named after the session file.
    folder = path.with_suffix("")
    outputs = filter(is_output, sorted(folder.rglob("*.txt")))
    importer = Importer(archive, call.archive_folder)
    files = [path, *sorted(folder.rglob("*.jsonl")), *outputs]
    for file in files_to_import(call.archive_folder, files):
        outcome = await importer.import_file(file)
        if outcome.problem:
            _log(call.archive_folder, f"{file}: {outcome.problem}")
    return read_conversation(await anyio.Path(path).read_bytes(), name=path.name)


async def _archive_chat(call: HookCall, archive: "Archive") -> "Conversation | None":
    """Archive a session of Gemini CLI, Cursor or opencode, and return it.

    opencode sends its messages, and the other hosts send the path of a file. None if the session
    has no messages.
    """
    from context_compaction import UnknownFormatError, read_conversation

    from mcp_server_compaction.hosts.importing import add_texts

    path = call.transcript
    if call.host == "opencode":
        chat: Json = {"info": {"directory": ""}, "messages": call.payload.get("messages") or []}
        data, name = json.dumps(chat).encode(), "opencode"
    elif path.is_file():
        data, name = path.read_bytes(), path.name
    else:
        return None
    try:
        conversation = read_conversation(data, name=name)
    except UnknownFormatError as error:
        _log(call.archive_folder, str(error))
        return None
    await archive.append(call.session_id, conversation.messages, format=conversation.format)
    await add_texts(archive, call.session_id, conversation.extra_texts)
    return conversation


def _log(folder: Path | None, text: str) -> None:
    """Append a failure to the log. Secrets in paths are removed; a failure to write is ignored."""
    if folder is None:
        return
    from context_compaction import redact  # slow to import, and needed only after a failure

    text = redact(text)
    with contextlib.suppress(OSError):
        path = folder / "hooks" / "log"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.unlink()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{stamp} {' '.join(text.split())[:2_000]}\n")
