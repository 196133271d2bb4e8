"""Figures of one run of the proxy, in a file in the archive folder for `proxy status`.

The file has counts and reasons only: no text of a conversation, and no credentials.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anyio import to_thread
from context_compaction import make_folder

_BYTES_PER_TOKEN = 4
_KEPT_FILES = 20
# What a host gives up when its base URL is not the provider's own, and the way back.
_LOSSES = {
    "claude-code": "Claude Code takes the window as 200K (add [1m] to the name of the model for "
    "1M), sends all tools at once (set ENABLE_TOOL_SEARCH=true; the proxy passes tool references "
    "on), and has no Remote Control (start it without the proxy)",
    "codex": "Codex sends requests over HTTP instead of WebSockets",
}


@dataclass(slots=True)
class Status:
    """Figures of one run.

    Attributes:
        address: Address of the proxy.
        upstream: Address of the model's API.
        is_observing: Whether requests are only archived and counted.
        pid: ID of the process.
        started_seconds: Start in Unix seconds.
        requests: Number of requests.
        conversations: Number of requests with a conversation.
        edited: Number of requests that were sent with another list.
        compactions: Number of lists that were compacted again, and not just as before.
        kept_out_bytes: Bytes that the host sent and the provider did not get.
        saved_tokens: In observation: tokens that the compactions would have removed.
        fallbacks: Number of conversations that were sent unedited by each reason.
        passed: Number of all other requests by the reason why they were not examined.
        hosts: Hosts that sent conversations.
        notes: What the user should know, newest last.
    """

    address: str
    upstream: str
    is_observing: bool = False
    pid: int = field(default_factory=os.getpid)
    started_seconds: float = field(default_factory=time.time)
    requests: int = 0
    conversations: int = 0
    edited: int = 0
    compactions: int = 0
    kept_out_bytes: int = 0
    saved_tokens: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict[str, int])
    passed: dict[str, int] = field(default_factory=dict[str, int])
    hosts: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    @property
    def kept_out_tokens(self) -> int:
        """Tokens that the provider did not get, estimated from bytes."""
        return self.kept_out_bytes // _BYTES_PER_TOKEN

    @property
    def is_running(self) -> bool:
        """Whether the process still exists."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def note(self, text: str) -> None:
        """Add what the user should know. A repeated text is kept once."""
        if text not in self.notes:
            self.notes = [*self.notes[-9:], text]

    def fell_back(self, reason: str) -> None:
        """Count a conversation that was sent unedited."""
        self.fallbacks[reason] = self.fallbacks.get(reason, 0) + 1

    def passed_on(self, reason: str) -> None:
        """Count a request that was not examined."""
        self.passed[reason] = self.passed.get(reason, 0) + 1

    async def save(self, archive_folder: Path) -> None:
        """Write the figures. A failure is ignored, because requests matter more."""
        text, path = json.dumps(asdict(self)), archive_folder / "proxy" / f"status-{self.pid}.json"

        def write() -> None:
            make_folder(path.parent)
            temporary = path.with_suffix(f".{threading.get_ident()}")
            temporary.write_text(text, "utf-8")
            temporary.replace(path)

        with contextlib.suppress(OSError):
            await to_thread.run_sync(write)

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name."""
        more = {"kept_out_tokens": self.kept_out_tokens, "is_running": self.is_running}
        return {**asdict(self), **more}


def read_statuses(archive_folder: Path) -> list[Status]:
    """Return the figures of the newest runs, newest first. Older files are deleted."""
    found: list[Status] = []
    for path in (archive_folder / "proxy").glob("status-*.json"):
        try:
            found.append(Status(**json.loads(path.read_text("utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    found.sort(key=lambda status: status.started_seconds, reverse=True)
    for status in found[_KEPT_FILES:]:
        if not status.is_running:
            (archive_folder / "proxy" / f"status-{status.pid}.json").unlink(missing_ok=True)
    return found[:_KEPT_FILES]


def status_lines(status: Status) -> Sequence[str]:
    """Return the figures of one run as lines for people."""
    state = "running" if status.is_running else "ended"
    mode = "observes only" if status.is_observing else "edits requests"
    lines = [
        f"{status.address} ({state}, {mode}) -> {status.upstream}",
        f"  {status.requests} requests, {status.conversations} with a conversation, "
        f"{status.edited} edited, {status.compactions} compactions",
        f"  kept out, added over all requests: about {status.kept_out_tokens:,} tokens "
        f"(bytes / {_BYTES_PER_TOKEN})",
    ]
    if status.is_observing:
        lines[-1] = (
            f"  would have kept out, added over all requests: about {status.saved_tokens:,} tokens"
        )
    lines += [f"  sent unedited: {count} x {why}" for why, count in status.fallbacks.items()]
    lines += [f"  not examined: {count} x {why}" for why, count in status.passed.items()]
    lines += [f"  behind a proxy: {_LOSSES[host]}" for host in status.hosts if host in _LOSSES]
    return [*lines, *(f"  Note: {note}" for note in status.notes)]
