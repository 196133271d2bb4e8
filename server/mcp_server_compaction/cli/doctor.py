"""`doctor`: what a person needs to know when something does not work."""

import platform
import sqlite3
from collections.abc import Sequence
from importlib.metadata import version

import anyio
from context_compaction.archive import Health
from context_compaction.archive.local.archive import open_archive
from context_compaction.errors import ArchiveError, VocabularyError
from context_compaction.tokens.counter import counter_for

from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.config import ROOTS_VARIABLE, Config
from mcp_server_compaction.protocol.writers import writer_lines

# A reset of the write-ahead log could corrupt a database that several processes write:
# SQLite 3.7.0 to 3.51.2, mended in 3.51.3 (13 March 2026).
_WAL_MENDED = (3, 51, 3)
_MIB = 1024 * 1024


def run_doctor(config: Config) -> None:
    """Print one line for each thing checked; problems are named as such."""
    for name, state in [
        *_versions(),
        ("vocabulary", _vocabulary()),
        *_archive(config),
        ("roots", _roots(config)),
        ("summary writers", _listed(writer_lines(config))),
    ]:
        say(f"{name:<22} {state}")


def _versions() -> list[tuple[str, str]]:
    mended = sqlite3.sqlite_version_info >= _WAL_MENDED
    wal = "" if mended else " (has the WAL-reset bug, mended in 3.51.3)"
    return [
        ("mcp-server-compaction", version("mcp-server-compaction")),
        ("python", platform.python_version()),
        ("sqlite", sqlite3.sqlite_version + wal),
        ("mcp", version("mcp")),
        ("tiktoken", version("tiktoken")),
    ]


def _vocabulary() -> str:
    try:
        counted = counter_for(estimator="o200k").text("hello world")
    except VocabularyError as error:
        return f"PROBLEM: {error}"
    return f"ok (o200k_base, checksum verified; a test text counts {counted})"


def _archive(config: Config) -> list[tuple[str, str]]:
    if not config.archive_folder.exists():
        return [("archive", f"{config.archive_folder} (empty: made when it is first used)")]
    try:
        health = anyio.run(_health, config)
    except ArchiveError as error:
        return [("archive", f"PROBLEM: {error}")]
    return [
        ("archive", health.location),
        (
            "",
            f"{health.session_count} sessions, {health.message_count} messages, "
            f"{health.output_count} outputs",
        ),
        (
            "",
            f"log {health.log_bytes / _MIB:.1f} MiB, outputs {health.blob_bytes / _MIB:.1f} MiB, "
            f"index {health.index_bytes / _MIB:.1f} MiB",
        ),
        ("archive health", _listed(health.problems) or "ok"),
    ]


async def _health(config: Config) -> Health:
    async with open_archive(config.archive_folder) as archive:
        return await archive.health()


def _roots(config: Config) -> str:
    folders = [str(folder) for folder in config.roots.folders]
    return _listed(folders) or f"none: tools read no files (set {ROOTS_VARIABLE} or --root)"


def _listed(lines: Sequence[str]) -> str:
    return f"\n{'':<22} ".join(lines)
