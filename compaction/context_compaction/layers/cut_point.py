"""Where history may be cut: a budget for what is recent, turns, and split turns.

The rules are the timeline paper's (papers/S4): keep about 70 % of the budget, or the last turns
where they fit; never cut between a call and its result; prefer a turn boundary, then a message
boundary; and when the cut falls inside the running turn, the user's request stays in full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain

from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Block,
    Message,
    Messages,
    Opaque,
    Text,
    ToolCall,
    ToolResult,
    edit_message,
    is_rules,
    tool_calls,
    tool_results,
)
from context_compaction.messages.tool_pairs import ProviderRules, safe_cuts
from context_compaction.tokens.counter import MessageCounter

# A turn boundary is preferred while it keeps at least this part of what the budget allows.
TURN_BOUNDARY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class CutPoint:
    """A place to cut.

    Attributes:
        first_kept: Position of the first message that stays after the summary; the length of the
            list where nothing does.
        request_at: Position of the running turn's request, when the cut falls inside that turn:
            it stays in full, and a checkpoint replaces what lies between. Else None.
            Results in the same message as the request are replaced with their calls.
        folds_request: Whether that request is replaced too, by one summary for everything.
    """

    first_kept: int
    request_at: int | None = None
    folds_request: bool = False

    @property
    def first_index_after_summary(self) -> int:
        """Position of the first message that follows the summary."""
        if self.request_at is None or self.folds_request:
            return self.first_kept
        return self.request_at


def is_preserved(message: Message) -> bool:
    """Whether something of a message stays verbatim at any cut.

    That is a system message, one with rules of the project, one with the provider's own compaction
    block, which only the provider can read, or one that loads tools.
    """
    for block in message.blocks:  # each pass asks this of each message, so no generator
        if _stays(block):
            return True
    return message.role != "assistant" and placeholders.is_system(message)


def preserved_part(message: Message) -> Message | None:
    """What of a message stays verbatim at any cut: all of it, or its blocks that stay; or None."""
    if not is_preserved(message):
        return None
    kept, gone = _apart(message)
    return edit_message(message, kept) if gone else message


def replaced_part(message: Message) -> Message | None:
    """The rest of a message; None where all of it stays."""
    if not is_preserved(message):
        return message
    _, gone = _apart(message)
    return edit_message(message, gone) if gone else None


def _apart(message: Message) -> tuple[list[Block], list[Block]]:
    """The blocks of a preserved message that stay, and the others.

    Beside a compaction block all stay but where a call is, which goes with its result; beside rules
    of the project goes what was handed over with them.
    """
    has_compaction = any(map(_is_compaction, message.blocks))
    if placeholders.is_system(message) or (has_compaction and not tool_calls(message)):
        return [*message.blocks], []
    kept = [block for block in message.blocks if _stays(block)]
    return kept, [block for block in message.blocks if not _stays(block)]


def history_of(messages: Messages, cut: CutPoint) -> Messages:
    """The messages that the summary replaces; they contain our earlier summaries."""
    return tuple(_history(messages, cut))


def _history(messages: Messages, cut: CutPoint) -> Iterator[Message]:
    stop = cut.first_kept if cut.request_at is None else cut.request_at
    yield from _replaced(messages[:stop])
    if cut.request_at is not None:
        request = messages[cut.request_at]
        if results := [result for result in tool_results(request) if not result.loads_tools]:
            yield edit_message(request, results)


def turn_prefix_of(messages: Messages, cut: CutPoint) -> Messages:
    """The messages that the checkpoint in the running turn replaces; empty where there is none."""
    return tuple(_turn_prefix(messages, cut))


def _turn_prefix(messages: Messages, cut: CutPoint) -> Iterator[Message]:
    if cut.request_at is not None:
        if cut.folds_request:
            yield request_of(messages, cut.request_at)
        yield from _replaced(messages[cut.request_at + 1 : cut.first_kept])


def request_of(messages: Messages, request_at: int) -> Message:
    """The running turn's request as it stays at a cut behind it: without results.

    A request may share its message with the result of the preceding call. That call is replaced,
    and a provider refuses a result without its call.
    """
    request = messages[request_at]
    if not tool_results(request):
        return request
    said: list[Block] = [b for b in request.blocks if not isinstance(b, ToolResult)]
    return edit_message(request, said)


def cut_all(messages: Messages, rules: ProviderRules) -> CutPoint | None:
    """The cut after which only an unanswered request stays."""
    at = len(messages)
    while at and _stays_behind(messages[at - 1]):
        at -= 1
    return _cut_before(messages, at, rules)


def _stays_behind(message: Message) -> bool:
    return placeholders.is_request(message) or preserved_part(message) is message


def cut_keeping(messages: Messages, rules: ProviderRules, *, keep_messages: int) -> CutPoint | None:
    """The cut that keeps the newest `keep_messages`, and more where it would split a pair."""
    return _cut_before(messages, max(0, len(messages) - keep_messages), rules)


def _cut_before(messages: Messages, at: int, rules: ProviderRules) -> CutPoint | None:
    """The last safe cut not after `at`; None where it would replace nothing that is not ours."""
    safe = safe_cuts(messages, rules)
    while at and not safe[at]:
        at -= 1
    cut = CutPoint(at)
    return None if all(map(placeholders.is_synthetic, _history(messages, cut))) else cut


def find_cut(
    messages: Messages,
    *,
    count: MessageCounter,
    rules: ProviderRules,
    keep_tokens: int,
    keep_turns: int = 0,
    max_tokens: int = 0,
    turn_share: float = TURN_BOUNDARY_SHARE,
    may_keep_nothing: bool = False,
) -> CutPoint | None:
    """The earliest good cut that keeps at most `keep_tokens`; None where nothing can be cut.

    Args:
        messages: A valid list.
        count: The token counter.
        rules: The provider's rules.
        keep_tokens: The most tokens that stay after the summary.
        keep_turns: So many last turns stay whole ...
        max_tokens: ... if they fit in this, which may exceed `keep_tokens`.
        turn_share: Prefer a turn boundary while it keeps this part of what another would.
        may_keep_nothing: Whether even the newest assistant message may be replaced.
    """
    size = len(messages)
    tail_tokens = _tail_tokens(messages, count)
    turns = [at for at, m in enumerate(messages) if placeholders.is_request(m)]
    if keep_turns and len(turns) > keep_turns and tail_tokens[turns[-keep_turns]] <= max_tokens:
        keep_tokens = max(keep_tokens, tail_tokens[turns[-keep_turns]])
    safe = safe_cuts(messages, rules)
    last = size if may_keep_nothing else size - 1
    places = [at for at in range(1, last + 1) if safe[at]]
    request_at = turns[-1] if turns else None
    request_tokens = 0 if request_at is None else count.message(request_of(messages, request_at))

    def kept_tokens(at: int) -> int:
        if request_at is None or at <= request_at:
            return tail_tokens[at]
        return tail_tokens[at] + request_tokens

    fitting = [at for at in places if kept_tokens(at) <= keep_tokens]
    if not fitting:
        fitting = places[-1:]
    if not fitting:
        return None
    near_tokens = kept_tokens(fitting[0]) * turn_share
    at = _best(fitting, frozenset(turns), near_tokens, tail_tokens)
    cut = CutPoint(at, request_at if request_at is not None and at > request_at else None)
    replaced = chain(_history(messages, cut), _turn_prefix(messages, cut))
    return None if all(map(placeholders.is_synthetic, replaced)) else cut


def _stays(block: Block) -> bool:
    if isinstance(block, ToolCall | ToolResult | Opaque) and block.loads_tools:
        return True
    return is_rules(block) if isinstance(block, Text) else _is_compaction(block)


def _is_compaction(block: Block) -> bool:
    return isinstance(block, Opaque) and "compaction" in block.kind


def _replaced(messages: Messages) -> Iterator[Message]:
    return filter(None, map(replaced_part, messages))


def _best(
    fitting: list[int], turns: frozenset[int], near_tokens: float, tail_tokens: list[int]
) -> int:
    """The earliest turn boundary, unless it would keep much less than a message boundary."""
    for at in fitting:
        if at in turns:
            return at if tail_tokens[at] >= near_tokens else fitting[0]
    return fitting[0]


def _tail_tokens(messages: Messages, count: MessageCounter) -> list[int]:
    """For each position the tokens from there to the end."""
    sizes = [count.message(message) for message in messages]
    return [*reversed([0, *accumulate(reversed(sizes))])]
