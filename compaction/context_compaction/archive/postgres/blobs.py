"""Large contents of one tenant: in the database, or the largest ones in an object store.

Contents are stored in frames (`archive/records.py`), so a part is read without the rest. Each
upload uses a new object key, so a deletion never removes an object that a new row refers to.

Before an upload, its key is recorded in the table `unnamed_object`, and the transaction of the row
removes it from there. An object whose key is still there a day later has no row (the transaction
failed, or the object's deletion did), and `prune` removes it. Other objects in the store, which
another database may have written, are never touched.
"""

import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

from context_compaction.archive.postgres.database import Connection
from context_compaction.archive.records import Blobs, pack
from context_compaction.errors import ArchiveError, NotFoundError

RunSeparately: TypeAlias = Callable[[Callable[[Connection], None]], None]

# A row is read faster than an object, and object stores charge for each request.
MIN_OBJECT_BYTES = 1024 * 1024


class ObjectStore:
    """An S3-compatible store, or another store that obstore supports. All methods block."""

    def __init__(self, address: str) -> None:
        """Open `s3://bucket/prefix`; keys and endpoint come from the environment."""
        # Imported here because only archives with an external blob store need it.
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url

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

    def read(self, key: str, start: int, size_bytes: int) -> bytes:
        """Return bytes of an object."""
        if not size_bytes:
            return b""
        with self._explaining("Reading", key):
            return bytes(self._obstore.get_range(self._store, key, start=start, length=size_bytes))

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


def note_unnamed(connection: Connection, tenant: str, objects: Sequence[tuple[str, int]]) -> None:
    """Record objects (key, stored bytes) that no row refers to."""
    for key, size_bytes in objects:
        connection.execute(
            "INSERT INTO compaction.unnamed_object VALUES (%s, %s, %s, %s)",
            (tenant, key, size_bytes, time.time()),
        )


def forget_unnamed(connection: Connection, tenant: str, keys: Sequence[str]) -> None:
    """Remove the records of objects that a row refers to now, or that are deleted."""
    connection.execute(
        "DELETE FROM compaction.unnamed_object WHERE tenant = %s AND object_key = ANY(%s)",
        (tenant, list(keys)),
    )


class TenantBlobs(Blobs):
    """The large contents of one tenant, within one transaction.

    Attributes:
        stored_here: Contents that were passed to `put` in this transaction, by digest. The session
            that is written gets a reference to each.
    """

    def __init__(
        self, connection: Connection, tenant: str, objects: str, run_separately: RunSeparately
    ) -> None:
        """Use the transaction of `connection`.

        Args:
            connection: Connection with an open transaction.
            tenant: Owner of the contents.
            objects: Address of the object store; "" keeps all contents in the database.
            run_separately: Runs work in a separate transaction, which is kept even if the
                transaction of `connection` fails.
        """
        super().__init__()
        self._run_separately = run_separately
        self._connection = connection
        self._tenant = tenant
        self._objects = objects
        self._rows: dict[str, tuple[int, str | None]] = {}
        self._packed: dict[str, bytes] = {}
        self.stored_here: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """See `Blobs.put`; durable when the transaction is."""
        digest = sha256(data).hexdigest()
        if digest in self.stored_here:
            return digest
        self.stored_here[digest] = data
        with suppress(NotFoundError):
            self._row(digest)
            return digest
        packed = self._packed[digest] = pack(data)
        key: str | None = None
        if self._objects and len(packed) >= MIN_OBJECT_BYTES:
            key = f"{self._tenant}/{digest[:2]}/{digest}-{secrets.token_hex(8)}.zst"
            objects = [(key, len(packed))]
            self._run_separately(lambda connection: note_unnamed(connection, self._tenant, objects))
            open_objects(self._objects).put(key, packed)
            forget_unnamed(self._connection, self._tenant, [key])
        inserted = self._connection.execute(
            "INSERT INTO compaction.blob VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (self._tenant, digest, len(packed), None if key else packed, key),
        )
        if not inserted.rowcount:
            # Another transaction has just stored the same content, perhaps compressed differently.
            del self._packed[digest]
            if key is not None:
                open_objects(self._objects).delete([key])
        return digest

    def read_all(self, digest: str) -> bytes:
        """See `Blobs.read_all`. A content that this transaction stored is still in memory."""
        data = self.stored_here.get(digest)
        return super().read_all(digest) if data is None else data

    def _row(self, digest: str) -> tuple[int, str | None]:
        """Return the stored size of a blob in bytes, and its object key or None."""
        if digest not in self._rows:
            row = self._connection.execute(
                "SELECT size_bytes, object_key FROM compaction.blob"
                " WHERE tenant = %s AND digest = %s",
                (self._tenant, digest),
            ).fetchone()
            if row is None:
                raise NotFoundError(
                    f"The archive's {self._label(digest)} is missing. Restore it from a backup."
                )
            self._rows[digest] = row[0], row[1]
        return self._rows[digest]

    def _size(self, digest: str) -> int:
        packed = self._packed.get(digest)
        return self._row(digest)[0] if packed is None else len(packed)

    def read_at(self, digest: str, start: int, size_bytes: int) -> bytes:
        """See `Blobs.read_at`."""
        packed = self._packed.get(digest)
        if packed is not None:
            return packed[start : start + size_bytes]
        _, key = self._row(digest)
        if key is not None:
            return open_objects(self._objects).read(key, start, size_bytes)
        row = self._connection.execute(
            "SELECT substring(data FROM %s FOR %s) FROM compaction.blob"
            " WHERE tenant = %s AND digest = %s",
            (start + 1, size_bytes, self._tenant, digest),
        ).fetchone()
        return b"" if row is None else bytes(row[0])

    def _label(self, digest: str) -> str:
        return f"blob {digest}"
