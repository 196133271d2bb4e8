"""The files of a conversation by the names that its calls give them: many have more than one.

Calls name a file from the root, from the folder of the work or from where a shell stands; on drives
letters are alike in both cases; commands name several at once by stars or by their folder.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence

from context_compaction.activity.file_paths import has_drive, is_absolute, joined_path
from context_compaction.activity.known_file import KnownFile
from context_compaction.activity.shell_folder import ShellFolder
from context_compaction.activity.work_folder import is_scratch, top_folder, work_folder


class NamedFiles:
    """The files while the messages are walked through.

    Attributes:
        files: Each by its one name, in the order of first use.
        used: The names of those that calls other than commands use, in the order of last use.
    """

    def __init__(self, shell: ShellFolder, paths: Sequence[str]) -> None:
        """No file is known yet.

        Args:
            shell: Where the paths of commands start.
            paths: The files that other calls use, in the order of last use.
        """
        self.files: dict[str, KnownFile] = {}
        self._by_name: dict[str, list[KnownFile]] = {}
        self._shell = shell
        self._cased: dict[str, str] = {}
        self._top = ""
        if not shell.top:
            self._top = top_folder(frozenset(map(self.spelled, paths)))
        last = {self.spelled(path): n for n, path in enumerate(paths)}
        self.used: list[str] = sorted(last, key=last.__getitem__)
        self._folder = work_folder(sorted(self.used))

    def spelled(self, path: str) -> str:
        """The one name of the file at `path`: on drives letters are alike in both cases."""
        path = self._shell.drives.plain(path)
        if self._top and "/" in path and path[:1] != "~":  # a name alone may be anywhere
            path = joined_path(self._top, path)
        return self._cased.setdefault(path.casefold(), path) if has_drive(path) else path

    def file(self, path: str) -> KnownFile:
        """The file that is spelled `path`; it is known of from now on."""
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = KnownFile(path)
            self._by_name.setdefault(posixpath.basename(path), []).append(file)
        return file

    def related(self, path: str) -> Iterator[KnownFile]:
        """The file at `path` and those that may be the same under another spelling."""
        for file in self._by_name.get(posixpath.basename(path), ()):
            known = file.path
            if known == path or known.endswith(f"/{path}") or path.endswith(f"/{known}"):
                yield file

    def seen(self, path: str) -> str:
        """`path`, which a command names, as the other calls name it."""
        seen = self.spelled(self._shell.seen(path))
        file = None if seen in self.files else self.called(seen)
        return file.path if file else seen

    def called(self, path: str) -> KnownFile | None:
        """The file that a command names as `path`: under this name, or from the work's folder."""
        path = self.spelled(path)
        if path in self.files or is_absolute(path):
            return self.files.get(path)
        found = [file for known, file in self.files.items() if known.endswith(f"/{path}")]
        folders = {file.path.removesuffix(path) for file in found if is_absolute(file.path)}
        if len(found) != 1 or len(folders) != 1:
            return None
        # Another folder may have a file of that name: most of the others must lie in this one.
        [folder] = folders
        inside = [known for known in self.files if known.startswith(folder)]
        absolute = [known for known in self.files if is_absolute(known)]
        return found[0] if len(inside) > 1 and 2 * len(inside) > len(absolute) else None

    def under(self, path: str) -> list[KnownFile]:
        """The file at `path`, or those in the folder of that name, which are there."""
        path = self.seen(path)
        return [
            file
            for known, file in self.files.items()
            if (known == path or known.startswith(f"{path}/")) and not file.is_deleted
        ]

    def matching(self, path: str) -> list[KnownFile]:
        """The files that `path` names, which may contain stars, or that lie in it."""
        if "*" not in path:
            return self.under(path)
        form = re.compile("[^/]*".join(map(re.escape, self._shell.seen(path).split("*"))) + r"\Z")
        is_part = not is_absolute(path)
        return [
            file
            for known, file in self.files.items()
            if not file.is_deleted
            and (form.match(known) or (is_part and is_absolute(known) and self._ends(form, known)))
        ]

    def _ends(self, form: re.Pattern[str], known: str) -> bool:
        """Whether the absolute path `known` is one that `form` matches from the work's folder."""
        return any(form.match(known, at + 1) for at, char in enumerate(known) if char == "/")

    def is_inside(self, path: str) -> bool:
        """Whether the file may lie in the repository."""
        if is_scratch(path, self._folder) or path.startswith("../"):
            return False
        return not is_absolute(path) or all(map(is_absolute, self.files))
