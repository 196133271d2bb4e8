"""A provider's rules for a list, pairs of calls and results, and safe places to cut.

A *run* is one turn of the assistant: several adjacent messages if the provider joins them, else one
message. The messages after a run contain the results of its calls. All functions are linear in the
number of messages.

Providers match calls and results by ID. Some accept an ID again in a later turn, because local
servers number the calls of each answer from the start. Code that looks up messages by ID first
calls `with_unique_call_ids`.

Calls of the provider's own tools (`server_tool_use`, `mcp_tool_use`) get their result from the
provider in the same turn, usually in the same message. The result is in a later message if the
assistant also calls a tool of the host, if the code of the tool does, or if the turn was paused. In
between are only messages of the assistant, and messages with results.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from context_compaction.messages import model

_SERVER_CALL_KINDS = ("server_tool_use", "mcp_tool_use")
_SERVER_RESULT_SUFFIX = "_tool_result"
# The field that joins call and result of a hosted tool search, by type of the block.
_SEARCH_CALL_KEYS = {"server_tool_use": "id", "tool_search_call": "call_id"}
_SEARCH_RESULT_KEYS = {"tool_search_tool_result": "tool_use_id", "tool_search_output": "call_id"}
# Only the newest tools stay loaded, so that the number of messages that survive a cut is limited.
_MAX_LOADED_TOOLS = 100

# Index of a message, and number of a block in it.
BlockPlace: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """The rules that a list of one wire format must follow.

    Attributes:
        groups_results: All results of an assistant message are in the one message after it
            (Anthropic, Gemini). Otherwise each result is a message.
        first_role_user: The first message that is not a system message must be the user's.
        text_after_results: Text must follow the results in a message.
        refuses_empty_text: Text blocks without a visible character are refused.
        thinking_is_bound: A thinking block is invalid once anything before it was edited.
        joins_assistant_messages: Adjacent assistant messages count as one (Anthropic, Gemini,
            Responses).
        results_follow_call: Results directly follow the call. Otherwise they may be anywhere later.
        refuses_empty_messages: A message without content is refused.
        documents_need_text: A message with a document needs a text as well (Bedrock).
        refuses_thinking_alone: A message of the assistant needs more than thinking (Chat).
        refuses_trailing_thinking: An assistant turn must not end with a thinking block.
        refuses_trailing_space: A last message of the assistant must not end in white space.
        unique_call_ids: A call ID must be unique in the list. Otherwise only in its message.
        calls_follow_user: A message with calls must not follow an assistant message (Gemini).
        refuses_empty_lists: A message must not contain an empty list of content or calls.
        system_follows_user: A system message must be between a user message and the assistant's
            answer (Anthropic).
        roles_alternate: "all" if no message may follow one of the same role (Bedrock Converse).
            "added" if only messages that this library adds must alternate, because some servers of
            the format refuse them otherwise (OpenAI Chat). "" if the provider joins messages of
            one role.
        may_end_empty: A last message of the assistant may be empty, which asks for a continuation.
        joins_results: Results in adjacent messages count as one message. Gemini counts only the
            message after the calls.
        calls_have_ids: Calls and results are matched by ID. Otherwise by order and name.
        unique_item_ids: The `id` of a message must be unique in the list (Responses).
        outputs: Type of the result for each type of call, if they have types (Responses).
    """

    groups_results: bool = False
    first_role_user: bool = False
    text_after_results: bool = False
    refuses_empty_text: bool = False
    thinking_is_bound: bool = False
    joins_assistant_messages: bool = False
    results_follow_call: bool = False
    refuses_empty_messages: bool = False
    documents_need_text: bool = False
    refuses_thinking_alone: bool = False
    refuses_trailing_thinking: bool = False
    refuses_trailing_space: bool = False
    unique_call_ids: bool = False
    calls_follow_user: bool = False
    refuses_empty_lists: bool = False
    system_follows_user: bool = False
    roles_alternate: Literal["all", "added", ""] = ""
    may_end_empty: bool = True
    joins_results: bool = True
    calls_have_ids: bool = True
    unique_item_ids: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])


def results_by_call(messages: model.Messages) -> dict[BlockPlace, BlockPlace]:
    """Return the place of the result for the place of each call of the assistant.

    An ID refers to the calls of the newest turn that uses it, because results follow calls. If a
    turn has several calls with the same ID, their results belong to them in order. A later real
    result replaces a synthetic one. Results without a call are not in the mapping.
    """
    waiting: dict[str, tuple[int, deque[BlockPlace]]] = {}  # the turn and its calls, by ID
    results: dict[BlockPlace, BlockPlace] = {}
    turn, was_assistant = 0, False
    for index, message in enumerate(messages):
        is_assistant = message.role == "assistant"
        turn += is_assistant and not was_assistant
        was_assistant = is_assistant
        for number, block in enumerate(message.blocks):
            if isinstance(block, model.ToolCall) and is_assistant:
                entry = waiting.get(block.call_id)
                if entry is None or entry[0] != turn:
                    entry = waiting[block.call_id] = turn, deque()
                entry[1].append((index, number))
            elif isinstance(block, model.ToolResult) and message.role == "user":
                _, calls = waiting.get(block.call_id, (0, deque[BlockPlace]()))
                if calls and model.is_synthetic_result(block):
                    results.setdefault(calls[0], (index, number))
                    calls.rotate(-1)
                elif calls:
                    results[calls.popleft()] = index, number
    return results


def with_loaded_tools(messages: model.Messages) -> model.Messages:
    """Return the messages with `loads_tools` set on the newest results that load tools.

    Their calls get the same mark. The host keeps sending such a tool without its definition, so a
    request without the result would lose the tool. An older result has no mark if newer results
    load all its tools, so that the number of marked results stays small.
    """
    loading: set[BlockPlace] = set()
    loaded: set[str] = set()
    for index in reversed(range(len(messages))):
        for number, block in enumerate(messages[index].blocks):
            tools = _loaded_tools(block) - loaded
            if tools and len(loaded) < _MAX_LOADED_TOOLS:
                loading.add((index, number))
                loaded |= tools
    if not loading:
        return messages
    calls = {call for call, result in results_by_call(messages).items() if result in loading}
    out = list(messages)
    for index, number in loading | calls | _hosted_search_calls(messages, loading):
        blocks = list(out[index].blocks)
        block = blocks[number]
        if isinstance(block, model.ToolCall | model.ToolResult | model.Opaque):
            blocks[number] = replace(block, loads_tools=True)
        out[index] = replace(out[index], blocks=tuple(blocks))
    return tuple(out)


def _loaded_tools(block: model.Block) -> set[str]:
    """Return the names of the tools that a result loads into the conversation.

    A host's search tool returns `tool_reference` blocks. A hosted search of Anthropic has them in a
    list, and a search of the Responses API returns the definitions of the tools.
    """
    items: list[Any] = []
    if isinstance(block, model.ToolResult):
        parts = [part for part in block.content if isinstance(part, model.Opaque)]
        items = [part.source for part in parts if part.kind == "tool_reference"]
    elif isinstance(block, model.Opaque) and block.kind in _SEARCH_RESULT_KEYS:
        content = block.source.get("content")
        listed = (
            content.get("tool_references")
            if model.is_object(content)
            else block.source.get("tools")
        )
        items = listed if model.is_list(listed) else []
    names = (item.get("tool_name") or item.get("name") for item in items if model.is_object(item))
    return {name for name in names if isinstance(name, str)}


def _hosted_search_calls(messages: model.Messages, results: set[BlockPlace]) -> set[BlockPlace]:
    """Return the places of the calls of hosted tool searches with the given results."""
    calls: set[BlockPlace] = set()
    latest: dict[str, BlockPlace] = {}  # the Responses API gives hosted searches no call ID
    for index, message in enumerate(messages):
        for number, block in enumerate(message.blocks):
            if not isinstance(block, model.Opaque):
                continue
            if key := _SEARCH_CALL_KEYS.get(block.kind):
                latest[str(block.source.get(key))] = index, number
            elif (index, number) in results:
                call = latest.get(str(block.source.get(_SEARCH_RESULT_KEYS[block.kind])))
                calls |= {call} if call else set()
    return calls


def with_unique_call_ids(messages: model.Messages) -> model.Messages:
    """Return `messages` with a unique ID for each call, repeated by its result.

    A result without a call gets an ID that no call has. Unchanged messages stay the same objects.
    """
    if _has_plain_pairs(messages):
        return messages
    calls = {result: call for call, result in results_by_call(messages).items()}
    open_start = len(messages)
    while open_start and messages[open_start - 1].role == "assistant":
        open_start -= 1
    open_calls = (call for message in messages[open_start:] for call in model.tool_calls(message))
    ids = _UniqueIds(frozenset(call.call_id for call in open_calls))
    call_ids = {call.call_id for message in messages for call in model.tool_calls(message)}
    new_ids: dict[BlockPlace, str] = {}
    out = list(messages)
    for index, message in enumerate(messages):
        blocks = list(message.blocks)
        for number, block in enumerate(blocks):
            if isinstance(block, model.ToolCall):
                is_open = index >= open_start
                new_id = new_ids[index, number] = ids.take(block.call_id, is_open=is_open)
            elif not isinstance(block, model.ToolResult):
                continue
            elif call := calls.get((index, number)):
                new_id = new_ids[call]
            else:
                new_id = ids.take(block.call_id, is_reserved=block.call_id in call_ids)
            if new_id != block.call_id:
                blocks[number] = replace(block, call_id=new_id, edited=True)
        if not model.is_same(blocks, message.blocks):
            out[index] = model.edit_message(message, blocks)
    return messages if model.is_same(out, messages) else tuple(out)


def _has_plain_pairs(messages: model.Messages) -> bool:
    """Whether each ID is used once and each result follows its call, as in nearly all lists."""
    called: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        is_assistant = message.role == "assistant"
        for block in message.blocks:
            if isinstance(block, model.ToolCall):
                if not is_assistant or block.call_id in called:
                    return False
                called.add(block.call_id)
            elif isinstance(block, model.ToolResult):
                call_id = block.call_id
                if message.role != "user" or call_id in answered or call_id not in called:
                    return False
                answered.add(call_id)
    return True


class _UniqueIds:
    """The IDs used so far. Open calls, which the host is about to answer, keep their ID.

    These are the calls in the messages of the assistant at the end of the list.
    """

    def __init__(self, open_ids: frozenset[str]) -> None:
        self._open_ids = open_ids
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def take(self, call_id: str, *, is_open: bool = False, is_reserved: bool = False) -> str:
        """Return `call_id`, or a new ID made from it if it is used.

        Args:
            call_id: The ID in the list.
            is_open: Whether it is the ID of an open call.
            is_reserved: Whether `call_id` itself must not be returned.
        """
        new_id = call_id
        while is_reserved or new_id in self._used or (new_id in self._open_ids and not is_open):
            number = self._counts[call_id] = self._counts.get(call_id, 1) + 1
            new_id, is_reserved = f"{call_id}_{number}", False
        self._used.add(new_id)
        return new_id


@dataclass(slots=True)
class ServerCalls:
    """The calls of the provider's own tools in a list.

    Attributes:
        spans: Indices of the messages with a call and with its result.
        waiting: Places of calls without a result at the end of the list, by ID.
        unanswered: Places of calls whose turn ended without a result.
        orphans: Places of results without a call in their turn.
    """

    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    waiting: dict[str, BlockPlace] = field(default_factory=dict[str, BlockPlace])
    unanswered: set[BlockPlace] = field(default_factory=set[BlockPlace])
    orphans: set[BlockPlace] = field(default_factory=set[BlockPlace])


def server_calls(messages: model.Messages) -> ServerCalls:
    """Return the calls of the provider's own tools in `messages`."""
    server = ServerCalls()
    called_at: dict[str, int] = {}  # index of the message of each call of this turn, by ID
    for index, message in enumerate(messages):
        if called_at and message.role == "user" and not model.tool_results(message):
            server.unanswered.update(server.waiting.values())
            server.waiting.clear()
            called_at.clear()
        for number, block in enumerate(message.blocks):
            if not isinstance(block, model.Opaque):
                continue
            if block.kind in _SERVER_CALL_KINDS:
                call_id = str(block.source.get("id"))
                called_at[call_id] = index
                server.waiting[call_id] = (index, number)
            elif block.kind.endswith(_SERVER_RESULT_SUFFIX):
                call_id = str(block.source.get("tool_use_id"))
                if call_id in called_at:
                    server.spans.append((called_at[call_id], index))
                    server.waiting.pop(call_id, None)
                else:
                    server.orphans.add((index, number))
    return server


