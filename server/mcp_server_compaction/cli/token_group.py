"""`token`: what its three commands take. What they do is in `token.py`."""

from typing import Any

import click

from mcp_server_compaction.cli.running import config_of, run


@click.group()
def token() -> None:
    """Tokens by which a team's callers come in: create, list, revoke."""


@token.command("create")
@click.option(
    "--tenant", metavar="NAME", default="default", show_default=True, help="Whose archive it opens."
)
@click.option("--user", metavar="NAME", required=True, help="Whose it is, for the audit log.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(("read", "write", "admin")),
    default=("read", "write"),
    show_default=True,
    help="What it allows; may be given again.",
)
@click.option("--days", type=float, metavar="N", help="How long it is good; for ever if left out.")
@click.pass_context
def token_create(context: click.Context, /, **wanted: Any) -> None:
    """Make a token and print it; it is shown only now."""
    from mcp_server_compaction.cli.token import run_create

    run(lambda: run_create(config_of(context), **wanted))


@token.command("list")
@click.option("--tenant", metavar="NAME", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def token_list(context: click.Context, tenant: str, as_json: bool) -> None:
    """List a tenant's tokens, without their secrets."""
    from mcp_server_compaction.cli.token import run_list

    run(lambda: run_list(config_of(context), tenant=tenant, as_json=as_json))


@token.command("revoke")
@click.argument("token_ids", nargs=-1, required=True)
@click.option("--tenant", metavar="NAME", default="default", show_default=True)
@click.pass_context
def token_revoke(context: click.Context, token_ids: tuple[str, ...], tenant: str) -> None:
    """Let tokens in no longer, from some seconds on."""
    from mcp_server_compaction.cli.token import run_revoke

    run(lambda: run_revoke(config_of(context), tenant=tenant, token_ids=token_ids))
