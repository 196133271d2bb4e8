"""The command `token`: access tokens for the callers of a team's service."""

import json
from dataclasses import asdict
from functools import partial

import click
from context_compaction import Archive, NotFoundError

from mcp_server_compaction.access.access_tokens import create_access_token
from mcp_server_compaction.access.principal import Scope
from mcp_server_compaction.cli.terminal import say, say_exactly, short_time, with_archive
from mcp_server_compaction.options import own_options


@click.group()
def token() -> None:
    """Create, list or revoke access tokens for the callers of a team's service."""


@token.command("create")
@own_options
@click.pass_context
def token_create(
    context: click.Context,
    *,
    tenant: str = "default",
    user: str,
    scopes: tuple[Scope, ...] = ("read", "write"),
    days: float | None = None,
) -> None:
    """Create a token and print it. It cannot be printed again.

    Options:
        tenant (NAME): Use the archive of this tenant.
        user (NAME): Name this user in the audit log.
        scopes: Allow this kind of access; repeatable.
        days (N): Expire after N days (default: never).
    """
    create = partial(create_access_token, user=user, scopes=scopes, days=days)
    say_exactly(with_archive(context, create, tenant))


@token.command("list")
@own_options
@click.pass_context
def token_list(context: click.Context, *, tenant: str = "default", as_json: bool = False) -> None:
    """List the tokens of a tenant without their secrets.

    Options:
        tenant (NAME): Use the archive of this tenant.
        as_json: Print JSON instead of text.
    """
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
@own_options
@click.pass_context
def token_revoke(
    context: click.Context, token_ids: tuple[str, ...], *, tenant: str = "default"
) -> None:
    """Revoke tokens. The service refuses them within 5 seconds.

    Options:
        tenant (NAME): Use the archive of this tenant.
    """

    async def revoke(archive: Archive) -> None:
        for token_id in token_ids:
            if not await archive.revoke_token(token_id):
                raise NotFoundError(
                    f"Tenant {tenant} has no token {token_id!r}. List the IDs with: token list"
                )
            say(f"Revoked: {token_id} of tenant {tenant}")

    with_archive(context, revoke, tenant)
