"""Running the server over stdio."""

import anyio

from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.app import build_server
from mcp_server_compaction.protocol.logs import log_to_stderr
from mcp_server_compaction.protocol.stdio import stdio_streams


def serve_stdio(config: Config) -> None:
    """Serve one host over standard input and output until it hangs up."""
    log_to_stderr()
    anyio.run(_serve_stdio, config)


async def _serve_stdio(config: Config) -> None:
    server = build_server(config)
    async with stdio_streams() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())
