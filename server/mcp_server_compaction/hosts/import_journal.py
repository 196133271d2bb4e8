"""How far each session file has been imported: one small file for each, in the archive's folder.

Losing the journal costs a second reading and nothing else, since the archive recognises what it
holds.
"""

import errno
import json
import stat
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path

from context_compaction.archive.local.durable_files import (
    explaining,
    make_folder,
    put_file,
    read_at,
)

_TAIL_BYTES = 4_096  # compared to tell a file that grew from one that was written anew


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file has been imported.

    Attributes:
        stamp: Size, time stamp and inode that the file had.
        kind: The sort of session file, "messages", or "none" where it holds no conversation.
        session_id: The session that the file names first.
        offset: Byte from which the next import reads; 0 where it reads the whole file again.
        line: Lines before it.
        tail_crc: CRC-32 of the bytes just before `offset`.
        heads: By session, the history that ends there.
    """

    stamp: tuple[int, int, int]
    kind: str = ""
    session_id: str | None = None
    offset: int = 0
    line: int = 0
    tail_crc: int = 0
    heads: Mapping[str, str] = field(default_factory=dict[str, str])


class Journal:
    """The positions of all files. Every method blocks."""

    def __init__(self, archive_folder: Path) -> None:
        self._folder = archive_folder / "imports"

    def load(self, path: Path) -> Position | None:
        """What is known of `path`; None where that is nothing, or cannot be read."""
        try:
            found = json.loads(self._place(path).read_bytes())
            return Position(**found | {"stamp": tuple(found["stamp"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save(self, path: Path, position: Position) -> None:
        """Note how far `path` has been imported.

        Raises:
            ArchiveError: The note cannot be written.
        """
        place = self._place(path)
        with explaining(place, "Writing"):
            make_folder(place.parent)
            put_file(place, json.dumps(asdict(position)).encode("ascii"))

    def _place(self, path: Path) -> Path:
        key = blake2b(str(path).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return self._folder / key[:2] / f"{key}.json"


def stamp_of(path: Path) -> tuple[int, int, int]:
    """What changes when the file does: size, time stamp, inode.

    Raises:
        OSError: The file is gone or may not be read, or it is a pipe, socket or device: one of
            those keeps its reader waiting, or has no end.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return found.st_size, found.st_mtime_ns, found.st_ino


def tail_crc(path: Path, offset: int) -> int:
    """CRC-32 of the bytes just before `offset`.

    Raises:
        OSError: The file is gone or may not be read.
    """
    length = min(offset, _TAIL_BYTES)
    return zlib.crc32(read_at(path, offset - length, length))


def resumable(path: Path, known: Position | None, stamp: tuple[int, int, int]) -> Position | None:
    """`known`, if the file still begins with what was imported.

    Raises:
        OSError: The file is gone or may not be read.
    """
    if known is None or not known.offset or known.stamp[2] != stamp[2] or stamp[0] < known.offset:
        return None
    return known if tail_crc(path, known.offset) == known.tail_crc else None
