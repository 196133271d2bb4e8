"""Rules of Windows for the processes of a test on Linux, without a Windows machine.

Put this folder into PYTHONPATH: Python then loads this file at its start, also in child processes.
It does not replace Windows. It refuses what Windows would refuse, so that code which relies on the
rules of POSIX fails:

- A file that any process has open, is a working folder or is mapped cannot be deleted or replaced,
  and the folder that contains it cannot be renamed.
- A folder cannot be opened or synced, and a file that is open for reading cannot be synced.
- Reserved and invalid names, names that differ in case only, and long paths are refused.
- Without O_BINARY, `os.write` writes each newline as two bytes.
- `fcntl`, `resource`, and functions and signals of POSIX do not exist for our code.

The branch for Windows of `context_compaction.system` is in force.
"""

import asyncio  # loaded first, because it uses what is removed below
import builtins
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

OURS = ("context_compaction", "mcp_server_compaction", "__main__")
ABSENT_MODULES = {"fcntl", "resource", "pwd", "grp", "termios"}
ABSENT_NAMES = {
    os: ["O_DIRECTORY", "O_NOFOLLOW", "fdatasync", "geteuid", "nice", "mkfifo", "killpg"],
    socket: ["SO_REUSEPORT"],
    signal: ["SIGHUP", "SIGUSR1"],
}
MAX_PATH = 259
_RESERVED = re.compile(r"(?i)(?:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?|.*[ .]|.*[<>:\"|?*].*")
# Folders of the system and of Python, whose names are not ours.
_PYTHON = (sys.prefix, sys.base_prefix, *(path for path in sys.path if "site-packages" in path))
_FOREIGN = ("/dev", "/proc", "/sys", "/usr", "/etc", *_PYTHON)
_MEMORY = "/dev/shm"  # the folder of temporary files in the tests
O_BINARY = 0x0800_0000


def refusal(number: int, code: int, path: str) -> OSError:
    """Return the error that Windows raises; `code` is its own number of the error."""
    error = OSError(number, f"[WinError {code}]", path)
    error.winerror = code  # type: ignore[attr-defined]
    return error


def open_paths() -> Iterator[str]:
    """Yield the paths of all files and working folders that processes of this user have open."""
    for process in os.listdir("/proc"):  # noqa: PTH208 - paths as text, because this runs often
        if not process.isdecimal():
            continue
        links = [f"/proc/{process}/cwd"]
        with suppress(OSError):  # the process ended
            fds = f"/proc/{process}/fd"
            links += [f"{fds}/{fd}" for fd in os.listdir(fds)]  # noqa: PTH208
        for link in links:
            with suppress(OSError):  # the file was closed
                yield os.readlink(link)  # noqa: PTH115


def check_closed(path: str) -> None:
    """Refuse to move or delete a file that is open, or a folder that contains one."""
    real = os.path.realpath(path)
    if any(name == real or name.startswith(f"{real}/") for name in open_paths()):
        raise refusal(errno.EACCES, 32, path)


def _is_foreign(path: str) -> bool:
    return path.startswith(_FOREIGN) and not path.startswith(_MEMORY)


def check_name(path: str) -> None:
    """Refuse a name that Windows does not allow, and one that differs in case only."""
    full = Path(path).absolute()
    if _is_foreign(str(full)):
        return
    if len(str(full)) > MAX_PATH:
        raise refusal(errno.ENOENT, 206, path)
    if _RESERVED.fullmatch(full.name):
        raise refusal(errno.EINVAL, 123, path)
    if os.path.lexists(full) or not full.parent.is_dir():
        return
    if full.name.lower() in {other.name.lower() for other in full.parent.iterdir()}:
        raise refusal(errno.EEXIST, 183, path)


def on_open(path: Any, mode: Any, flags: int) -> None:
    """Check a path that is opened."""
    if isinstance(path, int):
        return
    text = os.fsdecode(path)
    if mode is None and Path(text).is_dir() and not _is_foreign(text):
        raise refusal(errno.EACCES, 5, text)
    if flags & os.O_CREAT:
        check_name(text)


def on_rename(source: Any, target: Any, *_: Any) -> None:
    """Check a rename or replacement."""
    check_name(os.fsdecode(target))
    check_closed(os.fsdecode(source))
    if os.path.lexists(target):
        check_closed(os.fsdecode(target))


