"""Telling clients that resources changed, in both eras of the protocol.

Since 2026-07-28 a client listens on a stream of its own, fed by a bus. Before that it subscribed
to single resources, and the server sent on the connection.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_server_compaction.access.principal import caller

_MAX_SUBSCRIPTIONS = 1_000
_MAX_LISTED = 10_000


@dataclass(frozen=True, slots=True)
class Changes:
    """Who wants to know of changes; nobody learns of those of another tenant.

    Attributes:
        bus: Feeds the listeners of the present protocol.
    """

    bus: SubscriptionBus = field(default_factory=lambda: _BusOfTenants())
    _subscribed: dict[tuple[int, str], tuple[str, ServerSession]] = field(
        default_factory=dict[tuple[int, str], tuple[str, ServerSession]]
    )
    _listed: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])

    def subscribe(self, session: ServerSession, uri: str) -> None:
        """Remember a handshake-era subscription; the oldest goes when there are too many."""
        self._subscribed[_connection_key(session), uri] = (caller.get().tenant, session)
        while len(self._subscribed) > _MAX_SUBSCRIPTIONS:
            del self._subscribed[next(iter(self._subscribed))]

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """Forget a handshake-era subscription."""
        self._subscribed.pop((_connection_key(session), uri), None)

    async def updated(self, uri: str) -> None:
        """Tell everyone who watches `uri`. A connection that is gone is skipped by the SDK."""
        await self.bus.publish(ResourceUpdated(uri=uri))
        tenant = caller.get().tenant
        for (_, watched), (of_tenant, session) in [*self._subscribed.items()]:
            if (watched, of_tenant) == (uri, tenant):
                await session.send_resource_updated(uri)

    async def listed(self, session: ServerSession, session_id: str) -> None:
        """Tell listeners, and the caller of the handshake era, of a session that is new to them.

        Once for each: a host that is told asks for the list again.
        """
        tenant = caller.get().tenant
        if self._is_new(tenant, session_id):
            await self.bus.publish(ResourcesListChanged())
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        if self._is_new(f"{tenant}@{_connection_key(session)}", session_id):
            await session.send_resource_list_changed()

    def _is_new(self, reader: str, session_id: str) -> bool:
        """Whether `reader` was not told of the session; the oldest told is forgotten."""
        known = (reader, session_id) in self._listed
        self._listed[reader, session_id] = None
        while len(self._listed) > _MAX_LISTED:
            del self._listed[next(iter(self._listed))]
        return not known


class _BusOfTenants:
    """A bus for the present caller's tenant, as long as somebody of it listens."""

    def __init__(self) -> None:
        self._buses: dict[str, InMemorySubscriptionBus] = {}
        self._listeners: Counter[str] = Counter()

    async def publish(self, event: ServerEvent) -> None:
        """See `SubscriptionBus.publish`."""
        bus = self._buses.get(caller.get().tenant)
        if bus is not None:
            await bus.publish(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """See `SubscriptionBus.subscribe`."""
        tenant = caller.get().tenant
        leave = self._buses.setdefault(tenant, InMemorySubscriptionBus()).subscribe(listener)
        self._listeners[tenant] += 1
        is_listening = True

        def unsubscribe() -> None:
            nonlocal is_listening
            leave()
            self._listeners[tenant] -= is_listening
            is_listening = False
            if not self._listeners[tenant]:  # it may never come again
                del self._listeners[tenant]
                self._buses.pop(tenant, None)

        return unsubscribe


def _connection_key(session: ServerSession) -> int:
    # The SDK makes a session object for every request; the client's greeting is one per connection
    # and lives as long as the stored session does.
    return id(session.client_params)
