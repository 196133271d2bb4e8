"""Rules of OpenAI's two APIs and of pi's messages, independent of the product's rules."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from .json_types import Json, is_list, is_object

_CHAT_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_PI_ROLES = {
    "user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary",
    "compactionSummary", "hookMessage",
}  # fmt: skip
_CALL_TYPES = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "computer_call": "computer_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
_OUTPUT_TYPES = {output: call for call, output in _CALL_TYPES.items()}

_Ids = Callable[[Json], list[str]]


def chat_problems(payload: list[Json], original: list[Json] | None) -> list[str]:
    """Return the problems of a Chat Completions list; see `provider_rules.problems`."""
    shape_problems = [*_chat_shapes(payload)]
    if shape_problems:
        return shape_problems
    return [
        *_answered_at_once(payload, original, _chat_calls, _chat_result),
        *_synthetic_turns(payload, original),
    ]


def _synthetic_turns(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that a message which a compaction added follows a message of another role.

    A tool message counts as the user's. The templates of Mistral and Gemma say "Conversation roles
    must alternate user/assistant/...".
    """
    if original is None:
        return
    given = set(map(id, original))
    for index, pair in enumerate(pairwise(payload), 1):
        first_role, second_role = (
            "user" if m.get("role") == "tool" else m.get("role") for m in pair
        )
        if first_role == second_role and any(id(m) not in given and _is_synthetic(m) for m in pair):
            yield f"message {index} follows another of the role {second_role}"


def _is_synthetic(message: Json) -> bool:
    # The result of a tool may begin with any of these texts.
    return message.get("role") == "user" and str(message.get("content")).startswith((
        "<context_summary ",
        "<turn_context ",
        "<restored",
    ))


def pi_problems(payload: list[Json], original: list[Json] | None) -> list[str]:
    """Return the problems of pi's messages, whose results follow their calls.

    Empty answers are valid: pi writes one for every aborted request and never sends it.
    """
    role_problems = [
        f"message {index}: unknown role {message.get('role')!r}"
        for index, message in enumerate(payload)
        if message.get("role") not in _PI_ROLES
    ]
    return role_problems or [*_answered_at_once(payload, original, _pi_calls, _pi_result)]


def _chat_shapes(payload: list[Json]) -> Iterator[str]:
    for index, message in enumerate(payload):
        role, content = message.get("role"), message.get("content")
        calls: list[Json] | None = message.get("tool_calls")
        # "Invalid value: 'x'. Supported values are: 'system', 'assistant', 'user', ..."
        if role not in _CHAT_ROLES:
            yield f"message {index}: unknown role {role!r}"
        # "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1"
        if calls == []:
            yield f"message {index}: tool_calls is an empty list"
        if content == []:
            yield f"message {index}: content is an empty list"
        # "Invalid value for 'content': expected a string, got null."
        if content is None and not (role == "assistant" and _has_other_content(message)):
            yield f"message {index}: neither content nor tool_calls"
        if content is not None and not isinstance(content, str | list):
            yield f"message {index}: content is neither text nor a list"
        if is_list(content) and not all(is_object(part) for part in content):
            yield f"message {index}: a content part is not an object"
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            yield f"message {index}: a tool message without tool_call_id"
        for call in calls or []:
            yield from _call_shape(index, role, call)


def _has_other_content(message: Json) -> bool:
    return any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))


def _call_shape(index: int, role: Any, call: Json) -> Iterator[str]:
    if role != "assistant":
        yield f"message {index}: tool_calls in a message of role {role}"
    if not isinstance(call.get("id"), str):
        yield f"message {index}: a call without id"
    if call.get("type", "function") == "function":
        function: Json = call.get("function") or {}
        # "Invalid 'messages[69].tool_calls[0].function.name': empty string"
        if not function.get("name"):
            yield f"message {index}: a call without a name"
        # "Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string"
        if not isinstance(function.get("arguments"), str):
            yield f"message {index}: call arguments are not a string"


