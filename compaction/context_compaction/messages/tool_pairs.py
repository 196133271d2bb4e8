"""Which call belongs to which result, what a provider would refuse, and where a cut is safe.

A *run* is an assistant's turn between two other messages: several adjacent messages where the
provider joins them, else a single one. The calls of a run are answered in the messages that
directly follow it. Everything here is linear in the number of messages.

Calls of the provider's own tools (`server_tool_use`, `mcp_tool_use`) are answered by the provider
in the same turn of the assistant, mostly in the same message. If the assistant calls a tool of the
host's beside them, if their code does, or if the turn was paused, the result is in a later message:
only messages of the assistant, and such as have results, are between the two.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.model import (
    Message,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_stand_in,
    tool_calls,
    tool_results,
)
from context_compaction.messages.provider_rules import ProviderRules

_CALL_KINDS = ("server_tool_use", "mcp_tool_use")
_RESULT_ENDING = "_tool_result"

# Positions of a message and of one of its blocks.
_Place: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class ServerCalls:
    """What `server_calls` finds.

    Attributes:
        spans: Positions of the messages that hold a call and its result.
        waiting: By id the places of calls that still have no result at the end of the list.
        unanswered: Places of calls whose turn ended without their result.
        orphans: Places of results that answer no call of their turn.
    """

    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    waiting: dict[str, _Place] = field(default_factory=dict[str, _Place])
    unanswered: set[_Place] = field(default_factory=set[_Place])
    orphans: set[_Place] = field(default_factory=set[_Place])


def server_calls(messages: Messages) -> ServerCalls:
    """The calls of the provider's own tools in `messages`, and how they were answered."""
    found = ServerCalls()
    called_at: dict[str, int] = {}  # of this turn, answered or not
    for position, message in enumerate(messages):
        if called_at and message.role == "user" and not tool_results(message):
            found.unanswered.update(found.waiting.values())
            found.waiting.clear()
            called_at.clear()
        for at, block in enumerate(message.blocks):
            if not isinstance(block, Opaque):
                continue
            if block.kind in _CALL_KINDS:
                key = str(block.source.get("id"))
                called_at[key] = position
                found.waiting[key] = (position, at)
            elif block.kind.endswith(_RESULT_ENDING):
                key = str(block.source.get("tool_use_id"))
                if key in called_at:
                    found.spans.append((called_at[key], position))
                    found.waiting.pop(key, None)
                else:
                    found.orphans.add((position, at))
    return found


@dataclass(frozen=True, slots=True)
class CallIndex:
    """Calls and results by call id, built once for a list whose ids are unique.

    Attributes:
        calls: The call of each id.
        call_at: Position of the message that makes the call.
        result_at: Position of the message that answers it.
    """

    calls: Mapping[str, ToolCall]
    call_at: Mapping[str, int]
    result_at: Mapping[str, int]

    def name_of(self, result: ToolResult) -> str:
        """The name of the tool that `result` comes from; "tool" where nobody says."""
        call = self.calls.get(result.call_id)
        return (call.name if call else result.name) or "tool"


def index_calls(messages: Messages) -> CallIndex:
    """The index of `messages`."""
    calls: dict[str, ToolCall] = {}
    call_at: dict[str, int] = {}
    result_at: dict[str, int] = {}
    for position, message in enumerate(messages):
        for block in message.blocks:
            if isinstance(block, ToolCall):
                calls[block.call_id] = block
                call_at[block.call_id] = position
            elif isinstance(block, ToolResult):
                result_at[block.call_id] = position
    return CallIndex(calls, call_at, result_at)


def run_end(messages: Messages, start: int, rules: ProviderRules) -> int:
    """The position after the run that begins at `start`, an assistant message."""
    stop = start + 1
    while stop < len(messages) and _joined(messages[stop - 1], messages[stop], rules):
        stop += 1
    return stop


def _joined(one: Message, other: Message, rules: ProviderRules) -> bool:
    """Whether the provider takes two adjacent messages as one turn of the assistant.

    Where results come in one message, that message follows each message with calls, so the turn
    ends there.
    """
    if not rules.joins_assistant_messages or one.role != "assistant" or other.role != "assistant":
        return False
    return not (rules.groups_results and tool_calls(one))


def runs(messages: Messages, rules: ProviderRules) -> Iterator[tuple[int, int]]:
    """Start and end of every run, in order."""
    position = 0
    while position < len(messages):
        if messages[position].role != "assistant":
            position += 1
            continue
        stop = run_end(messages, position, rules)
        yield position, stop
        position = stop


