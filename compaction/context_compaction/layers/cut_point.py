"""Find the place where history is cut, by token limits and turns.

The rules come from the timeline paper (papers/S4). Keep about 70 % of the budget, or the last
turns if they fit. Never cut between a call and its result. Prefer a turn boundary, then a message
boundary. If the cut is inside the running turn, the user's request stays in full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from context_compaction.messages import model, placeholders
from context_compaction.messages.tool_pairs import ProviderRules, safe_cuts
from context_compaction.tokens.counter import MessageCounter

# A turn boundary is preferred if it keeps at least this share of the kept tokens.
_TURN_BOUNDARY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A place to cut.

    Attributes:
        first_kept: Index of the first message that stays after the summary; the length of the list
            if none stays.
        request_at: Index of the running turn's request if the cut is inside that turn, else None.
            The request stays in full, and a checkpoint replaces the messages up to the cut. Results
            in the message of the request are replaced with their calls.
        folds_request: Whether one summary also replaces that request.
        history_start: Index of the first message that the summary replaces.
    """

    first_kept: int
    request_at: int | None = None
    folds_request: bool = False
    history_start: int = 0

    @property
    def history_end(self) -> int:
        """Index after the messages before the cut and before the running turn's request."""
        return self.first_kept if self.request_at is None else self.request_at

    @property
    def first_index_after_summary(self) -> int:
        """Index of the first message that follows the summary."""
        return self.first_kept if self.folds_request else self.history_end


def is_preserved(message: model.Message) -> bool:
    """Whether a part of a message survives every cut.

    That applies to system messages, project rules, the provider's own compaction blocks, which only
    the provider can read, and calls that load tools with their results.
    """
    for block in message.blocks:  # not a generator, because every stage asks this of every message
        if _is_preserved_block(block):
            return True
    return message.role != "assistant" and placeholders.is_system(message)


def preserved_part(message: model.Message) -> model.Message | None:
    """Return the part of a message that survives every cut; None if there is none."""
    if not is_preserved(message):
        return None
    preserved, replaced = _split(message)
    return model.edit_message(message, preserved) if replaced else message


def _replaced_part(message: model.Message) -> model.Message | None:
    """Return the part of a message that a summary replaces; None if all of it survives."""
    if not is_preserved(message):
        return message
    _, replaced = _split(message)
    return model.edit_message(message, replaced) if replaced else None


def _split(message: model.Message) -> tuple[list[model.Block], list[model.Block]]:
    """Return the blocks of a preserved message that survive, and the others.

    All blocks next to a compaction block survive unless the message has calls, which go with their
    results. Blocks next to project rules do not survive.
    """
    has_compaction = any(map(_is_compaction, message.blocks))
    if placeholders.is_system(message) or (has_compaction and not model.tool_calls(message)):
        return [*message.blocks], []
    preserved = [block for block in message.blocks if _is_preserved_block(block)]
    return preserved, [block for block in message.blocks if not _is_preserved_block(block)]


def history_of(messages: model.Messages, cut: CutPoint) -> model.Messages:
    """Return the messages that the summary replaces, including earlier summaries."""
    history: list[model.Message] = []
    if not is_without_history(messages, cut):
        history += _replaced(messages[cut.history_start : cut.history_end])
    if cut.request_at is not None:
        request = messages[cut.request_at]
        if results := [result for result in model.tool_results(request) if not result.loads_tools]:
            history.append(model.edit_message(request, results))
    return tuple(history)


def is_without_history(messages: model.Messages, cut: CutPoint) -> bool:
    """Whether nothing that a summary could replace precedes the running turn.

    Restored files and fillers, which an earlier compaction added, are no history.
    """
    if cut.request_at is None:
        return False
    return all(
        placeholders.is_synthetic(message) and placeholders.originals_of(message) is None
        for message in _replaced(messages[cut.history_start : cut.history_end])
    )


def turn_prefix_of(messages: model.Messages, cut: CutPoint) -> model.Messages:
    """Return the messages of the running turn that the checkpoint replaces; may be empty."""
    if cut.request_at is None:
        return ()
    request = (request_of(messages, cut.request_at),) if cut.folds_request else ()
    return (*request, *_replaced(messages[cut.request_at + 1 : cut.first_kept]))


