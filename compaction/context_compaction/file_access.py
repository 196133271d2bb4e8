"""Read files that a caller names, but only inside configured folders (roots).

Text in a conversation must never make the server read a file that its owner did not allow. A path
is resolved first, links included, and must then be inside a root. It is opened folder by folder
from that root without following links, so that a link that is created meanwhile has no effect.
Only regular files of limited size are read.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from anyio import to_thread

from context_compaction.errors import PathNotAllowedError
from context_compaction.system import is_remote, open_beneath

MAX_FILE_BYTES = 256_000_000
# A larger file would be restored as its path only.
MAX_RESTORED_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A text file on disk.

    Attributes:
        text: Content of the file.
        modified_seconds: Unix time of the last change.
    """

    text: str
    modified_seconds: float


# Returns the file at a path; None if it cannot be read or is outside the roots.
ReadFile: TypeAlias = Callable[[str], Awaitable[DiskFile | None]]


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders whose files may be read. Create it with `roots_of`, which resolves the folders.

    Attributes:
        folders: Resolved folders.
    """

    folders: tuple[Path, ...] = ()

    async def read_bytes(self, path: str | Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of the file at `path`.

        Raises:
            PathNotAllowedError: The path is outside the roots, is not a regular file, cannot be
                opened, or the file is larger than `max_bytes`.
        """
        data, _ = await self._read(path, max_bytes)
        return data

    async def read_text(self, path: str | Path, *, max_bytes: int = MAX_FILE_BYTES) -> str:
        """Return the content of the UTF-8 file at `path`, with its original line ends.

        Raises:
            PathNotAllowedError: `read_bytes` raises it, or the file is not UTF-8 text.
        """
        data, _ = await self._read(path, max_bytes)
        return _decoded(data, path)

    def reader(self, folder: str | None = None) -> ReadFile:
        """Return a function that reads a text file.

        Args:
            folder: Folder that relative paths start from. None tries each root in order.
        """
        starts = (Path(folder),) if folder else self.folders

        async def read_file(path: str) -> DiskFile | None:
            for start in starts:
                try:
                    data, modified = await self._read(start / path, MAX_RESTORED_BYTES)
                    return DiskFile(_decoded(data, path), modified)
                except PathNotAllowedError:
                    continue
            return None

        return read_file

    async def _read(self, path: str | Path, max_bytes: int) -> tuple[bytes, float]:
        """Return the content of a file and the Unix time of its last change."""
        descriptor, modified = await to_thread.run_sync(self._open, Path(path), max_bytes)
        # Imported here, because most servers read no file, and start faster without it.
        import aiofiles

        async with aiofiles.open(descriptor, "rb") as file:
            data = await file.read(max_bytes + 1)
        if len(data) > max_bytes:  # the file grew after its size was read
            raise _too_large(path, len(data), max_bytes)
        return data, modified

    def _open(self, path: Path, max_bytes: int) -> tuple[int, float]:
        """Return a descriptor of the regular file at `path`, and the time of its last change."""
        try:
            if is_remote(path):
                self._root_of(path, path)
            resolved = path.expanduser().resolve(strict=True)
            root = self._root_of(path, resolved)
            descriptor = open_beneath(root, resolved.relative_to(root))
        # RuntimeError: no home folder for "~". ValueError: a NUL or a lone surrogate, which no path
        # can contain.
        except (OSError, RuntimeError, ValueError) as error:
            raise PathNotAllowedError(
                f"Cannot read {_printable(path)}: {_reason(error)}. Check the path."
            ) from error
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
            return descriptor, status.st_mtime
        os.close(descriptor)
        if stat.S_ISREG(status.st_mode):
            raise _too_large(path, status.st_size, max_bytes)
        raise PathNotAllowedError(f"{path} is not a regular file. Pass a regular file.")

    def _root_of(self, path: Path, resolved: Path) -> Path:
        for folder in self.folders:
            if resolved.is_relative_to(folder) and resolved != folder:
                return folder
        allowed = ", ".join(str(folder) for folder in self.folders) or "none"
        raise PathNotAllowedError(
            f"{path} is outside the folders that may be read: {allowed}. "
            "Use a path inside one of them, or start the server with another root."
        )


def roots_of(folders: Sequence[str | Path]) -> Roots:
    """Return the roots for those of `folders` that exist, with links resolved."""
    resolved = (Path(folder).expanduser().resolve() for folder in folders)
    return Roots(tuple(dict.fromkeys(folder for folder in resolved if folder.is_dir())))


def host_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders in which known hosts keep the transcripts of a user."""
    return tuple(
        home / path for path in (".claude/projects", ".codex/sessions", ".pi/agent/sessions")
    )


def default_folders(working_folder: Path, home: Path) -> tuple[Path, ...]:
    """Return the folders that a local server may read if no roots are configured.

    The working folder is omitted if it contains the home folder, because hosts start servers there
    without the intention to expose all files.
    """
    transcripts = host_folders(home)
    resolved = working_folder.resolve()
    if resolved == Path(resolved.anchor) or home.resolve().is_relative_to(resolved):
        return transcripts
    return (resolved, *transcripts)


def _decoded(data: bytes, path: str | Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PathNotAllowedError(
            f"{path} is not UTF-8 text (byte {error.start}). Convert it to UTF-8 first."
        ) from error


def _printable(path: str | Path) -> str:
    """Return `path` for a message, with unprintable characters escaped."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _too_large(path: str | Path, size_bytes: int, max_bytes: int) -> PathNotAllowedError:
    return PathNotAllowedError(
        f"{path} has {size_bytes:,} bytes, more than the limit of {max_bytes:,}. "
        "Pass a smaller part of it."
    )
