"""Verifiers: the caller that a token identifies."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from cachetools import TTLCache
from context_compaction.archive import Archive
from context_compaction.errors import SettingsError

from mcp_server_compaction.access.principal import LOCAL_USER, SCOPES, Principal, Scope
from mcp_server_compaction.access.tokens import BROWSER, is_valid, parse_token

# How long a revoked token may still be good, and how often a store is asked for each.
KNOWN_SECONDS = 5.0
_KNOWN_TOKENS = 10_000


class Verifier(Protocol):
    """Returns the caller that a token identifies."""

    async def verify(self, token: str) -> Principal | None:
        """The caller who shows `token`; None where it is none of ours, or no longer good."""
        ...


class LocalToken:
    """The token that lies in a file of the user's alone."""

    def __init__(self, token: str) -> None:
        self._token = token.encode("ascii")

    async def verify(self, token: str) -> Principal | None:
        """See `Verifier.verify`."""
        is_it = hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token)
        return LOCAL_USER if is_it else None


class StoredTokens:
    """The tokens that the archive keeps for its tenants."""

    def __init__(self, archive: Callable[[], Awaitable[Archive]]) -> None:
        self._archive = archive
        self._known: TTLCache[str, Principal] = TTLCache(_KNOWN_TOKENS, KNOWN_SECONDS)
        # Apart, so that a flood of these pushes no good one out.
        self._refused: TTLCache[str, None] = TTLCache(_KNOWN_TOKENS, KNOWN_SECONDS)

    async def verify(self, token: str) -> Principal | None:
        """See `Verifier.verify`.

        Raises:
            ArchiveError: The archive cannot be asked.
        """
        known = self._known.get(token)
        if known is not None or token in self._refused:
            return known
        found = await self._looked_up(token)
        if found is None:
            self._refused[token] = None
        else:
            self._known[token] = found
        return found

    async def _looked_up(self, token: str) -> Principal | None:
        named = parse_token(token)
        if named is None:
            return None
        archive = await self._archive()
        try:
            stored = await archive.token(named.token_id, tenant=named.tenant)
        except SettingsError:
            return None  # no tenant can have that name
        if stored is None or not is_valid(stored, named.secret):
            return None
        scopes = frozenset[Scope](scope for scope in SCOPES if scope in stored.scopes)
        is_browser = BROWSER in stored.scopes
        return Principal(named.tenant, stored.user, scopes, is_browser=is_browser)


class AnyOf:
    """The first verifier that accepts a token."""

    def __init__(self, verifiers: Sequence[Verifier]) -> None:
        self._verifiers = verifiers

    async def verify(self, token: str) -> Principal | None:
        """See `Verifier.verify`."""
        for verifier in self._verifiers:
            if (principal := await verifier.verify(token)) is not None:
                return principal
        return None
