"""`token create`, `list` and `revoke`: how a team's callers come in."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import anyio
from context_compaction.archive import AccessToken
from context_compaction.archive.opening import open_archive
from context_compaction.errors import NotFoundError

from mcp_server_compaction.access.principal import Scope
from mcp_server_compaction.access.tokens import create_token
from mcp_server_compaction.cli.terminal import say, short_time
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.sessions import iso_time


def run_create(
    config: Config, *, tenant: str, user: str, scopes: Sequence[Scope], days: float | None
) -> None:
    """Print a new token.

    Raises:
        SettingsError: The tenant, the user or the time cannot be used.
        ArchiveError: The archive fails.
    """

    async def work() -> str:
        async with open_archive(config.archive) as archive:
            own = await archive.for_tenant(tenant)
            return await create_token(own, user=user, scopes=scopes, days=days)

    say(anyio.run(work))


def run_list(config: Config, *, tenant: str, as_json: bool) -> None:
    """Print a tenant's tokens, the oldest first.

    Raises:
        ArchiveError: The archive fails.
    """

    async def work() -> list[AccessToken]:
        async with open_archive(config.archive) as archive:
            return await (await archive.for_tenant(tenant)).tokens()

    tokens = anyio.run(work)
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


def run_revoke(config: Config, *, tenant: str, token_ids: Sequence[str]) -> None:
    """Let tokens in no longer, and say so of each.

    Raises:
        NotFoundError: There is no such token; those before it were revoked.
        ArchiveError: The archive fails.
    """

    async def work() -> None:
        async with open_archive(config.archive) as archive:
            own = await archive.for_tenant(tenant)
            for token_id in token_ids:
                if not await own.revoke_token(token_id):
                    raise NotFoundError(
                        f"Tenant {tenant} has no token {token_id!r}. `token list` shows the ids."
                    )
                say(f"Revoked {token_id} of tenant {tenant}.")

    anyio.run(work)
