"""Access tokens: the one in a file of this user's archive, and those that an archive keeps.

An archive's tokens are shown once, kept as hashes and good until they are revoked:

mcpc~acme~1f8e2b7c90aa~Zm9vYmFy…
tenant  id            secret
"""

import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from cachetools import TTLCache
from context_compaction import AccessToken, Archive, SettingsError

from mcp_server_compaction.access.principal import LOCAL_USER, SCOPES, Principal, Scope

TOKEN_FILE = "http-token"  # noqa: S105, a name
# How long a revoked token may still be good, and how often a store is asked for each.
KNOWN_SECONDS = 5.0
BROWSER_DAYS = 0.5
MAX_USER_CHARS = 100
_BROWSER = "browser"  # beside the scopes of a token that is a browser's cookie
# In a bearer token, "~" is allowed; in a tenant's name it is not.
_TOKEN = re.compile(r"mcpc~([A-Za-z0-9._-]+)~([0-9a-f]+)~([A-Za-z0-9_-]+)")
_SECRET_BYTES = 32
_KNOWN_TOKENS = 10_000
_DAY_SECONDS = 86_400
_MAX_DAYS = 36_500


class Verifier(Protocol):
    """Returns the caller that a token identifies."""

    async def verify(self, token: str) -> Principal | None:
        """The caller who shows `token`; None where it is none of ours, or no longer good."""
        ...


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


class LocalToken:
    """The token in a file that only this user may read."""

    def __init__(self, token: str) -> None:
        self._token = token.encode("ascii")

    async def verify(self, token: str) -> Principal | None:
        """See `Verifier.verify`."""
        is_it = hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token)
        return LOCAL_USER if is_it else None


def ensure_local_token(folder: Path) -> str:
    """The token of the archive in `folder`, made by the first call.

    Raises:
        SettingsError: The file is open to others, empty, or cannot be written.
    """
    path = folder / TOKEN_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(_SECRET_BYTES) + "\n")
                file.flush()
                os.fsync(handle)
        status, text = path.stat(), path.read_text("ascii", "replace").strip()
    except OSError as error:
        raise SettingsError(
            f"The token's file {path} cannot be used: {error.strerror}. Pages and HTTP need an "
            "archive that may be written: `migrate SOURCE TARGET` copies one that may be read."
        ) from error
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise SettingsError(
            f"The token's file {path} may be read by others. Delete it, and a new token is made "
            "by the next start."
        )
    if len(text) < _SECRET_BYTES or not text.isascii():
        raise SettingsError(f"The token's file {path} holds no token. Delete it and start again.")
    return text


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
        found = await self._look_up(token)
        if found is None:
            self._refused[token] = None
        else:
            self._known[token] = found
        return found

    async def _look_up(self, token: str) -> Principal | None:
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            return None
        tenant, token_id, secret = parts.groups()
        try:
            stored = await (await self._archive()).token(token_id, tenant=tenant)
        except SettingsError:
            return None  # no tenant can have that name
        # A fast hash is enough: the secret has 256 random bits, which nobody guesses.
        given_hash = sha256(secret.encode()).hexdigest()
        if stored is None or not hmac.compare_digest(stored.secret_hash, given_hash):
            return None
        if stored.expires_seconds is not None and time.time() >= stored.expires_seconds:
            return None
        scopes = frozenset[Scope](scope for scope in SCOPES if scope in stored.scopes)
        return Principal(tenant, stored.user, scopes, is_browser=_BROWSER in stored.scopes)


async def create_cookie(archive: Archive, principal: Principal) -> str:
    """A token for the browser in which `principal` showed another one; good for `BROWSER_DAYS`.

    Expired ones are removed on the way.

    Raises:
        ArchiveError: It cannot be kept.
    """
    now = time.time()
    for token in await archive.tokens():
        if token.expires_seconds is not None and token.expires_seconds < now:
            await archive.revoke_token(token.token_id)
    scopes = (*(scope for scope in SCOPES if scope in principal.scopes), _BROWSER)
    return await _keep(archive, principal.user, scopes, now + BROWSER_DAYS * _DAY_SECONDS)


async def create_access_token(
    archive: Archive, *, user: str, scopes: Collection[Scope], days: float | None = None
) -> str:
    """A new token of the archive's tenant, which can be shown only now.

    Raises:
        SettingsError: The user's name or the time cannot be used.
        ArchiveError: It cannot be kept.
    """
    if not 0 < len(user) <= MAX_USER_CHARS or not user.isprintable():
        raise SettingsError(f"A token's user has 1 to {MAX_USER_CHARS} printable characters.")
    if days is not None and not 0 < days <= _MAX_DAYS:  # nor is nan, which ends at no time
        raise SettingsError(
            f"A token cannot be good for {days:g} days. Give more than 0 and at most "
            f"{_MAX_DAYS:,}, or nothing where it is to be good for ever."
        )
    expires_seconds = None if days is None else time.time() + days * _DAY_SECONDS
    named = tuple(scope for scope in SCOPES if scope in scopes)
    return await _keep(archive, user, named, expires_seconds)


async def _keep(
    archive: Archive, user: str, scopes: tuple[str, ...], expires_seconds: float | None
) -> str:
    secret = secrets.token_urlsafe(_SECRET_BYTES)
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
