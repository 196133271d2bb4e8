"""Caller of a request: tenant, user and scopes.

All of it comes from the access token, never from an argument.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from context_compaction import Archive

Scope: TypeAlias = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller.

    Attributes:
        tenant: Tenant whose archive the caller uses. "" for the tenant of the archive's address.
        user: Name in the audit log.
        scopes: Allowed actions: "read" searches and reads, "write" archives and compacts, "admin"
            deletes sessions and protects them from pruning.
        issuer: Issuer of an OAuth token. None for a token of the archive.
        is_browser: Whether the token is a browser's cookie, which is valid only for the viewer.
    """

    tenant: str
    user: str
    scopes: frozenset[Scope]
    issuer: str | None = None
    is_browser: bool = False

    async def own_archive(self, archive: "Archive") -> "Archive":
        """Return the part of the archive that belongs to the caller's tenant."""
        return await archive.for_tenant(self.tenant) if self.tenant else archive


# The user who has the local token, may use the Unix socket, or starts the server over stdio.
LOCAL_USER = Principal("", "local", frozenset(SCOPES))

# Caller of the current request. A session with a handshake keeps the caller of its first request,
# and the transport refuses later requests of other callers.
caller: ContextVar[Principal] = ContextVar("caller", default=LOCAL_USER)
