"""`serve`, `view` and `wrap`: commands that answer until they are interrupted."""

import gc
from pathlib import Path
from typing import Any

import click
from context_compaction import SettingsError

from mcp_server_compaction.cli.terminal import WrongOption, config_of
from mcp_server_compaction.config import Config


@click.command(context_settings={"auto_envvar_prefix": "MCP_COMPACTION_SERVE"})
@click.option("--http", is_flag=True, help="Serve Streamable HTTP at /mcp instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65_535))
@click.option(
    "--unix-socket",
    type=click.Path(path_type=Path),
    help="With --http: serve on this path, for this user alone, without a token.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="With --http: how many processes answer.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="With --http: what a team's callers call the service, behind a proxy that has TLS.",
)
@click.option("--oauth-issuer", metavar="URL", help="Take tokens of this authorization server.")
@click.option(
    "--oauth-audience", metavar="NAME", help="What they are made for; by default the public URL."
)
@click.option("--oauth-jwks-url", metavar="URL", help="Its keys; by default what its metadata say.")
@click.option(
    "--oauth-tenant-claim",
    metavar="NAME",
    default="tenant",
    show_default=True,
    help="The claim that names the tenant.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --http: write down here who read and deleted what.",
)
@click.option(
    "--log",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="With --http: what standard error gets.",
)
@click.option(
    "--metrics", "has_metrics", is_flag=True, help="With --http: show Prometheus /metrics."
)
@click.pass_context
def serve(context: click.Context, /, http: bool, **options: Any) -> None:
    """Serve MCP: over stdio, or with --http on a loopback address or a Unix socket.

    On an address, callers must send a token. It is made by the first start, in a file that only
    you may read, whose place is shown. For a team, name the service with --public-url: callers
    then show tokens of theirs, made by `token create` or by an OAuth server.
    """
    config = config_of(context, over_http=http)
    if http:
        _serve_http(config, **options)
        return
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is click.core.ParameterSource.COMMANDLINE:
            flag = parameter.opts[0]
            raise WrongOption(f"{flag} is for serving over HTTP. Add --http, or leave it out.")
    # What is imported stays: looking for garbage in it would be a tenth of the start.
    gc.disable()
    from mcp_server_compaction.protocol.app import collect_seldom, serve_stdio

    collect_seldom()
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
    log: str,
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
        raise SettingsError("A Unix socket is for one user: leave it or --public-url out.")
    if public is None and (oauth_issuer or oauth_audience or oauth_jwks_url):
        raise SettingsError(
            "Tokens of an authorization server are made for a service that has a name. Give it "
            "with --public-url."
        )
    if public is not None and config.roots.folders:
        raise SettingsError("A team's service reads no files of this machine. Leave --root out.")
    oauth = None
    if public is not None and oauth_issuer is not None:
        audience = oauth_audience or f"{public}{MCP_PATH}"
        oauth = OAuthSettings(oauth_issuer, audience, oauth_jwks_url, oauth_tenant_claim)
    if options["has_metrics"] and options["workers"] > 1:
        raise SettingsError(
            "Prometheus asks one process, and would get the figures of another one each time. Run "
            "several services of one worker each, or send figures by OTLP."
        )
    service = Service(public_url=public, oauth=oauth, logs_json=log == "json", **options)
    serve_http(config, service)


@click.command()
@click.option("--port", default=0, type=click.IntRange(0, 65_535), help="A free one if left out.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.pass_context
def view(context: click.Context, port: int, no_browser: bool) -> None:
    """Look into the archive with a browser: sessions, compactions, what fills the context."""
    from mcp_server_compaction.protocol.http_service import serve_pages

    serve_pages(config_of(context), port=port, opens=not no_browser)


@click.command()
@click.option("--url", metavar="URL", help="A server that answers Streamable HTTP.")
@click.option("--header", "headers", metavar="H", multiple=True, help="For URL, as 'Name: value'.")
@click.option(
    "--threshold-tokens",
    type=click.IntRange(1),
    # About 16 KB of English. Hosts warn of results above 10,000 tokens or truncate them. A preview
    # has about 600 tokens.
    default=4_000,
    show_default=True,
    metavar="N",
    help="Shorten results with more tokens.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def wrap(
    context: click.Context,
    url: str | None,
    headers: tuple[str, ...],
    threshold_tokens: int,
    command: tuple[str, ...],
) -> None:
    """Run another MCP server and replace its large results by a preview and a pointer.

    COMMAND, after --, starts that server. Everything else passes unchanged. The tool
    read_persisted_output is added.
    """
    from mcp_server_compaction.wrap.serve import WrappedServer, run_wrap

    server = WrappedServer(command, url, dict(map(_header, headers)))
    run_wrap(server, config_of(context), threshold_tokens)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header has no name. Give it as 'Name: value'.")
    return name.strip(), value.strip()
