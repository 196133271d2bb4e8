"""Compaction in the process of an agent framework."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import metadata
from os import environ
from typing import Any, TypeAlias, TypeVar

import anyio
from context_compaction import (
    Archive,
    CompactionError,
    CompactRequest,
    Query,
    compact,
    compact_json,
    open_archive,
)

from mcp_server_compaction.client import CompactionClient, Json, Mode, Reply, send_fitted
from mcp_server_compaction.program import ARCHIVE_VARIABLE, archive_place

T = TypeVar("T")


class Compaction:
    """Makes any number of conversations fit, in this process and without a server.

    A conversation is recognized by its messages, so pass its whole history at every call. Calls may
    run concurrently and in several event loops.

    Args:
        archive: Folder or address of the archive. None for the archive of this user.
        options: Fields of `CompactRequest`, for example `context_window`, `model` and `policy`.
    """

    def __init__(self, *, archive: str | None = None, **options: Any) -> None:
        self._archive = archive
        self._request = CompactRequest(**options)

    async def fit(self, messages: Sequence[Json], *, mode: Mode = "auto") -> list[Json]:
        """Return the list to send instead of `messages`, with the mode of `CompactRequest`.

        Raises:
            CompactionError: The list cannot be read or archived. It is unchanged.
        """
        request = replace(self._request, mode=mode)
        async with self._opened() as archive:
            return list((await compact(list(messages), request, archive=archive)).messages)

    async def send(
        self, messages: Sequence[Json], request: Callable[[list[Json]], Awaitable[Reply]]
    ) -> tuple[list[Json], Reply]:
        """Fit the list and send it. If the provider finds it too long, shrink and send it again.

        Returns:
            The list that the model received, and the return value of `request`.
        """
        return await send_fitted(self.fit, messages, request)

    @property
    def tools(self) -> tuple[Callable[..., Awaitable[str]], ...]:
        """Functions for the model, which read and search the content that left its context."""

        async def read_persisted_output(output_id: str, pattern: str = "") -> str:
            """Read archived content by the o_ ID or transcript:// pointer in a placeholder.

            With a pattern, only the lines that match this regular expression.
            """
            from mcp_server_compaction.protocol.schemas import ReadArguments
            from mcp_server_compaction.protocol.tools.archived import read_output

            arguments = ReadArguments(output_id=output_id, pattern=pattern or None)
            try:
                async with self._opened() as archive:
                    result = await read_output(archive, arguments)
            except CompactionError as error:
                return str(error)
            return "\n".join(getattr(block, "text", "") for block in result.content)

        async def search_transcript(query: str) -> str:
            """Search archived messages and outputs, including what left your context."""
            from mcp_server_compaction.protocol.tools.archived import search_briefly

            try:
                async with self._opened() as archive:
                    reply = await search_briefly(archive, Query(query))
            except CompactionError as error:
                return str(error)
            return compact_json(reply.model_dump(mode="json", exclude_none=True))

        return read_persisted_output, search_transcript

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Archive]:
        # Opened for each call, because frameworks run several event loops and close nothing.
        folder, address = archive_place(self._archive or environ.get(ARCHIVE_VARIABLE))
        async with open_archive(address or folder) as archive:
            yield archive


# Makes conversations fit: a `CompactionClient` only one.
Fitter: TypeAlias = Compaction | CompactionClient


def blocking(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run an async function to its end, also in a thread that has an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, call).result()


def require(module: str, distribution: str) -> None:
    """Check that a framework is installed, and that it accepts the installed `mcp`.

    Raises:
        ImportError: The text has the command that installs the framework, or says which version
            of `mcp` it needs.
    """
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError as error:
        raise ImportError(
            f"{module} needs {distribution}. Run: pip install {distribution}"
        ) from error
    present = metadata.version("mcp")
    needed = [Requirement(line) for line in lines if line.startswith("mcp")]
    for one in needed:
        is_used = one.marker is None or one.marker.evaluate({"extra": ""})
        if one.name == "mcp" and is_used and not one.specifier.contains(present, prereleases=True):
            raise ImportError(
                f"{module}: {distribution} needs mcp{one.specifier}, and mcp-server-compaction "
                f"needs mcp {present}. Install {distribution} in its own environment, start "
                "the server there by its absolute path, and pass a CompactionClient."
            )
