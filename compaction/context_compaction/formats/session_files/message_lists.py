"""Plain lists of messages: an array, the body of a request, or the record of a run.

The list stands under one of `_LIST_KEYS`: `messages` (Anthropic, OpenAI), `input` (Responses),
`contents` (Gemini), `history` (SWE-agent), `traj` (tau-bench).
"""

from collections.abc import Sequence
from typing import Any

from context_compaction.errors import UnknownFormatError
from context_compaction.formats.parsing import (
    list_or_none,
    object_or_none,
    require_object,
    text_or_none,
    type_name,
)
from context_compaction.formats.session_files.hosts import parse_time
from context_compaction.formats.session_files.model import Entry, Session
from context_compaction.messages.model import JsonObject

_LIST_KEYS = ("messages", "input", "contents", "history", "traj")
_MESSAGE_KEYS = {"role", "parts"}  # of a message that stands alone
_SYSTEM_KEYS = ("system", "systemInstruction", "system_instruction", "instructions")
_REMEDY = 'Give an object such as {"role": "user", "content": "..."}.'


def read_document(document: object, name: str) -> Session:
    """The one conversation that a JSON document holds.

    Raises:
        UnknownFormatError: It holds none, or several.
    """
    values = list_or_none(document)
    if values is None:
        holder = object_or_none(document)
        if holder is None:
            raise UnknownFormatError(
                f"{name} holds {type_name(document)}, not a conversation. Give an array of "
                f"messages, or an object with one under {', '.join(_LIST_KEYS)}."
            )
        return _read_holder(holder, name)
    holders = [found for value in values if (found := object_or_none(value)) and _key_of(found)]
    if not holders:
        return Session("messages", None, _entries(values))
    if len(values) > 1:
        raise UnknownFormatError(
            f"{name} holds {len(values)} conversations. Give a file with one of them."
        )
    return _read_holder(holders[0], name)


def _key_of(holder: JsonObject) -> str | None:
    """The field that holds the messages; a message itself has none."""
    if "role" in holder:
        return None
    found = (key for key in _LIST_KEYS if isinstance(holder.get(key), list))
    return next(found, "input" if isinstance(holder.get("input"), str) else None)


def _read_holder(holder: JsonObject, name: str) -> Session:
    key = _key_of(holder)
    if key is None and _MESSAGE_KEYS & holder.keys():
        return Session("messages", None, _entries([holder]))
    if key is None:
        raise UnknownFormatError(
            f"{name} holds an object without messages; its fields are {sorted(holder)}. Give them "
            f"as an array under one of {', '.join(_LIST_KEYS)}."
        )
    values = holder[key]
    if isinstance(values, str):
        values = [{"role": "user", "content": values}]
    system = next((holder[key] for key in _SYSTEM_KEYS if holder.get(key)), None)
    tools = list_or_none(holder.get("tools"))
    return Session(
        "messages",
        None,
        _entries(values),
        session_id=text_or_none(holder.get("session_id")),
        model=text_or_none(holder.get("model")),
        system=system_text(system),
        tools=None if tools is None else list(tools),
    )


def _entries(values: Sequence[Any]) -> tuple[Entry, ...]:
    raws = [require_object(value, n, "the message", _REMEDY) for n, value in enumerate(values)]
    return tuple(Entry(_with_call_id(raw), parse_time(raw.get("timestamp"))) for raw in raws)


def _with_call_id(raw: JsonObject) -> JsonObject:
    """SWE-agent writes `tool_call_ids`, always of one id; a copy says it in OpenAI's way."""
    ids = list_or_none(raw.get("tool_call_ids"))
    if raw.get("role") != "tool" or "tool_call_id" in raw or ids is None or len(ids) != 1:
        return raw
    kept = {key: value for key, value in raw.items() if key != "tool_call_ids"}
    return {**kept, "tool_call_id": ids[0]}


def system_text(value: object) -> str | None:
    """The text of a system prompt: a string, blocks of text, or Gemini's parts."""
    if value is None or isinstance(value, str):
        return value
    holder = object_or_none(value)
    blocks = list_or_none(value if holder is None else holder.get("parts")) or ()
    texts = [(object_or_none(block) or {}).get("text") for block in blocks]
    return "\n".join(text for text in texts if isinstance(text, str)) or None
