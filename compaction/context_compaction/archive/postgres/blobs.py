"""Large contents of one tenant: in the database, or in an object store that takes the larger ones.

What is stored is a row of frames (`archive/frames.py`), so a part is read without the rest. An
object has a name of its own at each upload: one that a deletion is about to remove is never the one
that a new row names.
"""

import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeAlias

from context_compaction.archive.frames import Blobs, pack
from context_compaction.archive.postgres.database import Connection
from context_compaction.errors import ArchiveError, NotFoundError

Apart: TypeAlias = Callable[[Callable[[Connection], None]], None]

# A row is read sooner than an object, and a store counts each request.
LEAST_OBJECT_BYTES = 1024 * 1024


class ObjectStore:
    """An S3-compatible store, or whatever else obstore opens; every method blocks."""

    def __init__(self, address: str) -> None:
        """`address` is `s3://bucket/prefix`; keys and endpoint come from the environment."""
        # Here and not above: only archives that name a store need it.
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        self._obstore: Any = obstore
        self._failures: tuple[type[Exception], ...] = (BaseError, OSError)
        self.address = address
        try:
            self._store: Any = from_url(address)
        except (BaseError, ValueError) as error:
            raise ArchiveError(
                f"The object store {address} cannot be opened: {error}. Give s3://bucket/prefix, "
                "and its keys in the environment."
            ) from error

    def put(self, key: str, data: bytes) -> None:
        """Keep an object; durable on return."""
        with self._explaining("Writing", key):
            self._obstore.put(self._store, key, data)

    def read(self, key: str, start: int, size_bytes: int) -> bytes:
        """Some bytes of an object."""
        if not size_bytes:
            return b""
        with self._explaining("Reading", key):
            return bytes(self._obstore.get_range(self._store, key, start=start, length=size_bytes))

    def delete(self, keys: list[str]) -> None:
        """Remove objects; one that is gone already is no error."""
        for key in keys:
            with suppress(NotFoundError), self._explaining("Deleting", key):
                self._obstore.delete(self._store, key)

    @contextmanager
    def _explaining(self, what: str, key: str) -> Generator[None]:
        """Raise failures of the store as the archive's errors."""
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(
                f"The object {key} of {self.address} is missing. Restore it from a backup."
            ) from error
        except self._failures as error:
            problem = str(error).strip().splitlines()[0]
            raise ArchiveError(
                f"{what} {key} in the object store {self.address} failed: {problem}. Check that "
                "it can be reached, and call again."
            ) from error


@lru_cache(8)
def open_objects(address: str) -> ObjectStore:
    """The store at `address`, one for the process."""
    return ObjectStore(address)


def note_unnamed(connection: Connection, tenant: str, objects: Sequence[tuple[str, int]]) -> None:
    """Note objects, by key and size, that no row names: not yet, or no more.

    What is noted a day later, and still is not named, is removed by `prune`. So it removes nothing
    that this database did not write itself, whatever else lies in the store.
    """
    for key, size_bytes in objects:
        connection.execute(
            "INSERT INTO compaction.unnamed_object VALUES (%s, %s, %s, %s)",
            (tenant, key, size_bytes, time.time()),
        )


def forget_unnamed(connection: Connection, tenant: str, keys: list[str]) -> None:
    """Take note that objects are named by a row now, or are gone."""
    connection.execute(
        "DELETE FROM compaction.unnamed_object WHERE tenant = %s AND object_key = ANY(%s)",
        (tenant, keys),
    )


class TenantBlobs(Blobs):
    """The large contents of one tenant, within one transaction.

    Attributes:
        put_here: What was put so far, by digest: what a session is to be noted for.
    """

    def __init__(self, connection: Connection, tenant: str, objects: str, apart: Apart) -> None:
        """`apart` does work in a transaction of its own, and so whatever becomes of this one."""
        super().__init__()
        self._apart = apart
        self._connection = connection
        self._tenant = tenant
        self._objects = objects
        self._rows: dict[str, tuple[int, str | None]] = {}
        self._packed: dict[str, bytes] = {}
        self.put_here: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """See `Blobs.put`; durable when the transaction is."""
        digest = sha256(data).hexdigest()
        if digest in self.put_here:
            return digest
        self.put_here[digest] = data
        with suppress(NotFoundError):
            self._row(digest)
            return digest
        packed = self._packed[digest] = pack(data)
        key: str | None = None
        if self._objects and len(packed) >= LEAST_OBJECT_BYTES:
            key = f"{self._tenant}/{digest[:2]}/{digest}-{secrets.token_hex(8)}.zst"
            noted = [(key, len(packed))]
            self._apart(lambda connection: note_unnamed(connection, self._tenant, noted))
            open_objects(self._objects).put(key, packed)
            forget_unnamed(self._connection, self._tenant, [key])
        done = self._connection.execute(
            "INSERT INTO compaction.blob VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (self._tenant, digest, len(packed), None if key else packed, key),
        )
        if not done.rowcount:
            # Somebody else put the same just now: theirs stays, and may be packed otherwise.
            del self._packed[digest]
            if key is not None:
                open_objects(self._objects).delete([key])
        return digest

    def read_whole(self, digest: str) -> bytes:
        """See `Blobs.read_whole`; what was put just now needs no reading."""
        data = self.put_here.get(digest)
        return super().read_whole(digest) if data is None else data

    def _row(self, digest: str) -> tuple[int, str | None]:
        """The stored size of a blob, and the object that holds it if one does."""
        if digest not in self._rows:
            row = self._connection.execute(
                "SELECT size_bytes, object_key FROM compaction.blob"
                " WHERE tenant = %s AND digest = %s",
                (self._tenant, digest),
            ).fetchone()
            if row is None:
                raise NotFoundError(
                    f"The archive's {self._place(digest)} is missing. Restore it from a backup."
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

    def _place(self, digest: str) -> str:
        return f"blob {digest}"