def answers(messages: Messages, start: int) -> list[tuple[int, ToolResult]]:
    """The results that stand where the calls of a run ending at `start` are answered.

    Where the provider joins adjacent user messages, results precede anything else in them;
    elsewhere each result is a message of its own. Both are the results up to the first other block.
    """
    found: list[tuple[int, ToolResult]] = []
    for position in range(start, len(messages)):
        message = messages[position]
        if message.role != "user" or not message.blocks:
            break
        for block in message.blocks:
            if not isinstance(block, ToolResult):
                return found
            found.append((position, block))
    return found


def problems(messages: Messages, rules: ProviderRules) -> list[str]:
    """What the provider would refuse, one sentence each; empty for a valid list."""
    return [
        *(_repeated_item_ids(messages) if rules.unique_item_ids else ()),
        *_content_problems(messages, rules),
        *_server_problems(messages),
        *_order_problems(messages, rules),
        *_pair_problems(messages, rules),
    ]


def item_id(message: Message) -> str | None:
    """The provider's id of the item that `message` is; None where it has none."""
    found = (message.source or {}).get("id")
    return found if isinstance(found, str) else None


def _repeated_item_ids(messages: Messages) -> Iterator[str]:
    ids = [found for message in messages if (found := item_id(message)) is not None]
    yield from (f"item id {found!r} is used twice" for found in _repeated(ids, set()))


def has_repeated_ids(messages: Messages) -> bool:
    """Whether two calls of the list have the same id."""
    ids = [call.call_id for message in messages for call in tool_calls(message)]
    return len(set(ids)) < len(ids)


def has_empty_list(message: Message) -> bool:
    """Whether the host's object says "nothing" by an empty list, and still stands."""
    return bool(message.blocks) and _names_empty_list(message)


def _names_empty_list(message: Message) -> bool:
    if message.source is None or message.edited:
        return False
    return message.source.get("tool_calls") == [] or message.source.get("content") == []


def has_misplaced_calls(message: Message) -> bool:
    """Whether somebody else than the assistant makes a call."""
    return message.role != "assistant" and bool(tool_calls(message))


def is_blank(text: str) -> bool:
    """Whether `text` has no visible character."""
    return not text or text.isspace()  # which stops at the first that is visible


def safe_cuts(messages: Messages, rules: ProviderRules) -> list[bool]:
    """For each position 0..n: whether the list may be cut before it.

    A cut is safe where it parts no call from its result and no run in two. A call whose result is
    still to come is open beyond the end: no cut is safe behind it, not even the one at n. A call
    of an earlier run that nobody answered is waited for no more, and holds up no cut. So for
    calls of the provider's own tools, which may be answered after results of the host's.
    """
    size = len(messages)
    change = [0] * (size + 2)
    messages = with_own_ids(messages)
    index = index_calls(messages)
    awaited = _awaited_ids(messages)
    newest = max((start for start, _ in runs(messages, rules)), default=0)
    for call_id, position in index.call_at.items():
        given_up_at = position if position < newest else None
        answered_at = None if call_id in awaited else index.result_at.get(call_id, given_up_at)
        change[position + 1] += 1
        change[size + 1 if answered_at is None else answered_at + 1] -= 1
    on_server = server_calls(messages)
    for start, stop in (*on_server.spans, *((at, size) for at, _ in on_server.waiting.values())):
        change[start + 1] += 1
        change[stop + 1] -= 1
    safe = [True] * (size + 1)
    open_calls = 0
    for position in range(size + 1):
        open_calls += change[position]
        inside_run = 0 < position < size and _joined(
            messages[position - 1], messages[position], rules
        )
        safe[position] = open_calls == 0 and not inside_run
    return safe


def _awaited_ids(messages: Messages) -> frozenset[str]:
    """The calls of a list that ends with results, some of which only stand in.

    The host has answered a part of parallel calls; the other results may still come.
    """
    found: set[str] = set()
    for message in reversed(messages):
        results = tool_results(message)
        if message.role != "user" or not results or len(results) < len(message.blocks):
            break
        found.update(result.call_id for result in results if is_stand_in(result))
    return frozenset(found)


def misplaced_system(messages: Messages) -> Iterator[int]:
    """Positions of system messages that do not stand between the user and the assistant."""
    for position, message in enumerate(messages):
        if message.role != "system":
            continue
        follows_user = position > 0 and messages[position - 1].role == "user"
        after = messages[position + 1].role if position + 1 < len(messages) else "assistant"
        if not follows_user or after != "assistant":
            yield position


