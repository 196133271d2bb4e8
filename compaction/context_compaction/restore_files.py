"""Reads what `restore` may put back: from disk where that is allowed, else as last seen."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from context_compaction.restore import CHANGED, FROM_TRANSCRIPT, FileText, RecentFile

# Reads the text of a file that lies inside the configured roots; None when it may not or cannot.
ReadFile: TypeAlias = Callable[[str], Awaitable[str | None]]


async def file_texts(
    files: list[RecentFile], read_file: ReadFile | None, most: int
) -> list[FileText]:
    """The texts of the first `most` files; one that nobody has the text of stays a path."""
    return [await _text_of(file, read_file) for file in files[:most]]


async def _text_of(file: RecentFile, read_file: ReadFile | None) -> FileText:
    on_disk = await read_file(file.path) if read_file is not None else None
    if on_disk is None:
        note = FROM_TRANSCRIPT if file.seen_text is not None else "not at hand; read it again"
        return FileText(file.path, file.seen_text, note)
    same = file.seen_text is None or _same(file.seen_text, on_disk)
    return FileText(file.path, on_disk, "" if same else CHANGED)


def _same(seen: str, on_disk: str) -> bool:
    """Whether every line of the file stands in what was seen: tools number lines, or frame them."""
    return all(line.strip() in seen for line in on_disk.splitlines())
