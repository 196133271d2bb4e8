"""Figures of one run of the proxy, in a file in the archive folder for `proxy status`.

The file has counts and reasons only: no text of a conversation, and no credentials.
"""

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from anyio import to_thread
from context_compaction import JsonObject, make_folder, put_file
from context_compaction.system import delete_if_closed, is_running

_SHOWN_RUNS = 20
# Files that did not change for so long are deleted.
_KEPT_SECONDS = 90 * 86_400
# What Claude Code gives up when its base URL is not Anthropic's, and the way back.
CLAUDE_CODE_LOSSES = (
    "Behind a proxy, Claude Code takes the window as 200K (add [1m] to the name of the model for "
    "1M), sends all tools (set ENABLE_TOOL_SEARCH=true to search them), and has no Remote Control."
)


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
        kept_out_tokens: Tokens that the host sent and the provider did not get, at 4 bytes each. In
            observation, tokens that the compactions would have removed.
        fallbacks: Number of fallbacks by reason: most are conversations that were sent unedited.
        passed: Number of all other requests by the reason why they were not examined.
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
    fallbacks: dict[str, int] = field(default_factory=dict[str, int])
    passed: dict[str, int] = field(default_factory=dict[str, int])
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
        """Count a fallback."""
        self.fallbacks[reason] = self.fallbacks.get(reason, 0) + 1

    async def save(self, archive_folder: Path) -> None:
        """Write the figures. A failure is ignored, because requests matter more."""
        path = archive_folder / "proxy" / f"status-{self.pid}.json"
        with contextlib.suppress(OSError):
            await save_json(path, asdict(self))

    @property
    def lines(self) -> list[str]:
        """The figures as lines for people."""
        state = "running" if self.is_running and self.pid != os.getpid() else "ended"
        mode, would = ("observes only", "would have ") if self.is_observing else ("edits", "")
        return [
            f"{self.address} ({state}, {mode}) -> {self.upstream}",
            f"  {self.requests} requests, {self.conversations} with a conversation, "
            f"{self.edited} edited, {self.compactions} compactions",
            f"  {would}kept out, added over all requests: about {self.kept_out_tokens:,} tokens",
            *(f"  fallback: {count} x {why}" for why, count in self.fallbacks.items()),
            *(f"  not examined: {count} x {why}" for why, count in self.passed.items()),
            *(f"  Note: {note}" for note in self.notes),
        ]


async def save_json(path: Path, value: JsonObject) -> None:
    """Write `value` to a file, which is complete or as before.

    Raises:
        OSError: The file cannot be written.
    """
    data = json.dumps(value).encode("ascii")

    def write() -> None:
        make_folder(path.parent)
        put_file(path, data)

    await to_thread.run_sync(write)


def read_statuses(archive_folder: Path) -> list[Status]:
    """Return the figures of the newest runs, newest first."""
    found: list[Status] = []
    for path in (archive_folder / "proxy").glob("status-*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(Status(**json.loads(path.read_text("utf-8"))))
    return sorted(found, key=lambda status: -status.started_seconds)[:_SHOWN_RUNS]


def remove_old_files(archive_folder: Path) -> None:
    """Delete figures of runs and states of sessions that did not change for 90 days."""
    for path in (archive_folder / "proxy").glob("*.json"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                delete_if_closed(path)
