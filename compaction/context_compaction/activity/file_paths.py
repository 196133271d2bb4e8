r"""One name for a file, however its path is spelled.

Tools on Windows write `D:\x\y`, `d:/x/y` or both; a shell of Git writes `/d/x/y` and one of WSL
`/mnt/d/x/y`. Here all are `D:/x/y`, which programs on Windows take too. What begins with a letter
between slashes is a drive only where the conversation names that drive as Windows does: elsewhere
`/d` is a folder.
"""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_DRIVE = re.compile(r"[A-Za-z]:(?:[\\/]|\Z)")
_MOUNTED = re.compile(r"/(?:mnt/|cygdrive/)?([A-Za-z])(?:/|\Z)")
# With a backslash shells keep a blank, or the like, in a name; folders end in one on Windows alone.
_BACKSLASHED = re.compile(r"\.{0,2}[\w.-]*(?:\\[\w.*-][\w.* -]*)+\\?\Z")
_NAMED_DRIVE = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]):(?:\\|/(?!/))")

# A shorter name of a file without its ending may be any word.
_STEM_CHARS = 5


@lru_cache(maxsize=4_096)
def plain_path(path: str) -> str:
    """`path` without "./" and doubled slashes, and with one form of drives and separators."""
    if "://" in path:
        return path
    if has_drive(path):
        path = path[0].upper() + path[1:].replace("\\", "/")
        return posixpath.normpath(path) if len(path) > 3 else path[:2] + "/"
    return posixpath.normpath(path.replace("\\", "/") if _BACKSLASHED.match(path) else path)


def has_drive(path: str) -> bool:
    """Whether `path` begins with the drive of Windows."""
    return path[1:2] == ":" and _DRIVE.match(path) is not None


def is_absolute(path: str) -> bool:
    """Whether `path` is the same wherever it is named."""
    return path.startswith("/") or has_drive(path)


def joined_path(folder: str, path: str) -> str:
    """`path` as seen from where `folder` starts."""
    return plain_path(path if is_absolute(path) else posixpath.join(folder, path))


def names_path(said: str, path: str) -> bool:
    """Whether `said` names the file at `path`."""
    name = posixpath.basename(path)
    stem = posixpath.splitext(name)[0]
    if stem not in said:
        return False
    is_name = "." in name.strip(".") and name in said
    if is_name and re.search(rf"(?<![\w-]){re.escape(name)}(?!\w)", said):
        return True
    is_telling = len(stem) >= _STEM_CHARS and ("_" in stem or "-" in stem)
    return is_telling and re.search(rf"\b{re.escape(stem)}\b", said) is not None


def below_drive(path: str) -> str:
    """`path` without what may be a drive."""
    if has_drive(path):
        return path[2:]
    mounted = _MOUNTED.match(path)
    return path[mounted.end() - 1 :] if mounted else path


@dataclass(frozen=True, slots=True)
class Drives:
    """The drives that a conversation names.

    Attributes:
        letters: Their letters, in upper case.
    """

    letters: frozenset[str] = frozenset()

    @classmethod
    def named_in(cls, texts: Iterable[str]) -> "Drives":
        """Those that paths and commands name as Windows does."""
        found = (letter for text in texts if ":" in text for letter in _NAMED_DRIVE.findall(text))
        return cls(frozenset(letter.upper() for letter in found))

    def plain(self, path: str) -> str:
        """`path` as `plain_path` gives it, also where it names a drive as a shell does."""
        path = plain_path(path)
        mounted = _MOUNTED.match(path) if self.letters else None
        if mounted is None or mounted[1].upper() not in self.letters:
            return path
        return plain_path(f"{mounted[1]}:/{path[mounted.end() :]}")
