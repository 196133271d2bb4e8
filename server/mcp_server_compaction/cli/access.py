"""`token`: how a team's callers come in."""

import json
from dataclasses import asdict

import click
from context_compaction import AccessToken, Archive, NotFoundError

from mcp_server_compaction.access.access_tokens import create_access_token
from mcp_server_compaction.access.principal import Scope
from mcp_server_compaction.cli.terminal import json_option, say, short_time, with_archive
from mcp_server_compaction.protocol.sessions import iso_time

_tenant = click.option(
    "--tenant", metavar="NAME", default="default", show_default=True, help="Whose archive it opens."
)


@click.group()
def token() -> None:
    """Tokens by which a team's callers come in: create, list, revoke."""


@token.command("create")
@_tenant
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
def token_create(
    context: click.Context, tenant: str, user: str, scopes: tuple[Scope, ...], days: float | None
) -> None:
    """Make a token and print it; it is shown only now."""

    async def create(own: Archive) -> str:
        return await create_access_token(own, user=user, scopes=scopes, days=days)

    say(with_archive(context, create, tenant))


@token.command("list")
@_tenant
@json_option
@click.pass_context
def token_list(context: click.Context, tenant: str, as_json: bool) -> None:
    """List a tenant's tokens, without their secrets."""

    async def listed(own: Archive) -> list[AccessToken]:
        return await own.tokens()

    tokens = with_archive(context, listed, tenant)
    if as_json:
        shown = [asdict(token) for token in tokens]
        for one in shown:
            del one["secret_hash"]
        say(json.dumps(shown))
        return
    if not tokens:
        say(f"Tenant {tenant} has no tokens: `token create` makes one.", err=True)
    for token in tokens:
        until = token.expires_seconds
        expires = "never expires" if until is None else f"until {short_time(iso_time(until))}"
        say(f"{token.token_id}  {token.user}  {' '.join(token.scopes)}  {expires}")


@token.command("revoke")
@click.argument("token_ids", nargs=-1, required=True)
@_tenant
@click.pass_context
def token_revoke(context: click.Context, token_ids: tuple[str, ...], tenant: str) -> None:
    """Let tokens in no longer, from some seconds on."""

    async def revoke(own: Archive) -> None:
        for token_id in token_ids:
            if not await own.revoke_token(token_id):
                raise NotFoundError(
                    f"Tenant {tenant} has no token {token_id!r}. `token list` shows the ids."
                )
            say(f"Revoked {token_id} of tenant {tenant}.")

    with_archive(context, revoke, tenant)
