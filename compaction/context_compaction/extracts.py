"""The words of a summary without any model: verbatim extracts, alone or beside somebody's prose."""

from dataclasses import replace

from context_compaction.digest import digest, merged
from context_compaction.finishing import excess_tokens
from context_compaction.sources import Record, Sources
from context_compaction.summarizers import SummaryRequest, extractive
from context_compaction.summarizers.previous import RECORD_TITLE, Previous, read_previous
from context_compaction.task import Shape, Task
from context_compaction.words import Words

_MIN_RECORD_TOKENS = 60
_FITTINGS = 4


def extracts(task: Task, shape: Shape, sources: Sources, warnings: tuple[str, ...] = ()) -> Words:
    """The words for `shape` without any model."""
    # A request that is folded away with its turn must be told like any other.
    stays = shape.cut is not None and not shape.cut.folds_request
    summary_tokens, checkpoint_tokens = shape.summary_tokens, shape.checkpoint_tokens
    words = Words("", "", warnings=warnings)
    # A text counts a little more inside its message, and much more beside another script.
    for _ in range(_FITTINGS if shape.cut else 0):
        words = replace(
            words,
            summary=extract_of(task, sources.history, summary_tokens),
            checkpoint=extract_of(task, sources.prefix, checkpoint_tokens, is_prefix=stays),
        )
        excess = excess_tokens(task, shape, words.summary, words.checkpoint)
        if excess <= 0 or not (words.summary or words.checkpoint):
            return words
        written = task.count.text(words.summary) + task.count.text(words.checkpoint)
        shrink = max(0.0, 1 - (excess + 4) / max(1, written))
        summary_tokens = int(min(summary_tokens, task.count.text(words.summary)) * shrink)
        checkpoint_tokens = int(min(checkpoint_tokens, task.count.text(words.checkpoint)) * shrink)
    return replace(words, summary="", checkpoint="")


def spent(task: Task, shape: Shape, words: Words) -> Shape:
    """`shape` with no more room for its words than `words` take."""
    return replace(
        shape,
        summary_tokens=min(shape.summary_tokens, task.count.text(words.summary)),
        checkpoint_tokens=min(shape.checkpoint_tokens, task.count.text(words.checkpoint)),
    )


def with_extracts(
    task: Task, prose: str, record: Record, max_tokens: int, *, is_prefix: bool = False
) -> str:
    """The prose, and extracts from the record in the room that it leaves."""
    left = max_tokens - task.count.text(f"{prose}\n{RECORD_TITLE}\n") - 2
    extract = ""
    if left >= _MIN_RECORD_TOKENS:
        extract = extract_of(task, record, left, is_prefix=is_prefix)
    return f"{prose}\n{RECORD_TITLE}\n{extract}" if extract else prose


def extract_of(task: Task, record: Record, max_tokens: int, *, is_prefix: bool = False) -> str:
    """Verbatim extracts from the record, of at most `max_tokens`."""
    if max_tokens <= 0 or not (record.messages or record.lost):
        return ""
    before = previous_of(record)
    asked = SummaryRequest(
        (*before.messages, *record.messages),
        merged(before.digest, digest(record.messages, task.settings.tool_kinds)),
        max_tokens,
        previous=before.rest,
        later=record.later,
        instructions=task.instructions,
        pinned=record.pinned,
        is_turn_prefix=is_prefix,
    )
    return extractive.write(asked, task.count)


def previous_of(record: Record) -> Previous:
    """What is left of originals that the archive does not have."""
    return read_previous(record.lost)
