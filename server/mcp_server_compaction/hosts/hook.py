"""`hook EVENT`: what a host runs by itself. It helps where it can and never stands in the way.

It reads the event from standard input, and writes an answer or nothing. Whatever goes wrong is
logged beside the archive, and the host goes on as if there were no hook. Work that takes longer is
done by a second process, which the host does not wait for. A host starts a hook for every call of a
tool, so nothing but the standard library is imported before it is needed.
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

from mcp_server_compaction.archive_place import ARCHIVE_VARIABLE, archive_place
from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.hook_events import (
    KINDS,
    TELLS_AT_PROMPT,
    Kind,
    as_object,
    continued_session,
    is_foreign,
    session_of,
    shortened,
    told,
    whole_output_file,
)

if TYPE_CHECKING:
    from context_compaction import Archive, RedactionMode

_LOG_BYTES = 1_000_000
# Where a host writes how full its context is, seen from the end of its transcript.
_TAIL_BYTES = 256 * 1024
_USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
# The row that Claude Code or Codex writes where it has compacted a session.
_BOUNDARY = re.compile(rb'"subtype": ?"compact_boundary"|"type": ?"compacted"')
# Claude Code saves no more than this of an output.
_MOST_OUTPUT_BYTES = 64 * 1024 * 1024
# Claude's models have this window, or five times as much. Hosts compact at about five sixths.
_WINDOW_TOKENS = 200_000
_NEAR_SHARE = 0.7
# Cursor drops what has more than 10,000 characters, Claude Code puts it into a file.
_NOTES_CHARS = 8_000
_NOTES_TOKENS = 2_000


@dataclass(frozen=True, slots=True)
class HookCall:
    """One run of a hook.

    Attributes:
        event: As the host names it.
        host: The host.
        archive_folder: Where the archive is, or what belongs to it on this machine.
        redaction: What becomes of secrets, as for the server.
        payload: The event as the host described it.
        session_id: The archived session: the host's, or the one that `resume` continued in it.
        archive_address: Where the archive is, if it is no folder of this machine.
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
        """The host's file of the session; the null device if it names none."""
        return Path(str(self.payload.get("transcript_path") or os.devnull))

    @property
    def kind(self) -> Kind | None:
        """The sort of event; None where nothing is to be done."""
        return KINDS[self.host].get(self.event)

    def state_file(self, name: str) -> Path:
        """A file that remembers something of this session between hooks; deleted with it."""
        key = hashlib.blake2b(
            self.session_id.encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        return self.archive_folder / "hooks" / key / name

    def opened(self) -> "contextlib.AbstractAsyncContextManager[Archive]":
        """The archive."""
        from context_compaction import REDACTION_MODES, open_archive

        # The cautious reading of a word that means nothing.
        mode: RedactionMode = self.redaction if self.redaction in REDACTION_MODES else "on"
        return open_archive(self.archive_address or self.archive_folder, redaction=mode)


def run_hook(arguments: Sequence[str]) -> None:
    """Answer one event of a host; never fails, and writes an answer or nothing."""
    folder: Path | None = None
    try:
        named = _parser().parse_args(arguments)
        folder, address = archive_place(named.archive or os.environ.get(ARCHIVE_VARIABLE))
        payload = json.loads(sys.stdin.buffer.read() or b"{}")
        session_id = continued_session(named.host, payload) or session_of(payload)
        call = HookCall(
            named.event, named.host, folder, named.redaction, payload, session_id, address
        )
        if call.kind is None or not call.session_id or is_foreign(call.host, payload):
            return
        if named.is_background:
            import anyio

            anyio.run(_archive, call)
            return
        if call.kind in {"compacting", "archive", "ending"}:
            _start_background(arguments, payload)
        answer = _answer_to(call)
        if answer is not None:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    # A hook that fails must leave the host as it was, whatever it was that failed.
    except Exception as error:  # noqa: BLE001
        _log(folder, f"{' '.join(arguments)}: {type(error).__name__}: {error}")


class _QuietParser(argparse.ArgumentParser):
    """Raises where others print and exit: a host may show what a hook prints."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _QuietParser(add_help=False)
    parser.add_argument("event")
    parser.add_argument("--host", default="claude-code", choices=tuple(KINDS))
    parser.add_argument("--archive")
    parser.add_argument("--redaction", default=os.environ.get("MCP_COMPACTION_REDACTION") or "warn")
    parser.add_argument("--background", dest="is_background", action="store_true")
    return parser


def _start_background(arguments: Sequence[str], payload: Json) -> None:
    """Archive the transcript in a second process, which outlives this one."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(payload).encode("utf-8"))
        file.seek(0)
        subprocess.Popen(  # noqa: S603 - this program, as the host called it
            [sys.executable, "-m", "mcp_server_compaction", "hook", *arguments, "--background"],
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )


def _answer_to(call: HookCall) -> Json:
    """The answer to the host; None where there is nothing to say."""
    text = ""
    if call.kind == "tool":
        whole = _whole_output(call)
        store = partial(_store_output, call, is_whole=whole is not None)
        return shortened(call.host, call.payload, store, whole)
    source = call.payload.get("source")
    if call.kind == "start" and (
        source == "compact" or (source in {"resume", "fork"} and _was_compacted(call))
    ):
        text = _reminder(call)
    elif call.kind == "prompt":
        text = _at_prompt(call)
    elif call.kind == "compacting" and call.host == "opencode":
        text = _reminder(call)
    return told(call.host, call.event, text) if text else None


def _whole_output(call: HookCall) -> str | None:
    """The text of the file in which the host saved a tool's whole output.

    A payload may hold what a tool said, so only files in the host's own folder are read.
    """
    named = whole_output_file(call.host, call.payload)
    if not named:
        return None
    from mcp_server_compaction.hosts.catalog import this_user
    from mcp_server_compaction.hosts.session_places import root_of

    root = root_of(call.host, this_user())
    folder = (root.parent if call.host == "opencode" else root).resolve()
    path = Path(named).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(_MOST_OUTPUT_BYTES + 1)
    return data.decode("utf-8", "replace") if len(data) <= _MOST_OUTPUT_BYTES else None


def _store_output(call: HookCall, text: str, is_numbered: bool, *, is_whole: bool) -> str:
    """Archive a tool's output; return the marker that replaces it.

    A text whose lines the host numbers keeps its first lines, so that each has its own number.
    """
    import anyio
    from context_compaction import Settings, make_blob, persisted, preview, redact
    from context_compaction.activity.shown import is_cut

    tool_name = str(call.payload.get("tool_name") or "unknown")
    call_id = call.payload.get("tool_use_id")
    blob = make_blob(text, tool_name=tool_name, call_id=call_id and str(call_id))

    async def commit() -> str:
        async with call.opened() as archive:
            await archive.commit(call.session_id, blobs=[blob])
            return redact(text) if archive.redaction == "on" else text

    safe = anyio.run(commit)
    most_chars = Settings().preview_chars
    if is_numbered:
        head = safe[:most_chars].rpartition("\n")[0] or safe[:most_chars]
        shown = f"Above are its first {len(head)} characters."
        return f"{head}\n{persisted([blob], shown, tool_name, len(text))}"
    stored = "Full text"
    if not is_whole and (is_cut(text) or whole_output_file(call.host, call.payload)):
        stored = "Text as shortened by the host, which did not pass on the rest"
    shown = preview(safe, max_chars=most_chars)
    return persisted([blob], shown, tool_name, len(text), stored=stored)


def _reminder(call: HookCall) -> str:
    """The text for a model whose context was compacted, or begins with an old session."""
    pointer = (
        f'All of this session is archived as session_id "{call.session_id}". What is not in your '
        "context any more: search_transcript finds it, read_persisted_output reads it. Look there "
        "before you ask the user again or repeat work."
    )
    with contextlib.suppress(OSError):
        notes = call.state_file("notes.md").read_text("utf-8")
        return f"{pointer}\n\nNotes made from the archived session:\n{notes}"
    return pointer


def _at_prompt(call: HookCall) -> str:
    """What the model should know before it reads the user's prompt; mostly nothing."""
    pending = call.state_file("pending")
    if call.host in TELLS_AT_PROMPT and pending.exists():
        pending.unlink()
        return _reminder(call)
    used_tokens, window_tokens = _context_size(call.transcript)
    hinted = call.state_file("hinted")
    if used_tokens < window_tokens * _NEAR_SHARE:
        hinted.unlink(missing_ok=True)
        return ""
    if hinted.exists():
        return ""
    hinted.parent.mkdir(parents=True, exist_ok=True)
    hinted.touch()
    return (
        f"The context holds about {used_tokens // 1_000}K of {window_tokens // 1_000}K tokens and "
        "will soon be compacted. Finish what is under way, and say what is open. Nothing is lost: "
        f'search_transcript with session_id "{call.session_id}" finds whatever leaves the context.'
    )


def _was_compacted(call: HookCall) -> bool:
    """Whether something of the session is no longer in the host's context."""
    if call.state_file("compacted").exists() or call.session_id != session_of(call.payload):
        return True
    if not call.transcript.is_file():
        return False
    with call.transcript.open("rb") as file:
        return any(map(_BOUNDARY.search, file))


def _context_size(path: Path) -> tuple[int, int]:
    """Tokens in the context and in its window, as the host wrote them last into its transcript.

    Claude Code writes the API's usage with each answer, Codex its own count. What was counted
    before a compaction says nothing of the present context.
    """
    for line in reversed(_last_lines(path)):
        if _BOUNDARY.search(line):
            break
        try:
            row = as_object(json.loads(line))
        except (ValueError, RecursionError):  # the first line of the tail is torn
            continue
        info = as_object(as_object(row.get("payload")).get("info"))
        window = info.get("model_context_window")
        used = as_object(info.get("last_token_usage")).get("total_tokens")
        if isinstance(used, int) and isinstance(window, int):
            return used, window
        message = as_object(row.get("message"))
        counts = [as_object(message.get("usage")).get(name) for name in _USAGE]
        used = sum(count for count in counts if isinstance(count, int))
        if used and not row.get("isSidechain"):
            is_long = "[1m]" in str(message.get("model")) or used > _WINDOW_TOKENS
            return used, 5 * _WINDOW_TOKENS if is_long else _WINDOW_TOKENS
    return 0, _WINDOW_TOKENS


def _last_lines(path: Path) -> list[bytes]:
    # A pipe would be waited for without end.
    if not path.is_file():
        return []
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read().splitlines()
    return []


async def _archive(call: HookCall) -> None:
    """Archive what is new in a session; before its context is lost, make notes of it."""
    from context_compaction import make_folder, put_file, session_notes

    if hasattr(os, "nice"):
        os.nice(10)
    async with call.opened() as archive:
        messages, format_name = await _archived_messages(call, archive)
        if not messages or call.kind not in {"compacting", "ending"}:
            return
        notes = await session_notes(
            messages,
            format=format_name,
            session_id=call.session_id,
            archive=archive,
            max_tokens=_NOTES_TOKENS,
        )
    path = call.state_file("notes.md")
    make_folder(path.parent)
    if notes:
        put_file(path, notes[:_NOTES_CHARS].encode("utf-8"))
    if call.kind == "compacting":
        call.state_file("pending").touch()
        call.state_file("compacted").touch()


async def _archived_messages(call: HookCall, archive: "Archive") -> tuple[Sequence[Json], str]:
    """Archive the session; the messages of its context, and their format."""
    import anyio
    from context_compaction import read_conversation

    from mcp_server_compaction.hosts.foreign_sessions import FOREIGN_HOSTS, read_foreign
    from mcp_server_compaction.hosts.importing import (
        Importer,
        add_texts,
        files_to_import,
        is_output,
    )

    if call.host in FOREIGN_HOSTS:
        conversation = read_foreign(call.host, call.payload)
        if conversation is None:
            return [], ""
        form = conversation.format
        await archive.append(call.session_id, conversation.messages, format=form)
        await add_texts(archive, call.session_id, conversation.extra_texts)
        return [message.source for message in conversation.messages], form
    path = call.transcript
    if not await anyio.Path(path).is_file():
        return [], ""
    # Claude Code keeps sub-agents and large outputs in a folder with the name of the session.
    folder = path.with_suffix("")
    outputs = filter(is_output, sorted(folder.rglob("*.txt")))
    importer = Importer(archive, call.archive_folder)
    files = [path, *sorted(folder.rglob("*.jsonl")), *outputs]
    for file in files_to_import(call.archive_folder, files):
        outcome = await importer.import_file(file)
        if outcome.problem:
            _log(call.archive_folder, f"{file}: {outcome.problem}")
    conversation = read_conversation(await anyio.Path(path).read_bytes(), name=path.name)
    return [message.source for message in conversation.messages], conversation.format


def _log(folder: Path | None, text: str) -> None:
    """Note a failure, for `doctor` and people; a log that cannot be written is no failure.

    An error names a path, and a path may hold a secret.
    """
    if folder is None:
        return
    from context_compaction import redact  # with its detector: only where something fails

    text = redact(text)
    with contextlib.suppress(OSError):
        path = folder / "hooks" / "log"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.unlink()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{stamp} {' '.join(text.split())[:2_000]}\n")
