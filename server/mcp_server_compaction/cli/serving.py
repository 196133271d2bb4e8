"""The commands `serve`, `view` and `wrap`, which run until they are interrupted."""

import gc
from pathlib import Path
from typing import Any

import click
from context_compaction import SettingsError

from mcp_server_compaction.cli.terminal import WrongOption, config_of
from mcp_server_compaction.config import Config


@click.command(context_settings={"auto_envvar_prefix": "MCP_COMPACTION_SERVE"})
@click.option(
    "--http", is_flag=True, help="Serve Streamable HTTP at /mcp (default: standard input/output)."
)
@click.option("--host", default="127.0.0.1", help="With --http: listen at this address.")
@click.option(
    "--port",
    default=8765,
    type=click.IntRange(0, 65_535),
    help="With --http: listen at this port; 0 chooses a free one.",
)
@click.option(
    "--unix-socket",
    type=click.Path(path_type=Path),
    help="With --http: listen at this path instead, for your user only and without a token.",
)
@click.option(
    "--workers",
    default=1,
    type=click.IntRange(1, 64),
    help="With --http: start this many processes.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="With --http: serve a team that calls this URL, behind a proxy with TLS (default: serve "
    "your user only).",
)
@click.option(
    "--oauth-issuer",
    metavar="URL",
    help="With --public-url: accept tokens of this authorization server (default: none).",
)
@click.option(
    "--oauth-audience",
    metavar="NAME",
    help="Require this audience in its tokens (default: the public URL with /mcp).",
)
@click.option(
    "--oauth-jwks-url",
    metavar="URL",
    help="Read its keys from this address (default: the address in its metadata).",
)
@click.option(
    "--oauth-tenant-claim",
    metavar="NAME",
    default="tenant",
    help="Read the tenant from this claim of its tokens.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --http: log to this file who read or deleted data (default: not logged).",
)
@click.option(
    "--metrics",
    "has_metrics",
    is_flag=True,
    help="With --http: serve Prometheus metrics at /metrics (default: not served).",
)
@click.pass_context
def serve(context: click.Context, /, http: bool, **options: Any) -> None:
    """Serve MCP over standard input and output, or with --http over HTTP or a Unix socket.

    Over HTTP, callers must send a token. The first start creates it in a file that only your user
    can read, and prints the path. For a team, pass --public-url: its callers use tokens created
    with `token create` or by an OAuth server.
    """
    config = config_of(context, over_http=http)
    if http:
        _serve_http(config, **options)
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


def _serve_http(
    config: Config,
    *,
    public_url: str | None,
    oauth_issuer: str | None,
    oauth_audience: str | None,
    oauth_jwks_url: str | None,
    oauth_tenant_claim: str,
    **options: Any,
) -> None:
    from mcp_server_compaction.access.oauth import OAuthSettings
    from mcp_server_compaction.protocol.http_service import (
        MCP_PATH,
        Service,
        check_public_url,
        serve_http,
    )

    public = None if public_url is None else check_public_url(public_url)
    if public is not None and options["unix_socket"] is not None:
        raise SettingsError(
            "--unix-socket is for one user, --public-url for a team. Omit one of the two."
        )
    if public is None and (oauth_issuer or oauth_audience or oauth_jwks_url):
        raise SettingsError("OAuth tokens are issued for the URL of the service. Add --public-url.")
    if public is not None and config.roots.folders:
        raise SettingsError("A team's service cannot read files of this machine. Omit --root.")
    oauth = None
    if public is not None and oauth_issuer is not None:
        audience = oauth_audience or f"{public}{MCP_PATH}"
        oauth = OAuthSettings(oauth_issuer, audience, oauth_jwks_url, oauth_tenant_claim)
    if options["has_metrics"] and options["workers"] > 1:
        raise SettingsError(
            "--metrics works with one worker only, because each request reaches another process. "
            "Start several services with one worker each, or export metrics by OTLP."
        )
    service = Service(public_url=public, oauth=oauth, **options)
    serve_http(config, service)


@click.command()
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65_535),
    help="Listen at this port (default: a free one).",
)
@click.option(
    "--no-browser", is_flag=True, help="Print the address only (default: open a browser)."
)
@click.pass_context
def view(context: click.Context, port: int, no_browser: bool) -> None:
    """Show the archive in a browser: sessions, compactions and the content of the context."""
    from mcp_server_compaction.protocol.http_service import serve_pages

    serve_pages(config_of(context), port=port, opens=not no_browser)


@click.command()
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Serve all servers under mcpServers in this JSON file instead of COMMAND.",
)
@click.option(
    "--only",
    "names",
    metavar="NAME",
    multiple=True,
    help="With --config: serve only this server; repeatable (default: all).",
)
@click.option(
    "--url", metavar="URL", help="Call a server over Streamable HTTP instead of starting COMMAND."
)
@click.option(
    "--header",
    "headers",
    metavar="H",
    multiple=True,
    help="With --url: send this header, written as 'Name: value'; repeatable (default: none).",
)
@click.option(
    "--threshold-tokens",
    type=click.IntRange(1),
    # About 16 KB of English text. Hosts warn about or truncate results from 10,000 tokens, and a
    # preview has 600 tokens.
    default=4_000,
    metavar="N",
    help="Archive results above N tokens.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def wrap(
    context: click.Context,
    config_file: Path | None,
    names: tuple[str, ...],
    url: str | None,
    headers: tuple[str, ...],
    threshold_tokens: int,
    command: tuple[str, ...],
) -> None:
    """Serve other MCP servers over stdio, and replace their large results by previews.

    COMMAND starts the server; write it after `--`. Each large result is archived, and its preview
    has a pointer for the added tool read_persisted_output; search_transcript searches all of them.
    Everything else passes unchanged.
    """
    from mcp_server_compaction.wrap.serve import run_wrap
    from mcp_server_compaction.wrap.servers import WrappedServer, read_servers

    if [bool(config_file), bool(command), bool(url)].count(True) != 1:
        raise SettingsError("Give --config FILE, --url URL or, after --, the command of a server.")
    if names and config_file is None:
        raise WrongOption("--only needs --config.")
    if config_file is not None:
        servers, notes = read_servers(config_file, names)
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
