"""The sessions of one tenant within one transaction: their loaded state, and writing to them.

A process keeps the states of sessions between calls and reads only what others have written since.
A writer creates and locks the session's row, so writing calls on one session run one after the
other, in all processes.

Large contents are in the database or in an object store. Each upload uses a new object key, so a
deletion never removes an object that a new row refers to. A failed transaction, or a failed
deletion of an object, leaves an object without a row. A day later no open transaction can still
refer to it, and `prune` removes it. Keys start with a name of the database, so objects of other
databases are never touched.
"""

import json
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

from context_compaction.archive.postgres.database import Connection
from context_compaction.archive.postgres.rows import insert_docs
from context_compaction.archive.records import (
    Blobs,
    LinePlace,
    LoggedRecord,
    Record,
    ascii_json,
    pack,
    parse_body,
)
from context_compaction.archive.transcript_state import StateCache, TranscriptState
from context_compaction.archive.transcripts import TranscriptStore, numbered
from context_compaction.errors import (
    ArchiveDamagedError,
    ArchiveError,
    NotFoundError,
    SettingsError,
)
from context_compaction.messages.model import JsonObject


class ObjectStore:
    """An S3-compatible store, or another store that obstore supports. All methods block."""

    def __init__(self, address: str) -> None:
        """Open `s3://bucket/prefix`; keys and endpoint come from the environment."""
        try:  # Imported here because only archives with an external blob store need it.
            import obstore
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            raise SettingsError.of_postgres(error) from error
        self._obstore: Any = obstore
        self._failures: tuple[type[Exception], ...] = (BaseError, OSError)
        self.address: str = address
        try:
            self._store: Any = from_url(address)
        except (BaseError, ValueError) as error:
            raise ArchiveError(
                f"Cannot open the object store {address}: {error}. Use s3://bucket/prefix, and set "
                "its keys in the environment."
            ) from error

    def put(self, key: str, data: bytes) -> None:
        """Store an object durably."""
        with self._explaining("Writing", key):
            self._obstore.put(self._store, key, data)

    def read(self, key: str) -> bytes:
        """Return an object."""
        with self._explaining("Reading", key):
            return bytes(self._obstore.get(self._store, key).bytes())

    def written_before(self, folder: str, seconds: float) -> dict[str, int]:
        """Return the sizes in bytes of the objects in a folder that are older than a Unix time."""
        with self._explaining("Listing", folder):
            pages = self._obstore.list(self._store, folder)
            objects = [item for page in pages for item in page]
        old = (item for item in objects if item["last_modified"].timestamp() < seconds)
        return {item["path"]: item["size"] for item in old}

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; a missing object is not an error."""
        for key in keys:
            with suppress(NotFoundError), self._explaining("Deleting", key):
                self._obstore.delete(self._store, key)

    @contextmanager
    def _explaining(self, action: str, key: str) -> Generator[None]:
        """Raise failures of the store as archive errors."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(
                f"The object {key} of {self.address} is missing. Restore it from a backup."
            ) from error
        except self._failures as error:
            problem = str(error).strip().splitlines()[0]
            raise ArchiveError(
                f"{action} {key} in the object store {self.address} failed: {problem}. Check that "
                "the store can be reached, and call again."
            ) from error


@lru_cache(8)
def open_objects(address: str) -> ObjectStore:
    """Return the store at `address`; one instance per process."""
    return ObjectStore(address)


class TenantBlobs(Blobs):
    """The large contents of one tenant, within one transaction.

    Attributes:
        stored_here: Contents that were passed to `put` in this transaction, by digest. The session
            that is written gets a reference to each.
    """

    def __init__(self, connection: Connection, tenant: str, objects: str, folder: str) -> None:
        """Use the transaction of `connection`.

        Args:
            connection: Connection with an open transaction.
            tenant: Owner of the contents.
            objects: Address of the object store; "" keeps all contents in the database.
            folder: Start of the keys of the tenant's objects.
        """
        self._folder = folder
        self._connection = connection
        self._tenant = tenant
        self._objects = objects
        self.stored_here: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """See `Blobs.put`; durable when the transaction is."""
        digest = sha256(data).hexdigest()
        if digest in self.stored_here:
            return digest
        self.stored_here[digest] = data
        if self._row(digest) is not None:
            return digest
        packed = pack(data)
        key: str | None = None
        if self._objects:
            key = f"{self._folder}/{digest[:2]}/{digest}-{secrets.token_hex(8)}.zst"
            open_objects(self._objects).put(key, packed)
        inserted = self._connection.execute(
            "INSERT INTO compaction.blob VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (self._tenant, digest, len(packed), None if key else packed, key),
        )
        if key is not None and not inserted.rowcount:  # another transaction has just stored it
            open_objects(self._objects).delete([key])
        return digest

    def get(self, digest: str) -> bytes:
        """See `Blobs.get`. A content that this transaction stored is still in memory."""
        data = self.stored_here.get(digest)
        return super().get(digest) if data is None else data

    def _packed(self, digest: str) -> bytes | None:
        row = self._row(digest)
        if row is None:
            return None
        data, key = row
        return data or open_objects(self._objects).read(str(key))

    def _row(self, digest: str) -> tuple[bytes | None, str | None] | None:
        """Return the stored form of a blob and its object key, one of which is None."""
        return self._connection.execute(
            "SELECT data, object_key FROM compaction.blob WHERE tenant = %s AND digest = %s",
            (self._tenant, digest),
        ).fetchone()

    def _label(self, digest: str) -> str:
        return f"blob {digest}"


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
