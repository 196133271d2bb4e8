"""Figures of one run of the proxy, in a file in the archive folder for `proxy status`.

The file has counts and reasons only: no text of a conversation, and no credentials.
"""

import contextlib
import json
import os
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anyio import to_thread
from context_compaction import make_folder
from context_compaction.system import delete_if_closed, is_running, replace_file

_KEPT_FILES = 20
# States of sessions that did not change for so long are deleted.
_KEPT_SECONDS = 90 * 86_400
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
        kept_out_tokens: Tokens that the host sent and the provider did not get, at 4 bytes each.
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
    kept_out_tokens: int = 0
    saved_tokens: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict[str, int])
    passed: dict[str, int] = field(default_factory=dict[str, int])
    hosts: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])

    @property
    def is_running(self) -> bool:
        """Whether the process still exists."""
        return is_running(self.pid)

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
            replace_file(temporary, path)

        with contextlib.suppress(OSError):
            await to_thread.run_sync(write)

    @property
    def lines(self) -> list[str]:
        """The figures as lines for people."""
        state = "running" if self.is_running else "ended"
        mode, tokens, would = "edits requests", self.kept_out_tokens, ""
        if self.is_observing:
            mode, tokens, would = "observes only", self.saved_tokens, "would have "
        return [
            f"{self.address} ({state}, {mode}) -> {self.upstream}",
            f"  {self.requests} requests, {self.conversations} with a conversation, "
            f"{self.edited} edited, {self.compactions} compactions",
            f"  {would}kept out, added over all requests: about {tokens:,} tokens",
            *(f"  sent unedited: {count} x {why}" for why, count in self.fallbacks.items()),
            *(f"  not examined: {count} x {why}" for why, count in self.passed.items()),
            *(f"  behind a proxy: {_LOSSES[host]}" for host in self.hosts if host in _LOSSES),
            *(f"  Note: {note}" for note in self.notes),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all figures by name."""
        return {**asdict(self), "is_running": self.is_running}


def read_statuses(archive_folder: Path) -> list[Status]:
    """Return the figures of the newest runs, newest first. Old files are deleted."""
    found: list[Status] = []
    for path in (archive_folder / "proxy").glob("status-*.json"):
        try:
            found.append(Status(**json.loads(path.read_text("utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    found.sort(key=lambda status: status.started_seconds, reverse=True)
    for status in found[_KEPT_FILES:]:
        if not status.is_running:
            delete_if_closed(archive_folder / "proxy" / f"status-{status.pid}.json")
    for path in (archive_folder / "proxy").glob("session-*.json"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink()
    return found[:_KEPT_FILES]
