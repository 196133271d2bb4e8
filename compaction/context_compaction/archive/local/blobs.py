"""Large content, stored once under its SHA-256 in a file of frames: `blobs/ab/abcdef....zst`."""

from hashlib import sha256
from pathlib import Path

from context_compaction.archive.frames import Blobs, pack
from context_compaction.archive.local.durable_files import (
    FOLDER_MODE,
    explaining,
    make_folder,
    put_file,
    read_at,
    sync_folder,
)
from context_compaction.errors import NotFoundError


class BlobStore(Blobs):
    """The folder of blobs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._durable: set[Path] = set()  # folders whose names are on the device

    def put(self, data: bytes) -> str:
        """Keep `data`, durably; return its SHA-256 in hex. Keeping it again costs nothing.

        Raises:
            ArchiveFullError: The disk is full.
            ArchiveDamagedError: Something else already has this name.
            ArchiveError: The folder cannot be written.
        """
        digest = sha256(data).hexdigest()
        path = self._path(digest)
        with explaining(path, "Writing"):
            self._make_durable(self._folder)
            self._make_durable(path.parent)
            is_new = not path.exists()
            if is_new:
                put_file(path, pack(data))
            else:  # another process may have, a moment ago, and the name not be durable yet
                sync_folder(path.parent)
        if is_new:
            return digest
        if self.open(digest).size_bytes != len(data):
            raise self.damaged(digest, "it should hold other content")
        return digest

    def _make_durable(self, folder: Path) -> None:
        """Make `folder` where it is missing; its name needs that once, as it is never removed."""
        if folder not in self._durable:
            make_folder(folder.parent)
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            sync_folder(folder.parent)  # another process may have made it a moment ago
            self._durable.add(folder)

    def _size(self, digest: str) -> int:
        path = self._path(digest)
        with explaining(path, "Reading"):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                raise NotFoundError(
                    f"The archive's file {path} is missing. Restore it from a backup."
                ) from None

    def read_at(self, digest: str, start: int, size_bytes: int) -> bytes:
        """See `Blobs.read_at`."""
        path = self._path(digest)
        with explaining(path, "Reading"):
            return read_at(path, start, size_bytes)

    def _place(self, digest: str) -> str:
        return str(self._path(digest))

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / f"{digest}.zst"
