"""All differences between operating systems, for the library and the server.

On Windows another process cannot delete or replace a file that is open, and a folder cannot be
synced. A process ends without a signal, and commands are quoted differently. Code elsewhere uses
`pathlib` and `anyio`, and does not ask for the system. All functions block.
"""

import errno
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal

FOLDER_MODE = 0o700
FILE_MODE = 0o600
IS_WINDOWS = sys.platform == "win32"
# Readers of an archive, virus scanners and search indexers keep a file open for milliseconds.
OPEN_FILE_SECONDS = 5.0
_NO_WINDOW = 0x0800_0000  # CREATE_NO_WINDOW of CreateProcess
_SYNCHRONIZE = 0x0010_0000  # the right to wait for a process


def open_file(path: str | Path, flags: int) -> int:
    """Open a file for bytes with the flags of `os.open`; a new file is the user's alone."""
    # Without O_BINARY, Windows would write each newline as two bytes.
    return os.open(path, flags | getattr(os, "O_BINARY", 0), FILE_MODE)


def lock_file(handle: int, *, shared: bool) -> bool:
    """Lock an open file until `unlock_file`; return False if other holders prevent it.

    The library portalocker is used on Windows only. Elsewhere flock takes 4 us and portalocker
    10 us, twice in an append of 350 us, and its import takes 60 ms in each hook (measured).

    Raises:
        OSError: The file system has no locks.
    """
    if IS_WINDOWS:
        portalocker: Any = import_module("portalocker")
        kind = portalocker.LOCK_SH if shared else portalocker.LOCK_EX
        try:
            _windows_locks().lock(handle, kind | portalocker.LOCK_NB)
        except portalocker.AlreadyLocked:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock_file(handle: int) -> None:
    """Close a locked file. Windows would release the lock of a closed file only some time later."""
    try:
        if IS_WINDOWS:
            _windows_locks().unlock(handle)
    finally:
        os.close(handle)


@cache
def _windows_locks() -> Any:
    """Return portalocker's locks of one kind; by default it takes shared locks in another way."""
    return import_module("portalocker.portalocker").Win32Locker()


def sync_file(handle: int) -> None:
    """Write the content of an open file to the device."""
    if sys.platform == "darwin":
        import fcntl

        # On macOS, fsync leaves the content in the drive's cache.
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    elif IS_WINDOWS:
        os.fsync(handle)
    else:
        os.fdatasync(handle)