def _chat_calls(message: Json) -> list[str]:
    calls: list[Json] = message.get("tool_calls") or []
    return [call["id"] for call in calls]


def _chat_result(message: Json) -> list[str]:
    return [message["tool_call_id"]] if message["role"] == "tool" else []


def _pi_calls(message: Json) -> list[str]:
    content = message.get("content")
    if message["role"] != "assistant" or not is_list(content):
        return []
    return [block["id"] for block in content if block.get("type") == "toolCall"]


def _pi_result(message: Json) -> list[str]:
    return [message["toolCallId"]] if message["role"] == "toolResult" else []


def _answered_at_once(
    payload: list[Json],
    original: list[Json] | None,
    calls_of: _Ids,
    result_of: _Ids,
) -> Iterator[str]:
    """Check that results directly follow the message with their calls, one for each call.

    "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'";
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each
    'tool_call_id'". A later turn may repeat an ID, because some models number their calls per turn.
    """
    may_be_open = set(_runs(original, calls_of, result_of)[-1][1]) if original else set[str]()
    runs = _runs(payload, calls_of, result_of)
    for number, (index, open_ids, calls, results) in enumerate(runs):
        for id_, count in Counter(calls).items():
            if count > 1:
                yield f"message {index}: call id {id_} is used {count} times"
        # "Duplicate value for 'tool_call_id' of 'X', in messages[7] and messages[8]."
        for id_, count in Counter(results).items():
            if count > 1:
                yield f"message {index}: call {id_} has {count} results"
        for id_ in sorted(set(results) - set(calls)):
            yield f"message {index}: result {id_} answers no call before it"
        is_last = number == len(runs) - 1
        for id_ in open_ids:
            if not (is_last and id_ in may_be_open):
                yield f"message {index}: call {id_} has no result after it"


def _runs(
    payload: list[Json], calls_of: _Ids, result_of: _Ids
) -> list[tuple[int, list[str], list[str], list[str]]]:
    """Return position, open calls, calls and results of each message that is no result."""
    runs = [(0, list[str](), list[str]())]
    for index, message in enumerate(payload):
        result = result_of(message)
        if result:
            runs[-1][2].extend(result)
        else:
            runs.append((index, calls_of(message), []))
    return [
        (index, sorted(set(calls) - set(results)), calls, results) for index, calls, results in runs
    ]


def responses_problems(payload: list[Json], original: list[Json] | None) -> list[str]:
    """Return the problems of Responses items; see `provider_rules.problems`."""
    shape_problems = [*_item_shapes(payload)]
    if shape_problems:
        return shape_problems
    return [
        *_repeated_ids(payload),
        *_outputs(payload),
        *_unanswered(payload, original),
        *_reasoning(payload),
        *_missing_reasoning(payload, original),
    ]


def _item_shapes(payload: list[Json]) -> Iterator[str]:
    for index, item in enumerate(payload):
        kind = _kind(item)
        if kind == "message":
            # "Invalid value: 'x'. Supported values are: 'assistant', 'system', 'developer', 'user'"
            if item.get("role") not in {"user", "assistant", "system", "developer"}:
                yield f"item {index}: unknown role {item.get('role')!r}"
            if not isinstance(item.get("content"), str | list):
                yield f"item {index}: content is neither text nor a list"
        names_call = kind in _CALL_TYPES or kind in _OUTPUT_TYPES
        if names_call and not isinstance(item.get("call_id"), str):
            yield f"item {index}: {kind} without call_id"
        if kind == "function_call" and not (
            isinstance(item.get("arguments"), str) and item.get("name")
        ):
            yield f"item {index}: function_call without a name or with arguments that are no string"
        if kind == "function_call_output" and not isinstance(item.get("output"), str | list):
            yield f"item {index}: function_call_output without output"


