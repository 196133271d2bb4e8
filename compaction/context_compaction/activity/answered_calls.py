"""Calls beside their answers, and which tools number lines in these."""

from collections import Counter
from collections.abc import Mapping, Sequence

from context_compaction.activity.shown_text import is_laid_out, numbered_text
from context_compaction.activity.tool_kinds import classify
from context_compaction.messages.model import Messages, ToolCall, ToolResult, tool_results
from context_compaction.messages.tool_pairs import CallIndex
from context_compaction.messages.tool_results import result_text

# So many lines that begin with numbers in order are numbered by the tool ...
_TELLING_LINES = 3
# ... as so many of its first answers tell.
_TELLING_ANSWERS = 24


def answered_calls(messages: Messages, index: CallIndex) -> list[tuple[ToolCall, ToolResult]]:
    """The calls of `messages` that have a result, in the order of these."""
    results = (result for message in messages for result in tool_results(message))
    return [(index.calls[one.call_id], one) for one in results if one.call_id in index.calls]


def tools_that_number(
    answered: Sequence[tuple[ToolCall, ToolResult]], extra_kinds: Mapping[str, str] | None
) -> Counter[str]:
    """By tool how many more of its answers number their lines than do not."""
    votes: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for call, result in answered:
        if asked[call.name] >= _TELLING_ANSWERS or classify(call, extra_kinds).kind != "read":
            continue
        asked[call.name] += 1
        text = result_text(result)
        found = numbered_text(text)
        if found is None:
            votes[call.name] -= text.count("\n") > 1
        elif len(found.rows) >= _TELLING_LINES or is_laid_out(text):
            votes[call.name] += 1
    return votes