@dataclass(frozen=True, slots=True)
class CallIndex:
    """Calls and results by call ID, for a list with unique IDs.

    Attributes:
        calls: The call of each ID.
        call_at: Index of the message with the call.
        result_at: Index of the message with the result.
    """

    calls: Mapping[str, model.ToolCall]
    call_at: Mapping[str, int]
    result_at: Mapping[str, int]

    def name_of(self, result: model.ToolResult) -> str:
        """Return the name of the tool of `result`; "tool" if it is unknown."""
        call = self.calls.get(result.call_id)
        return (call.name if call else result.name) or "tool"


def index_calls(messages: model.Messages) -> CallIndex:
    """Return the calls and results of `messages` by call ID."""
    calls: dict[str, model.ToolCall] = {}
    call_at: dict[str, int] = {}
    result_at: dict[str, int] = {}
    for index, message in enumerate(messages):
        for block in message.blocks:
            if isinstance(block, model.ToolCall):
                calls[block.call_id] = block
                call_at[block.call_id] = index
            elif isinstance(block, model.ToolResult):
                result_at[block.call_id] = index
    return CallIndex(calls, call_at, result_at)


def run_end(messages: model.Messages, start: int, rules: ProviderRules) -> int:
    """Return the index after the run that starts at `start`, an assistant message."""
    stop = start + 1
    while stop < len(messages) and _are_joined(messages[stop - 1], messages[stop], rules):
        stop += 1
    return stop


