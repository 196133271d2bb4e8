"""The folder of the work, told from the paths that calls name; and what lies beside it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from context_compaction.activity.file_paths import has_drive, is_absolute

_TEMPORARY = re.compile(r"(?:^|/)(?:\.?[Tt]e?mp|scratch(?:pad)?|\.cache|var/folders)/")
# So many of the files lie in the folder of the work, or in one below.
_MOST_SHARE = 0.8


def work_folder(paths: Sequence[str]) -> str:
    """The folder of the work: the one with most files; "" where paths are relative to it."""
    lasting = [path for path in paths if not _TEMPORARY.search(path)]
    # Hosts keep what is theirs, as plans, in hidden folders: the work may be in a temporary one.
    if 2 * len(lasting) < len(paths) and all("/." in path for path in lasting):
        paths = [path for path in paths if _TEMPORARY.search(path)]
    else:
        paths = lasting
    on_drives = [path for path in paths if has_drive(path)]
    absolute = [path for path in paths if path.startswith("/")]
    folder = "/"
    if len(on_drives) > len(absolute):
        absolute, folder = on_drives, ""
    if 2 * len(absolute) < len(paths):
        return ""
    while True:
        inside = [path[len(folder) :] for path in absolute if path.startswith(folder)]
        below = Counter(path.partition("/")[0] for path in inside if "/" in path)
        name, files = below.most_common(1)[0] if below else ("", 0)
        if not files or files < _MOST_SHARE * len(absolute):
            return folder
        folder += f"{name}/"


def top_folder(paths: Iterable[str]) -> str:
    """The folder that relative `paths` start from where the others are absolute; "" if not known.

    Some hosts have patches name files from the top of the work, and all other calls from the root:
    it is the folder in which most of the folders lie that the relative ones begin with.
    """
    absolute = [path for path in paths if is_absolute(path)]
    relative = [path for path in paths if not is_absolute(path) and path[:1] != "~"]
    begun = {name for name, slash, _ in (path.partition("/") for path in relative) if slash}
    begun.discard("..")
    below: defaultdict[str, set[str]] = defaultdict(set)
    for path in absolute:
        ends = [at for at, char in enumerate(path) if char == "/"]
        for at, to in pairwise(ends):
            below[path[: at + 1]].add(path[at + 1 : to])
    found = {top: len(names & begun) for top, names in below.items()}
    top = max(found, key=lambda top: (found[top], -len(top)), default="")
    return top if begun and 2 * found.get(top, 0) >= len(begun) else ""


def is_scratch(path: str, folder: str) -> bool:
    """Whether `path` lies in a temporary folder, other than the folder of the work."""
    below = path.removeprefix(folder) if folder else path
    return _TEMPORARY.search(below) is not None
