"""Notifications to clients about changed resources, in both forms of the protocol.

Since 2026-07-28 a client listens on a stream of its own, which a bus feeds. Clients with a
handshake subscribe to single resources, and the server sends on their connection.
"""

from collections.abc import Callable

from cachetools import LRUCache
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_server_compaction.access.principal import caller


class TenantBus(InMemorySubscriptionBus):
    """A bus whose listeners receive only the events of the tenant that subscribed."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """See `SubscriptionBus.subscribe`."""
        tenant = caller.get().tenant

        def pass_own_events(event: ServerEvent) -> None:
            if caller.get().tenant == tenant:
                listener(event)

        return super().subscribe(pass_own_events)


class Changes:
    """Sends notifications about changes to the clients of the caller's tenant.

    Attributes:
        bus: Feeds the listeners of clients without a handshake.
    """

    def __init__(self) -> None:
        self.bus = TenantBus()
        # By connection and URI: the tenant and the session of a subscription.
        self._subscriptions: LRUCache[tuple[int, str], tuple[str, ServerSession]] = LRUCache(1_000)
        # Pairs of a reader and a session that was announced to that reader.
        self._announced: LRUCache[tuple[str, str], bool] = LRUCache(10_000)

    def subscribe(self, session: ServerSession, uri: str) -> None:
        """Add a subscription of a client with a handshake. Drop the oldest above the limit."""
        self._subscriptions[_connection_key(session), uri] = (caller.get().tenant, session)

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """Remove a subscription of a client with a handshake."""
        self._subscriptions.pop((_connection_key(session), uri), None)

    async def updated(self, uri: str) -> None:
        """Notify all subscribers of `uri`. The SDK skips closed connections."""
        await self.bus.publish(ResourceUpdated(uri=uri))
        tenant = caller.get().tenant
        for (_, subscribed_uri), (subscriber, session) in list(self._subscriptions.items()):
            if (subscribed_uri, subscriber) == (uri, tenant):
                await session.send_resource_updated(uri)

    async def listed(self, session: ServerSession, session_id: str) -> None:
        """Notify the listeners, and the caller if it uses a handshake, of a new session.

        Each is notified once, because a notified host requests the whole list again.
        """
        tenant = caller.get().tenant
        if self._is_new(tenant, session_id):
            await self.bus.publish(ResourcesListChanged())
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        if self._is_new(f"{tenant}@{_connection_key(session)}", session_id):
            await session.send_resource_list_changed()

    def _is_new(self, reader: str, session_id: str) -> bool:
        """Whether the session was not announced to `reader` before. It counts as announced now."""
        is_known = self._announced.get((reader, session_id), False)
        self._announced[reader, session_id] = True
        return not is_known


def _connection_key(session: ServerSession) -> int:
    # The SDK creates a session object for every request. The client's parameters belong to the
    # connection and live as long as the stored session.
    return id(session.client_params)
