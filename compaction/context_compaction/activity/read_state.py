"""The read state: which files a conversation has seen, and which of them changed on disk since.

Claude Code keeps such a state in memory and loses it with the process. The session's receipts
contain ours: path, range, hash of what was seen, hash and time of the file that agreed with it. So
a file that was read before three compactions by another process is still known. Pure: the files on
disk are read by `layers/restore_files.py`, and only for files inside the roots.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.calls import arguments_by_name, classify, first_text
from context_compaction.activity.shown import (
    is_partial,
    may_be_numbered,
    numbered_lines,
    without_reminder,
)
from context_compaction.file_access import DiskFile
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.model import Messages, ToolCall, ToolResult
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.messages.tool_results import result_text

# The files used last; older ones are forgotten.
TRACKED_FILES = 50
# Lines with which tools frame a text begin so; this many at either end may.
_FRAME = ("<", "[", "(", "```", "---", "===", "File", "Here", "Content")
_TEXT_KEYS = ("content", "filetext", "contents", "text")


@dataclass(frozen=True, slots=True)
class FileUse:
    """The newest use of a file in a list.

    Attributes:
        path: The path as the call names it.
        range: Which part a read asked for; "" for all of it.
        seq: Number of the message that showed it.
        text: What was seen, or None where it is unknown: after an edit, or where it was cleared.
        by_edit: Whether the conversation itself changed the file and did not look since.
    """

    path: str
    range: str
    seq: int
    text: str | None
    by_edit: bool


@dataclass(frozen=True, slots=True)
class FileState:
    """What is known of one file, as the receipt contains it.

    Attributes:
        path: The path as the calls name it.
        range: Which part was seen; "" for all of it.
        seq: Number of the message that showed it.
        seen_sha256: Of the text that was seen; "" where there was none.
        disk_sha256: Of the file when it agreed with that; "" where it was not read.
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


def uses_of(
    messages: Messages, seqs: Sequence[int], extra_kinds: Mapping[str, str]
) -> dict[str, FileUse]:
    """The newest use of each file that `messages` read, wrote or edited, oldest first.

    A read of a part keeps an earlier read of the whole, as long as no edit lies between.
    """
    messages = with_own_ids(messages)
    index = index_calls(messages)
    found: dict[str, FileUse] = {}
    for message in messages:
        for block in message.blocks:
            if not isinstance(block, ToolResult) or block.is_error or message.index is None:
                continue
            call = index.calls.get(block.call_id)
            if call is None:
                continue
            use = classify(call, extra_kinds)
            if use.path is None or use.kind not in ("read", "write", "edit", "notebook"):
                continue
            by_edit = use.kind in ("edit", "notebook")
            text = _content_of(call, block, use.kind)
            before = found.pop(use.path, None)
            keeps = before is not None and not before.range and not before.by_edit
            if use.range and keeps and before is not None and before.text is not None:
                found[use.path] = replace(before, seq=seqs[message.index])
            else:
                found[use.path] = FileUse(use.path, use.range, seqs[message.index], text, by_edit)
    return found


def tracked_paths(uses: Mapping[str, FileUse], earlier: Mapping[str, FileState]) -> list[str]:
    """The files to look at, newest use first, `TRACKED_FILES` at most."""
    older = sorted(earlier.values(), key=lambda state: -state.seq)
    newest = dict.fromkeys((*reversed(list(uses)), *(state.path for state in older)))
    return list(newest)[:TRACKED_FILES]


def checked(
    uses: Mapping[str, FileUse],
    earlier: Mapping[str, FileState],
    on_disk: Mapping[str, DiskFile],
) -> dict[str, FileState]:
    """The state of each tracked file, by path, newest use first."""
    states: dict[str, FileState] = {}
    for path in tracked_paths(uses, earlier):
        before = earlier.get(path)
        state = _state(path, uses.get(path), before, on_disk.get(path))
        states[path] = replace(state, told_sha256=before.told_sha256) if before else state
    return states


