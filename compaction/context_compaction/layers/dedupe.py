"""Layers: clear superseded reads and repeated outputs.

An older read of a file is superseded if the file is read again (as a whole, or in that range) or
changed later. Any call is superseded if it is repeated with equal arguments and an equal result.
The newest result stays.
"""

import json
from collections.abc import Iterator, Set
from dataclasses import dataclass

from context_compaction.activity.calls import ToolUse, classify
from context_compaction.layers import base
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, Step, ToolCall, ToolResult, result_text
from context_compaction.messages.speakers import newest_results
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids

# These notes must stay true if the newer result is cleared later, so that the text never changes
# and the prompt cache holds.
SAME_AGAIN = "FILE_UNCHANGED: read again below with the same content"
REPEATED = "an identical call below returned the same output"
_SAME_BEFORE = "read before with the same content"
_UNCHANGED = "FILE_UNCHANGED: same content as the earlier read above"


@dataclass(frozen=True, slots=True)
class _AnsweredCall:
    """A successful call with its result, and the place of the result."""

    place: base.Place
    call: ToolCall
    result: ToolResult
    use: ToolUse
    text: str


def dedupe(messages: Messages, context: base.LayerContext) -> Step:
    """Clear superseded reads and repeated outputs. Linear in the number of results."""
    newer: set[tuple[str, ...]] = set()
    chosen: dict[base.Place, base.Replacement] = {}
    for answered in reversed([*_answered_calls(messages, context)]):
        if reason := _reason_to_clear(answered, newer):
            name = answered.call.name
            if replacement := base.clear_result(answered.result, name, context.count, reason):
                chosen[answered.place] = replacement
        newer.update(_keys_of(answered))
    return base.replace_blocks(messages, chosen, layer="dedupe")


def clear_unchanged_reads(messages: Messages, context: base.LayerContext) -> Step:
    """Replace an unchanged repeated read by a pointer to the earlier read.

    Only the newest results are edited, because they are not cached yet.
    """
    newest = newest_results(messages)
    earlier: set[tuple[str, str, str]] = set()
    chosen: dict[base.Place, base.Replacement] = {}
    for answered in _answered_calls(messages, context):
        use, result, name = answered.use, answered.result, answered.call.name
        if use.kind != "read" or use.path is None or placeholders.is_placeholder(result):
            continue
        read = (use.path, use.range, answered.text)
        is_repeated = read in earlier and answered.place.message in newest
        if is_repeated and (
            cleared := base.clear_result(result, name, context.count, _SAME_BEFORE, _UNCHANGED)
        ):
            chosen[answered.place] = cleared
        earlier.add(read)
    return base.replace_blocks(messages, chosen, layer="unchanged")


def _answered_calls(messages: Messages, context: base.LayerContext) -> Iterator[_AnsweredCall]:
    """Yield the successful calls that may be cleared, with their results, oldest first."""
    unique = with_unique_call_ids(messages)
    calls = index_calls(unique).calls
    for index, message in enumerate(messages):
        for number, block in enumerate(message.blocks):
            unique_block = unique[index].blocks[number]
            if not (isinstance(block, ToolResult) and isinstance(unique_block, ToolResult)):
                continue
            call = calls.get(unique_block.call_id)
            if call is None or base.is_protected(call.name, context.settings):
                continue
            if not block.is_error:  # a failed call read and changed nothing
                use = classify(call, context.settings.tool_kinds)
                yield _AnsweredCall(base.Place(index, number), call, block, use, result_text(block))


def _keys_of(answered: _AnsweredCall) -> Iterator[tuple[str, ...]]:
    """Yield the keys by which an earlier call finds that this call supersedes it."""
    path, use = answered.use.path, answered.use
    if path and use.kind in ("edit", "write", "notebook"):
        yield "changed", path
    elif placeholders.seems_placeholder(answered.result):
        return  # its text is no longer in the context
    elif path and use.kind == "read":
        yield from (("range", path, use.range), ("content", path, answered.text))
    yield _output_key(answered)


def _reason_to_clear(answered: _AnsweredCall, newer: Set[tuple[str, ...]]) -> str:
    """Return why one of the `newer` results supersedes this one; "" if none does."""
    path = answered.use.path
    if answered.use.kind == "read" and path:
        if ("content", path, answered.text) in newer:
            return SAME_AGAIN
        # A read of the whole file has the range "".
        if any(("range", path, lines) in newer for lines in ("", answered.use.range)):
            return f"superseded by a later read of {path}"
        if ("changed", path) in newer:
            return f"superseded by a later edit of {path}"
    return REPEATED if _output_key(answered) in newer else ""


def _output_key(answered: _AnsweredCall) -> tuple[str, ...]:
    arguments = json.dumps(answered.call.arguments, sort_keys=True, default=str)
    return "output", answered.call.name, arguments, answered.text
