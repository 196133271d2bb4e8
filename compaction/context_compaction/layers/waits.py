"""Layer: drop waits, which are calls that were made again and again with the same short answer.

An agent that waits for a long command asks for its state a hundred times. The last answer tells
all; numbers in the answers may differ.
"""

import re
from collections.abc import Iterator

from context_compaction.layers.base import LayerContext
from context_compaction.layers.drop_messages import drop_messages, units_of
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    text_of,
    tool_calls,
    tool_results,
)
from context_compaction.messages.placeholders import Span
from context_compaction.messages.tool_results import result_text

_NUMBER = re.compile(r"(?<![0-9a-f])(?=[a-f]*[0-9])[0-9a-f]+")
_KINDS = (ToolCall, ToolResult, Text, Thinking)


def drop_waits(messages: Messages, context: LayerContext) -> Step:
    """Drop the waits before the last one of each series, and what the agent said to them."""
    series = [(positions, _line) for positions in _series(messages, units_of(messages, context))]
    return drop_messages(messages, context, series, layer="waits")


def _series(messages: Messages, units: list[range]) -> Iterator[range]:
    """For each series of waits, the positions before its last wait."""
    waits: list[range] = []
    asked_before: object = None
    for unit in units:
        part = messages[unit.start : unit.stop]
        asked = _asked(part)
        if asked is None and all(map(_is_short_remark, part)):
            continue
        if asked is None or asked != asked_before:
            yield from _before_last(waits)
            waits, asked_before = [], asked
        waits.append(unit)
    yield from _before_last(waits)


def _before_last(waits: list[range]) -> Iterator[range]:
    # Fewer equal calls in a row may be a test.
    if len(waits) >= 3:
        yield range(waits[0].start, waits[-1].start)


def _asked(part: Messages) -> object:
    """What the calls in `part` ask and are answered, but for numbers; None if it is no wait."""
    if not all(map(_is_brief, part)):
        return None
    calls = [(call.name, call.arguments) for message in part for call in tool_calls(message)]
    results = [result for message in part for result in tool_results(message)]
    texts = [result_text(result) for result in results]
    if not calls or any(len(text) > 400 for text in texts):
        return None
    return calls, [result.is_error for result in results], [_NUMBER.sub("#", t) for t in texts]


def _is_short_remark(message: Message) -> bool:
    return message.role == "assistant" and _is_brief(message) and not tool_calls(message)


def _is_brief(message: Message) -> bool:
    """Whether `message` has only calls, results, and at most a short text of the agent."""
    text = text_of(message.blocks)
    if message.role != "assistant" and (message.role == "system" or text):
        return False
    return len(text) <= 200 and all(isinstance(b, _KINDS) for b in message.blocks)


def _line(dropped: Messages, span: Span) -> str:
    return placeholders.snipped(len(dropped), span.pointer)
