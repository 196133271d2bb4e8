"""What a provider demands of a list: its rules, which call has which result, where a cut is safe.

A *run* is an assistant's turn between two other messages: several adjacent messages where the
provider joins them, else a single one. The calls of a run are answered in the messages that
directly follow it. Everything here is linear in the number of messages.

Providers match calls and results by id, and some take the same id again in a later turn, as local
servers number the calls of each answer anew. Who reads a list by ids reads
`with_unique_call_ids` of it.

Calls of the provider's own tools (`server_tool_use`, `mcp_tool_use`) are answered by the provider
in the same turn of the assistant, mostly in the same message. If the assistant calls a tool of the
host's beside them, if their code does, or if the turn was paused, the result is in a later message:
only messages of the assistant, and such as have results, are between the two.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import is_not
from typing import Any, Literal, TypeAlias

from context_compaction.messages.model import (
    Block,
    Message,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    edit_message,
    is_list,
    is_object,
    is_synthetic_result,
    tool_calls,
    tool_results,
)

_CALL_KINDS = ("server_tool_use", "mcp_tool_use")
_RESULT_ENDING = "_tool_result"
# By type of the block of a hosted tool search: the field that joins call and result.
_SEARCH_CALL_KEYS = {"server_tool_use": "id", "tool_search_call": "call_id"}
_SEARCH_RESULT_KEYS = {"tool_search_tool_result": "tool_use_id", "tool_search_output": "call_id"}
_MAX_LOADED_TOOLS = 100

# Position of a message, and of a block in it.
BlockPlace: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """The rules of one format.

    Attributes:
        groups_results: All results of one assistant message stand together in the one message
            that follows it (Anthropic, Gemini), rather than in a message each.
        first_role_user: The first message that is not a system message must be the user's.
        text_after_results: In a message that carries results, text follows them.
        refuses_empty_text: Text blocks without a visible character are refused.
        thinking_is_bound: A thinking block is void once anything before it was edited.
        joins_assistant_messages: Adjacent assistant messages count as one (Anthropic, Gemini, and
            Responses, whose items are parts of a turn).
        results_follow_call: Results are directly after the call; else anywhere after it.
        refuses_empty_messages: A message without any content is refused.
        refuses_thinking_alone: A message of the assistant needs more than thinking (Chat).
        refuses_trailing_thinking: An assistant turn may not end with a thinking block.
        refuses_trailing_space: A last message of the assistant may not end in white space.
        calls_follow_user: A message with calls may not follow another of the assistant (Gemini).
        refuses_empty_lists: A message may not name an empty list of content or of calls.
        unique_call_ids: No call id may come twice in a list; else only not twice in a message.
        system_follows_user: A system message may stand only between a user message and the
            assistant's answer (Anthropic); elsewhere it may stand anywhere.
        roles_alternate: "all" if no message may follow one of the same role (Bedrock Converse).
            "ours" if no message that we add may: some servers behind the format refuse that, and
            a host that uses them sends no such list (OpenAI Chat). Else the provider joins them.
        may_end_empty: A last message of the assistant may be empty, as some hosts ask for a
            continuation; Gemini refuses it there too.
        joins_results: Results in adjacent messages count as those of one, as the provider joins
            them; Gemini counts the results in the one message that follows the calls.
        unique_item_ids: No two messages may have the same `id` (Responses).
        outputs: By the type of a call, the type of what answers it, where each kind of call has
            one of its own (Responses).
        calls_have_ids: Calls and results are matched by an id; without, by order and name.
    """

    groups_results: bool = False
    first_role_user: bool = False
    text_after_results: bool = False
    refuses_empty_text: bool = False
    thinking_is_bound: bool = False
    joins_assistant_messages: bool = False
    results_follow_call: bool = False
    refuses_empty_messages: bool = False
    refuses_thinking_alone: bool = False
    refuses_trailing_thinking: bool = False
    refuses_trailing_space: bool = False
    unique_call_ids: bool = False
    calls_follow_user: bool = False
    refuses_empty_lists: bool = False
    system_follows_user: bool = False
    roles_alternate: Literal["all", "ours", ""] = ""
    may_end_empty: bool = True
    joins_results: bool = True
    calls_have_ids: bool = True
    unique_item_ids: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])


def answers_by_call(messages: Messages) -> dict[BlockPlace, BlockPlace]:
    """By the place of each call of the assistant that of the user's result that answers it.

    An id means the calls of the newest turn of the assistant that uses it: every provider has
    results behind their calls. Of several such calls each result answers the next one; only where
    a result merely stands in, one that follows takes its place. All other results answer none.
    """
    waiting: dict[str, tuple[int, deque[BlockPlace]]] = {}  # by id, behind the number of the turn
    answers: dict[BlockPlace, BlockPlace] = {}
    turn, spoke_last = 0, False
    for at, message in enumerate(messages):
        speaks = message.role == "assistant"
        turn += speaks and not spoke_last
        spoke_last = speaks
        for n, block in enumerate(message.blocks):
            if isinstance(block, ToolCall) and speaks:
                known = waiting.get(block.call_id)
                if known is None or known[0] != turn:
                    known = waiting[block.call_id] = turn, deque()
                known[1].append((at, n))
            elif isinstance(block, ToolResult) and message.role == "user":
                _, calls = waiting.get(block.call_id, (0, deque[BlockPlace]()))
                if calls and is_synthetic_result(block):
                    answers.setdefault(calls[0], (at, n))
                    calls.rotate(-1)
                elif calls:
                    answers[calls.popleft()] = at, n
    return answers


def with_loaded_tools(messages: Messages) -> Messages:
    """Return the messages with `loads_tools` set on the newest results that load tools.

    Their calls get the same mark. The host keeps sending such a tool without its definition, so a
    request without the result would lose the tool. An older result has no mark if newer results
    load all its tools, so that the number of marked results stays small.
    """
    loading: set[BlockPlace] = set()
    loaded: set[str] = set()
    for at in reversed(range(len(messages))):
        for n, block in enumerate(messages[at].blocks):
            tools = loaded_tools(block) - loaded
            if tools and len(loaded) < _MAX_LOADED_TOOLS:
                loading.add((at, n))
                loaded |= tools
    if not loading:
        return messages
    calls = {call for call, result in answers_by_call(messages).items() if result in loading}
    out = list(messages)
    for at, n in loading | calls | _hosted_search_calls(messages, loading):
        blocks = list(out[at].blocks)
        block = blocks[n]
        if isinstance(block, ToolCall | ToolResult | Opaque):
            blocks[n] = replace(block, loads_tools=True)
        out[at] = replace(out[at], blocks=tuple(blocks))
    return tuple(out)


def loaded_tools(block: Block) -> set[str]:
    """Return the names of the tools that a result loads into the conversation.

    A host's search tool returns `tool_reference` blocks. A hosted search of Anthropic has them in a
    list, and a search of the Responses API returns the definitions of the tools.
    """
    items: list[Any] = []
    if isinstance(block, ToolResult):
        parts = [part for part in block.content if isinstance(part, Opaque)]
        items = [part.source for part in parts if part.kind == "tool_reference"]
    elif isinstance(block, Opaque) and block.kind in _SEARCH_RESULT_KEYS:
        content = block.source.get("content")
        listed = content.get("tool_references") if is_object(content) else block.source.get("tools")
        items = listed if is_list(listed) else []
    names = (item.get("tool_name") or item.get("name") for item in items if is_object(item))
    return {name for name in names if isinstance(name, str)}


def _hosted_search_calls(messages: Messages, results: set[BlockPlace]) -> set[BlockPlace]:
    """Return the positions of the calls of hosted tool searches with the given results."""
    calls: set[BlockPlace] = set()
    latest: dict[str, BlockPlace] = {}  # The Responses API gives hosted searches no call ID.
    for at, message in enumerate(messages):
        for n, block in enumerate(message.blocks):
            if not isinstance(block, Opaque):
                continue
            if key := _SEARCH_CALL_KEYS.get(block.kind):
                latest[str(block.source.get(key))] = at, n
            elif (at, n) in results:
                call = latest.get(str(block.source.get(_SEARCH_RESULT_KEYS[block.kind])))
                calls |= {call} if call else set()
    return calls


def with_unique_call_ids(messages: Messages) -> Messages:
    """The same messages; each call has an id of its own, and with it the result that answers it.

    A result that answers none has an id that no call has. What is already so stays the same object.
    """
    if _is_plain(messages):
        return messages
    results = {place: call for call, place in answers_by_call(messages).items()}
    ids = _Ids(open_ids(messages))
    called = {call.call_id for message in messages for call in tool_calls(message)}
    names: dict[BlockPlace, str] = {}
    out = list(messages)
    for at, message in enumerate(messages):
        blocks = list(message.blocks)
        for n, block in enumerate(blocks):
            if isinstance(block, ToolCall):
                name = names[at, n] = ids.own(block.call_id, is_last=at == len(out) - 1)
            elif not isinstance(block, ToolResult):
                continue
            elif call := results.get((at, n)):
                name = names[call]
            else:
                name = ids.own(block.call_id, is_taken=block.call_id in called)
            if name != block.call_id:
                blocks[n] = replace(block, call_id=name, edited=True)
        if any(map(is_not, blocks, message.blocks)):
            out[at] = edit_message(message, blocks)
    return tuple(out) if any(map(is_not, out, messages)) else messages


def open_ids(messages: Messages) -> frozenset[str]:
    """The ids of the calls that the list ends with."""
    return frozenset(call.call_id for call in tool_calls(messages[-1])) if messages else frozenset()


def _is_plain(messages: Messages) -> bool:
    """Whether no id is used twice, and every result stands behind its call: as nearly all are."""
    called: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        speaks = message.role == "assistant"
        for block in message.blocks:
            if isinstance(block, ToolCall):
                if not speaks or block.call_id in called:
                    return False
                called.add(block.call_id)
            elif isinstance(block, ToolResult):
                call_id = block.call_id
                if message.role != "user" or call_id in answered or call_id not in called:
                    return False
                answered.add(call_id)
    return True


class _Ids:
    """Gives ids of their own, in order, so that a list that grows keeps those it has."""

    def __init__(self, still_open: frozenset[str]) -> None:
        # The host will answer calls that are still open by the ids it knows: those stay.
        self._still_open = still_open
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def own(self, call_id: str, *, is_last: bool = False, is_taken: bool = False) -> str:
        """`call_id`, or one made of it; `is_last`: of the last message, which has it if open."""
        name = call_id
        while is_taken or name in self._used or (name in self._still_open and not is_last):
            number = self._next[call_id] = self._next.get(call_id, 1) + 1
            name, is_taken = f"{call_id}_{number}", False
        self._used.add(name)
        return name


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
    waiting: dict[str, BlockPlace] = field(default_factory=dict[str, BlockPlace])
    unanswered: set[BlockPlace] = field(default_factory=set[BlockPlace])
    orphans: set[BlockPlace] = field(default_factory=set[BlockPlace])


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
    found = server_calls(messages)
    orphans = (
        f"message {at} has a server tool's result without its call" for at, _ in found.orphans
    )
    unanswered = (
        f"message {at} has a call of a server tool without its result" for at, _ in found.unanswered
    )
    item_ids = [found for found in map(item_id, messages) if found] if rules.unique_item_ids else []
    return [
        *(f"item id {found!r} is used twice" for found in _repeated(item_ids, set())),
        *_content_problems(messages, rules),
        *sorted(orphans),
        *sorted(unanswered),
        *_order_problems(messages, rules),
        *_pair_problems(messages, rules),
    ]


def item_id(message: Message) -> str | None:
    """The provider's id of the item that `message` is; None where it has none."""
    found = (message.source or {}).get("id")
    return found if isinstance(found, str) else None


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
    messages = with_unique_call_ids(messages)
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
        found.update(result.call_id for result in results if is_synthetic_result(result))
    return frozenset(found)