def request_of(messages: model.Messages, request_at: int) -> model.Message:
    """Return the running turn's request as it stays before a cut: without results.

    A request may share its message with the result of the previous call. That call is replaced, and
    a provider refuses a result without its call.
    """
    request = messages[request_at]
    if not model.tool_results(request):
        return request
    blocks: list[model.Block] = [b for b in request.blocks if not isinstance(b, model.ToolResult)]
    return model.edit_message(request, blocks)


def cut_all(messages: model.Messages, rules: ProviderRules) -> CutPoint | None:
    """Return the cut after which only an unanswered request stays; None if nothing can be cut."""
    index = len(messages)
    while index and (
        placeholders.is_request(messages[index - 1])
        or preserved_part(messages[index - 1]) is messages[index - 1]
    ):
        index -= 1
    return _cut_before(messages, index, rules)


def cut_keeping(
    messages: model.Messages, rules: ProviderRules, *, keep_messages: int
) -> CutPoint | None:
    """Return the cut that keeps the newest `keep_messages`, or more to keep pairs together."""
    return _cut_before(messages, max(0, len(messages) - keep_messages), rules)


def _cut_before(messages: model.Messages, index: int, rules: ProviderRules) -> CutPoint | None:
    """Return the last safe cut up to `index`; None if it would replace only synthetic messages."""
    safe = safe_cuts(messages, rules)
    while index and not safe[index]:
        index -= 1
    cut = CutPoint(index)
    return None if all(map(placeholders.is_synthetic, history_of(messages, cut))) else cut


def find_cut(
    messages: model.Messages,
    *,
    count: MessageCounter,
    rules: ProviderRules,
    keep_tokens: int,
    keep_turns: int = 0,
    max_tokens: int = 0,
) -> CutPoint | None:
    """Return the earliest good cut that keeps at most `keep_tokens`; None if nothing can be cut.

    Args:
        messages: A valid list.
        count: The token counter.
        rules: The provider's rules.
        keep_tokens: Token limit for the messages after the summary.
        keep_turns: Number of last turns to keep whole if they fit into `max_tokens`.
        max_tokens: Token limit for these turns, which may exceed `keep_tokens`.
    """
    tail_tokens = _tail_tokens(messages, count)
    turns = [i for i, message in enumerate(messages) if placeholders.is_request(message)]
    if keep_turns and len(turns) > keep_turns and tail_tokens[turns[-keep_turns]] <= max_tokens:
        keep_tokens = max(keep_tokens, tail_tokens[turns[-keep_turns]])
    safe = safe_cuts(messages, rules)
    places = [index for index in range(1, len(messages)) if safe[index]]
    request_at = turns[-1] if turns else None
    request_tokens = 0 if request_at is None else count.message(request_of(messages, request_at))

    def tokens_from(index: int) -> int:
        if request_at is None or index <= request_at:
            return tail_tokens[index]
        return tail_tokens[index] + request_tokens

    fitting = [index for index in places if tokens_from(index) <= keep_tokens] or places[-1:]
    if not fitting:
        return None
    near_tokens = tokens_from(fitting[0]) * _TURN_BOUNDARY_SHARE
    turn_starts = frozenset(turns)
    turn_start = next((index for index in fitting if index in turn_starts), None)
    is_near = turn_start is not None and tail_tokens[turn_start] >= near_tokens
    index = turn_start if turn_start is not None and is_near else fitting[0]
    cut = CutPoint(index, request_at if request_at is not None and index > request_at else None)
    replaced = (*history_of(messages, cut), *turn_prefix_of(messages, cut))
    return None if all(map(placeholders.is_synthetic, replaced)) else cut


def _is_preserved_block(block: model.Block) -> bool:
    match block:
        case model.Text():
            return block.author == "project"
        case model.ToolCall() | model.ToolResult():
            return block.loads_tools
        case _:
            return isinstance(block, model.Opaque) and (block.loads_tools or _is_compaction(block))


def _is_compaction(block: model.Block) -> bool:
    return isinstance(block, model.Opaque) and "compaction" in block.kind


def _replaced(messages: model.Messages) -> Iterator[model.Message]:
    return filter(None, map(_replaced_part, messages))


def _tail_tokens(messages: model.Messages, count: MessageCounter) -> list[int]:
    """Return for each index the tokens from there to the end."""
    sizes = [count.message(message) for message in messages]
    return [*reversed([0, *accumulate(reversed(sizes))])]
