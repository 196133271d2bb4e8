"""Layer: restore recently read files within a budget after history was replaced.

The layer takes file contents and never opens a file. The pipeline reads files inside the roots, and
otherwise uses the last content in the transcript.
"""

from collections.abc import Sequence

from context_compaction.layers.base import FileText, LayerContext
from context_compaction.messages import placeholders
from context_compaction.messages.model import Edit, Messages, Step, make_message
from context_compaction.tokens.counter import MessageCounter

_MAX_NAMED_FILES = 4


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
