"""Layers that insert messages in the place of history: its summary, and files of the work.

`summarize` replaces history by a summary, and the start of the running turn by a checkpoint. A
writer provides the text. Pinned texts are added here verbatim for every writer. `restore_files`
then restores recently read files within a budget. It takes file contents and never opens a file:
the pipeline reads files inside the roots, and otherwise uses the last content in the transcript.
"""

from collections.abc import Sequence, Set

from context_compaction.layers import cut_point
from context_compaction.layers.base import FileText, LayerContext
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Edit,
    Message,
    Messages,
    Step,
    Text,
    edit_message,
    leading_system_count,
    make_message,
    starts_turn,
    text_of,
    tool_results,
)
from context_compaction.messages.pins import with_pin_block
from context_compaction.messages.placeholders import Span
from context_compaction.tokens.counter import MessageCounter

_MAX_NAMED_FILES = 4


def summary_message(span: Span, text: str, pins: str = "", *, may_grow: bool = False) -> Message:
    """Return the message that replaces history, with the block of pinned texts first.

    While `text` is empty, `may_grow` uses the frame of a long summary, so that its tokens are
    reserved before the text is written.
    """
    body = with_pin_block(pins, text)
    return make_message("user", placeholders.summary(span, body, is_long=may_grow and not text))


def with_turn_context(summary: str, turn_prefix: str) -> str:
    """Return one text for history and the start of a split turn, as in the timeline paper."""
    if not turn_prefix:
        return summary
    return f"{summary}\n## Turn Context (split turn)\n{turn_prefix}".strip()


def acknowledge(messages: Messages, *, ends_with_assistant: bool, count: MessageCounter) -> Step:
    """Insert an assistant message that acknowledges the summary.

    It is inserted only if a user message follows, or if the list ended with the assistant before.
    Otherwise two assistant messages would be adjacent, or the list would end with the wrong role.
    """
    texts = enumerate(map(placeholders.summary_text, messages))
    index = next((index for index, text in texts if text is not None), None)
    if index is None:
        return Step(messages)
    rest = messages[index + 1 :]
    if not (starts_turn(rest[0]) if rest else ends_with_assistant):
        return Step(messages)
    answer = make_message("assistant", placeholders.ACKNOWLEDGED)
    edit = Edit("acknowledge", "added", None, 0, count.message(answer))
    return Step((*messages[: index + 1], answer, *rest), (edit,))


def summarize(messages: Messages, context: LayerContext) -> Step:
    """Replace history by the summary, and the start of the running turn by the checkpoint.

    The new list contains, in order: preserved messages, the summary, the running turn's request if
    the cut is inside the turn, the checkpoint, and everything from the cut on. If the host sent the
    same system message repeatedly, only the last copy stays.
    """
    cut, count = context.cut, context.count
    summary, checkpoint = context.summary, context.checkpoint
    if cut is None:
        return Step(messages)
    head, before = messages[: cut.history_start], messages[cut.history_start : cut.history_end]
    repeated = _repeated_system(messages) if summary is not None else frozenset[int]()
    out: list[Message] = [*head]
    edits: list[Edit] = []
    if summary is None:
        drops_all = cut_point.is_without_history(messages, cut)
        out += filter(cut_point.is_preserved, before) if drops_all else before
    else:
        preserved, edits = _preserved(before, repeated, count)
        out += preserved
        if cut.request_at is not None:
            request = messages[cut.request_at]
            loaded = [result for result in tool_results(request) if result.loads_tools]
            out += [edit_message(request, loaded)] if loaded else []
        out.append(summary)
        folded = cut_point.turn_prefix_of(messages, cut) if cut.folds_request else ()
        edits.append(_summary_edit((*cut_point.history_of(messages, cut), *folded), summary, count))
    if cut.request_at is not None:
        if not cut.folds_request:
            request = cut_point.request_of(messages, cut.request_at)
            out.append(request)
            edits += _part_edits(messages[cut.request_at], request, count)
        turn_prefix = messages[cut.request_at + 1 : cut.first_kept]
        preserved, preserved_edits = _preserved(turn_prefix, repeated, count)
        out += preserved
        edits += preserved_edits
    if checkpoint is not None:
        out.append(checkpoint)
        edits.append(_summary_edit(cut_point.turn_prefix_of(messages, cut), checkpoint, count))
    return Step((*out, *messages[cut.first_kept :]), tuple(edits))