def _content_problems(messages: Messages, rules: ProviderRules) -> Iterator[str]:
    for position, message in enumerate(messages):
        if has_misplaced_calls(message):
            yield f"message {position} makes calls, which only the assistant may"
        is_last = position == len(messages) - 1
        may_be_empty = rules.may_end_empty and is_last and message.role == "assistant"
        if rules.refuses_empty_lists and _names_empty_list(message):
            may_be_empty = False
        if rules.refuses_empty_messages and not message.blocks and not may_be_empty:
            yield f"message {position} is empty"
        if rules.refuses_empty_text and any(
            isinstance(block, Text) and is_blank(block.text) for block in message.blocks
        ):
            yield f"message {position} has a text block without a visible character"
        if rules.refuses_empty_lists and has_empty_list(message):
            yield f"message {position} has an empty list of content or of calls"
        if rules.text_after_results and _has_result_after_other(message):
            yield f"message {position} has a tool result after other content"
    if rules.refuses_trailing_space and messages and _ends_in_space(messages[-1]):
        yield "the last message is the assistant's and ends in white space"


def _server_problems(messages: Messages) -> Iterator[str]:
    found = server_calls(messages)
    for position, _ in sorted(found.orphans):
        yield f"message {position} has a server tool's result without its call"
    for position, _ in sorted(found.unanswered):
        yield f"message {position} has a call of a server tool without its result"


def _order_problems(messages: Messages, rules: ProviderRules) -> Iterator[str]:
    first = next((message for message in messages if message.role != "system"), None)
    if rules.first_role_user and first is not None and first.role != "user":
        yield "the first message is not the user's"
    yield from _neighbour_problems(messages, rules)
    if rules.system_follows_user:
        for position in misplaced_system(messages):
            yield f"message {position} is a system message where none is allowed"
    if rules.refuses_trailing_thinking:
        for _, stop in runs(messages, rules):
            if messages[stop - 1].blocks and isinstance(messages[stop - 1].blocks[-1], Thinking):
                yield f"the assistant's turn ending at message {stop - 1} ends with thinking"


def _neighbour_problems(messages: Messages, rules: ProviderRules) -> Iterator[str]:
    for position, (one, other) in enumerate(pairwise(messages), 1):
        if one.role != other.role:
            continue
        if rules.roles_alternate == "all":
            yield f"message {position} follows another of the role {other.role}"
        if rules.calls_follow_user and other.role == "assistant" and tool_calls(other):
            yield f"message {position} makes calls right after the assistant spoke"


def _pair_problems(messages: Messages, rules: ProviderRules) -> Iterator[str]:
    seen: set[str] = set()
    answered: set[tuple[int, str]] = set()
    places = _result_places(messages)
    for start, stop in runs(messages, rules):
        ids = [call.call_id for message in messages[start:stop] for call in tool_calls(message)]
        if not rules.unique_call_ids:
            seen.clear()
        yield from (f"call id {call_id!r} is used twice" for call_id in _repeated(ids, seen))
        if not ids or stop == len(messages):
            continue
        if rules.results_follow_call:
            near = [
                (at, result.call_id)
                for at, result in answers(messages, stop)
                if rules.joins_results or at == stop
            ]
            mine = [(at, call_id) for at, call_id in near if call_id in ids]
        else:
            mine = [
                (at, call_id) for call_id in ids for at in places.get(call_id, ()) if at >= stop
            ]
        answered.update(mine)
        told = [call_id for _, call_id in mine]
        if told != ids:
            yield from _miscounted(ids, told)
    for call_id, positions in places.items():
        for position in positions:
            if (position, call_id) not in answered:
                yield f"message {position} answers call {call_id!r}, which is not before it"


def _miscounted(ids: list[str], told: list[str]) -> Iterator[str]:
    given = Counter(told)
    for call_id in ids:
        if given[call_id] != 1:
            yield f"call {call_id!r} has {given[call_id]} results where one belongs"


def _repeated(ids: list[str], seen: set[str]) -> Iterator[str]:
    for call_id in ids:
        if call_id in seen:
            yield call_id
        seen.add(call_id)


def _result_places(messages: Messages) -> Mapping[str, list[int]]:
    places: dict[str, list[int]] = {}
    for position, message in enumerate(messages):
        for result in tool_results(message):
            places.setdefault(result.call_id, []).append(position)
    return places


def _has_result_after_other(message: Message) -> bool:
    seen_other = False
    for block in message.blocks:
        if isinstance(block, ToolResult) and seen_other:
            return True
        seen_other = seen_other or not isinstance(block, ToolResult)
    return False


def _ends_in_space(message: Message) -> bool:
    if message.role != "assistant" or not message.blocks:
        return False
    last = message.blocks[-1]
    return isinstance(last, Text) and last.text != last.text.rstrip()
