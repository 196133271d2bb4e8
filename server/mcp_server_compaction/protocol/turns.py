"""Turns: how many compactions are worked on at once, and which of those that wait is next."""

import heapq
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import asynccontextmanager
from time import monotonic

import anyio

# Enough to wait for disks and databases. Of more at once each only takes longer: 40 cost a fifth
# more CPU a call, and all of them end when the last one does.
MAX_COMPACTIONS = 8
# Who brings much that is new lets others go first: so long for each message, and at most so long,
# which is about what 64 new lists of 50,000 tokens take together.
MESSAGE_SECONDS = 0.02
MOST_SECONDS = 2.0
_KNOWN_SESSIONS = 10_000


class Turns:
    """Lets `MAX_COMPACTIONS` in at a time; the others wait by what is new in their lists.

    A list that has only grown costs a fraction of one that is counted for the first time, and would
    wait for all of these where many come at once. Nobody is passed by for more than `MOST_SECONDS`.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._free = MAX_COMPACTIONS
        self._count = 0
        self._waiting: list[tuple[float, int, anyio.Event]] = []
        self._known: dict[Hashable, int] = {}

    @asynccontextmanager
    async def turn(self, session: Hashable, message_count: int) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it; `session` names whose list has so many messages."""
        new = max(0, message_count - self._known.get(session, 0))
        if self._free:
            self._free -= 1
        else:
            await self._wait(self._clock() + min(MOST_SECONDS, new * MESSAGE_SECONDS))
        try:
            yield
            self._remember(session, message_count)
        finally:
            self._pass_on()

    def _remember(self, session: Hashable, message_count: int) -> None:
        self._known.pop(session, None)
        self._known[session] = message_count
        if len(self._known) > _KNOWN_SESSIONS:
            del self._known[next(iter(self._known))]  # the one that rests longest

    async def _wait(self, due_seconds: float) -> None:
        granted = anyio.Event()
        self._count += 1
        entry = (due_seconds, self._count, granted)
        heapq.heappush(self._waiting, entry)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self._pass_on()
            else:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            raise

    def _pass_on(self) -> None:
        if self._waiting:
            heapq.heappop(self._waiting)[2].set()
        else:
            self._free += 1
