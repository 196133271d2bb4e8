"""`doctor`: what a person needs to know when something does not work."""

import json
import platform
import sqlite3
from importlib.metadata import version

import anyio
from context_compaction.archive import Health
from context_compaction.archive.opening import open_archive
from context_compaction.errors import ArchiveError, VocabularyError
from context_compaction.tokens.counter import counter_for

from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.config import ROOTS_VARIABLE, Config
from mcp_server_compaction.protocol.writers import writer_lines

# A reset of the write-ahead log could corrupt a database that several processes write:
# SQLite 3.7.0 to 3.51.2, mended in 3.51.3 (13 March 2026).
_WAL_MENDED = (3, 51, 3)
_MIB = 1024 * 1024
_PROBLEM = "PROBLEM: "


def run_doctor(config: Config, *, as_json: bool) -> bool:
    """Print what was found of each thing checked, and tell whether there was no problem."""
    checked = [
        *_versions(),
        ("vocabulary", [_vocabulary()]),
        *_archive(config),
        ("roots", _roots(config)),
        ("summary writers", [*writer_lines(config)]),
    ]
    if as_json:
        say(json.dumps(dict(checked), indent=1))
    else:
        for name, lines in checked:
            for at, line in enumerate(lines):
                say(f"{'' if at else name:<22} {line}")
    return not any(line.startswith(_PROBLEM) for _, lines in checked for line in lines)


def _versions() -> list[tuple[str, list[str]]]:
    mended = sqlite3.sqlite_version_info >= _WAL_MENDED
    wal = "" if mended else " (has the WAL-reset bug, mended in 3.51.3)"
    return [
        ("mcp-server-compaction", [version("mcp-server-compaction")]),
        ("python", [platform.python_version()]),
        ("sqlite", [sqlite3.sqlite_version + wal]),
        ("mcp", [version("mcp")]),
        ("tiktoken", [version("tiktoken")]),
    ]


def _vocabulary() -> str:
    try:
        counted = counter_for(estimator="o200k").text("hello world")
    except VocabularyError as error:
        return f"{_PROBLEM}{error}"
    return f"ok (o200k_base, checksum verified; a test text counts {counted})"


def _archive(config: Config) -> list[tuple[str, list[str]]]:
    if config.archive_address is None and not config.archive_folder.exists():
        return [("archive", [f"{config.archive_folder} (empty: made when it is first used)"])]
    try:
        health = anyio.run(_health, config)
    except ArchiveError as error:
        return [("archive", [f"{_PROBLEM}{error}"])]
    figures = [
        health.location,
        f"{health.session_count} sessions, {health.message_count} messages, "
        f"{health.output_count} outputs",
        f"log {health.log_bytes / _MIB:.1f} MiB, outputs {health.blob_bytes / _MIB:.1f} MiB, "
        f"index {health.index_bytes / _MIB:.1f} MiB",
    ]
    return [("archive", figures), ("archive health", list(health.problems) or ["ok"])]


async def _health(config: Config) -> Health:
    async with open_archive(config.archive) as archive:
        return await archive.health()


def _roots(config: Config) -> list[str]:
    folders = [str(folder) for folder in config.roots.folders]
    return folders or [f"none: tools read no files (set {ROOTS_VARIABLE} or --root)"]