def on_delete(path: Any, *_: Any) -> None:
    """Check a deletion of a file or folder."""
    check_closed(os.fsdecode(path))


def on_mkdir(path: Any, *_: Any) -> None:
    """Check the name of a new folder."""
    check_name(os.fsdecode(path))


CHECKS: dict[str, Callable[..., None]] = {
    "open": on_open,
    "os.remove": on_delete,
    "os.rmdir": on_delete,
    "os.rename": on_rename,
    "os.mkdir": on_mkdir,
}
_is_checking = False


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Check an event of the interpreter; an exception here prevents the operation."""
    global _is_checking
    check = CHECKS.get(event)
    if check is None or _is_checking:
        return
    # On Windows, `tempfile` lets the system delete its files, and does not unlink them while open.
    caller = sys._getframe().f_back  # pyright: ignore[reportPrivateUsage]
    if caller is None or caller.f_code.co_name == "opener":
        return
    _is_checking = True
    try:
        check(*arguments)
    finally:
        _is_checking = False


def install_bytes_rules() -> None:
    """Let `os.write` translate newlines, and `os.fsync` refuse files that are open for reading."""
    plain_open, plain_write, plain_fsync = os.open, os.write, os.fsync
    text_files: dict[int, tuple[int, int]] = {}

    def key(handle: int) -> tuple[int, int]:
        status = os.fstat(handle)
        return status.st_dev, status.st_ino

    def open_as_text(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        handle = plain_open(path, flags & ~O_BINARY, *arguments, **options)
        if not flags & O_BINARY:
            text_files[handle] = key(handle)
        else:
            text_files.pop(handle, None)
        return handle

    def write(handle: int, data: Any) -> int:
        if text_files.get(handle) != key(handle):
            return plain_write(handle, data)
        plain_write(handle, bytes(data).replace(b"\n", b"\r\n"))
        return len(data)

    def fsync(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        plain_fsync(handle)

    os.O_BINARY = O_BINARY  # type: ignore[attr-defined]
    os.open, os.write, os.fsync = open_as_text, write, fsync  # type: ignore[assignment]


def install_locks() -> None:
    """Put a `portalocker` in place whose locks of Windows are locks of Linux."""

    class AlreadyLocked(Exception):  # noqa: N818 - the name of portalocker
        pass

    class Win32Locker:
        def lock(self, handle: int, flags: int) -> None:
            try:
                fcntl.flock(handle, flags)
            except BlockingIOError as error:
                raise AlreadyLocked from error

        def unlock(self, handle: int) -> None:
            fcntl.flock(handle, fcntl.LOCK_UN)

    package: Any = ModuleType("portalocker")
    package.LOCK_SH, package.LOCK_EX = fcntl.LOCK_SH, fcntl.LOCK_EX
    package.LOCK_NB, package.AlreadyLocked = fcntl.LOCK_NB, AlreadyLocked
    module: Any = ModuleType("portalocker.portalocker")
    module.Win32Locker = Win32Locker
    package.portalocker = module
    sys.modules |= {"portalocker": package, "portalocker.portalocker": module}


def install_absences() -> None:
    """Remove what Windows lacks; modules of POSIX are removed for our code only."""
    plain_import = builtins.__import__

    def import_checked(name: str, *arguments: Any, **options: Any) -> Any:
        if name in ABSENT_MODULES:
            variables: dict[str, Any] = (arguments[0] if arguments else None) or {}
            if str(variables.get("__name__")).startswith(OURS):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return plain_import(name, *arguments, **options)

    builtins.__import__ = import_checked
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    for module, names in ABSENT_NAMES.items():
        for name in names:
            delattr(module, name)


def install() -> None:
    """Put all rules in force."""
    assert asyncio
    assert tempfile
    install_bytes_rules()
    install_locks()
    install_absences()
    sys.addaudithook(audit)
    try:
        from context_compaction import system
    except ModuleNotFoundError:  # a process that is not ours
        return
    system.IS_WINDOWS = True  # pyright: ignore[reportConstantRedefinition]
    system._NO_WINDOW = 0  # pyright: ignore[reportConstantRedefinition, reportPrivateUsage]


install()
