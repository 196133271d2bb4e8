"""How much each tenant may ask: requests a second, and bytes a minute."""

from aiolimiter import AsyncLimiter
from cachetools import LRUCache

MAX_TENANTS = 10_000  # whose counts are kept; the one that rests longest begins anew
_MINUTE_SECONDS = 60
BYTES_A_MINUTE = 1024 * 1024 * 1024


class Rates:
    """Counts of each tenant in this process."""

    def __init__(self, requests_per_second: float) -> None:
        self._requests_per_second = requests_per_second
        self._tenants: LRUCache[str, tuple[AsyncLimiter, AsyncLimiter]] = LRUCache(MAX_TENANTS)

    async def taken(self, tenant: str, size_bytes: int) -> bool:
        """Count a request of `tenant`; False where it has to wait a second or more."""
        requests, sizes = self._limits(tenant)
        amount = min(size_bytes, BYTES_A_MINUTE)
        if not (requests.has_capacity() and sizes.has_capacity(amount)):
            return False
        await requests.acquire()  # there is room, so neither waits
        await sizes.acquire(amount)
        return True

    async def came_in(self, tenant: str, size_bytes: int) -> None:
        """Count bytes of a request that did not say its size; wait where there is no room."""
        _, sizes = self._limits(tenant)
        await sizes.acquire(min(size_bytes, BYTES_A_MINUTE))

    def _limits(self, tenant: str) -> tuple[AsyncLimiter, AsyncLimiter]:
        limits = self._tenants.get(tenant)
        if limits is None:
            limits = self._tenants[tenant] = (
                AsyncLimiter(self._requests_per_second, 1),
                AsyncLimiter(BYTES_A_MINUTE, _MINUTE_SECONDS),
            )
        return limits
