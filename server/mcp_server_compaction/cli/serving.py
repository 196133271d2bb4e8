"""The commands `serve`, `view` and `wrap`, which run until they are interrupted."""

import gc
from pathlib import Path
from typing import Any

import click
from context_compaction import SettingsError

from mcp_server_compaction.cli.terminal import WrongOption, config_of
from mcp_server_compaction.config import Service
from mcp_server_compaction.options import Port, Positive, options_of, own_options


@click.command(context_settings={"auto_envvar_prefix": "MCP_COMPACTION_SERVE"})
@options_of(Service)
@click.pass_context
def serve(context: click.Context, /, **options: Any) -> None:
    """Serve MCP over standard input and output, or with --http over HTTP or a Unix socket.

    Over HTTP, callers must send a token. The first start creates it in a file that only your user
    can read, and prints the path. For a team, pass --public-url: its callers use tokens created
    with `token create` or by an OAuth server.
    """
    service = Service(**options)
    config = config_of(context, over_http=service.http)
    if service.http:
        from mcp_server_compaction.protocol.http_service import serve_http

        serve_http(config, service)
        return
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise WrongOption(f"{parameter.opts[0]} needs HTTP. Add --http, or omit the option.")
    # Collecting garbage during the imports would take a tenth of the start, and would find none.
    gc.disable()
    from mcp_server_compaction.protocol.app import reduce_gc, serve_stdio

    reduce_gc()
    gc.enable()
    serve_stdio(config)


@click.command()
@own_options
@click.pass_context
def view(context: click.Context, *, port: Port = 0, no_browser: bool = False) -> None:
    """Show the archive in a browser: sessions, compactions and the content of the context.

    Options:
        port: Listen at this port (default: a free one).
        no_browser: Print the address only (default: open a browser).
    """
    from mcp_server_compaction.protocol.http_service import serve_pages

    serve_pages(config_of(context), port=port, opens=not no_browser)


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@own_options
@click.pass_context
def wrap(
    context: click.Context,
    command: tuple[str, ...],
    *,
    config: Path | None = None,
    only: tuple[str, ...] = (),
    url: str | None = None,
    headers: tuple[str, ...] = (),
    # About 16 KB of English text. Hosts warn about or truncate results from 10,000 tokens, and a
    # preview has 600 tokens.
    threshold_tokens: Positive = 4_000,
) -> None:
    """Serve other MCP servers over stdio, and replace their large results by previews.

    COMMAND starts the server; write it after `--`. Each large result is archived, and its preview
    has a pointer for the added tool read_persisted_output; search_transcript searches all of them.
    Everything else passes unchanged.

    Options:
        config (FILE): Serve all servers under mcpServers in this JSON file instead of COMMAND.
        only (NAME): With --config: serve only this server; repeatable (default: all).
        url (URL): Call a server over Streamable HTTP instead of starting COMMAND.
        headers (H): With --url: send this header, written as 'Name: value'; repeatable (default:
            none).
        threshold_tokens (N): Archive results above N tokens.
    """
    from mcp_server_compaction.wrap.serve import run_wrap
    from mcp_server_compaction.wrap.servers import WrappedServer, read_servers

    if [bool(config), bool(command), bool(url)].count(True) != 1:
        raise SettingsError("Give --config FILE, --url URL or, after --, the command of a server.")
    if only and config is None:
        raise WrongOption("--only needs --config.")
    if config is not None:
        servers, notes = read_servers(config, only)
        for note in notes:
            click.echo(note, err=True)
    else:
        servers = [WrappedServer(command, url, dict(map(_header, headers)))]
    run_wrap(servers, config_of(context), threshold_tokens)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"Invalid --header {text!r}. Write it as 'Name: value'.")
    return name.strip(), value.strip()
