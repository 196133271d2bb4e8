"""Automatic import of the sessions that hosts keep on disk, so that search finds them.

The server imports new lines when it starts and before each search, newest files first and for a
limited time. Files that were not reached are imported the next time.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from context_compaction import CompactionError

if TYPE_CHECKING:  # loads the library, which is needed only if there is something to import
    from context_compaction import Archive

# A search waits at most this long. The import of one new turn takes milliseconds.
SEARCH_SECONDS = 2.0
# Time limit in the background at the start. The first start imports all earlier sessions.
START_SECONDS = 20.0

_logger = logging.getLogger(__name__)


class SessionImports:
    """Imports the session files of known hosts. Files that cannot be imported are only logged.

    Args:
        archive_folder: Folder with the records of earlier imports.
        folders: Folders with session files.
        archive: Returns the opened archive.
    """

    def __init__(
        self,
        archive_folder: Path,
        folders: Sequence[Path],
        archive: "Callable[[], Awaitable[Archive]]",
    ) -> None:
        self._archive_folder = archive_folder
        self._folders = folders
        self._archive = archive
        self._lock = anyio.Lock()
        # Stamp of each file when it was last imported or found unchanged.
        self._stamps: dict[Path, tuple[int, int, int]] = {}

    async def catch_up(self, seconds: float) -> None:
        """Import new messages for at most about this time. Errors are only logged."""
        if not self._folders:
            return
        try:
            with anyio.move_on_after(seconds):
                async with self._lock:
                    await self._import_changed()
        except (CompactionError, OSError) as error:
            _logger.warning("Cannot import the sessions of hosts: %s", error)

    async def catch_up_every(self, seconds: float) -> None:
        """Import new messages now and after each pause of `seconds`, until it is cancelled."""
        while True:
            await self.catch_up(START_SECONDS)
            await anyio.sleep(seconds)

    async def _import_changed(self) -> None:
        changed = await to_thread.run_sync(self._changed)
        if not changed:
            return
        from mcp_server_compaction.hosts.importing import Importer

        importer = Importer(await self._archive(), self._archive_folder)
        for path, stamp in changed.items():
            outcome = await importer.import_file(path)
            self._stamps[path] = stamp
            problems = [outcome.problem] if outcome.problem and outcome.is_conversation else []
            for text in [*problems, *outcome.notes]:
                _logger.warning("%s: %s", path, text)

    def _changed(self) -> dict[Path, tuple[int, int, int]]:
        """Return the stamps of changed files, newest first, and outputs after all sessions."""
        present = [folder for folder in self._folders if folder.is_dir()]
        if not present:
            return {}
        from mcp_server_compaction.hosts import importing

        stamps: dict[Path, tuple[int, int, int]] = {}
        for path in importing.session_files(present, self._archive_folder):
            with suppress(OSError):  # deleted after it was listed, or not a regular file
                stamps[path] = importing.stamp_of(path)
        unknown = [path for path, stamp in stamps.items() if self._stamps.get(path) != stamp]
        changed = importing.files_to_import(self._archive_folder, unknown)
        self._stamps |= {path: stamps[path] for path in set(unknown).difference(changed)}
        changed.sort(key=lambda path: (importing.is_output(path), -stamps[path][1]))
        return {path: stamps[path] for path in changed}
