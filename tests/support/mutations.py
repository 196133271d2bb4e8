"""Mutations of message lists that occur in the field.

Each mutation keeps the messages parseable and damages order, pairs or content.
"""

import copy
from collections.abc import Callable

from .json_types import Json, is_list

_SYSTEM_ROLE = {"openai-chat": "system", "openai-responses": "developer", "anthropic": "system"}
_CONTENT_KEYS = ("content", "parts")
_CONVERSE_KINDS = ("toolUse", "toolResult")
_ID_KEYS = ("id", "call_id", "tool_use_id", "tool_call_id", "toolCallId", "toolUseId")
_LISTS_ONLY = ("pi", "bedrock-converse")  # Formats whose content is never a string


def apply(name: str, payload: list[Json], format: str, place: int, inner: int) -> list[Json]:
    """Return a copy of `payload` with a mutation.

    Args:
        name: Name of the mutation.
        payload: The message list.
        format: Its format.
        place: Index of the message to mutate, modulo the length of the list.
        inner: Index of the block to mutate, modulo the number of blocks.
    """
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
    """Delete one of several calls or results."""
    blocks = _blocks(payload[place])
    if len(blocks) > 1:
        del blocks[inner % len(blocks)]


def _repeat_message(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Repeat a message, which duplicates its calls or results."""
    payload.insert(min(place + 1 + inner, len(payload)), copy.deepcopy(payload[place]))


def _swap(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Swap two messages, for example a result and its call."""
    other = (place + 1) % len(payload)
    payload[place], payload[other] = payload[other], payload[place]


def _move_to_front(payload: list[Json], format: str, place: int, inner: int) -> None:
    payload.insert(0, payload.pop(place))


def _reverse_blocks(payload: list[Json], format: str, place: int, inner: int) -> None:
    _blocks(payload[place]).reverse()


def _join_next(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Join two messages of one role, which mixes text with results or calls."""
    if place + 1 < len(payload) and payload[place].get("role") == payload[place + 1].get("role"):
        blocks, next_blocks = _blocks(payload[place]), _blocks(payload[place + 1])
        if blocks and next_blocks:
            blocks.extend(next_blocks)
            del payload[place + 1]


def _split_blocks(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Split a message into one for each block, as streaming hosts write it."""
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
    """Give all later calls and results one ID, as some models write them."""
    for message in payload[place:]:
        for holder in _id_holders(message):
            for key in _ID_KEYS:
                if key in holder:
                    holder[key] = "call_same"


def _add_system(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Insert a system message anywhere, also between a call and its result."""
    if format in _SYSTEM_ROLE:
        payload.insert(place, {"role": _SYSTEM_ROLE[format], "content": "Keep to the plan."})


def _empty_calls(payload: list[Json], format: str, place: int, inner: int) -> None:
    if format == "openai-chat" and payload[place]["role"] == "assistant":
        payload[place]["tool_calls"] = []


def _another_calls(payload: list[Json], format: str, place: int, inner: int) -> None:
    """Change the role of a message with calls to user, a mistake of some hosts."""
    if format == "openai-chat" and payload[place].get("tool_calls"):
        payload[place]["role"] = "user"


def _key(message: Json) -> str:
    return next((key for key in _CONTENT_KEYS if key in message), "")


def _blocks(message: Json) -> list[Json]:
    """Return the message's own list of blocks or calls; empty if it has no list."""
    calls = message.get("tool_calls")
    content = calls if is_list(calls) else message.get(_key(message))
    return content if is_list(content) else []


def _id_holders(message: Json) -> list[Json]:
    """Return the objects with IDs of calls; other IDs, for example of reasoning, are excluded."""
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
