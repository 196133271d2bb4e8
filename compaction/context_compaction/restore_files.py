"""Reads the files that a conversation used: from disk where that is allowed, else as last seen."""

from collections.abc import Mapping, Sequence

from context_compaction.layer_context import FileText
from context_compaction.read_state import FileState
from context_compaction.restore import CHANGED, FROM_TRANSCRIPT, RecentFile
from context_compaction.roots import DiskFile, ReadFile


async def files_on_disk(paths: Sequence[str], read_file: ReadFile | None) -> dict[str, DiskFile]:
    """Those of `paths` that lie inside the roots and can be read, by path."""
    if read_file is None:
        return {}
    found = {path: await read_file(path) for path in paths}
    return {path: file for path, file in found.items() if file is not None}


def file_texts(
    files: Sequence[RecentFile],
    states: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
) -> list[FileText]:
    """What to put back of `files`; one that nobody has the text of stays a path."""
    return [_text_of(file, states.get(file.path), on_disk.get(file.path)) for file in files]


def _text_of(file: RecentFile, state: FileState | None, on_disk: DiskFile | None) -> FileText:
    if on_disk is None:
        note = FROM_TRANSCRIPT if file.seen_text is not None else "not at hand; read it again"
        return FileText(file.path, file.seen_text, note)
    is_changed = state is not None and state.is_changed
    return FileText(file.path, on_disk.text, CHANGED if is_changed else "")