def _summary_edit(replaced: Messages, message: Message, count: MessageCounter) -> Edit:
    span = placeholders.span_replaced_by(message)
    return Edit(
        "summarize",
        "summarized",
        replaced[0].index if replaced else None,
        count.total(replaced),
        count.message(message),
        (span.pointer,) if span else (),
        note=f"{len(replaced)} messages",
    )


def _repeated_system(messages: Messages) -> frozenset[int]:
    """Return the `id()` of each system message whose text a later system message repeats.

    System messages at the start of the list are not considered.
    """
    later = messages[leading_system_count(messages) :]
    system = [message for message in later if message.role == "system"]
    # Only messages of text are compared, because equal texts can have different other blocks.
    plain = [m for m in system if all(isinstance(block, Text) for block in m.blocks)]
    texts = [(text_of(message.blocks), message) for message in plain]
    last = dict(texts)
    return frozenset(id(message) for text, message in texts if message is not last[text])


def _preserved(
    messages: Messages, repeated: Set[int], count: MessageCounter
) -> tuple[list[Message], list[Edit]]:
    """Return the parts of `messages` that survive every cut, and an edit for each shortened one."""
    out: list[Message] = []
    edits: list[Edit] = []
    for message in filter(cut_point.is_preserved, messages):
        part = cut_point.preserved_part(message)
        if id(message) in repeated:
            sizes = count.message(message), 0
            edits.append(Edit("summarize", "summarized", message.index, *sizes, note="repeated"))
        elif part is not None:
            out.append(part)
            edits += _part_edits(message, part, count)
    return out, edits


def _part_edits(message: Message, part: Message, count: MessageCounter) -> list[Edit]:
    if part is message:
        return []
    note = "its other content is in the summary"
    sizes = count.message(message), count.message(part)
    return [Edit("summarize", "summarized", message.index, *sizes, note=note)]


def restore_files(messages: Messages, context: LayerContext) -> Step:
    """Insert the newest files. Of files that are too large or not known, only the path is named."""
    count, settings = context.count, context.settings
    before_tokens = count.messages(messages)
    room_tokens = min(settings.restore_total_tokens, context.limit_tokens - before_tokens)
    files: list[FileText] = []
    whole_count, left_tokens = 0, room_tokens
    for file in context.files:
        tokens = count.text(file.text)
        is_small = 0 < tokens <= min(settings.restore_file_tokens, left_tokens)
        if is_small and whole_count < settings.restore_files:
            files.append(file)
            whole_count, left_tokens = whole_count + 1, left_tokens - tokens
        elif len(files) - whole_count < _MAX_NAMED_FILES:
            files.append(FileText(file.path, ""))
    while files:
        step = insert_files(messages, files, context.files_at, count)
        if count.messages(step.messages) - before_tokens <= room_tokens:
            return step
        files.pop()
    return Step(messages)


def insert_files(
    messages: Messages, files: Sequence[FileText], index: int, count: MessageCounter
) -> Step:
    """Insert one message with the texts of `files`, and the names of those without a text."""
    shown = [
        (file, placeholders.restored_file(file.path, file.text, file.note))
        for file in files
        if file.text
    ]
    names = [file.path for file in files if not file.text]
    text = placeholders.restored_files([text for _, text in shown], names)
    edits = [
        Edit("restore", "restored", None, 0, count.text(text), note=file.path)
        for file, text in shown
    ]
    edits += [Edit("restore", "named", None, 0, count.text(name), note=name) for name in names]
    message = make_message("user", text)
    return Step((*messages[:index], message, *messages[index:]), tuple(edits))
