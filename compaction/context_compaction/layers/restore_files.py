"""Layer: after history was replaced, put recently used files back, within a budget.

It takes file texts and never opens a file: the pipeline reads them, where the roots allow it, or
else takes the last content that stands in the transcript.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.file_ledger import file_content
from context_compaction.activity.read_state import FileState
from context_compaction.activity.tool_kinds import classify
from context_compaction.file_access import DiskFile, ReadFile
from context_compaction.layers.base import FileText
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import Message, Messages, ToolResult, make_message
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

CHANGED = "changed on disk since it was last read here"
FROM_TRANSCRIPT = "as last seen in the conversation"


@dataclass(frozen=True, slots=True)
class RecentFile:
    """A file that the conversation used.

    Attributes:
        path: The path as the calls name it.
        seen_text: Its last whole content in the transcript, or None.
        at: Position of the message that used it last.
        shown_at: Position of the last message that shows all of it as it is; -1 where none does.
    """

    path: str
    seen_text: str | None
    at: int
    shown_at: int = -1


def recent_files(
    messages: Messages,
    extra_kinds: Mapping[str, str] | None = None,
    kinds: Sequence[str] = ("read", "write", "edit"),
) -> list[RecentFile]:
    """Files that were used, newest use first; `not_shown` has those that a cut takes away.

    Args:
        messages: The list.
        extra_kinds: Kinds of tools by name.
        kinds: What counts as use. A change always counts as one that makes older content stale.
    """
    index = index_calls(messages)
    results = {
        block.call_id: block
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }
    used: dict[str, RecentFile] = {}
    shown_at: dict[str, int] = {}
    stale: set[str] = set()  # changed by an edit, so that older content is no longer true
    for call_id, call in reversed(list(index.calls.items())):
        use = classify(call, extra_kinds)
        result = results.get(call_id)
        if use.path is None or result is None or result.is_error:
            continue
        if use.kind not in ("read", "write", "edit"):
            continue
        at = index.call_at[call_id]
        text = None if use.is_partial else file_content(call, result, use.kind)
        if use.path in stale:
            text = None
        if use.kind == "edit":
            stale.add(use.path)
        if text is not None:
            shown_at.setdefault(use.path, at)
        if use.kind not in kinds:
            continue
        known = used.get(use.path)
        if known is None:
            used[use.path] = RecentFile(use.path, text, at)
        elif known.seen_text is None and text is not None:
            used[use.path] = RecentFile(use.path, text, known.at)
    return [replace(file, shown_at=shown_at.get(file.path, -1)) for file in used.values()]


def not_shown(files: Sequence[RecentFile], first_kept: int) -> list[RecentFile]:
    """Those of `files` with a text that what stays from `first_kept` on does not show."""
    return [file for file in files if file.shown_at < first_kept and file.seen_text != ""]


def restore_files(
    messages: Messages,
    *,
    count: MessageCounter,
    settings: Settings,
    files: Sequence[FileText],
    at: int,
    limit_tokens: int,
) -> Step:
    """Insert one message with `files` at position `at`; those without a text are only named.

    Args:
        messages: The list.
        count: The token counter.
        settings: `restore_files`, `restore_file_tokens`, `restore_total_tokens`.
        files: What to put back, most wanted first.
        at: Where; between a summary and what follows it.
        limit_tokens: What all messages may count afterwards.
    """
    room_tokens = min(settings.restore_total_tokens, limit_tokens - count.messages(messages))
    texts: list[str] = []
    names: list[str] = []
    edits: list[Edit] = []
    message: Message | None = None
    for file in files[: settings.restore_files]:
        if file.text is not None and count.text(file.text) > settings.restore_file_tokens:
            file = FileText(file.path, None, "too large to put back; read it again")
        part = _part(file)
        is_named = file.text is None
        mine = names if is_named else texts
        mine.append(part)
        candidate = make_message("user", placeholders.restored_files(texts, names))
        if count.message(candidate) > room_tokens:
            mine.pop()
            continue
        message = candidate
        action = "named" if is_named else "restored"
        edits.append(Edit("restore", action, None, 0, count.text(part), note=file.path))
    if message is None:
        return Step(messages)
    return Step((*messages[:at], message, *messages[at:]), tuple(edits))


def _part(file: FileText) -> str:
    note = f" ({file.note})" if file.note else ""
    if file.text is None:
        return placeholders.quoted(f"File: {file.path}{note}")
    return placeholders.quoted(f"File: {file.path}{note}\n{shown_file(file.path, file.text)}")


def shown_file(path: str, text: str) -> str:
    """How a restored file stands under its first line."""
    return placeholders.quoted(f"{text}\nEnd of file: {path}")


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
