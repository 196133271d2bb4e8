"""Reading files that a caller names, and only those inside configured folders.

Text inside a conversation must never make the server read a file that its owner did not open to
it. A path is resolved first, links included; it must then lie inside a root; and it is opened
folder by folder from that root without following links, so that a link swapped in between cannot
lead elsewhere. Only regular files of bounded size are read.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from anyio import to_thread

from context_compaction.errors import PathNotAllowedError

MAX_FILE_BYTES = 256_000_000
MAX_RESTORED_BYTES = 1_000_000  # a bigger file would be restored as its path only

# Where known hosts keep their session transcripts, below the home folder.
HOST_TRANSCRIPT_FOLDERS = (".claude/projects", ".codex/sessions", ".pi/agent/sessions")


@dataclass(frozen=True, slots=True)
class DiskFile:
    """A text file as it is on disk.

    Attributes:
        text: Its content.
        modified_seconds: When it was last written to, in Unix time.
    """

    text: str
    modified_seconds: float


# Reads the text of a file that lies inside the configured roots; None when it may not or cannot.
ReadFile: TypeAlias = Callable[[str], Awaitable[DiskFile | None]]


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders whose files may be read. Make one with `roots_of`, which resolves them."""

    folders: tuple[Path, ...] = ()

    async def read_bytes(self, path: str | Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
        """The content of the file at `path`.

        Raises:
            PathNotAllowedError: The path lies outside the roots, leads to no regular file, cannot
                be opened, or the file is larger than `max_bytes`.
        """
        data, _ = await self._read(path, max_bytes)
        return data

    async def read_text(self, path: str | Path, *, max_bytes: int = MAX_FILE_BYTES) -> str:
        """The content of a UTF-8 file at `path`, its line ends untouched.

        Raises:
            PathNotAllowedError: As `read_bytes`, or the file is not UTF-8 text.
        """
        data, _ = await self._read(path, max_bytes)
        return _decoded(data, path)

    def reader(self, folder: str | None = None) -> ReadFile:
        """A function that reads a text file, or returns None where it may not or cannot.

        Args:
            folder: The folder that relative paths start from. Without one they start from each
                root, and the first that has the file decides.
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
        """The content of a file, and when it was last written to."""
        descriptor, modified = await to_thread.run_sync(self._open, Path(path), max_bytes)
        import aiofiles  # a server that reads no file starts without it

        async with aiofiles.open(descriptor, "rb") as file:
            data = await file.read(max_bytes + 1)
        if len(data) > max_bytes:  # it grew after it was measured
            raise _too_large(path, len(data), max_bytes)
        return data, modified

    def _open(self, path: Path, max_bytes: int) -> tuple[int, float]:
        """A descriptor of the regular file at `path` inside a root, and its time of writing."""
        try:
            resolved = path.expanduser().resolve(strict=True)
            root = self._root_of(path, resolved)
            descriptor = _open_beneath(root, resolved.relative_to(root))
        # RuntimeError: no home folder for "~". ValueError: a NUL or half a surrogate pair, which no
        # path of the system can hold.
        except (OSError, RuntimeError, ValueError) as error:
            raise PathNotAllowedError(
                f"{_shown(path)} cannot be read: {_reason(error)}. Check the path."
            ) from error
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
            return descriptor, status.st_mtime
        os.close(descriptor)
        if stat.S_ISREG(status.st_mode):
            raise _too_large(path, status.st_size, max_bytes)
        raise PathNotAllowedError(f"{path} is not a regular file. Name a plain file.")

    def _root_of(self, path: Path, resolved: Path) -> Path:
        for folder in self.folders:
            if resolved.is_relative_to(folder) and resolved != folder:
                return folder
        allowed = ", ".join(str(folder) for folder in self.folders) or "none"
        raise PathNotAllowedError(
            f"{path} lies outside the folders that may be read: {allowed}. "
            "Use a path inside one of them, or add a root where the server is started."
        )


def roots_of(folders: Sequence[str | Path]) -> Roots:
    """Roots of the folders that exist, links resolved, each once."""
    resolved = (Path(folder).expanduser().resolve() for folder in folders)
    return Roots(tuple(dict.fromkeys(folder for folder in resolved if folder.is_dir())))


def host_folders(home: Path) -> tuple[Path, ...]:
    """Where known hosts keep the transcripts of the user whose home folder that is."""
    return tuple(home / folder for folder in HOST_TRANSCRIPT_FOLDERS)


def default_folders(working_folder: Path, home: Path) -> tuple[Path, ...]:
    """What a local server may read unless roots are configured.

    The working folder is left out where it is the file system's root or the home folder: hosts
    start servers there without meaning to open all of it.
    """
    transcripts = host_folders(home)
    resolved = working_folder.resolve()
    if resolved == Path(resolved.anchor) or home.resolve().is_relative_to(resolved):
        return transcripts
    return (resolved, *transcripts)


def _open_beneath(root: Path, relative: Path) -> int:
    """Open `relative` from `root` folder by folder, following no link on the way."""
    # O_NONBLOCK: opening a named pipe must not wait for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if os.open not in os.supports_dir_fd:  # Windows
        return os.open(root / relative, flags | getattr(os, "O_BINARY", 0))
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in relative.parts[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(relative.name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def _decoded(data: bytes, path: str | Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PathNotAllowedError(
            f"{path} is not UTF-8 text (byte {error.start}). Convert it to UTF-8 first."
        ) from error


def _shown(path: str | Path) -> str:
    """`path` for a message, its unprintable characters spelt out."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _too_large(path: str | Path, size_bytes: int, max_bytes: int) -> PathNotAllowedError:
    return PathNotAllowedError(
        f"{path} has {size_bytes:,} bytes, more than the limit of {max_bytes:,}. "
        "Give a smaller part of it."
    )
