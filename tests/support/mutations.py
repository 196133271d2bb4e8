"""Ways in which a list of messages goes wrong in the field, each a small pure function.

Every one keeps the shapes parseable: what is broken is order, pairing and content.
"""

import copy
from collections.abc import Callable

from .json_types import Json, is_list

_SYSTEM_ROLE = {"openai-chat": "system", "openai-responses": "developer", "anthropic": "system"}
_CONTENT_KEYS = ("content", "parts")
_CONVERSE_KINDS = ("toolUse", "toolResult")
_ID_KEYS = ("id", "call_id", "tool_use_id", "tool_call_id", "toolCallId", "toolUseId")
_LISTS_ONLY = ("pi", "bedrock-converse")  # content is never a string


def apply(name: str, payload: list[Json], format: str, place: int, inner: int) -> list[Json]:
    """A copy of `payload` with the mutation `name` at message `place`, block `inner` (modulo)."""
    if not payload:
        return payload
    changed = copy.deepcopy(payload)
    _MUTATIONS[name](changed, format, place % len(changed), inner)
    return changed


def _drop_message(payload: list[Json], format: str, place: int, inner: int) -> None:
    del payload[place]


def _drop_head(payload: list[Json], format: str, place: int, inner: int) -> None:
    del payload[:place]


def _drop_tail(payload: list[Json], format: str, place: int, inner: int) -> None:
    del payload[place + 1 :]


def _drop_block(payload: list[Json], format: str, place: int, inner: int) -> None:
    """One of parallel calls, or of their results, is lost."""
    blocks = _blocks(payload[place])
    if len(blocks) > 1:
        del blocks[inner % len(blocks)]


def _repeat_message(payload: list[Json], format: str, place: int, inner: int) -> None:
    """The same message twice: duplicate calls, or duplicate results."""
    payload.insert(min(place + 1 + inner, len(payload)), copy.deepcopy(payload[place]))


def _swap(payload: list[Json], format: str, place: int, inner: int) -> None:
    """A result before its call, a request before the answer to the one before."""
    other = (place + 1) % len(payload)
    payload[place], payload[other] = payload[other], payload[place]


def _move_to_front(payload: list[Json], format: str, place: int, inner: int) -> None:
    payload.insert(0, payload.pop(place))


def _reverse_blocks(payload: list[Json], format: str, place: int, inner: int) -> None:
    _blocks(payload[place]).reverse()


def _join_next(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Two messages of one role in one: text mixed with results, calls with later text."""
    if place + 1 < len(payload) and payload[place].get("role") == payload[place + 1].get("role"):
        mine, theirs = _blocks(payload[place]), _blocks(payload[place + 1])
        if mine and theirs:
            mine.extend(theirs)
            del payload[place + 1]


def _split_blocks(payload: list[Json], format: str, place: int, inner: int) -> None:
    """One message for each block, as hosts write that stream."""
    key, blocks = _key(payload[place]), _blocks(payload[place])
    if len(blocks) > 1:
        payload[place : place + 1] = [{**payload[place], key: [block]} for block in blocks]


def _empty_content(payload: list[Json], format: str, place: int, inner: int) -> None:
    key = _key(payload[place])
    if key == "parts":
        payload[place][key] = []
    elif key and format not in _LISTS_ONLY:
        payload[place][key] = [[], "", " "][inner % 3]
    elif key:
        payload[place][key] = []


def _share_ids(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Every call and result from here on has the same id, as some models write them."""
    for message in payload[place:]:
        for holder in _id_holders(message):
            for key in _ID_KEYS:
                if key in holder:
                    holder[key] = "call_same"


def _add_system(payload: list[Json], format: str, place: int, inner: int) -> None:
    """A system message anywhere, also between a call and its result."""
    if format in _SYSTEM_ROLE:
        payload.insert(place, {"role": _SYSTEM_ROLE[format], "content": "Keep to the plan."})


def _empty_calls(payload: list[Json], format: str, place: int, inner: int) -> None:
    if format == "openai-chat" and payload[place]["role"] == "assistant":
        payload[place]["tool_calls"] = []


def _another_calls(payload: list[Json], format: str, place: int, inner: int) -> None:
    """What the assistant calls stands in the user's name, as a host's mistake."""
    if format == "openai-chat" and payload[place].get("tool_calls"):
        payload[place]["role"] = "user"


def _key(message: Json) -> str:
    return next((key for key in _CONTENT_KEYS if key in message), "")


def _blocks(message: Json) -> list[Json]:
    """The message's own list of blocks or calls, empty where there is none."""
    calls = message.get("tool_calls")
    content = calls if is_list(calls) else message.get(_key(message))
    return content if is_list(content) else []


def _id_holders(message: Json) -> list[Json]:
    """Calls and results of a message; other ids (of reasoning, of stored items) stay."""
    kinds = {"tool_use", "tool_result", "toolCall", "function"}
    return [
        *([message] if message.get("role") in {"tool", "toolResult"} else []),
        *([message] if str(message.get("type")).startswith("function_call") else []),
        *(block for block in _blocks(message) if block.get("type") in kinds),
        *(block[key] for block in _blocks(message) for key in _CONVERSE_KINDS if key in block),
    ]


_MUTATIONS: dict[str, Callable[[list[Json], str, int, int], None]] = {
    "drop message": _drop_message,
    "drop head": _drop_head,
    "drop tail": _drop_tail,
    "drop block": _drop_block,
    "repeat message": _repeat_message,
    "swap": _swap,
    "move to front": _move_to_front,
    "reverse blocks": _reverse_blocks,
    "join next": _join_next,
    "split blocks": _split_blocks,
    "empty content": _empty_content,
    "share ids": _share_ids,
    "add system": _add_system,
    "empty calls": _empty_calls,
    "another calls": _another_calls,
}
MUTATIONS = tuple(_MUTATIONS)
