"""Bearer tokens of our own: made once and shown once, kept as hashes, good until revoked.

mcpc~acme~1f8e2b7c90aa~Zm9vYmFy…
tenant  id            secret
"""

import hmac
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256

from context_compaction.archive import AccessToken, Archive
from context_compaction.errors import SettingsError

from mcp_server_compaction.access.principal import SCOPES, Principal, Scope

_PREFIX = "mcpc"
_SEPARATOR = "~"  # legal in a bearer token, and in no tenant's name
_TOKEN = re.compile(r"mcpc~([A-Za-z0-9._-]+)~([0-9a-f]+)~([A-Za-z0-9_-]+)")
_ID_BYTES = 8
_SECRET_BYTES = 32
_DAY_SECONDS = 86_400
_MAX_DAYS = 36_500
MAX_USER_CHARS = 100
BROWSER = "browser"  # beside the scopes of a token that is a browser's cookie
BROWSER_DAYS = 0.5


@dataclass(frozen=True, slots=True)
class NamedToken:
    """The parts that a token contains."""

    tenant: str
    token_id: str
    secret: str


def parse_token(token: str) -> NamedToken | None:
    """The parts of a token; None where it is none of ours."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else NamedToken(*found.groups())


def is_valid(stored: AccessToken, secret: str) -> bool:
    """Whether `secret` is that of a stored token, whose time is not over."""
    # A fast hash serves: the secret has 256 random bits, which nobody guesses.
    matches = hmac.compare_digest(stored.secret_hash, sha256(secret.encode()).hexdigest())
    return matches and (stored.expires_seconds is None or time.time() < stored.expires_seconds)


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
    scopes = (*(scope for scope in SCOPES if scope in principal.scopes), BROWSER)
    return await _keep(archive, principal.user, scopes, now + BROWSER_DAYS * _DAY_SECONDS)


async def create_token(
    archive: Archive, *, user: str, scopes: Collection[Scope], days: float | None = None
) -> str:
    """A new token of the archive's tenant, which can be shown only now.

    Raises:
        SettingsError: The user's name, a scope or the time cannot be used.
        ArchiveError: It cannot be kept.
    """
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        wrong = f", not {unknown[0]!r}" if unknown else ""
        raise SettingsError(f"A token needs scopes of {', '.join(SCOPES)}{wrong}.")
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
    token_id = secrets.token_hex(_ID_BYTES)
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
    return _SEPARATOR.join([_PREFIX, archive.tenant, token_id, secret])
