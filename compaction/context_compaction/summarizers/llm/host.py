"""The host as the writer: prose that its own model wrote, checked like any model's."""

from context_compaction.errors import SummaryError
from context_compaction.summarizers.llm import check
from context_compaction.summarizers.llm.writer import Prose, finished
from context_compaction.tokens.counter import MessageCounter


def accept(
    text: str, source: check.GroundingSource, max_tokens: int, count: MessageCounter
) -> Prose:
    """The host's summary, checked; it needs no headings.

    Raises:
        SummaryError: It is empty, a refusal or an error message, or has more than `max_tokens`.
    """
    draft = check.draft_of(text, source, needs_headings=False)
    tokens = count.text(draft.text)
    if tokens > max_tokens:
        raise SummaryError(f"It has {tokens} tokens where {max_tokens} fit: give a shorter one")
    return finished(draft, "host")
