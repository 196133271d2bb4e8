"""Sessions of hosts whose files are not read elsewhere, as messages of Anthropic's API.

Gemini CLI, Cursor and opencode give them to a hook; what a hook was not told is not looked for.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from context_compaction.formats.session_files.opencode import messages_in

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.hook_events import as_list, as_object


def read_foreign(host: str, payload: Mapping[str, Json]) -> list[Json] | None:
    """The messages of the session that a hook was told of; None where the host is not one of these.

    Raises:
        OSError: Its file cannot be read.
    """
    if host == "opencode":
        return messages_in(payload.get("messages"))
    if host not in {"gemini-cli", "cursor"}:
        return None
    path = payload.get("transcript_path")
    if not isinstance(path, str) or not Path(path).is_file():
        return []
    rows = _rows(Path(path).read_text("utf-8", "replace"))
    return _from_gemini(rows) if host == "gemini-cli" else _from_cursor(rows)


def _rows(text: str) -> list[dict[str, Json]]:
    """The JSON objects of a file: one, or one a line; a torn last line is left out."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if as_object(whole):
        return [as_object(whole)]
    rows: list[dict[str, Json]] = []
    for line in text.splitlines():
        try:
            rows.append(as_object(json.loads(line)))
        except (ValueError, RecursionError):
            continue
    return rows


def _from_cursor(rows: Iterable[Mapping[str, Json]]) -> list[Json]:
    messages: list[Json] = []
    for row in rows:
        content = as_object(row.get("message")).get("content")
        if row.get("role") in {"user", "assistant"} and content:
            messages.append({"role": row["role"], "content": _texts_only(content)})
    return [message for message in messages if message["content"]]


def _texts_only(content: Json) -> Json:
    if isinstance(content, str):
        return content
    texts = [as_object(block).get("text") for block in as_list(content)]
    return [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]


def _from_gemini(rows: Sequence[Mapping[str, Json]]) -> list[Json]:
    """One document with all messages, or a line for each, the later one of an id in force."""
    found: dict[str, dict[str, Json]] = {}
    for row in rows:
        listed = row.get("messages", as_object(row.get("$set")).get("messages"))
        if isinstance(listed, list):
            found = {}
        for one in [dict(row), *map(as_object, as_list(listed))]:
            if one.get("type") in {"user", "gemini"} and one.get("id"):
                found[str(one["id"])] = one
        if isinstance(back := row.get("$rewindTo"), str) and back in found:
            ids = list(found)
            found = {key: found[key] for key in ids[: ids.index(back)]}
    messages: list[Json] = []
    for one in found.values():
        messages += _gemini_messages(one)
    return messages


def _gemini_messages(one: Mapping[str, Json]) -> list[Json]:
    texts = _gemini_texts(one.get("content"))
    if one.get("type") == "user":
        return [{"role": "user", "content": texts}] if texts else []
    calls = [as_object(call) for call in as_list(one.get("toolCalls"))]
    uses = [_use(call.get("id"), call.get("name"), call.get("args")) for call in calls]
    results = [
        _result(call.get("id"), _gemini_output(call.get("result")), call.get("status") == "error")
        for call in calls
    ]
    said = [{"role": "assistant", "content": [*texts, *uses]}] if texts or uses else []
    return [*said, {"role": "user", "content": results}] if results else said


def _gemini_texts(content: Json) -> list[Json]:
    parts = as_list(content) or [content]
    texts = [part if isinstance(part, str) else as_object(part).get("text") for part in parts]
    return [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]


def _gemini_output(result: Json) -> str:
    texts: list[str] = []
    for part in as_list(result) or [result]:
        response = as_object(as_object(part).get("functionResponse")).get("response")
        output = as_object(response).get("output")
        texts.append(output if isinstance(output, str) else json.dumps(response or part or ""))
    return "\n".join(texts)


def _use(call_id: Json, name: Json, arguments: Json) -> Json:
    given = as_object(arguments)
    return {"type": "tool_use", "id": str(call_id), "name": str(name), "input": given}


def _result(call_id: Json, text: str, is_error: bool) -> Json:
    result = {"type": "tool_result", "tool_use_id": str(call_id), "content": text}
    return {**result, "is_error": True} if is_error else result
