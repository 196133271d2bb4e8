"""The command `token`: access tokens for the callers of a team's service."""

import json
from dataclasses import asdict
from functools import partial

import click
from context_compaction import Archive, NotFoundError

from mcp_server_compaction.access.access_tokens import create_access_token
from mcp_server_compaction.access.principal import Scope
from mcp_server_compaction.cli.terminal import (
    json_option,
    say,
    say_exactly,
    short_time,
    with_archive,
)

_tenant = click.option(
    "--tenant", metavar="NAME", default="default", help="Use the archive of this tenant."
)


@click.group()
def token() -> None:
    """Create, list or revoke access tokens for the callers of a team's service."""


@token.command("create")
@_tenant
@click.option("--user", metavar="NAME", required=True, help="Name this user in the audit log.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(("read", "write", "admin")),
    default=("read", "write"),
    help="Allow this kind of access; repeatable.",
)
@click.option("--days", type=float, metavar="N", help="Expire after N days (default: never).")
@click.pass_context
def token_create(
    context: click.Context, tenant: str, user: str, scopes: tuple[Scope, ...], days: float | None
) -> None:
    """Create a token and print it. It cannot be printed again."""
    create = partial(create_access_token, user=user, scopes=scopes, days=days)
    say_exactly(with_archive(context, create, tenant))


@token.command("list")
@_tenant
@json_option
@click.pass_context
def token_list(context: click.Context, tenant: str, as_json: bool) -> None:
    """List the tokens of a tenant without their secrets."""
    tokens = with_archive(context, lambda archive: archive.tokens(), tenant)
    if as_json:
        fields = [asdict(token) for token in tokens]
        for token_fields in fields:
            del token_fields["secret_hash"]
        say_exactly(json.dumps(fields))
        return
    if not tokens:
        say(f"Tenant {tenant} has no tokens. Create one with: token create", err=True)
    for token in tokens:
        seconds = token.expires_seconds
        expires = "never expires" if seconds is None else f"expires {short_time(seconds)}"
        say(f"{token.token_id}  {token.user}  {' '.join(token.scopes)}  {expires}")


@token.command("revoke")
@click.argument("token_ids", nargs=-1, required=True)
@_tenant
@click.pass_context
def token_revoke(context: click.Context, token_ids: tuple[str, ...], tenant: str) -> None:
    """Revoke tokens. The service refuses them within 5 seconds."""

    async def revoke(archive: Archive) -> None:
        for token_id in token_ids:
            if not await archive.revoke_token(token_id):
                raise NotFoundError(
                    f"Tenant {tenant} has no token {token_id!r}. List the IDs with: token list"
                )
            say(f"Revoked: {token_id} of tenant {tenant}")

    with_archive(context, revoke, tenant)
