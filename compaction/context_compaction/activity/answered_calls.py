"""Calls beside their answers: what they run, which tools number lines."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from context_compaction.activity.script_calls import made_call
from context_compaction.activity.shown_text import is_laid_out, numbered_text
from context_compaction.activity.tool_kinds import ToolUse, arguments_by_name, classify
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


def command_line(call: ToolCall, use: ToolUse) -> str | None:
    """The command that a call runs, as a shell takes it."""
    given = arguments_by_name(made_call(call).arguments)
    for key in ("command", "cmd"):
        words = given.get(key)
        if isinstance(words, list):
            line = [str(word) for word in cast("list[object]", words)]
            return line[2] if len(line) == 3 and line[1] in ("-lc", "-c") else shlex.join(line)
    return use.command


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
