"""The host's side of the proxy: messages of all servers go to the host, but no flood blocks it."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from anyio.streams.memory import MemoryObjectSendStream
from context_compaction import JsonObject
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

_DROPPABLE = frozenset({"notifications/message", "notifications/progress"})
_logger = logging.getLogger(__name__)


class Host(ObjectSendStream[SessionMessage]):
    """The host of all servers, and the queue of messages to it.

    If the queue is full, log and progress messages are dropped.

    Args:
        incoming: Messages of the host.
        queue: Queue of messages to the host.

    Attributes:
        dispatcher: Pairs requests and responses in both directions.
        is_initialized: Whether the host has finished its handshake.
    """

    def __init__(
        self, incoming: ObjectReceiveStream[Any], queue: MemoryObjectSendStream[SessionMessage]
    ) -> None:
        self.dispatcher = JSONRPCDispatcher(incoming, self)
        self.is_initialized = False
        self._queue = queue
        self._dropped_count = 0

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Queue a notification, or drop it if the queue is full and it may be dropped.

        Nothing happens if the host has disconnected.
        """
        item = _notification(method, params)
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            if method not in _DROPPABLE:
                await self.send(item)
                return
            try:
                self._queue.send_nowait(item)
            except anyio.WouldBlock:
                self._dropped_count += 1

    async def send(self, item: SessionMessage) -> None:
        """Queue a message, after a warning if other messages were dropped."""
        if self._dropped_count:
            text = (
                f"Dropped {self._dropped_count} log and progress messages of the wrapped server, "
                "because the host did not read them fast enough."
            )
            self._dropped_count = 0
            _logger.warning(text)
            await self._queue.send(log_message("warning", text))
        await self._queue.send(item)

    async def aclose(self) -> None:
        """Close the queue. Its reader still gets the queued messages."""
        await self._queue.aclose()

    async def ask(self, _: object, method: str, params: Mapping[str, Any] | None) -> JsonObject:
        """Pass a server's request to the host, and return the result."""
        return await self.dispatcher.send_raw_request(method, params)

    async def ignore(self, _: object, method: str, params: Mapping[str, Any] | None) -> None:
        """Do nothing with a server's cancellation, because `ask` notices it."""

    async def announce(self) -> None:
        """Tell the host that all lists may have changed, because a server is there or back."""
        for name in ("tools", "prompts", "resources") if self.is_initialized else ():
            await self.dispatcher.notify(f"notifications/{name}/list_changed", None)


def log_message(level: str, text: str) -> SessionMessage:
    """Return a log message of the proxy for the host."""
    params = {"level": level, "logger": "mcp-server-compaction", "data": text}
    return _notification("notifications/message", params)


def _notification(method: str, params: Mapping[str, Any] | None) -> SessionMessage:
    fields = {} if params is None else {"params": dict(params)}
    return SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, **fields))
