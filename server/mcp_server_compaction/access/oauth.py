"""OAuth access tokens that an external authorization server signed (JWT, RFC 9068)."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
import jwt
from context_compaction import SettingsError, check_tenant, is_list

from mcp_server_compaction.access.principal import SCOPES, Principal

# Only signatures by a key pair, because with other algorithms the public key could sign tokens.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
LEEWAY_SECONDS = 30
# Keys are fetched at most once in this time. Servers publish a new key before they sign with it.
KEYS_SECONDS = 60.0
_WELL_KNOWN = ("oauth-authorization-server", "openid-configuration")


class KeysUnreachableError(Exception):
    """The authorization server's keys cannot be fetched."""


@dataclass(slots=True)
class JwtVerifier:
    """A check of the tokens of one authorization server, by its published keys, which may rotate.

    Attributes:
        issuer: Value of the claim `iss`, the address of the authorization server.
        audience: Value of the claim `aud`, the address of this service.
        jwks_url: Address of the server's keys. None to take it from the server's metadata.
        tenant_claim: Name of the claim that contains the tenant.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    tenant_claim: str = "tenant"
    _keys: dict[str, jwt.PyJWK] = field(default_factory=dict[str, jwt.PyJWK])
    _fetched_seconds: float = -math.inf
    _failure: str = "it publishes none"
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def verify(self, token: str) -> Principal | None:
        """See `Verify`.

        Raises:
            KeysUnreachableError: No keys are known, and they cannot be fetched.
        """
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            return None  # because it is no JWT
        key = await self._key(str(header.get("kid", "")))
        if key is None:
            return None
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            tenant = claims.get(self.tenant_claim)
            if not isinstance(tenant, str):
                return None
            check_tenant(tenant)
        except (jwt.InvalidTokenError, SettingsError):
            return None
        return Principal(tenant, claims["sub"], _scopes(claims), self.issuer)

    async def _key(self, kid: str) -> jwt.PyJWK | None:
        async with self._lock:
            if time.monotonic() - self._fetched_seconds > KEYS_SECONDS:
                await self._fetch()
            if not self._keys:
                raise KeysUnreachableError(
                    f"Cannot fetch the keys of {self.issuer} ({self._failure}). Call again in "
                    f"{KEYS_SECONDS:g} seconds. If that fails, check --oauth-issuer and "
                    "--oauth-jwks-url."
                )
            return self._keys.get(kid)

    async def _fetch(self) -> None:
        """Fetch the keys. If that fails, the earlier keys stay valid until the next fetch."""
        self._fetched_seconds = time.monotonic()
        try:
            async with httpx2.AsyncClient() as http:
                document = await _json(http, self.jwks_url or await self._published_url(http))
            keys = [jwt.PyJWK(key) for key in document["keys"] if key.get("kid")]
        except (httpx2.HTTPError, jwt.PyJWTError, LookupError, TypeError, ValueError) as error:
            self._failure = repr(error)
        else:
            self._keys = {str(key.key_id): key for key in keys}

    async def _published_url(self, http: httpx2.AsyncClient) -> str:
        for name in _WELL_KNOWN:
            url = f"{self.issuer.rstrip('/')}/.well-known/{name}"
            try:
                return str((await _json(http, url))["jwks_uri"])
            except httpx2.HTTPStatusError:
                continue
        raise LookupError(f"no metadata at {self.issuer}")


async def _json(http: httpx2.AsyncClient, url: str) -> Any:
    response = await http.get(url)
    response.raise_for_status()
    return response.json()


def _scopes(claims: dict[str, Any]) -> frozenset[Any]:
    """Return the scopes of a token, in the form of RFC 9068 or of Microsoft's server."""
    value = claims.get("scope", claims.get("scp", ""))
    names = value.split() if isinstance(value, str) else value if is_list(value) else ()
    return frozenset(scope for scope in SCOPES if scope in names)
