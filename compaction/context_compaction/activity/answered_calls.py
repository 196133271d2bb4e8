"""Calls beside their answers: what belongs together, what they run, which tools number lines."""

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import cast

from context_compaction.activity.script_calls import made_call
from context_compaction.activity.shown_text import is_laid_out, numbered_text
from context_compaction.activity.tool_kinds import ToolUse, arguments_by_name, classify
from context_compaction.messages.model import Messages, ToolCall, ToolResult
from context_compaction.messages.tool_results import result_text

# So many lines that begin with numbers in order are numbered by the tool ...
_TELLING_LINES = 3
# ... as so many of its first answers tell.
_TELLING_ANSWERS = 24


def paired(
    messages: Messages,
) -> tuple[dict[tuple[int, int], ToolCall], set[tuple[int, int]]]:
    """By the place of a result its call, and the places of calls without one.

    Ids that a host uses again belong to the last call before the result.
    """
    waiting: dict[str, tuple[tuple[int, int], ToolCall]] = {}
    call_of: dict[tuple[int, int], ToolCall] = {}
    unanswered: set[tuple[int, int]] = set()
    for at, message in enumerate(messages):
        for n, block in enumerate(message.blocks):
            if isinstance(block, ToolCall):
                unanswered.add((at, n))
                waiting[block.call_id] = (at, n), block
            elif isinstance(block, ToolResult) and block.call_id in waiting:
                place, call_of[at, n] = waiting.pop(block.call_id)
                unanswered.discard(place)
    return call_of, unanswered


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
    messages: Messages,
    call_of: Mapping[tuple[int, int], ToolCall],
    extra_kinds: Mapping[str, str] | None,
) -> Counter[str]:
    """By tool how many more of its answers number their lines than do not."""
    votes: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for (at, n), call in call_of.items():
        result = messages[at].blocks[n]
        if not isinstance(result, ToolResult) or asked[call.name] >= _TELLING_ANSWERS:
            continue
        if classify(call, extra_kinds).kind != "read":
            continue
        asked[call.name] += 1
        text = result_text(result)
        found = numbered_text(text)
        if found is None:
            votes[call.name] -= text.count("\n") > 1
        elif len(found.rows) >= _TELLING_LINES or is_laid_out(text):
            votes[call.name] += 1
    return votes