def has_thinking_alone(message: Message) -> bool:
    """Whether the message has thinking and nothing else."""
    return bool(message.blocks) and all(isinstance(b, Thinking) for b in message.blocks)


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
        if rules.refuses_thinking_alone and has_thinking_alone(message):
            yield f"message {position} has thinking alone"
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


def _order_problems(messages: Messages, rules: ProviderRules) -> Iterator[str]:
    first = next((message for message in messages if message.role != "system"), None)
    if rules.first_role_user and first is not None and first.role != "user":
        yield "the first message is not the user's"
    for position, (one, other) in enumerate(pairwise(messages), 1):
        if one.role == other.role and rules.roles_alternate == "all":
            yield f"message {position} follows another of the role {other.role}"
        speaks_on = one.role == other.role == "assistant"
        if speaks_on and rules.calls_follow_user and tool_calls(other):
            yield f"message {position} makes calls right after the assistant spoke"
    if rules.system_follows_user:
        for position in misplaced_system(messages):
            yield f"message {position} is a system message where none is allowed"
    if rules.refuses_trailing_thinking:
        for _, stop in runs(messages, rules):
            if messages[stop - 1].blocks and isinstance(messages[stop - 1].blocks[-1], Thinking):
                yield f"the assistant's turn ending at message {stop - 1} ends with thinking"


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
            near = [(at, result.call_id) for at, result in answers(messages, stop)]
            mine = [(at, i) for at, i in near if i in ids and (rules.joins_results or at == stop)]
        else:
            mine = [(at, i) for i in ids for at in places.get(i, ()) if at >= stop]
        answered.update(mine)
        given = Counter(call_id for _, call_id in mine)
        for call_id in (call_id for call_id in ids if given[call_id] != 1):
            yield f"call {call_id!r} has {given[call_id]} results where one belongs"
    for call_id, positions in places.items():
        for position in positions:
            if (position, call_id) not in answered:
                yield f"message {position} answers call {call_id!r}, which is not before it"


def _repeated(ids: list[str], seen: set[str]) -> Iterator[str]:
    for found in ids:
        if found in seen:
            yield found
        seen.add(found)


def _result_places(messages: Messages) -> Mapping[str, list[int]]:
    places: dict[str, list[int]] = {}
    for position, message in enumerate(messages):
        for result in tool_results(message):
            places.setdefault(result.call_id, []).append(position)
    return places


def _has_result_after_other(message: Message) -> bool:
    is_result = [isinstance(block, ToolResult) for block in message.blocks]
    return any(after and not before for before, after in pairwise(is_result))


def _ends_in_space(message: Message) -> bool:
    if message.role != "assistant" or not message.blocks:
        return False
    last = message.blocks[-1]
    return isinstance(last, Text) and last.text != last.text.rstrip()
