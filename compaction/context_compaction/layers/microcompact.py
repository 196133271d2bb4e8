"""Layer: clear old tool results, and clip what old calls carried, oldest first, in one batch.

Every edit costs the host its prompt cache from that message on. So nothing is done for less than
`min_savings_tokens`, and the batch goes down to the target, well below the trigger, rather than a
little every turn.
"""

from copy import copy
from itertools import tee

from context_compaction.activity.digest import is_failed
from context_compaction.activity.error_line import outcome_line
from context_compaction.activity.tool_kinds import classify, is_recalling, is_steering
from context_compaction.layers.replace_blocks import (
    Candidates,
    FindCandidates,
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
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter, content_tokens


def candidates(
    messages: Messages, count: MessageCounter, settings: Settings, spares_unread: bool
) -> Candidates:
    """What may be replaced in `messages`, oldest first; see `microcompact`."""
    index = index_calls(messages)
    protected = protected_names(settings)
    recent = _recent_call_ids(messages, index, count, settings, spares_unread)
    for position, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            if not isinstance(block, ToolCall | ToolResult) or block.call_id in recent:
                continue
            name = block.name if isinstance(block, ToolCall) else index.name_of(block)
            if name.lower() in protected or is_steering(name):
                continue
            if not _is_compactable(block.call_id, index, settings):
                continue
            if isinstance(block, ToolCall) and block.call_id not in index.result_at:
                continue  # it waits for its answer
            done = (
                clip_call(block, count, settings)
                if isinstance(block, ToolCall)
                else _clear(block, name, index, count, settings)
            )
            if done is not None:
                yield Place(position, at), done


def candidates_once() -> FindCandidates:
    """`candidates` for one call, which clears the same list down to several limits."""
    known: dict[tuple[int, int, bool], tuple[Messages, Settings, Candidates]] = {}

    def find(
        messages: Messages, count: MessageCounter, settings: Settings, spares_unread: bool
    ) -> Candidates:
        key = (id(messages), id(settings), spares_unread)
        if key not in known:
            [found] = tee(candidates(messages, count, settings, spares_unread), 1)
            known[key] = (messages, settings, found)
        return copy(known[key][-1])

    return find


def microcompact(
    messages: Messages,
    *,
    count: MessageCounter,
    settings: Settings,
    limit_tokens: int = 0,
    needs_minimum: bool = True,
    spares_unread: bool = False,
    find: FindCandidates | None = None,
) -> Step:
    """Clear until the messages are within `limit_tokens`.

    Args:
        messages: The list.
        count: The token counter.
        settings: `compactable_kinds`, `keep_recent_results`, `keep_recent_result_tokens`,
            `min_result_tokens`, `min_result_chars`, `min_savings_tokens`, `clip_argument_chars`,
            `protected_tools`.
        limit_tokens: The most tokens of the messages; 0 clears everything that may be cleared.
        needs_minimum: Whether to do nothing unless `min_savings_tokens` are saved.
        spares_unread: Whether all of the newest results stay, which the model has not seen.
        find: `candidates`, or what remembers them; see `candidates_once`.
    """
    excess_tokens = count.messages(messages) - limit_tokens
    if excess_tokens <= 0:
        return Step(messages)
    minimum_tokens = settings.min_savings_tokens if needs_minimum else 0
    chosen: dict[Place, Replacement] = {}
    saved_tokens = 0
    left_tokens = 0  # the text that leaves: what a minimum is set for, as in the papers
    for place, replacement in (find or candidates)(messages, count, settings, spares_unread):
        chosen[place] = replacement
        saved_tokens += replacement.saved_tokens
        left_tokens += content_tokens(messages[place.message].blocks[place.block], count)
        if saved_tokens >= excess_tokens and left_tokens >= minimum_tokens:
            break
    if left_tokens < minimum_tokens:
        return Step(messages)
    return replace_blocks(messages, chosen, count, layer="microcompact")


def _is_compactable(call_id: str, index: CallIndex, settings: Settings) -> bool:
    if not settings.compactable_kinds:
        return True
    call = index.calls.get(call_id)
    return call is not None and (
        classify(call, settings.tool_kinds).kind in settings.compactable_kinds
    )


def _recent_call_ids(
    messages: Messages,
    index: CallIndex,
    count: MessageCounter,
    settings: Settings,
    spares_unread: bool,
) -> frozenset[str]:
    """The call ids of the newest results among those that might be cleared.

    They are kept by their number, and beyond it for as long as together they stay within
    `keep_recent_result_tokens`.
    """
    newest: list[str] = []
    tokens = 0
    # What the model has not seen stays, at least if our own tools gave it back; but where nothing
    # is to.
    spared = frozenset[str]()
    if settings.keep_recent_results:
        spared = _just_answered(messages, index, recalled_only=not spares_unread)
    for message in reversed(messages):
        for block in reversed(message.blocks):
            if not isinstance(block, ToolResult):
                continue
            if not _is_compactable(block.call_id, index, settings):
                continue
            tokens += content_tokens(block, count)
            if (
                len(newest) >= settings.keep_recent_results
                and tokens > settings.keep_recent_result_tokens
            ):
                return spared.union(newest)
            newest.append(block.call_id)
    return spared.union(newest)


def _just_answered(messages: Messages, index: CallIndex, *, recalled_only: bool) -> frozenset[str]:
    """The ids of the calls that the newest results answer; `recalled_only`: of our own tools."""
    return frozenset(
        result.call_id
        for position in newest_results(messages)
        for result in tool_results(messages[position])
        if not recalled_only or is_recalling(index.name_of(result))
    )


def _clear(
    result: ToolResult, name: str, index: CallIndex, count: MessageCounter, settings: Settings
) -> Replacement | None:
    """The placeholder for `result`; of a command with the line that tells how it ended."""
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
