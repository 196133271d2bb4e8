"""Large contents of one tenant: in the database or in an object store.

Each upload uses a new object key, so a deletion never removes an object that a new row refers to.

A failed transaction, or a failed deletion of an object, leaves an object without a row. A day
later no open transaction can still refer to it, and `prune` removes it. Keys start with a name of
the database, so objects of other databases are never touched.
"""

import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any

from context_compaction.archive.postgres.database import Connection
from context_compaction.archive.records import Blobs, pack
from context_compaction.errors import ArchiveError, NotFoundError, SettingsError


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
