"""Small operations on files of this machine."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def put_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write `path` in one step, so that nobody reads half of it and a crash loses no old text.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".mcp-compaction-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each readable by this user alone.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
