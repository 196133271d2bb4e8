"""Running the server over stdio or over HTTP."""

import ipaddress
import logging
import socket
import sys

import anyio
from context_compaction.errors import SettingsError

from mcp_server_compaction.app import build_server
from mcp_server_compaction.config import Config
from mcp_server_compaction.stdio import stdio_streams

# A conversation of a million tokens is about 5 MB of JSON; the SDK's default is 4 MiB.
MAX_BODY_BYTES = 64 * 1024 * 1024


def serve_stdio(config: Config) -> None:
    """Serve one host over standard input and output until it hangs up."""
    _log_to_stderr()
    anyio.run(_serve_stdio, config)


async def _serve_stdio(config: Config) -> None:
    server = build_server(config)
    async with stdio_streams() as (read_stream, write_stream):
        await server.run(read_stream, write_stream, server.create_initialization_options())


def serve_http(config: Config, *, host: str, port: int) -> None:
    """Serve Streamable HTTP at /mcp on a loopback address until interrupted.

    Args:
        config: What the process was told.
        host: A loopback address, or "localhost".
        port: 0 takes a free one; standard error says which.

    Raises:
        SettingsError: The host is no loopback address, or the port is taken.
    """
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def healthy(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    listener = _listen(host, port)
    _log_to_stderr()
    app = build_server(config).streamable_http_app(
        host="127.0.0.1",  # turns on the checks of Host and Origin
        max_request_body_size=MAX_BODY_BYTES,
        custom_starlette_routes=[Route("/healthz", healthy)],
    )
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"Serving on http://{shown}:{listener.getsockname()[1]}/mcp\n")
    sys.stderr.flush()
    # log_config=None: uvicorn would write its access log to standard output.
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="warning"))
    server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket on a loopback address."""
    if not _is_loopback(host):
        raise SettingsError(
            f"{host} is no loopback address. Serve on 127.0.0.1: this version has no "
            "authentication, so other machines must not reach it."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"Port {port} on {host} cannot be used: {error.strerror}. Choose another with --port."
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
