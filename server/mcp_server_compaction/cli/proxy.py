"""The command `proxy` with `run` and `status`."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mcp_server_compaction.cli.terminal import Failure, answer, config_of, json_option, say
from mcp_server_compaction.config import Config

if TYPE_CHECKING:
    from mcp_server_compaction.proxy.sessions import Options

_F = TypeVar("_F", bound=Callable[..., Any])
_SETTINGS = {"auto_envvar_prefix": "MCP_COMPACTION_PROXY"}
# For each option its type, the name of its value and its description.
_OPTIONS: dict[str, tuple[Any, str, str]] = {
    "--upstream": (str, "URL", "Send requests to the API of a model at this address (default: "
        "https://api.anthropic.com; with `run` the one that the host would use)."),
    "--port": (click.IntRange(0, 65_535), "N", "Listen at this port of 127.0.0.1 (default: a free "
        "one)."),
    "--archive": (str, "DIR", "Use this archive (default: that of the program's --archive)."),
    "--policy": (str, "P", "Compact with this policy (default: default)."),
    "--context-window": (click.IntRange(1), "N", "Compact for a window of N tokens (default: 0.8 "
        "of the window of model and host)."),
    "--trigger-tokens": (click.IntRange(1), "N", "Compact from N tokens on, at the latest "
        "(default: the policy's trigger)."),
    "--patience": (click.FloatRange(0.1), "S", "Send a request unedited if its compaction takes S "
        "seconds (default: 20)."),
}  # fmt: skip


def _proxy_options(command: _F) -> _F:
    text = "Archive and count only (default: make requests fit)."
    summaries = click.Choice(("extractive", "caller"))
    help_text = "Write summaries from extracts, or ask the caller's own model, which costs tokens."
    command = click.option("--summaries", type=summaries, default="extractive", help=help_text)(
        command
    )
    command = click.option("--observe", is_flag=True, help=text)(command)
    for name, (kind, metavar, text) in reversed(_OPTIONS.items()):
        command = click.option(name, type=kind, metavar=metavar, help=text)(command)
    return command


@click.group(invoke_without_command=True, context_settings=_SETTINGS)
@_proxy_options
@click.pass_context
def proxy(context: click.Context, /, **options: Any) -> None:
    """Serve a proxy before a model's API, which makes each conversation fit its window.

    Set the base URL of your host to the printed address, or let `proxy run` do that. Messages are
    archived before a request is changed. The proxy listens on this machine only, sends each request
    with the caller's own credentials, and stores no credentials.
    """
    context.obj = {**context.obj, "archive": options["archive"] or context.obj.get("archive")}
    if context.invoked_subcommand is None:
        from mcp_server_compaction.proxy.run import DEFAULT_UPSTREAM, check_upstream
        from mcp_server_compaction.proxy.serve import ProxyThread

        config, compactions = _checked(context, options)
        upstream = check_upstream(options["upstream"] or DEFAULT_UPSTREAM)
        running = ProxyThread(config, compactions, upstream, options["port"] or 0)
        click.echo(f"Proxy listening on {running.status.address}", err=True)
        running.wait()


@proxy.command(context_settings=_SETTINGS)
@_proxy_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(context: click.Context, /, command: tuple[str, ...], **options: Any) -> None:
    """Start COMMAND behind a proxy of its own; write COMMAND after `--`.

    claude, codex and opencode get the address of the proxy and this MCP server, for this run only.
    Other programs get the address in ANTHROPIC_BASE_URL and OPENAI_BASE_URL. The exit code is that
    of COMMAND. If the proxy cannot start, COMMAND runs without it, and standard error says so.
    """
    from mcp_server_compaction.hosts.installing import this_program
    from mcp_server_compaction.proxy.run import (
        check_upstream,
        host_command,
        host_window,
        run_host,
        upstream_for,
    )  # fmt: skip
    from mcp_server_compaction.proxy.serve import ProxyThread

    context.obj = {**context.obj, "archive": options["archive"] or context.obj.get("archive")}
    environment, words = dict(os.environ), list(command)
    config, compactions = _checked(context, options)
    compactions = replace(compactions, host_window=host_window(words, environment))
    upstream = check_upstream(options["upstream"] or upstream_for(words, environment))
    archive = config.archive_address or str(config.archive_folder)
    # The proxy archives the conversation itself.
    server = [*this_program(), "--archive", archive, "--import-sessions", "off"]
    running: ProxyThread | None = None
    try:
        running = ProxyThread(config, compactions, upstream, options["port"] or 0)
        words, environment = host_command(
            words, environment, address=running.status.address, upstream=upstream, server=server
        )
    # Every failure is reported, because the host must start without the proxy as well.
    except Exception as error:  # noqa: BLE001
        say(f"The proxy cannot start, so {command[0]} runs without it: {error}", err=True)
    try:
        code = run_host(words, environment)
    except OSError as error:
        raise Failure(f"Cannot start {command[0]}: {error.strerror}.") from error
    finally:
        if running is not None:
            running.stop()
            say("\n".join(running.status.lines), err=True)
    raise click.exceptions.Exit(code)


def _checked(context: click.Context, options: dict[str, Any]) -> "tuple[Config, Options]":
    """Return the configuration and options. Secrets are removed unless an option says otherwise."""
    from context_compaction import policy_named

    from mcp_server_compaction.proxy.sessions import Options

    context.obj = {**context.obj, "redaction": context.obj.get("redaction") or "on"}
    config = config_of(context)
    policy = policy_named(options["policy"] or config.policy).name
    limits = options["context_window"], options["trigger_tokens"], options["observe"]
    asks_caller, patience_seconds = options["summaries"] == "caller", options["patience"] or 20.0
    return config, Options(policy, *limits, asks_caller, patience_seconds)


@proxy.command()
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show what the proxies of this archive did: edits, tokens kept out, and every fallback."""
    from mcp_server_compaction.proxy.status import read_statuses

    statuses = read_statuses(config_of(context).archive_folder)
    lines = [line for status in statuses for line in status.lines]
    answer(as_json, [item.as_json() for item in statuses], "\n".join(lines) or "No proxy has run.")
