"""Access tokens: the local token of this user, and the tokens that an archive stores.

A stored token is shown once and stored as a hash. It is valid until it expires or is revoked:

mcpc~acme~1f8e2b7c90aa~Zm9vYmFy…
tenant  id            secret
"""

import hmac
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from cachetools import TTLCache
from context_compaction import AccessToken, Archive, SettingsError
from context_compaction.system import open_file, rights_of_others

from mcp_server_compaction.access.principal import LOCAL_USER, SCOPES, Principal, Scope

TOKEN_FILE = "http-token"  # noqa: S105, because this is a file name
# Lifetime of a cached lookup. A revoked token stays valid for this time at most.
CACHE_SECONDS = 5.0
BROWSER_SECONDS = 43_200
MAX_USER_CHARS = 100
# Marker among the scopes of a token that is a browser's cookie.
_BROWSER = "browser"
# The separator "~" is allowed in a bearer token, but not in the name of a tenant.
_TOKEN = re.compile(r"mcpc~([A-Za-z0-9._-]+)~([0-9a-f]+)~([A-Za-z0-9_-]+)")
_CACHED_TOKENS = 10_000
_MAX_DAYS = 36_500


# Returns the caller that an access token identifies. None if it is unknown or expired.
Verify: TypeAlias = Callable[[str], Awaitable[Principal | None]]


def any_of(checks: Sequence[Verify]) -> Verify:
    """Return a check that returns the first caller which any of `checks` finds."""

    async def verify(token: str) -> Principal | None:
        for check in checks:
            if (principal := await check(token)) is not None:
                return principal
        return None

    return verify


def is_local_token(known: str) -> Verify:
    """Return the check of the token in a file that only the user may read."""

    async def verify(token: str) -> Principal | None:
        sent = token.encode("utf-8", "surrogateescape")
        return LOCAL_USER if hmac.compare_digest(sent, known.encode("ascii")) else None

    return verify


def ensure_local_token(folder: Path) -> str:
    """Return the local token of the archive in `folder`. The first call creates it.

    Raises:
        SettingsError: Other users may read the file, it is empty, or it cannot be written.
    """
    path = folder / TOKEN_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            handle = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe() + "\n")
                file.flush()
                os.fsync(handle)
        status, text = path.stat(), path.read_text("ascii", "replace").strip()
    except OSError as error:
        raise SettingsError(
            f"Cannot use the token file {path}: {error.strerror}. HTTP and the viewer need a "
            "writable archive. Copy a read-only archive with `migrate SOURCE TARGET`."
        ) from error
    if rights_of_others(status):
        raise SettingsError(
            f"Other users may read the token file {path}. Delete it; the next start creates a new "
            "token."
        )
    if len(text) < secrets.DEFAULT_ENTROPY or not text.isascii():
        raise SettingsError(f"The token file {path} contains no token. Delete it and start again.")
    return text


class StoredTokens:
    """The tokens that the archive stores for its tenants."""

    def __init__(self, archive: Callable[[], Awaitable[Archive]]) -> None:
        self._archive = archive
        self._cached: TTLCache[str, Principal] = TTLCache(_CACHED_TOKENS, CACHE_SECONDS)
        # Separate, so that many invalid tokens do not evict valid tokens.
        self._refused: TTLCache[str, None] = TTLCache(_CACHED_TOKENS, CACHE_SECONDS)

    async def verify(self, token: str) -> Principal | None:
        """See `Verify`.

        Raises:
            ArchiveError: The archive cannot be read.
        """
        principal = self._cached.get(token)
        if principal is not None or token in self._refused:
            return principal
        principal = await self._look_up(token)
        if principal is None:
            self._refused[token] = None
        else:
            self._cached[token] = principal
        return principal

    async def _look_up(self, token: str) -> Principal | None:
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            return None
        tenant, token_id, secret = parts.groups()
        try:
            stored = await (await self._archive()).token(token_id, tenant=tenant)
        except SettingsError:
            return None  # because no tenant can have this name
        # A fast hash is enough, because the secret has 256 random bits.
        secret_hash = sha256(secret.encode()).hexdigest()
        if stored is None or not hmac.compare_digest(stored.secret_hash, secret_hash):
            return None
        if stored.expires_seconds is not None and time.time() >= stored.expires_seconds:
            return None
        scopes = frozenset[Scope](scope for scope in SCOPES if scope in stored.scopes)
        return Principal(tenant, stored.user, scopes, is_browser=_BROWSER in stored.scopes)


async def create_cookie(archive: Archive, principal: Principal) -> str:
    """Create a token for the browser of `principal`, valid for `BROWSER_SECONDS`.

    Also removes expired tokens of the tenant.

    Raises:
        ArchiveError: The token cannot be stored.
    """
    now = time.time()
    for token in await archive.tokens():
        if token.expires_seconds is not None and token.expires_seconds < now:
            await archive.revoke_token(token.token_id)
    scopes = (*(scope for scope in SCOPES if scope in principal.scopes), _BROWSER)
    return await _store(archive, principal.user, scopes, now + BROWSER_SECONDS)


async def create_access_token(
    archive: Archive, *, user: str, scopes: Collection[Scope], days: float | None = None
) -> str:
    """Create a token of the archive's tenant. Only the returned text contains the secret.

    Raises:
        SettingsError: The user's name or the number of days is invalid.
        ArchiveError: The token cannot be stored.
    """
    if not 0 < len(user) <= MAX_USER_CHARS or not user.isprintable():
        raise SettingsError(
            f"Invalid user {user!r}. Use 1 to {MAX_USER_CHARS} printable characters."
        )
    if days is not None and not 0 < days <= _MAX_DAYS:  # This refuses nan, too.
        raise SettingsError(
            f"Invalid number of days: {days:g}. Use more than 0 and at most {_MAX_DAYS:,}. Without "
            "a number the token does not expire."
        )
    expires_seconds = None if days is None else time.time() + timedelta(days=days).total_seconds()
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    return await _store(archive, user, ordered, expires_seconds)


async def _store(
    archive: Archive, user: str, scopes: tuple[str, ...], expires_seconds: float | None
) -> str:
    secret = secrets.token_urlsafe()
    token_id = secrets.token_hex(8)
    await archive.keep_token(
        AccessToken(
            token_id=token_id,
            user=user,
            scopes=scopes,
            secret_hash=sha256(secret.encode()).hexdigest(),
            created_seconds=time.time(),
            expires_seconds=expires_seconds,
        )
    )
    return f"mcpc~{archive.tenant}~{token_id}~{secret}"
