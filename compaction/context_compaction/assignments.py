"""What whoever writes prose is asked for, and what the prose is held against."""

from context_compaction.compaction import CompactRequest
from context_compaction.extracts import previous_of
from context_compaction.sources import Record
from context_compaction.speakers import user_text
from context_compaction.summarizers import check
from context_compaction.summarizers.language import speaker_language
from context_compaction.summarizers.prompt import Assignment
from context_compaction.task import Task

# Prose may take this part of a summary's room; the rest is for extracts from the record.
PROSE_SHARE = 0.7


def assignment_of(
    task: Task, record: Record, max_tokens: int, is_prefix: bool, request: CompactRequest
) -> Assignment:
    """What a model is asked to write for `record`: at most half of what it stands for."""
    record_tokens = task.count.messages(record.messages) + task.count.text(record.lost)
    return Assignment(
        messages=record.messages,
        since=record.since,
        previous=record.earlier,
        has_originals=not record.lost,
        max_tokens=min(int(max_tokens * PROSE_SHARE), record_tokens // 3),
        pinned=tuple(pin.shown for pin in task.pins.candidates),
        instructions=request.instructions,
        language=speaker_language(_requests(task)),
        is_turn_prefix=is_prefix,
        outline=task.settings.summary_outline,
        too_long=task.settings.summary_too_long,
        retries=task.settings.summary_retries,
    )


def source_for(task: Task, record: Record, request: CompactRequest) -> check.Source:
    """What prose for `record` is held against."""
    # What the user says in the part that stays is no invention either.
    user_texts = (*_requests(task), *task.pins.texts, request.instructions)
    messages = (*previous_of(record).messages, *record.messages)
    return check.source_of(messages, user_texts=user_texts, previous=record.earlier)


def _requests(task: Task) -> list[str]:
    return [text for message in task.messages if (text := user_text(message))]
