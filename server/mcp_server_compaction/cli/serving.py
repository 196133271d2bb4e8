"""The commands `serve`, `view`, `wrap` and `proxy`, which run until they are interrupted."""

import gc
import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from context_compaction import SettingsError

from mcp_server_compaction.cli.terminal import Failure, WrongOption, answer, config_of, say
from mcp_server_compaction.config import (
    Config,
    Port,
    Positive,
    ProxyOptions,
    Service,
    options_of,
    own_options,
)

_SETTINGS = {"auto_envvar_prefix": "MCP_COMPACTION_PROXY"}


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
    from mcp_server_compaction.wrap.proxy import run_wrap
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


@click.group(invoke_without_command=True, context_settings=_SETTINGS)
@options_of(ProxyOptions)
@click.pass_context
def proxy(context: click.Context, /, **options: Any) -> None:
    """Serve a proxy before a model's API, which makes each conversation fit its window.

    Set the base URL of your host to the printed address, or let `proxy run` do that. Messages are
    archived before a request is changed. The proxy listens on this machine only, sends each request
    with the caller's own credentials, and stores no credentials.
    """
    context.default_map = {"run": options}  # options before `run` count as well
    if context.invoked_subcommand is None:
        from mcp_server_compaction.proxy.app import running_proxy

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with running_proxy(*_checked(context, options)) as (figures, thread):
            click.echo(f"Proxy listening on {figures.address}", err=True)
            # An interrupted join would take the thread for ended.
            while thread.is_alive():
                time.sleep(0.5)


@proxy.command(context_settings=_SETTINGS, params=[*proxy.params])
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **options: Any) -> None:
    """Start COMMAND behind its own proxy; write COMMAND after `--`.

    claude, codex and opencode get the address of the proxy and this MCP server, for this run only.
    Other programs get the address in ANTHROPIC_BASE_URL and OPENAI_BASE_URL. The exit code is that
    of COMMAND. If the proxy cannot start, COMMAND runs without it, and standard error says so.
    """
    from mcp_server_compaction.program import this_program
    from mcp_server_compaction.proxy.app import running_proxy
    from mcp_server_compaction.proxy.run import host_command, run_host

    environment, words = dict(os.environ), list(command)
    config, checked = _checked(context, options, words)
    archive = config.archive_address or str(config.archive_folder)
    # The proxy archives the conversation itself.
    server = [*this_program(), "--archive", archive, "--import-sessions", "off"]
    started = list[Any]()
    with ExitStack() as stack:
        try:
            figures, _ = stack.enter_context(running_proxy(config, checked))
            started.append(figures)
            words, environment = host_command(
                words, environment, figures.address, figures.upstream, server
            )
        # Every failure is reported, because the host must start without the proxy as well.
        except Exception as error:  # noqa: BLE001
            say(f"The proxy cannot start, so {command[0]} runs without it: {error}", err=True)
        try:
            code = run_host(words, environment)
        except OSError as error:
            raise Failure(f"Cannot start {command[0]}: {error.strerror}.") from error
    for figures in started:
        say("\n".join(figures.lines), err=True)
    raise click.exceptions.Exit(code)


def _checked(
    context: click.Context, options: dict[str, Any], command: Sequence[str] = ()
) -> tuple[Config, ProxyOptions]:
    """Return the configuration and the checked options. Secrets are removed from the archive."""
    from context_compaction import policy_named

    from mcp_server_compaction.proxy.run import check_upstream, host_window, upstream_for

    context.obj = {**context.obj, "redaction": context.obj.get("redaction") or "on"}
    config = config_of(context)
    checked = ProxyOptions(**options, host_window=host_window(command, os.environ))
    upstream = checked.upstream or upstream_for(command, os.environ)
    policy = policy_named(checked.policy or config.policy).name
    return config, replace(checked, upstream=check_upstream(upstream), policy=policy)


@proxy.command()
@own_options
@click.pass_context
def status(context: click.Context, *, as_json: bool = False) -> None:
    """Show what the proxies of this archive did: edits, tokens kept out, and every fallback.

    Options:
        as_json: Print JSON instead of text.
    """
    from mcp_server_compaction.proxy.status import read_statuses

    statuses = read_statuses(config_of(context).archive_folder)
    lines = [line for status in statuses for line in status.lines]
    answer(as_json, list(map(asdict, statuses)), "\n".join(lines) or "No proxy has run.")
