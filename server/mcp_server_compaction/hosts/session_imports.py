"""Sessions that hosts keep on disk, archived by themselves: what left a context is found later.

Hosts without hooks keep their transcripts all the same. New lines of them are imported when the
server starts and before each search, for a bounded time and newest first; what is not reached then
comes next time.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from context_compaction import CompactionError

if TYPE_CHECKING:  # loaded with the engine, where there is something to import
    from context_compaction import Archive

# A person waits for a search at most this long; a session that grew by a turn takes milliseconds.
SEARCH_SECONDS = 2.0
# In the background, once: the first start meets all the sessions that there ever were.
START_SECONDS = 20.0

_logger = logging.getLogger(__name__)


class SessionImports:
    """The transcripts of known hosts, and how far they are archived.

    Nothing here fails a call: a session that cannot be imported is logged and left out.
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
        self._one_at_a_time = anyio.Lock()
        # The stamp of each file when it was last imported or found unchanged.
        self._stamps: dict[Path, tuple[int, int, int]] = {}

    async def catch_up(self, seconds: float) -> None:
        """Import what is new, for at most about `seconds`."""
        if not self._folders:
            return
        try:
            with anyio.move_on_after(seconds):
                async with self._one_at_a_time:
                    await self._import_changed()
        except (CompactionError, OSError) as error:
            _logger.warning("Sessions of hosts could not be imported: %s", error)

    async def _import_changed(self) -> None:
        changed = await to_thread.run_sync(self._changed)
        if not changed:
            return
        from mcp_server_compaction.hosts.importing import Importer

        importer = Importer(await self._archive(), self._archive_folder)
        for path in changed:
            stamp = changed[path]
            outcome = await importer.import_file(path)
            self._stamps[path] = stamp
            if outcome.problem and outcome.is_conversation:
                _logger.warning("%s: %s", path, outcome.problem)
            for note in outcome.notes:
                _logger.warning("%s: %s", path, note)

    def _changed(self) -> dict[Path, tuple[int, int, int]]:
        """The stamps of the files that changed, newest first; outputs after their sessions."""
        present = [folder for folder in self._folders if folder.is_dir()]
        if not present:
            return {}
        from mcp_server_compaction.hosts.importing import (
            files_to_import,
            is_output,
            session_files,
            stamp_of,
        )

        stamps: dict[Path, tuple[int, int, int]] = {}
        for path in session_files(present, self._archive_folder):
            try:
                stamps[path] = stamp_of(path)
            except OSError:  # gone since it was listed
                continue
        unknown = [path for path, stamp in stamps.items() if self._stamps.get(path) != stamp]
        changed = files_to_import(self._archive_folder, unknown)
        self._stamps |= {path: stamps[path] for path in set(unknown).difference(changed)}
        changed.sort(key=lambda path: (is_output(path), -stamps[path][1]))
        return {path: stamps[path] for path in changed}
