"""Chats of Gemini CLI: one document with all messages, or a line for each change.

They are read as messages of Anthropic's format. A later line of the same id replaces an earlier
one, and `$rewindTo` takes back all messages from an id on.
"""

import json
from collections.abc import Sequence
from typing import Any

from context_compaction.formats.parsing import (
    list_or_none,
    object_or_none,
    objects_in,
    parse_time,
    text_or_none,
)
from context_compaction.formats.session_files.model import Entry, Row, Session
from context_compaction.messages.model import JsonObject


def is_chat(value: JsonObject) -> bool:
    """Whether only Gemini CLI writes such a row."""
    is_head = "sessionId" in value and "projectHash" in value
    return is_head or value.get("type") == "gemini" or "$rewindTo" in value


def read_gemini_chats(rows: Sequence[Row]) -> list[Session]:
    """Every branch of a chat; the live branch is last."""
    branches: list[list[JsonObject]] = []
    found: dict[str, JsonObject] = {}
    for row in rows:
        changes = object_or_none(row.value.get("$set")) or {}
        listed = list_or_none(row.value.get("messages", changes.get("messages")))
        back = text_or_none(row.value.get("$rewindTo"))
        if found and (listed is not None or back in found):
            branches.append(list(found.values()))
        if listed is not None:
            found = {}
        for one in (row.value, *filter(None, map(object_or_none, listed or ()))):
            if one.get("type") in ("user", "gemini"):
                found[str(one.get("id") or f"message {len(found)}")] = one
        if back in found:
            ids = list(found)
            found = {name: found[name] for name in ids[: ids.index(back)]}
    branches.append(list(found.values()))
    values = [row.value for row in rows]
    session_id = next((name for v in values if (name := text_or_none(v.get("sessionId")))), None)
    models = [text_or_none(one.get("model")) for one in found.values()]
    model = next((name for name in reversed(models) if name), None)
    return [
        Session(
            "gemini-cli",
            "anthropic",
            tuple(entry for one in branch for entry in _entries(one)),
            session_id=session_id,
            model=model,
        )
        for branch in branches
    ]


def read_gemini_chat(rows: Sequence[Row]) -> Session:
    """The live branch of a chat."""
    return read_gemini_chats(rows)[-1]


def _entries(one: JsonObject) -> list[Entry]:
    seconds = parse_time(one.get("timestamp"))
    return [Entry(raw, seconds) for raw in _messages(one)]


def _messages(one: JsonObject) -> list[JsonObject]:
    texts = _text_blocks(one.get("content"))
    if one.get("type") == "user":
        return [{"role": "user", "content": texts}] if texts else []
    uses: list[JsonObject] = []
    results: list[JsonObject] = []
    for call in objects_in(one.get("toolCalls")):
        call_id = str(call.get("id"))
        given = object_or_none(call.get("args")) or {}
        uses.append({
            "type": "tool_use", "id": call_id, "name": str(call.get("name")), "input": given,
        })  # fmt: skip
        result: JsonObject = {"type": "tool_result", "tool_use_id": call_id}
        result["content"] = _output(call.get("result"))
        results.append({**result, "is_error": True} if call.get("status") == "error" else result)
    content = [*_thoughts(one), *texts, *uses]
    said = [{"role": "assistant", "content": content}] if content else []
    return [*said, {"role": "user", "content": results}] if results else said


def _thoughts(one: JsonObject) -> list[JsonObject]:
    thoughts: list[JsonObject] = []
    for thought in objects_in(one.get("thoughts")):
        parts = [thought.get(key) for key in ("subject", "description")]
        text = "\n".join(part for part in parts if isinstance(part, str) and part)
        thoughts += [{"type": "thinking", "thinking": text, "signature": ""}] if text else []
    return thoughts


def _text_blocks(content: Any) -> list[JsonObject]:
    """The texts of a message, which may be a string, a block, or a list of either."""
    parts = list_or_none(content) or [content]
    texts = [
        part if isinstance(part, str) else (object_or_none(part) or {}).get("text")
        for part in parts
    ]
    return [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]


def _output(result: Any) -> str:
    texts: list[str] = []
    for part in list_or_none(result) or [result]:
        answer = object_or_none((object_or_none(part) or {}).get("functionResponse")) or {}
        response = answer.get("response")
        output = (object_or_none(response) or {}).get("output")
        texts.append(output if isinstance(output, str) else json.dumps(response or part or ""))
    return "\n".join(texts)
