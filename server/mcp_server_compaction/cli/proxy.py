"""The command `proxy` with `run` and `status`."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import click

from mcp_server_compaction.cli.terminal import Failure, answer, config_of, say
from mcp_server_compaction.config import Config, ProxyOptions
from mcp_server_compaction.options import options_of, own_options

_SETTINGS = {"auto_envvar_prefix": "MCP_COMPACTION_PROXY"}


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
        from mcp_server_compaction.proxy.serve import running_proxy

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
    """Start COMMAND behind a proxy of its own; write COMMAND after `--`.

    claude, codex and opencode get the address of the proxy and this MCP server, for this run only.
    Other programs get the address in ANTHROPIC_BASE_URL and OPENAI_BASE_URL. The exit code is that
    of COMMAND. If the proxy cannot start, COMMAND runs without it, and standard error says so.
    """
    from mcp_server_compaction.hosts.installing import this_program
    from mcp_server_compaction.proxy.run import host_command, run_host
    from mcp_server_compaction.proxy.serve import running_proxy

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
