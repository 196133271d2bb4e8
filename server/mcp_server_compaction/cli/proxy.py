"""The command `proxy` with `run` and `status`."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mcp_server_compaction.cli.terminal import Failure, answer, config_of, json_option, say
from mcp_server_compaction.config import Config

if TYPE_CHECKING:
    from mcp_server_compaction.proxy.serve import ProxyThread
    from mcp_server_compaction.proxy.sessions import Options

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--upstream",
        metavar="URL",
        help="Send requests to the API of a model at this address (default: "
        "https://api.anthropic.com; with `run` the one that the host would use).",
    ),
    click.option(
        "--port",
        default=0,
        type=click.IntRange(0, 65_535),
        help="Listen at this port of 127.0.0.1; 0 chooses a free one.",
    ),
    click.option(
        "--archive",
        metavar="DIR",
        help="Use this archive (default: the archive of the program's option --archive).",
    ),
    click.option("--policy", metavar="P", help="Compact with this policy (default: default)."),
    click.option(
        "--context-window",
        type=click.IntRange(1),
        metavar="N",
        help="Compact for a window of N tokens (default: 0.8 of the window of model and host).",
    ),
    click.option(
        "--trigger-tokens",
        type=click.IntRange(1),
        metavar="N",
        help="Compact from N tokens on, if the policy would not do so earlier.",
    ),
    click.option(
        "--observe", is_flag=True, help="Archive and count only (default: make requests fit)."
    ),
    click.option(
        "--patience",
        type=click.FloatRange(0.1),
        default=20.0,
        metavar="S",
        help="Send a request unedited if its compaction takes S seconds.",
    ),
)


def _proxy_options(command: _F) -> _F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group(
    invoke_without_command=True, context_settings={"auto_envvar_prefix": "MCP_COMPACTION_PROXY"}
)
@_proxy_options
@click.pass_context
def proxy(context: click.Context, /, **options: Any) -> None:
    """Serve a proxy before a model's API, which makes each conversation fit its window.

    Set the base URL of your host to the printed address, or let `proxy run` do that. Messages are
    archived before a request is changed. The proxy listens on this machine only, sends each request
    with the caller's own credentials, and stores no credentials.
    """
    context.obj = {**context.obj, "archive": options["archive"] or context.obj.get("archive")}
    if context.invoked_subcommand is not None:
        return
    from mcp_server_compaction.proxy.run import DEFAULT_UPSTREAM, check_upstream
    from mcp_server_compaction.proxy.serve import listen, serve_proxy

    config, upstream = _config(context), check_upstream(options["upstream"] or DEFAULT_UPSTREAM)
    serve_proxy(config, _compactions(config, options), upstream, listen(options["port"]))


@proxy.command(context_settings={"auto_envvar_prefix": "MCP_COMPACTION_PROXY"})
@_proxy_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **options: Any) -> None:
    """Start COMMAND behind a proxy of its own; write COMMAND after `--`.

    claude, codex and opencode get the address of the proxy and this MCP server, for this run only.
    Other programs get the address in ANTHROPIC_BASE_URL and OPENAI_BASE_URL. The exit code is that
    of COMMAND. If the proxy cannot start, COMMAND runs without it, and standard error says so.
    """
    from mcp_server_compaction.proxy.run import check_upstream, host_window, run_host, upstream_for

    context.obj = {**context.obj, "archive": options["archive"] or context.obj.get("archive")}
    config, environment = _config(context), dict(os.environ)
    upstream = check_upstream(options["upstream"] or upstream_for(command, environment))
    compactions = replace(
        _compactions(config, options), host_window=host_window(command, environment)
    )
    started: ProxyThread | None = None
    words = list(command)
    try:
        started, words, environment = _start(
            config, compactions, upstream, options["port"], words, environment
        )
    # Every failure is reported, because the host must start without the proxy as well.
    except Exception as error:  # noqa: BLE001
        say(f"The proxy cannot start, so {command[0]} runs without it: {error}", err=True)
    try:
        code = run_host(words, environment)
    except OSError as error:
        raise Failure(f"Cannot start {command[0]}: {error.strerror}.") from error
    finally:
        if started is not None:
            started.stop()
            say("\n".join(started.summary()), err=True)
    raise click.exceptions.Exit(code)


def _start(
    config: Config,
    compactions: "Options",
    upstream: str,
    port: int,
    command: list[str],
    environment: Mapping[str, str],
) -> "tuple[ProxyThread, list[str], dict[str, str]]":
    """Start the proxy, and return it with the command and environment of the host."""
    from mcp_server_compaction.hosts.installing import this_program
    from mcp_server_compaction.proxy.run import host_command
    from mcp_server_compaction.proxy.serve import ProxyThread, address_of, listen

    archive = config.archive_address or str(config.archive_folder)
    # The proxy archives the conversation itself.
    server = [*this_program(), "--archive", archive, "--import-sessions", "off"]
    listener = listen(port)
    words, variables = host_command(
        command, environment, address=address_of(listener), upstream=upstream, server=server
    )
    return ProxyThread(config, compactions, upstream, listener), words, variables


def _config(context: click.Context) -> Config:
    """Return the configuration. Secrets are removed unless an option says otherwise."""
    context.obj = {**context.obj, "redaction": context.obj.get("redaction") or "on"}
    return config_of(context)


def _compactions(config: Config, options: dict[str, Any]) -> "Options":
    from context_compaction import policy_named

    from mcp_server_compaction.proxy.sessions import Options

    policy = options["policy"] or config.policy
    policy_named(policy)
    return Options(
        policy,
        options["context_window"],
        options["trigger_tokens"],
        is_observing=options["observe"],
        patience_seconds=options["patience"],
    )


@proxy.command()
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show what the proxies of this archive did: edits, tokens kept out, and every fallback."""
    from mcp_server_compaction.proxy.status import read_statuses, status_lines

    statuses = read_statuses(config_of(context).archive_folder)
    lines = [line for status in statuses for line in status_lines(status)]
    answer(as_json, [item.as_json() for item in statuses], "\n".join(lines) or "No proxy has run.")