def untold(
    states: Mapping[str, FileState], on_disk: Mapping[str, DiskFile]
) -> dict[str, FileState]:
    """The states of changed files without a warning yet, marked as warned of."""
    return {
        path: replace(state, told_sha256=_sha256_of(on_disk[path].text))
        for path, state in states.items()
        if state.is_changed
        and path in on_disk
        and state.told_sha256 != _sha256_of(on_disk[path].text)
    }


def refreshed(
    states: Mapping[str, FileState], shown: Sequence[str], on_disk: Mapping[str, DiskFile]
) -> tuple[FileState, ...]:
    """`states`, after the files `shown` were restored as they are on disk."""
    kept: list[FileState] = []
    for path, state in states.items():
        file = on_disk.get(path)
        if path in shown and file is not None:
            state = _agreeing(state, file)
        kept.append(state)
    return tuple(kept)


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


def _state(
    path: str, use: FileUse | None, before: FileState | None, file: DiskFile | None
) -> FileState:
    if use is not None and use.text is not None:
        state = FileState(path, use.range, use.seq, _sha256_of(use.text), "", 0.0, False)
        if file is None:
            return state
        same = matches_tool_output(file.text, use.text, is_whole=not use.range)
        return _agreeing(state, file) if same else replace(state, is_changed=True)
    if before is not None and (use is None or not use.by_edit or use.seq <= before.seq):
        if file is None or not before.disk_sha256:
            return before
        return replace(before, is_changed=_sha256_of(file.text) != before.disk_sha256)
    # The conversation's own edit, or a text that we never saw: the file is taken as it is.
    seq = use.seq if use else -1
    state = FileState(path, use.range if use else "", seq, "", "", 0.0, False)
    return state if file is None else _agreeing(state, file)


def _agreeing(state: FileState, file: DiskFile) -> FileState:
    return replace(
        state,
        disk_sha256=_sha256_of(file.text),
        modified_seconds=file.modified_seconds,
        is_changed=False,
    )


def matches_tool_output(on_disk: str, seen: str, *, is_whole: bool) -> bool:
    """Whether the file's text `on_disk` agrees with `seen`, what a tool showed of it before.

    True if that is in doubt: a wrong warning costs more than a missing one.

    Args:
        on_disk: The file's text now.
        seen: The tool's result, or the text that a call wrote.
        is_whole: Whether all of the file was asked for, not a range.
    """
    seen = without_reminder(seen)
    file = _trimmed(on_disk)
    if _agree(_trimmed(seen), file, is_whole=is_whole):
        return True
    numbered = numbered_lines(seen)
    if numbered is not None:
        rows = _trimmed("\n".join(numbered.rows))
        return _agree(rows, file, is_whole=is_whole and numbered.is_to_end)
    if is_partial(seen) or may_be_numbered(seen):
        return True
    return _agree(_trimmed(_without_frame(seen)), file, is_whole=is_whole)


def _without_frame(text: str) -> str:
    """`text` without the lines that a tool puts around it."""
    rows = text.split("\n")
    for at in (0, -1):
        for _ in range(4):
            if rows and (not rows[at].strip() or rows[at].startswith(_FRAME)):
                rows.pop(at)
    return "\n".join(rows)


def _agree(shown: str, file: str, *, is_whole: bool) -> bool:
    # A range may be anywhere in the file.
    return shown == file if is_whole else f"\n{shown}\n" in f"\n{file}\n"


def _trimmed(text: str) -> str:
    """`text` without blanks at the ends of its lines, and without empty lines at its ends."""
    # Tools cut very long lines; this much of a line stands for all of it.
    return "\n".join(line.rstrip()[:400] for line in text.splitlines()).strip("\n")


def _content_of(call: ToolCall, result: ToolResult, kind: str) -> str | None:
    """The text of the file that this call or its result contains; None where there is none."""
    if kind == "read":
        return None if placeholders.seems_placeholder(result) else result_text(result)
    text = first_text(arguments_by_name(call.arguments), _TEXT_KEYS) if kind == "write" else None
    return None if text is None or placeholders.is_clipped(text) else text


def _sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
