"""Layer: clear old tool results, and clip what old calls carried, oldest first, in one batch.

Every edit costs the host its prompt cache from that message on. So nothing is done for less than
`min_savings_tokens`, and the batch goes down to the target, well below the trigger, rather than a
little every turn.
"""

from collections.abc import Iterator

from context_compaction.activity.calls import classify, is_recalling, is_steering
from context_compaction.activity.outcome import is_failed, outcome_line
from context_compaction.layers.base import LayerContext
from context_compaction.layers.replace_blocks import (
    Place,
    Replacement,
    clear_marker,
    clear_result,
    clip_call,
    protected_names,
    replace_blocks,
)
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Messages, ToolCall, ToolResult, tool_results
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.messages.tool_results import (
    newest_results,
    result_chars,
    result_text,
)
from context_compaction.tokens.counter import content_tokens


def microcompact(messages: Messages, context: LayerContext) -> Step:
    """Clear old results and clip old arguments until the messages are within the limit.

    The newest `keep_recent_results` stay. A result must be above `min_result_tokens` and
    `min_result_chars`, and the batch must take out `min_savings_tokens` of text.
    """
    excess_tokens = context.count.messages(messages) - context.limit_tokens
    if excess_tokens <= 0:
        return Step(messages)
    minimum_tokens = context.settings.min_savings_tokens
    chosen: dict[Place, Replacement] = {}
    saved_tokens = 0
    left_tokens = 0  # the text that leaves: what a minimum is set for, as in the papers
    for place, replacement in _candidates(messages, context):
        chosen[place] = replacement
        saved_tokens += replacement.saved_tokens
        left_tokens += content_tokens(messages[place.message].blocks[place.block], context.count)
        if saved_tokens >= excess_tokens and left_tokens >= minimum_tokens:
            break
    if left_tokens < minimum_tokens:
        return Step(messages)
    return replace_blocks(messages, chosen, context.count, layer="microcompact")


def _candidates(messages: Messages, context: LayerContext) -> Iterator[tuple[Place, Replacement]]:
    """What may be replaced, oldest first."""
    settings = context.settings
    index = index_calls(messages)
    protected = protected_names(settings)
    recent = _recent_call_ids(messages, index, context)
    for position, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            if not isinstance(block, ToolCall | ToolResult) or block.call_id in recent:
                continue
            name = block.name if isinstance(block, ToolCall) else index.name_of(block)
            if name.lower() in protected or is_steering(name):
                continue
            if not _is_compactable(block.call_id, index, context):
                continue
            if isinstance(block, ToolResult):
                done = _clear(block, name, index, context)
            elif block.call_id in index.result_at:
                done = clip_call(block, context.count, settings.clip_argument_chars)
            else:
                continue  # the call waits for its answer
            if done is not None:
                yield Place(position, at), done


def _is_compactable(call_id: str, index: CallIndex, context: LayerContext) -> bool:
    kinds = context.settings.compactable_kinds
    call = index.calls.get(call_id)
    return not kinds or (
        call is not None and classify(call, context.settings.tool_kinds).kind in kinds
    )


def _recent_call_ids(messages: Messages, index: CallIndex, context: LayerContext) -> frozenset[str]:
    """The calls whose results stay: the newest ones among those that might be cleared.

    And what the model has not seen: all of the newest results if they have a room of their own,
    else those of our own tools.
    """
    kept = context.settings.keep_recent_results
    if not kept:
        return frozenset()
    answered = [
        result.call_id
        for message in reversed(messages)
        for result in reversed(tool_results(message))
        if _is_compactable(result.call_id, index, context)
    ]
    unread = (
        result.call_id
        for position in newest_results(messages)
        for result in tool_results(messages[position])
        if context.unread_tokens or is_recalling(index.name_of(result))
    )
    return frozenset((*answered[:kept], *unread))


def _clear(
    result: ToolResult, name: str, index: CallIndex, context: LayerContext
) -> Replacement | None:
    """The placeholder for `result`; of a command with the line that says how it ended."""
    settings, count = context.settings, context.count
    if content_tokens(result, count) <= settings.min_result_tokens:
        return None
    if result_chars(result) <= settings.min_result_chars:
        return None
    if placeholders.is_placeholder(result):
        return clear_marker(result, name, count)
    if settings.cleared_text:
        return clear_result(result, name, count, words=settings.cleared_text)
    call = index.calls.get(result.call_id)
    is_command = call is not None and classify(call, settings.tool_kinds).kind == "execute"
    failed = is_command and is_failed(result) is True
    outcome = outcome_line(result_text(result), failed=failed) if is_command else ""
    return clear_result(result, name, count, outcome=outcome)
