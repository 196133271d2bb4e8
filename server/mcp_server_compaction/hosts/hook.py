"""`hook EVENT`: what a host runs by itself. It helps where it can and never stands in the way.

It reads what the host says from standard input, and writes an answer or nothing. Whatever goes
wrong is logged beside the archive, and the host goes on as if there were no hook. Work that takes
longer than a moment is left to a process of its own.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from mcp_server_compaction.archive_place import ARCHIVE_VARIABLE, archive_place
from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.hook_events import (
    KINDS,
    TELLS_AT_PROMPT,
    Kind,
    as_object,
    is_foreign,
    session_of,
    shortened,
    told,
)

_LOG_BYTES = 1_000_000
# Where a host writes how full its context is, seen from the end of its transcript.
_TAIL_BYTES = 256 * 1024
# Of what a host compacts at: time enough to end a task first.
_NEAR_SHARE = 0.8
# Hosts answer within 20,000 tokens and keep 13,000 free (DESIGN's budget); where a transcript does
# not name its window, it is that of Claude's models.
_RESERVED_TOKENS = 33_000
_USUAL_WINDOW_TOKENS = 200_000
_LONG_WINDOW_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class HookCall:
    """One run of a hook.

    Attributes:
        event: As the host names it.
        host: The host.
        archive_folder: Where the archive lies.
        redaction: What becomes of secrets, as for the server.
        payload: What the host said.
        archive_address: Where it is instead, if it is no folder of this machine.
    """

    event: str
    host: str
    archive_folder: Path
    redaction: str
    payload: Mapping[str, Json]
    archive_address: str | None = field(default=None, repr=False)

    @property
    def archive(self) -> Path | str:
        """What `open_archive` is to open."""
        return self.archive_address or self.archive_folder

    @property
    def session_id(self) -> str:
        """The host's session."""
        return session_of(self.payload)

    @property
    def kind(self) -> Kind | None:
        """What sort of moment it is; None where nothing is to be done."""
        return KINDS[self.host].get(self.event)

    def state_file(self, name: str) -> Path:
        """A file of what is remembered of this session between hooks; deleted with it."""
        key = hashlib.blake2b(
            self.session_id.encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()
        return self.archive_folder / "hooks" / key / name


def run_hook(arguments: Sequence[str]) -> None:
    """Answer one event of a host; never fails, and writes an answer or nothing."""
    folder: Path | None = None
    try:
        named = _parser().parse_args(arguments)
        folder, address = archive_place(named.archive or os.environ.get(ARCHIVE_VARIABLE))
        payload = json.loads(sys.stdin.buffer.read() or b"{}")
        call = HookCall(named.event, named.host, folder, named.redaction, payload, address)
        answer = answer_to(call)
        if answer is not None:
            sys.stdout.write(json.dumps(answer))
            sys.stdout.flush()
    # A hook that fails must leave the host as it was, whatever it was that failed.
    except Exception as error:  # noqa: BLE001
        log_failure(folder, f"{' '.join(arguments)}: {type(error).__name__}: {error}")


def answer_to(call: HookCall) -> Json:
    """What the host is answered; None where there is nothing to say."""
    if call.kind is None or not call.session_id or is_foreign(call.host, call.payload):
        return None
    if call.kind == "tool":
        return _answer_to_tool(call)
    if call.kind == "start":
        is_new = call.payload.get("source") not in {"compact", "resume", "fork"}
        return None if is_new else told(call.host, call.event, _reminder(call))
    if call.kind == "prompt":
        text = _at_prompt(call)
        return told(call.host, call.event, text) if text else None
    _archive_beside(call)
    if call.kind == "compacting" and call.host == "opencode":
        return told(call.host, call.event, _reminder(call))
    return None


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
    return parser


def _answer_to_tool(call: HookCall) -> Json:
    def put(text: str) -> str:
        # Loads the archive: only for a large output.
        from mcp_server_compaction.hosts.hook_work import store_output

        return store_output(call, text)

    return shortened(call.host, call.payload, put)


def _at_prompt(call: HookCall) -> str:
    """What the model should know before it reads the user's prompt; mostly nothing."""
    pending = call.state_file("pending")
    if call.host in TELLS_AT_PROMPT and pending.exists():
        pending.unlink()
        return _reminder(call)
    path = call.payload.get("transcript_path")
    if not isinstance(path, str):
        return ""
    used_tokens, window_tokens = context_size(_tail_of(Path(path)))
    trigger_tokens = window_tokens - _RESERVED_TOKENS
    hinted = call.state_file("hinted")
    if used_tokens < trigger_tokens * _NEAR_SHARE:
        hinted.unlink(missing_ok=True)
        return ""
    if hinted.exists():
        return ""
    hinted.parent.mkdir(parents=True, exist_ok=True)
    hinted.touch()
    return (
        f"The context holds about {used_tokens // 1_000}K of {window_tokens // 1_000}K tokens and "
        f"will be compacted at about {trigger_tokens // 1_000}K. Finish what is under way, and say "
        "what is open. Nothing is lost: search_transcript with "
        f'session_id "{call.session_id}" finds whatever leaves the context.'
    )


def _tail_of(path: Path) -> list[str]:
    """The last whole lines of a file, newest first."""
    # A pipe would be waited for without end.
    if not path.is_file():
        return []
    with contextlib.suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").splitlines()
        return lines[1 if size > _TAIL_BYTES else 0 :][::-1]
    return []


def context_size(lines: Sequence[str]) -> tuple[int, int]:
    """Tokens in the context and in its window, from a transcript's lines, newest first.

    Claude Code writes the API's usage with each answer, Codex what it counted itself.
    """
    for line in lines:
        if '"usage"' not in line and '"token_count"' not in line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found = _claude_size(row) or _codex_size(row)
        if found:
            return found
    return 0, _USUAL_WINDOW_TOKENS


def _claude_size(row: Json) -> tuple[int, int] | None:
    message = as_object(as_object(row).get("message"))
    usage = as_object(message.get("usage"))
    if not usage or row.get("isSidechain"):
        return None
    names = (
        "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
    )  # fmt: skip
    counts = [usage.get(name) for name in names]
    used = sum(count for count in counts if isinstance(count, int))
    is_long = "[1m]" in str(message.get("model")) or used > _USUAL_WINDOW_TOKENS
    return used, _LONG_WINDOW_TOKENS if is_long else _USUAL_WINDOW_TOKENS


def _codex_size(row: Json) -> tuple[int, int] | None:
    info = as_object(as_object(as_object(row).get("payload")).get("info"))
    window = info.get("model_context_window")
    used = as_object(info.get("last_token_usage")).get("total_tokens")
    return (used, window) if isinstance(used, int) and isinstance(window, int) else None


def _reminder(call: HookCall) -> str:
    """What a model is told whose context was compacted, or begins with an old session."""
    pointer = (
        f'All of this session is archived as session_id "{call.session_id}". What is not in your '
        "context any more: search_transcript finds it, read_persisted_output reads it. Look there "
        "before you ask the user again or repeat work."
    )
    with contextlib.suppress(OSError):
        notes = call.state_file("notes.md").read_text("utf-8")
        return f"{pointer}\n\nNotes made from the archived session:\n{notes}"
    return pointer


def _archive_beside(call: HookCall) -> None:
    """Have the transcript archived by a process of its own, which outlives this one."""
    import subprocess
    import tempfile

    job = {
        "event": call.event,
        "host": call.host,
        "archive_folder": str(call.archive_folder),
        "archive_address": call.archive_address,
        "redaction": call.redaction,
        "payload": call.payload,
    }
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(job).encode("utf-8"))
        file.seek(0)
        subprocess.Popen(
            [sys.executable, "-m", "mcp_server_compaction.hosts.hook_work"],
            stdin=file,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )


def log_failure(folder: Path | None, text: str) -> None:
    """Note what failed, for `doctor` and people; a log that cannot be written is no failure.

    An error names a path, and a path may hold a secret.
    """
    if folder is None:
        return
    from context_compaction.redaction import redact  # with its detector: only where something fails

    text = redact(text)
    with contextlib.suppress(OSError):
        path = folder / "hooks" / "log"
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.unlink()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{stamp} {' '.join(text.split())[:2_000]}\n")
