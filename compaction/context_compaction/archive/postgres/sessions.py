"""The sessions of one tenant within one transaction: their loaded state, and writing to them.

A process keeps the states of sessions between calls and reads only what others have written since.
A writer creates and locks the session's row, so writing calls on one session run one after the
other, in all processes.
"""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from context_compaction.archive.postgres.blobs import TenantBlobs
from context_compaction.archive.postgres.database import Connection
from context_compaction.archive.postgres.rows import insert_docs
from context_compaction.archive.records import (
    LinePlace,
    LoggedRecord,
    Record,
    ascii_json,
    parse_body,
)
from context_compaction.archive.transcript_state import StateCache, TranscriptState
from context_compaction.archive.transcripts import TranscriptStore, numbered
from context_compaction.errors import ArchiveDamagedError
from context_compaction.messages.model import JsonObject

_READ = b"SELECT generation, next_number FROM compaction.session WHERE tenant = %s AND session = %s"
_READ_LOCKED = _READ + b" FOR UPDATE"


@dataclass(slots=True)
class RowState(TranscriptState):
    """The state of one session, as its row and its record heads describe it.

    Attributes:
        generation: Number that distinguishes this session from deleted sessions with the same ID;
            0 if the session has no row.
    """

    generation: int = 0


class TenantStore(TranscriptStore[RowState]):
    """The transcripts of one tenant in the transaction of `connection`."""

    def __init__(
        self,
        connection: Connection,
        tenant: str,
        blobs: TenantBlobs,
        cache: StateCache[RowState],
        *,
        redacts: bool,
    ) -> None:
        self._connection = connection
        self._tenant = tenant
        self.blobs = blobs
        self._stored_here = blobs.stored_here
        self.redacts = redacts
        self._cache = cache
        self._states: dict[str, RowState] = {}

    def keep(self) -> None:
        """Cache the states, after the transaction has succeeded."""
        for session_id, state in self._states.items():
            self._cache.put((self._tenant, session_id), state)

    def state(self, session_id: str) -> RowState:
        """See `TranscriptStore.state`."""
        return self._refreshed(session_id, _READ)

    @contextmanager
    def writing(self, session_id: str) -> Generator[RowState]:
        """See `TranscriptStore.writing`. The lock lasts until the end of the transaction.

        The row is created if it is missing, and deleted if the block writes nothing.
        """
        state = self._refreshed(session_id, _READ_LOCKED)
        if not state.generation:  # another transaction may be inserting the row
            self._connection.execute(
                "INSERT INTO compaction.session (tenant, session, generation)"
                " VALUES (%s, %s, nextval('compaction.generation')) ON CONFLICT DO NOTHING",
                (self._tenant, session_id),
            )
            state = self._refreshed(session_id, _READ_LOCKED)
        yield state
        if not state.exists:  # the block has written nothing
            self._connection.execute(
                "DELETE FROM compaction.session WHERE tenant = %s AND session = %s",
                (self._tenant, session_id),
            )

    def write(
        self,
        state: RowState,
        session_id: str,
        parent_session_id: str | None,
        records: Sequence[Record],
    ) -> None:
        """See `TranscriptStore.write`. Also indexes the records, and updates the row."""
        is_new = not state.exists
        new = [
            replace(record, body=record.text())
            for record in numbered(state, session_id, parent_session_id, records, opens=is_new)
        ]
        heads = [ascii_json(record.head) for record in new]
        bodies = [record.text() for record in new]
        self._connection.execute(
            "INSERT INTO compaction.record SELECT %s, %s, * FROM"
            " unnest(%b::bigint[], %b::text[], %b::text[])",  # binary, so nothing is escaped
            (self._tenant, session_id, [record.head["n"] for record in new], heads, bodies),
        )
        if self._stored_here:
            self._connection.execute(
                "INSERT INTO compaction.blob_use SELECT %s, %s, unnest(%s::text[])"
                " ON CONFLICT DO NOTHING",
                (self._tenant, session_id, sorted(self._stored_here)),
            )
        docs = insert_docs(self._connection, self._tenant, session_id, new, self.blobs)
        for record in new:
            state.learn(_logged(record.head))
        about = state.parent_session_id, state.to_json(), state.next_number, state.last_seconds
        sizes = *docs, sum(map(len, [*heads, *bodies]))  # ASCII: one byte a character
        self._connection.execute(
            "UPDATE compaction.session SET parent = %s, description = %s, next_number = %s,"
            " last_seconds = %s, doc_count = doc_count + %s, term_count = term_count + %s,"
            " log_bytes = log_bytes + %s WHERE tenant = %s AND session = %s",
            (*about, *sizes, self._tenant, session_id),
        )

    def bodies(self, state: RowState, places: Sequence[LinePlace]) -> list[Any]:
        """See `TranscriptStore.bodies`."""
        rows = self._connection.execute(
            "SELECT number, body FROM compaction.record"
            " WHERE tenant = %s AND session = %s AND number = ANY(%s)",
            (self._tenant, state.session_id, [place.offset for place in places]),
        ).fetchall()
        bodies: dict[int, str] = dict(rows)
        return [self._body(state, bodies.get(place.offset)) for place in places]

    def all_records(self, state: RowState) -> list[LoggedRecord]:
        """See `TranscriptStore.all_records`."""
        records = self._heads(state.session_id, 0)
        return [record for record in records if record.head["kind"] != "session"]

    def _body(self, state: RowState, text: str | None) -> Any:
        if text is None:
            raise ArchiveDamagedError(
                f"A record of session {state.session_id} is missing. Pass the whole message list "
                "again to store it again, or restore the database from a backup."
            )
        return parse_body(text, self.blobs.get)

    def _refreshed(self, session_id: str, read: bytes) -> RowState:
        row = self._connection.execute(read, (self._tenant, session_id)).fetchone()
        generation, next_number = (0, 0) if row is None else row
        state = self._states.get(session_id) or self._cache.take((self._tenant, session_id))
        if state is None or state.generation != generation:
            state = RowState(generation=generation)
        if state.next_number < next_number:
            for record in self._heads(session_id, state.next_number):
                state.learn(record)
        self._states[session_id] = state
        return state

    def _heads(self, session_id: str, first: int) -> list[LoggedRecord]:
        """Return the records of a session from number `first`."""
        rows = self._connection.execute(
            "SELECT head FROM compaction.record WHERE tenant = %s AND session = %s"
            " AND number >= %s ORDER BY number",
            (self._tenant, session_id, first),
        )
        return [_logged(json.loads(head)) for (head,) in rows]


def _logged(head: JsonObject) -> LoggedRecord:
    return LoggedRecord(head, LinePlace("", head["n"], 0))
