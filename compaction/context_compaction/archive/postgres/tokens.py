"""Access tokens in the database."""

from dataclasses import asdict
from typing import Any

from psycopg.types.json import Jsonb

from context_compaction.archive import AccessToken
from context_compaction.archive.postgres.schema import Connection


def keep(connection: Connection, tenant: str, token: AccessToken) -> None:
    """See `Archive.keep_token`."""
    fields = Jsonb(asdict(token))
    # Not by one statement that names the key: where partitions lie on other servers, they know it.
    known = connection.execute(
        "UPDATE compaction.access_token SET fields = %s WHERE tenant = %s AND token_id = %s",
        (fields, tenant, token.token_id),
    )
    if not known.rowcount:
        connection.execute(
            "INSERT INTO compaction.access_token VALUES (%s, %s, %s)",
            (tenant, token.token_id, fields),
        )


def find(connection: Connection, tenant: str, token_id: str) -> AccessToken | None:
    """See `Archive.token`."""
    row = connection.execute(
        "SELECT fields FROM compaction.access_token WHERE tenant = %s AND token_id = %s",
        (tenant, token_id),
    ).fetchone()
    return None if row is None else _token(row[0])


def every(connection: Connection, tenant: str) -> list[AccessToken]:
    """See `Archive.tokens`."""
    rows = connection.execute(
        "SELECT fields FROM compaction.access_token WHERE tenant = %s", (tenant,)
    )
    found = [_token(fields) for (fields,) in rows]
    return sorted(found, key=lambda token: (token.created_seconds, token.token_id))


def revoke(connection: Connection, tenant: str, token_id: str) -> bool:
    """See `Archive.revoke_token`."""
    gone = connection.execute(
        "DELETE FROM compaction.access_token WHERE tenant = %s AND token_id = %s",
        (tenant, token_id),
    )
    return gone.rowcount > 0


def _token(fields: dict[str, Any]) -> AccessToken:
    fields["scopes"] = tuple(fields["scopes"])
    return AccessToken(**fields)