def sync_path(path: Path) -> None:
    """Write the content of the file `path` to the device."""
    # Windows syncs only files that are open for writing.
    handle = open_file(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        sync_file(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable; otherwise a power loss can remove a new file's name.

    Windows cannot sync a folder. NTFS writes names to its journal in the order of the changes.
    """
    if IS_WINDOWS:
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(source: Path, target: Path) -> None:
    """Rename a file or folder, and replace a file that has the new name.

    Raises:
        PermissionError: Windows: another process has one of the files open for too long.
        OSError: The rename failed.
    """
    _while_open(lambda: source.replace(target))


def delete_file(path: Path) -> None:
    """Delete a file, or do nothing if it is missing; raises like `replace_file`."""
    _while_open(lambda: path.unlink(missing_ok=True))


def open_beneath(root: Path, relative: Path) -> int:
    """Open a file for reading, folder by folder from `root`, without following links.

    Windows cannot open a file relative to a folder. There the path is resolved again afterwards.

    Raises:
        OSError: The file does not exist or cannot be read, or the path contains a link.
    """
    # With O_NONBLOCK, opening a named pipe does not wait for its writer.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if IS_WINDOWS:
        path = root / relative
        handle = open_file(path, flags)
        if path.resolve() != path:
            os.close(handle)
            raise OSError(errno.ELOOP, "the path contains a link", str(path))
        return handle
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in relative.parts[:-1]:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(relative.name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def is_remote(path: Path) -> bool:
    """Whether even a look at `path` would send the user's credentials to another computer."""
    return IS_WINDOWS and str(path).startswith(("\\\\", "//"))


def delete_if_closed(path: Path) -> None:
    """Delete a file, but leave it if Windows refuses that because a process has it open."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        if not IS_WINDOWS:
            raise


def delete_folder(folder: Path) -> None:
    """Delete a folder with its content, or do nothing if it is missing; see `replace_file`."""
    if folder.exists():
        _while_open(lambda: shutil.rmtree(folder))


def _while_open(action: Callable[[], object]) -> None:
    """Repeat `action` for `OPEN_FILE_SECONDS` while Windows refuses it because of an open file."""
    deadline = time.monotonic() + OPEN_FILE_SECONDS
    while True:
        try:
            action()
        except PermissionError:
            if not IS_WINDOWS or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def status_of(entry: os.DirEntry[str]) -> os.stat_result:
    """Return the status of an entry of `os.scandir`.

    On Windows, a folder knows the size of a file only as it was when a process last closed it.
    """
    return os.stat(entry.path) if IS_WINDOWS else entry.stat()  # noqa: PTH116 - an entry of os


def rights_of_others(status: os.stat_result) -> int:
    """Return the permission bits that other users have on a file or folder.

    0 on Windows, where files have the access list of the folder above: in a user's profile, only
    the user and administrators have access.
    """
    return 0 if IS_WINDOWS else stat.S_IMODE(status.st_mode) & 0o077


def is_running(pid: int) -> bool:
    """Whether the process with this ID exists and belongs to the user."""
    if not IS_WINDOWS:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True
    # On Windows, os.kill with 0 would send Ctrl-C to the process.
    import pywintypes
    import win32api
    import win32event

    try:
        process = win32api.OpenProcess(_SYNCHRONIZE, False, pid)
    except pywintypes.error:
        return False
    return bool(win32event.WaitForSingleObject(process, 0) == win32event.WAIT_TIMEOUT)


def without_window() -> dict[str, Any]:
    """Return the arguments of `Popen` with which a process opens no window on Windows."""
    return {"creationflags": _NO_WINDOW} if IS_WINDOWS else {}


def desktop_environment() -> dict[str, str]:
    """Return the environment of programs that are started from a desktop.

    Outside Windows such a program does not get the `PATH` that the user's shell sets.
    """
    if IS_WINDOWS:
        return dict(os.environ)
    user = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    return {**user, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}


def user_folder(kind: Literal["data", "cache", "state"]) -> Path:
    """Return the folder of this user for files of this program.

    On Windows it is outside AppData, of which Claude Desktop from the Microsoft Store and the
    servers that it starts see a copy. Other programs would not find what they write there.
    """
    if IS_WINDOWS:
        return Path.home() / ".mcp-server-compaction" / kind
    import platformdirs  # not at the start, because hooks must start fast

    path_of: Callable[[str], Path] = getattr(platformdirs, f"user_{kind}_path")
    return path_of("mcp-server-compaction")


def find_program(name: str) -> str:
    """Return the path of a program, because Windows starts `name.cmd` only by its full name."""
    return (shutil.which(name) or name) if IS_WINDOWS else name


def command_line(words: Sequence[str], *, in_bash: bool = False) -> str:
    """Return `words` as a line for the system's shell, or on Windows for Git's Bash."""
    if not IS_WINDOWS:
        return shlex.join(words)
    if in_bash:  # which would remove the backslashes of a path
        return shlex.join(word.replace("\\", "/") for word in words)
    from subprocess import list2cmdline

    return list2cmdline(words)


def write_utf8() -> None:
    """Write UTF-8 with plain newlines to pipes and files, also on Windows.

    Windows would use the user's code page, which lacks most characters.
    """
    for stream in (sys.stdout, sys.stderr):
        if IS_WINDOWS and isinstance(stream, TextIOWrapper) and not stream.isatty():
            stream.reconfigure(encoding="utf-8", newline="\n")
