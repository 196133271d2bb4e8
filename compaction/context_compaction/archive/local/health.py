"""Figures and problems of an archive, found by reading every line of its log."""

import sqlite3
from pathlib import Path

from context_compaction.archive import Health
from context_compaction.archive.local.durable_files import explaining
from context_compaction.archive.local.index_file import FIRST_SAFE_SQLITE, index_bytes
from context_compaction.archive.local.log import (
    read_segment,
    segment_sizes,
    session_folders,
)


def examine(root: Path, index_folder: Path) -> Health:
    """See `Archive.health`. Reads the whole log and checks each line, at some 200 MB a second.

    Raises:
        ArchiveError: A folder or file cannot be read.
    """
    messages: set[tuple[str, int]] = set()
    outputs: set[str] = set()
    problems: list[str] = []
    sessions: set[str] = set()
    log_bytes = 0
    for folder in session_folders(root):
        for segment, size in segment_sizes(folder).items():
            log_bytes += size
            part = read_segment(folder, segment)
            problems += [
                f"{folder / segment}: line {line} does not match its checksum and is left out."
                for line in part.damaged
            ]
            if part.end < size:
                problems.append(
                    f"{folder / segment}: the last {size - part.end} bytes are a call that "
                    "was cut off; they are left out, and nothing that was acknowledged is lost."
                )
            heads = [record.head for record in part.records]
            sessions.update(folder.name for head in heads if head["kind"] == "session")
            messages.update(
                (folder.name, head["seq"]) for head in heads if head["kind"] == "message"
            )
            outputs.update(head["id"] for head in heads if head["kind"] == "output")
    if sqlite3.sqlite_version_info < FIRST_SAFE_SQLITE:
        problems.append(
            f"Note: SQLite {sqlite3.sqlite_version} has a bug (3.7.0 to 3.51.2) that can damage "
            "the search index under concurrent use. Its writes are kept apart by a lock, and a "
            "damaged index is rebuilt; the archive itself is not concerned."
        )
    with explaining(root, "Measuring"):
        blob_bytes = sum(path.stat().st_size for path in (root / "blobs").glob("??/*.zst"))
    return Health(
        location=str(root),
        session_count=len(sessions),
        message_count=len(messages),
        output_count=len(outputs),
        log_bytes=log_bytes,
        blob_bytes=blob_bytes,
        index_bytes=index_bytes(index_folder),
        problems=tuple(problems),
    )
