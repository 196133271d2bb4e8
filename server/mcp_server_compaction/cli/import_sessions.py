"""`import [PATHS…]`: session files of hosts and message lists into the archive."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread
from context_compaction.archive.opening import open_archive
from context_compaction.errors import SettingsError
from context_compaction.file_access import host_folders

from mcp_server_compaction.cli.terminal import Tell, progress, say
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.import_calls import Calls
from mcp_server_compaction.hosts.import_journal import Journal
from mcp_server_compaction.hosts.importing import (
    Imported,
    files_to_import,
    import_file,
    is_output,
    session_files,
)


def run_import(paths: Sequence[Path], config: Config, *, as_json: bool) -> bool:
    """Import and report what was taken; returns whether all that was named could be.

    Raises:
        SettingsError: No path was named and no host's transcripts are there.
        ArchiveError: The archive fails.
    """
    files = session_files(paths or _host_folders(), config.archive_folder)
    outcomes = anyio.run(_import, files, config)
    named = {path.absolute() for path in paths}
    failed = [one for one in outcomes if one.problem and _matters(one, named)]
    passed_over = sum(bool(one.problem) for one in outcomes) - len(failed)
    figures = {
        "files": len(files),
        "unchanged": len(files) - len(outcomes),
        "passed_over": passed_over,
        "failed": len(failed),
        "sessions": len({session for one in outcomes for session in one.sessions}),
        "messages_written": sum(one.written for one in outcomes),
        "outputs": sum(one.outputs for one in outcomes),
    }
    if as_json:
        say(json.dumps(figures))
    else:
        say(
            f"{figures['messages_written']:,} new messages and {figures['outputs']} outputs in "
            f"{figures['sessions']} sessions. "
            f"{len(files)} files: {figures['unchanged']} unchanged, {passed_over} without a "
            f"conversation, {len(failed)} failed."
        )
    for one in outcomes:
        for note in one.notes:
            say(f"{one.path}: {note}", err=True)
    for one in failed:
        say(f"{one.path}: {one.problem}", err=True)
    return not failed


def _matters(outcome: Imported, named: set[Path]) -> bool:
    """A file that was found in a folder may hold anything; one that was named may not."""
    return outcome.is_conversation or outcome.path in named


def _host_folders() -> list[Path]:
    found = host_folders(Path.home())
    existing = [folder for folder in found if folder.is_dir()]
    if not existing:
        raise SettingsError(
            f"There are no transcripts in {', '.join(map(str, found))}. Name files or folders."
        )
    return existing


async def _import(files: Sequence[Path], config: Config) -> list[Imported]:
    """Import the files that have changed."""
    journal = Journal(config.archive_folder)
    changed = await to_thread.run_sync(files_to_import, journal, files)
    if not changed:
        return []
    async with open_archive(config.archive, redaction=config.redaction) as archive:
        calls = Calls(archive)
        total_bytes = sum(path.stat().st_size for path in changed if path.exists()) or 1
        outcomes: list[Imported] = []
        done_bytes = 0
        with progress("Importing") as tell:
            for path in sorted(changed, key=is_output):  # an output after its session's calls
                reporter = _Reporter(tell, path.name, done_bytes, total_bytes)
                outcomes.append(
                    await import_file(archive, journal, calls, path, report_bytes=reporter.add)
                )
                done_bytes += path.stat().st_size if path.exists() else 0
        return outcomes


@dataclass(slots=True)
class _Reporter:
    """Adds up the bytes that are read of one file, after `done_bytes` of others."""

    tell: Tell
    name: str
    done_bytes: int
    total_bytes: int

    def add(self, count_bytes: int) -> None:
        """So many more bytes were read."""
        self.done_bytes += count_bytes
        self.tell(self.done_bytes / self.total_bytes, self.name)
