"""Chats of Gemini CLI: one document with all messages, or one line for each change.

They are read as messages of Anthropic's format. A later line replaces an earlier line of the same
ID, and `$rewindTo` removes all messages from an ID on.
"""

import json
from collections.abc import Sequence
from typing import Any

from context_compaction.formats import base
from context_compaction.formats.session_files import model
from context_compaction.messages.model import JsonObject


def is_row(value: JsonObject) -> bool:
    """Whether only Gemini CLI writes such a row."""
    is_head = "sessionId" in value and "projectHash" in value
    return is_head or value.get("type") == "gemini" or "$rewindTo" in value


def read(rows: Sequence[model.Row]) -> model.Session:
    """Return the live branch of a chat."""
    return read_histories(rows)[-1]


def read_histories(rows: Sequence[model.Row], _from_start: bool = True) -> list[model.Session]:
    """Return every branch of a complete chat, the live branch last."""
    branches: list[list[JsonObject]] = []
    live: dict[str, JsonObject] = {}  # The messages of the current branch by ID.
    for row in rows:
        listed = base.list_or_none(row.value.get("messages", row.object("$set").get("messages")))
        rewound_to = base.text_or_none(row.value.get("$rewindTo"))
        if live and (listed is not None or rewound_to in live):
            branches.append(list(live.values()))
        if listed is not None:
            live = {}
        for message in (row.value, *base.objects_in(listed)):
            if message.get("type") in ("user", "gemini"):
                live[str(message.get("id") or f"message {len(live)}")] = message
        if rewound_to in live:
            ids = list(live)
            live = {name: live[name] for name in ids[: ids.index(rewound_to)]}
    branches.append(list(live.values()))
    return [
        model.Session(
            kind="gemini-cli",
            format="anthropic",
            entries=tuple(entry for message in branch for entry in _entries(message)),
            session_id=model.first_text((row.value for row in rows), "sessionId"),
            model=model.last_text(message.get("model") for message in live.values()),
        )
        for branch in branches
    ]


def _entries(message: JsonObject) -> list[model.Entry]:
    seconds = base.parse_time(message.get("timestamp"))
    return [model.Entry(raw, seconds) for raw in _messages(message)]


def _messages(message: JsonObject) -> list[JsonObject]:
    """Return the messages of Anthropic's format for one message of Gemini CLI."""
    texts = _text_blocks(message.get("content"))
    if message.get("type") == "user":
        return [{"role": "user", "content": texts}] if texts else []
    calls: list[JsonObject] = []
    results: list[JsonObject] = []
    for call in base.objects_in(message.get("toolCalls")):
        calls.append(model.call_block(call.get("id"), call.get("name"), call.get("args")))
        text, is_error = _output(call.get("result")), call.get("status") == "error"
        results.append(model.result_block(call.get("id"), text, is_error=is_error))
    content = [*_thoughts(message), *texts, *calls]
    reply = [{"role": "assistant", "content": content}] if content else []
    return [*reply, {"role": "user", "content": results}] if results else reply


def _thoughts(message: JsonObject) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    for thought in base.objects_in(message.get("thoughts")):
        parts = [thought.get(key) for key in ("subject", "description")]
        text = "\n".join(part for part in parts if isinstance(part, str) and part)
        blocks += [{"type": "thinking", "thinking": text, "signature": ""}] if text else []
    return blocks


def _text_blocks(content: Any) -> list[JsonObject]:
    """Return the texts of a content: a string, a block, or a list of either."""
    parts = base.list_or_none(content) or [content]
    texts = [
        part if isinstance(part, str) else (base.object_or_none(part) or {}).get("text")
        for part in parts
    ]
    return [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]


def _output(result: Any) -> str:
    texts: list[str] = []
    for part in base.list_or_none(result) or [result]:
        answer = (
            base.object_or_none((base.object_or_none(part) or {}).get("functionResponse")) or {}
        )
        response = answer.get("response")
        output = (base.object_or_none(response) or {}).get("output")
        texts.append(output if isinstance(output, str) else json.dumps(response or part or ""))
    return "\n".join(texts)
