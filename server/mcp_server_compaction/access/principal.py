"""Who calls: the tenant whose archive it is, the user, and what the token allows.

All of it comes from the token that was shown, never from an argument.
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
        tenant: Whose archive is read and written; "" for that of the archive's address.
        user: The name that the audit log shows.
        scopes: What the caller may do: "read" finds and reads, "write" archives and compacts,
            "admin" deletes and keeps from deletion.
        issuer: Who issued an OAuth token; None for a token of our own.
        is_browser: Whether a browser shows it, by a cookie: good for the viewer's pages alone.
    """

    tenant: str
    user: str
    scopes: frozenset[Scope]
    issuer: str | None = None
    is_browser: bool = False

    async def own(self, opened: "Archive") -> "Archive":
        """This caller's archive, of those that were opened together."""
        return await opened.for_tenant(self.tenant) if self.tenant else opened


# Whoever holds the local token, or gets to a Unix socket, or starts the server over stdio.
LOCAL_USER = Principal("", "local", frozenset(SCOPES))

# Of the request that is being answered. A session of the handshake era keeps that of its first
# request: the transport refuses its later ones from anybody else.
caller: ContextVar[Principal] = ContextVar("caller", default=LOCAL_USER)
