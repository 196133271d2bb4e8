"""Layer: clear old tool results and clip old arguments, oldest first, in one batch.

Every edit costs the host its prompt cache from that message on. So the layer does nothing for less
than `min_savings_tokens`, and clears down to the target, well below the trigger, in one step.
"""

from collections.abc import Iterator

from context_compaction.activity.calls import classify, is_recalling
from context_compaction.layers import base
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, Step, ToolCall, ToolResult, tool_results
from context_compaction.messages.speakers import newest_results
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.tokens.counter import content_tokens


def microcompact(messages: Messages, context: base.LayerContext) -> Step:
    """Clear old results and clip old arguments until the messages are within the limit.

    The newest `keep_recent_results` stay. A result must be above `min_result_tokens` and
    `min_result_chars`, and the batch must remove `min_savings_tokens` of content.
    """
    excess_tokens = context.count.messages(messages) - context.limit_tokens
    if excess_tokens <= 0:
        return Step(messages)
    minimum_tokens = context.settings.min_savings_tokens
    chosen: dict[base.Place, base.Replacement] = {}
    saved_tokens = 0
    # The papers' minimum applies to the removed content, not to the difference.
    removed_tokens = 0
    for place, replacement in _candidates(messages, context):
        chosen[place] = replacement
        saved_tokens += replacement.saved_tokens
        removed_tokens += content_tokens(messages[place.message].blocks[place.block], context.count)
        if saved_tokens >= excess_tokens and removed_tokens >= minimum_tokens:
            break
    if removed_tokens < minimum_tokens:
        return Step(messages)
    return base.replace_blocks(messages, chosen, layer="microcompact")


def _candidates(
    messages: Messages, context: base.LayerContext
) -> Iterator[tuple[base.Place, base.Replacement]]:
    """Yield the possible replacements, oldest first."""
    settings = context.settings
    index = index_calls(messages)
    recent = _recent_call_ids(messages, index, context)
    for message_index, message in enumerate(messages):
        for number, block in enumerate(message.blocks):
            if not isinstance(block, ToolCall | ToolResult) or block.call_id in recent:
                continue
            name = block.name if isinstance(block, ToolCall) else index.name_of(block)
            if base.is_protected(name, settings):
                continue
            if not _is_compactable(block.call_id, index, context):
                continue
            if isinstance(block, ToolResult):
                replacement = _clear(block, name, context)
            elif block.call_id in index.result_at:
                replacement = base.clip_call(block, context.count, settings.clip_argument_chars)
            else:
                continue  # the call has no result yet
            if replacement is not None:
                yield base.Place(message_index, number), replacement


def _is_compactable(call_id: str, index: CallIndex, context: base.LayerContext) -> bool:
    kinds = context.settings.compactable_kinds
    call = index.calls.get(call_id)
    return not kinds or (
        call is not None and classify(call, context.settings.tool_kinds).kind in kinds
    )


def _recent_call_ids(
    messages: Messages, index: CallIndex, context: base.LayerContext
) -> frozenset[str]:
    """Return the IDs of the calls whose results stay.

    These are the newest compactable results, and results that the model has not seen: all of them
    if they have their own token limit, else those of this server's tools.
    """
    keep = context.settings.keep_recent_results
    if not keep:
        return frozenset()
    compactable = [
        result.call_id
        for message in reversed(messages)
        for result in reversed(tool_results(message))
        if _is_compactable(result.call_id, index, context)
    ]
    unread = (
        result.call_id
        for message_index in newest_results(messages)
        for result in tool_results(messages[message_index])
        if context.unread_tokens or is_recalling(index.name_of(result))
    )
    return frozenset((*compactable[:keep], *unread))


def _clear(result: ToolResult, name: str, context: base.LayerContext) -> base.Replacement | None:
    """Return the placeholder for `result`; None if it is small."""
    settings, count = context.settings, context.count
    if content_tokens(result, count) <= settings.min_result_tokens:
        return None
    if base.result_chars(result) <= settings.min_result_chars:
        return None
    if placeholders.is_placeholder(result):
        return base.clear_marker(result, name, count)
    return base.clear_result(result, name, count, words=settings.cleared_text)