def _are_joined(message: model.Message, following: model.Message, rules: ProviderRules) -> bool:
    """Whether the provider treats two adjacent messages as one turn of the assistant.

    A provider that groups results in one message expects this message right after the calls, so the
    turn ends at a message with calls.
    """
    if not rules.joins_assistant_messages:
        return False
    if message.role != "assistant" or following.role != "assistant":
        return False
    return not (rules.groups_results and model.tool_calls(message))


def runs(messages: model.Messages, rules: ProviderRules) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every run, in order."""
    stop = 0
    for index, message in enumerate(messages):
        if message.role == "assistant" and index >= stop:
            stop = run_end(messages, index, rules)
            yield index, stop


def newest_run(messages: model.Messages, rules: ProviderRules) -> tuple[int, int] | None:
    """Return the start and end of the last run; None without one."""
    stop = len(messages)
    while stop and messages[stop - 1].role != "assistant":
        stop -= 1
    start = stop - 1
    while start > 0 and _are_joined(messages[start - 1], messages[start], rules):
        start -= 1
    return (start, stop) if stop else None


def results_after(messages: model.Messages, start: int) -> Iterator[BlockPlace]:
    """Yield the places of the results from `start` up to the first other block.

    If the provider joins user messages, results come first in them. Otherwise each result is a
    message of its own.
    """
    for index in range(start, len(messages)):
        message = messages[index]
        if message.role != "user" or not message.blocks:
            return
        for number, block in enumerate(message.blocks):
            if not isinstance(block, model.ToolResult):
                return
            yield index, number


def safe_cuts(messages: model.Messages, rules: ProviderRules) -> list[bool]:
    """Return for each index 0..n whether the list may be cut before it.

    A safe cut separates no call from its result and splits no run. If the result of a call may
    still follow after the end of the list, no cut after the call is safe, not even at n. A call of
    an earlier run that never got a result blocks no cut. Calls of the provider's own tools follow
    the same rules.
    """
    size = len(messages)
    messages = with_unique_call_ids(messages)
    index = index_calls(messages)
    awaited = _awaited_ids(messages)
    newest_start, _ = newest_run(messages, rules) or (0, 0)
    spans: list[tuple[int, int]] = []
    for call_id, call_at in index.call_at.items():
        default = call_at if call_at < newest_start else size
        end = size if call_id in awaited else index.result_at.get(call_id, default)
        spans.append((call_at, end))
    server = server_calls(messages)
    spans += [*server.spans, *((call_at, size) for call_at, _ in server.waiting.values())]
    change = [0] * (size + 2)
    for start, end in spans:
        change[start + 1] += 1
        change[end + 1] -= 1
    safe: list[bool] = []
    open_calls = 0
    for position in range(size + 1):
        open_calls += change[position]
        splits_run = 0 < position < size and _are_joined(
            messages[position - 1], messages[position], rules
        )
        safe.append(open_calls == 0 and not splits_run)
    return safe


def _awaited_ids(messages: model.Messages) -> frozenset[str]:
    """Return the IDs of synthetic results at the end of the list.

    The host has answered some of several parallel calls, and the other results may still come.
    """
    ids: set[str] = set()
    for message in reversed(messages):
        results = model.tool_results(message)
        if message.role != "user" or not results or len(results) < len(message.blocks):
            break
        ids.update(result.call_id for result in results if model.is_synthetic_result(result))
    return frozenset(ids)