def _repeated_ids(payload: list[Json]) -> Iterator[str]:
    # "Duplicate item found with id rs_X. Remove duplicate items from your input"
    times = Counter(item["id"] for item in payload if isinstance(item.get("id"), str))
    yield from (
        f"item id {name} is used {count} times" for name, count in times.items() if count > 1
    )


def _outputs(payload: list[Json]) -> Iterator[str]:
    called: dict[str, str] = {}
    answered = set[str]()
    for index, item in enumerate(payload):
        kind = _kind(item)
        if kind in _CALL_TYPES:
            # "Duplicate item found with id fc_X. Remove duplicate items from your input"
            if item["call_id"] in called:
                yield f"item {index}: call id {item['call_id']} is used again"
            called[item["call_id"]] = kind
        elif kind in _OUTPUT_TYPES:
            # "No tool call found for function call output with call_id X."
            if called.get(item["call_id"]) != _OUTPUT_TYPES[kind]:
                yield f"item {index}: output {item['call_id']} answers no call before it"
            # "Duplicate function_call_output for call_id X"
            elif item["call_id"] in answered:
                yield f"item {index}: call {item['call_id']} has a second output"
            answered.add(item["call_id"])


def _unanswered(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    answered = {item["call_id"] for item in payload if _kind(item) in _OUTPUT_TYPES}
    may_be_open = _last_calls(payload) & _last_calls(original or [])
    for index, item in enumerate(payload):
        if _kind(item) in _CALL_TYPES and item["call_id"] not in answered | may_be_open:
            # "No tool output found for function call X."
            yield f"item {index}: call {item['call_id']} has no output"


def _last_calls(items: list[Json]) -> set[str]:
    """Return the calls of the newest response: items after the last input that is no output."""
    ids = set[str]()
    seen_model_item = False
    for item in reversed(items):
        kind = _kind(item)
        if kind in _OUTPUT_TYPES and not seen_model_item:
            continue
        if kind in _OUTPUT_TYPES or (kind == "message" and item.get("role") != "assistant"):
            break
        seen_model_item = True
        if kind in _CALL_TYPES:
            ids.add(item["call_id"])
    return ids


def _reasoning(payload: list[Json]) -> Iterator[str]:
    """Check that an item of the model follows each reasoning item.

    "Item 'rs_X' of type 'reasoning' was provided without its required following item." Several
    reasoning items in a row are valid, because the API itself returns them.
    """
    following = [*payload[1:], None]
    for index, (item, after) in enumerate(zip(payload, following, strict=True)):
        if _kind(item) != "reasoning":
            continue
        if after is None or _is_input(after):
            yield f"item {index}: reasoning without a following item of the model"


def _missing_reasoning(payload: list[Json], original: list[Json] | None) -> Iterator[str]:
    """Check that an item with a stored ID keeps the reasoning directly before it.

    "Item 'fc_X' of type 'function_call' was provided without its required 'reasoning' item:
    'rs_X'." Neither input nor reasoning requires the reasoning before it.
    """
    times = Counter(str(item.get("id")) for item in original or [])
    reasoning_ids = {
        item["id"]: before["id"]
        for before, item in zip(original or [], (original or [])[1:], strict=False)
        if _kind(before) == "reasoning"
        and not (_kind(item) == "reasoning" or _is_input(item))
        and before.get("id")
        and item.get("id")
        and times[str(item["id"])] == 1
    }
    before: Json = {}
    for index, item in enumerate(payload):
        reasoning_id = reasoning_ids.get(item.get("id", ""))
        if reasoning_id and before.get("id") != reasoning_id:
            yield f"item {index}: {item['id']} without its reasoning {reasoning_id}"
        before = item


def _is_input(item: Json) -> bool:
    """Whether the item is not the model's own."""
    is_message = _kind(item) == "message"
    return _kind(item) in _OUTPUT_TYPES or (is_message and item.get("role") != "assistant")


def _kind(item: Json) -> str:
    return str(item.get("type", "message"))
