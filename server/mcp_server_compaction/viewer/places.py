"""Where a session of this machine's hosts was held: the host, and the folder that it worked in.

The archive does not know it; the hosts' own files, which are named after their sessions, do.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from context_compaction.file_access import HOST_TRANSCRIPT_FOLDERS
from context_compaction.messages.model import is_object

_HOSTS = dict(zip(HOST_TRANSCRIPT_FOLDERS, ("Claude Code", "Codex", "pi"), strict=True))
_HEAD_BYTES = 64 * 1024  # the folder stands in one of the first lines
_FRESH_SECONDS = 20.0
_UUID_CHARS = 36


@dataclass(frozen=True, slots=True)
class Place:
    """A host and a working folder; the folder is empty where the file does not name it."""

    host: str
    folder: str


@dataclass(slots=True)
class Places:
    """The session files of the user whose home folder that is. Every method blocks.

    Attributes:
        home: The home folder.
        files: By what may be a session's id, its file and host.
        looked_at: When the folders were last listed.
    """

    home: Path
    files: dict[str, tuple[Path, str]] = field(default_factory=dict[str, tuple[Path, str]])
    looked_at: float = -_FRESH_SECONDS
    _known: dict[Path, Place] = field(default_factory=dict[Path, Place])

    def find(self, session_ids: Sequence[str]) -> dict[str, Place]:
        """The places of those sessions that a host keeps here."""
        if time.monotonic() - self.looked_at >= _FRESH_SECONDS:
            self.files = {name: found for found in self._listed() for name in _names_of(found[0])}
            self.looked_at = time.monotonic()
        found: dict[str, Place] = {}
        for session_id in session_ids:
            # A sub-agent's session is named after the one that started it.
            file = self.files.get(session_id) or self.files.get(session_id.partition(".")[0])
            if file is not None:
                path, host = file
                if path not in self._known:
                    self._known[path] = Place(host, _folder_in(path))
                found[session_id] = self._known[path]
        return found

    def _listed(self) -> Iterator[tuple[Path, str]]:
        for folder, host in _HOSTS.items():
            for path in sorted((self.home / folder).rglob("*.jsonl")):
                yield path, host


def _names_of(path: Path) -> set[str]:
    """The ids that the session of a file may have, by the ways of each host."""
    stem = path.stem
    return {stem, stem.rpartition("_")[2], stem[-_UUID_CHARS:]} - {""}


def _folder_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            lines = file.read(_HEAD_BYTES).split(b"\n")
    except OSError:
        return ""
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # the last one is cut
            continue
        for holder in (entry, entry.get("payload")) if is_object(entry) else ():
            if is_object(holder) and isinstance(cwd := holder.get("cwd"), str):
                return cwd
    return ""
