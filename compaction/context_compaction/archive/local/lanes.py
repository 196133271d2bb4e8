"""Log work in several threads: one session's huge append holds up no other session.

Each lane has a thread and a `TranscriptStore` of its own. Lanes share nothing but files and the
locks on them, so that they are to each other what processes are.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from anyio import CapacityLimiter, to_thread

from context_compaction.archive.local.transcripts import TranscriptStore

LANES = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Lane:
    """One thread.

    Attributes:
        store: What works in it.
        limiter: Lets one call at a time in, in the order in which they came.
        calls: By session, how many calls are done there or wait.
    """

    store: TranscriptStore
    limiter: CapacityLimiter
    calls: Counter[str] = field(default_factory=Counter[str])


class Lanes:
    """Gives each call a lane; the calls of one session are done in their order."""

    def __init__(self, root: Path, *, redacts: bool) -> None:
        self._lanes = [
            _Lane(TranscriptStore(root, redacts=redacts), CapacityLimiter(1)) for _ in range(LANES)
        ]

    async def run(self, session: str, work: Callable[[TranscriptStore], T]) -> T:
        """What `work` returns, in a lane of `session`, which names a session in any way."""
        return await self._run(self._lane_of(session), session, work)

    async def first_idle(self, work: Callable[[TranscriptStore], T | None]) -> T | None:
        """What `work` returns in the first lane where that is not None, of those with no call."""
        for lane in self._lanes:
            if not lane.calls and (found := await self._run(lane, "", work)) is not None:
                return found
        return None

    async def everywhere(self, work: Callable[[TranscriptStore], None]) -> None:
        """Do `work` in every lane, when its calls are done."""
        for lane in self._lanes:
            await self._run(lane, "", work)

    def _lane_of(self, session: str) -> _Lane:
        """The lane that has calls of the session, else its own if that is idle, else the idlest."""
        for lane in self._lanes:
            if session in lane.calls:
                return lane
        # The same one as last time knows the session already.
        first = crc32(session.encode("utf-8", "surrogatepass")) % LANES
        lanes = [*self._lanes[first:], *self._lanes[:first]]
        return min(lanes, key=lambda lane: lane.calls.total())

    async def _run(self, lane: _Lane, session: str, work: Callable[[TranscriptStore], T]) -> T:
        lane.calls[session] += 1
        try:
            return await to_thread.run_sync(partial(work, lane.store), limiter=lane.limiter)
        finally:
            lane.calls[session] -= 1
            if not lane.calls[session]:
                del lane.calls[session]
