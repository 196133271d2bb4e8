"""A simulation of power loss: a disk that forgets everything that was not synced.

While `recording` runs, every `os.fsync` and `os.fdatasync` of this process is recorded: the current
bytes of a file, and the names in a folder. `image` then writes the content of a disk after power
loss: names of synced folders, bytes of synced files, and at most a random prefix of later bytes.
"""

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch


@dataclass
class Disk:
    """Synced content of the device, by inode.

    Attributes:
        contents: The bytes of each synced file.
        names: The entries of each synced folder: name to inode and whether it is a folder.
        before_sync: Called before each sync is done.
    """

    contents: dict[int, bytes] = field(default_factory=dict[int, bytes])
    names: dict[int, dict[str, tuple[int, bool]]] = field(
        default_factory=dict[int, dict[str, tuple[int, bool]]]
    )
    before_sync: Callable[[], None] = lambda: None

    def note(self, handle: int) -> None:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(handle) as entries:
                self.names[found.st_ino] = {
                    entry.name: (entry.inode(), entry.is_dir()) for entry in entries
                }
        else:
            self.contents[found.st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()

    def image(self, root: Path, target: Path, rng: Random) -> None:
        """Write the remains of folder `root` to `target`. The name of `root` counts as synced."""
        self._write_folder(root.stat().st_ino, root, target, rng)

    def _write_folder(self, inode: int, now: Path, target: Path, rng: Random) -> None:
        target.mkdir()
        for name, (inner, is_folder) in self.names.get(inode, {}).items():
            if is_folder:
                self._write_folder(inner, now / name, target / name, rng)
                continue
            data = self.contents.get(inner, b"")
            if rng.random() < 0.5 and (now / name).exists():
                later = (now / name).read_bytes()[len(data) :]
                data += later[: rng.randrange(len(later) + 1)]
            (target / name).write_bytes(data)


@contextmanager
def recording() -> Generator[Disk]:
    """Record every sync of this process, in any thread."""
    disk = Disk()

    def noting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def sync_and_note(handle: int) -> None:
            disk.before_sync()
            sync(handle)
            disk.note(handle)

        return sync_and_note

    with (
        patch.object(os, "fsync", noting(os.fsync)),
        patch.object(os, "fdatasync", noting(os.fdatasync)),
    ):
        yield disk
