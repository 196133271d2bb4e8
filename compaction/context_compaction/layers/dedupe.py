"""Layers: clear a read or an output that a later one makes worthless.

Superseded are an older read of a file that is read again (as a whole, or the same range) or
changed later, and any call that is repeated with the same arguments and the same answer. The newest
of equals stays, where the model's attention is.
"""

import json
from collections.abc import Iterator, Set
from dataclasses import dataclass

from context_compaction.activity.calls import ToolUse, classify, is_steering
from context_compaction.layers.base import LayerContext
from context_compaction.layers.replace_blocks import (
    Place,
    Replacement,
    clear_result,
    protected_names,
    replace_blocks,
)
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Messages, ToolCall, ToolResult
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.messages.tool_results import newest_results, result_text

# True for ever, whatever becomes of the newer one: these bytes stay when that is cleared, too.
SAME_AGAIN = "FILE_UNCHANGED: read again below with the same content"
SAME_BEFORE = "read before with the same content"
UNCHANGED_STUB = "FILE_UNCHANGED: same content as the earlier read above"
REPEATED = "an identical call below returned the same output"


@dataclass(frozen=True, slots=True)
class _Answered:
    """A successful call with its result, and the place of the result."""

    place: Place
    call: ToolCall
    result: ToolResult
    use: ToolUse
    text: str


def dedupe(messages: Messages, context: LayerContext) -> Step:
    """Clear superseded reads and repeated outputs. Linear in the number of results."""
    newer: set[tuple[str, ...]] = set()
    chosen: dict[Place, Replacement] = {}
    for answered in reversed([*_answered_calls(messages, context)]):
        if reason := _reason_against(answered, newer):
            name = answered.call.name
            done = clear_result(answered.result, name, context.count, reason)
            if done is not None:
                chosen[answered.place] = done
        newer.update(_keys_of(answered))
    return replace_blocks(messages, chosen, context.count, layer="dedupe")


def clear_unchanged_reads(messages: Messages, context: LayerContext) -> Step:
    """Replace an unchanged repeated read by a pointer to the earlier text.

    Only among the newest results, which are not cached yet: what was sent is never rewritten.
    """
    newest = newest_results(messages)
    before: set[tuple[str, str, str]] = set()
    chosen: dict[Place, Replacement] = {}
    for answered in _answered_calls(messages, context):
        use = answered.use
        if use.kind != "read" or use.path is None or placeholders.is_placeholder(answered.result):
            continue
        read = (use.path, use.range, answered.text)
        if read in before and answered.place.message in newest:
            name = answered.call.name
            done = clear_result(answered.result, name, context.count, SAME_BEFORE, UNCHANGED_STUB)
            if done is not None:
                chosen[answered.place] = done
        before.add(read)
    return replace_blocks(messages, chosen, context.count, layer="unchanged")


def _answered_calls(messages: Messages, context: LayerContext) -> Iterator[_Answered]:
    """The successful calls that may be cleared, with their results, oldest first."""
    named = with_unique_call_ids(messages)
    calls = index_calls(named).calls
    protected = protected_names(context.settings)
    for position, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            own = named[position].blocks[at]
            if not (isinstance(block, ToolResult) and isinstance(own, ToolResult)):
                continue
            call = calls.get(own.call_id)
            if call is None or call.name.lower() in protected or is_steering(call.name):
                continue
            if not block.is_error:  # nothing was read or changed
                use = classify(call, context.settings.tool_kinds)
                yield _Answered(Place(position, at), call, block, use, result_text(block))


def _keys_of(answered: _Answered) -> Iterator[tuple[str, ...]]:
    """What a result shows, in a form that a later one may repeat."""
    path, use = answered.use.path, answered.use
    if path and use.kind in ("edit", "write", "notebook"):
        yield "changed", path
    elif placeholders.seems_placeholder(answered.result):
        return  # it shows its text no more
    elif path and use.kind == "read":
        yield from (("range", path, use.range), ("content", path, answered.text))
    yield _output(answered)


def _reason_against(answered: _Answered, newer: Set[tuple[str, ...]]) -> str:
    """Why one of the `newer` results supersedes this one; "" where none does."""
    path = answered.use.path
    if answered.use.kind == "read" and path:
        if ("content", path, answered.text) in newer:
            return SAME_AGAIN
        if any(("range", path, lines) in newer for lines in ("", answered.use.range)):
            return f"superseded by a later read of {path}"
        if ("changed", path) in newer:
            return f"superseded by a later edit of {path}"
    return REPEATED if _output(answered) in newer else ""


def _output(answered: _Answered) -> tuple[str, ...]:
    arguments = json.dumps(answered.call.arguments, sort_keys=True, default=str)
    return "output", answered.call.name, arguments, answered.text
