"""Telling clients that resources changed, in both eras of the protocol.

Since 2026-07-28 a client listens on a stream of its own, fed by a bus. Before that it subscribed
to single resources, and the server sent on the connection.
"""

from collections.abc import Callable
from typing import Any

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
    """A bus whose listeners hear only what concerns the tenant that they subscribed for."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """See `SubscriptionBus.subscribe`."""
        tenant = caller.get().tenant

        def hear(event: ServerEvent) -> None:
            if caller.get().tenant == tenant:
                listener(event)

        return super().subscribe(hear)


class Changes:
    """Who wants to know of changes; nobody learns of those of another tenant.

    Attributes:
        bus: Feeds the listeners of the present protocol.
    """

    def __init__(self) -> None:
        self.bus = TenantBus()
        # By connection and URI: the tenant and the session of a handshake-era subscription.
        self._subscribed: dict[tuple[int, str], tuple[str, ServerSession]] = {}
        self._listed: dict[tuple[str, str], bool] = {}

    def subscribe(self, session: ServerSession, uri: str) -> None:
        """Remember a handshake-era subscription; the oldest goes when there are too many."""
        subscriber = (caller.get().tenant, session)
        _remember(self._subscribed, (_connection_key(session), uri), subscriber, most=1_000)

    def unsubscribe(self, session: ServerSession, uri: str) -> None:
        """Forget a handshake-era subscription."""
        self._subscribed.pop((_connection_key(session), uri), None)

    async def updated(self, uri: str) -> None:
        """Tell everyone who watches `uri`. A connection that is gone is skipped by the SDK."""
        await self.bus.publish(ResourceUpdated(uri=uri))
        tenant = caller.get().tenant
        for (_, watched), (of_tenant, session) in list(self._subscribed.items()):
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
        """Whether `reader` has not heard of the session before."""
        was_told = self._listed.get((reader, session_id), False)
        _remember(self._listed, (reader, session_id), True, most=10_000)
        return not was_told


def _remember(known: dict[Any, Any], key: object, value: object, *, most: int) -> None:
    """Set a value; the oldest goes where there are too many."""
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]


def _connection_key(session: ServerSession) -> int:
    # The SDK makes a session object for every request; the client's greeting is one per connection
    # and lives as long as the stored session does.
    return id(session.client_params)
