"""The command `proxy` with `run` and `status`."""

from typing import Any

import click

from mcp_server_compaction.cli.terminal import answer, config_of, json_option
from mcp_server_compaction.config import Config

_DEFAULT_UPSTREAM = "https://api.anthropic.com"


@click.group(
    invoke_without_command=True, context_settings={"auto_envvar_prefix": "MCP_COMPACTION_PROXY"}
)
@click.option(
    "--upstream",
    metavar="URL",
    default=_DEFAULT_UPSTREAM,
    help="Send requests to the API of a model at this address.",
)
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65_535),
    help="Listen at this port of 127.0.0.1 (default: a free one).",
)
@click.option(
    "--archive",
    "own_archive",
    metavar="DIR",
    help="Use this archive (default: the archive of the program's option --archive).",
)
@click.option("--policy", default=None, metavar="P", help="Compact with this policy.")
@click.option(
    "--context-window",
    type=click.IntRange(1),
    metavar="N",
    help="Compact for a window of N tokens (default: 0.8 of the window of the model or host).",
)
@click.option(
    "--trigger-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="Compact from N tokens on, if the policy would not do so earlier.",
)
@click.option(
    "--observe", is_flag=True, help="Archive and count only (default: make requests fit)."
)
@click.option(
    "--patience",
    type=click.FloatRange(0.1),
    default=20.0,
    metavar="S",
    help="Send a request unedited if its compaction takes S seconds.",
)
@click.pass_context
def proxy(context: click.Context, /, **options: Any) -> None:
    """Serve a proxy before a model's API, which makes each conversation fit its window.

    Set the base URL of your host to the address that this command prints, or let `proxy run` do
    that. Messages are archived before a request is changed. The proxy listens on this machine only,
    sends each request with the caller's own credentials, and stores no credentials.
    """
    if own := options.pop("own_archive"):
        context.obj = {**context.obj, "archive": own}
    if context.invoked_subcommand is None:
        from mcp_server_compaction.proxy.app import check_upstream
        from mcp_server_compaction.proxy.serve import listen, serve_proxy

        config, upstream = _config(context), check_upstream(options["upstream"])
        serve_proxy(
            config, _options(config, options), upstream, listen(options["port"]), announces=True
        )
    context.meta["proxy"] = options


def _config(context: click.Context) -> Config:
    """Return the configuration. Secrets are removed unless an option says otherwise."""
    flags = context.obj
    context.obj = {**flags, "redaction": flags.get("redaction") or "on"}
    return config_of(context)


def _options(config: Config, options: dict[str, Any]) -> Any:
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
