"""The read state: which files a conversation knows, and which of them changed on disk since.

Claude Code keeps such a state in memory and loses it with the process. The session's receipts
contain ours: path, lines, hash of the known text, hash and time of the file that agreed with it. So
a file that was read before three compactions by another process is still known. Pure: the files on
disk are read by the caller, and only if they are inside the roots.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.known_file import KnownFile
from context_compaction.file_access import DiskFile
from context_compaction.messages.model import Messages


@dataclass(frozen=True, slots=True)
class FileState:
    """What is known of one file, as the receipt contains it.

    Attributes:
        path: The path as the calls name it.
        range: The lines that are known, as in "1-20,40-60"; "" for the whole file.
        seq: Number of the message that used it last, or since which its text is unsure.
        seen_sha256: Of the known text; "" if none is known for certain.
        disk_sha256: Of the file when it agreed with that; "" if it was not read.
        modified_seconds: When that file had last been written to, in Unix time; 0 with "".
        is_changed: Whether the file on disk differs now.
        told_sha256: Of the file when the conversation was warned of its change.
    """

    path: str
    range: str
    seq: int
    seen_sha256: str
    disk_sha256: str
    modified_seconds: float
    is_changed: bool
    told_sha256: str = ""


def tracked_paths(
    known: Mapping[str, KnownFile], earlier: Mapping[str, FileState]
) -> dict[str, FileState | None]:
    """The files to look at, each with its earlier state, newest use first.

    The 50 used last; older ones are forgotten. A file is one however calls spell its path.
    """
    rest = dict(earlier)
    found: dict[str, FileState | None] = {}
    for path in reversed(list(known)):
        states = [rest.pop(name, None) for name in (path, *known[path].names)]
        found[path] = next(filter(None, states), None)
    older = sorted(rest.values(), key=lambda state: -state.seq)
    found.update((state.path, state) for state in older)
    return dict(list(found.items())[:50])


def checked(
    known: Mapping[str, KnownFile],
    earlier: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
    messages: Messages,
    seqs: Sequence[int],
) -> dict[str, FileState]:
    """The state of each tracked file, by path, newest use first.

    Args:
        known: The files as the conversation leaves them, by path.
        earlier: The states that an earlier call left.
        on_disk: The files that could be read.
        messages: The conversation.
        seqs: The numbers of its messages in the transcript, by index.
    """
    states: dict[str, FileState] = {}
    for path, before in tracked_paths(known, earlier).items():
        file, disk = known.get(path), on_disk.get(path)
        state = before
        if file is not None:
            used_at = max(file.touched_at, -1 if file.unsure_since is None else file.unsure_since)
            index = messages[used_at].index
            state = _state(file, -1 if index is None else seqs[index], before, disk)
        elif before is not None and disk is not None and before.disk_sha256:
            state = replace(before, is_changed=_sha256_of(disk.text) != before.disk_sha256)
        if state is not None:
            states[path] = replace(state, told_sha256=before.told_sha256 if before else "")
    return states


def _state(file: KnownFile, seq: int, before: FileState | None, disk: DiskFile | None) -> FileState:
    texts = [part.text for part in file.parts] or ([] if file.text is None else [file.text])
    is_sure = file.unsure_since is None or bool(file.text is not None and file.parts)
    if texts and is_sure:
        lines = ",".join(f"{part.start_line}-{part.stop_line}" for part in file.parts)
        state = FileState(file.path, lines, seq, _sha256_of("\n".join(texts)), "", 0.0, False)
        if disk is None or _agrees(disk.text, texts, is_whole=not file.parts):
            return _agreeing(state, disk)
        return replace(state, is_changed=True)
    if before is not None and seq <= before.seq:
        is_changed = before.is_changed
        if disk is not None and before.disk_sha256:
            is_changed = _sha256_of(disk.text) != before.disk_sha256
        return replace(before, path=file.path, is_changed=is_changed)
    # A text that a command may have changed since, or that was never shown: the file is taken as
    # it is, because nobody knows what it should be.
    return _agreeing(FileState(file.path, "", seq, "", "", 0.0, False), disk)


def _agrees(on_disk: str, texts: Sequence[str], *, is_whole: bool) -> bool:
    """Whether a file has the known texts: all of it, or parts of it."""
    file = _trimmed(on_disk)
    if is_whole:
        return _trimmed(texts[0]) == file
    return all(f"\n{_trimmed(text)}\n" in f"\n{file}\n" for text in texts)


def _trimmed(text: str) -> str:
    """`text` without blanks at the ends of its lines, and without empty lines at its ends."""
    # Tools cut very long lines; this much of a line stands for all of it.
    return "\n".join(line.rstrip()[:400] for line in text.splitlines()).strip("\n")


def _agreeing(state: FileState, disk: DiskFile | None) -> FileState:
    if disk is None:
        return state
    sha256, seconds = _sha256_of(disk.text), disk.modified_seconds
    return replace(state, disk_sha256=sha256, modified_seconds=seconds, is_changed=False)


def untold(
    states: Mapping[str, FileState], on_disk: Mapping[str, DiskFile]
) -> dict[str, FileState]:
    """The states of changed files without a warning yet, marked as warned of."""
    found: dict[str, FileState] = {}
    for path, state in states.items():
        if state.is_changed and path in on_disk:
            sha256 = _sha256_of(on_disk[path].text)
            if state.told_sha256 != sha256:
                found[path] = replace(state, told_sha256=sha256)
    return found


def changed_warning(states: Mapping[str, FileState]) -> str | None:
    """The warning that names files changed outside the conversation; None where none was."""
    # A path is the conversation's text: on one line, and bounded.
    paths = [" ".join(state.path.split())[:200] for state in states.values() if state.is_changed]
    if not paths:
        return None
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return (
        f"Changed on disk since they were read here: {', '.join(paths[:5])}{more}. "
        "Read them again before relying on what the conversation says of them."
    )


def _sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
