"""Sessions of hosts whose files are not read elsewhere, as messages of Anthropic's API.

Gemini CLI, Cursor and opencode give them to a hook.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from context_compaction.formats.session_files.opencode import messages_in

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.hook_events import as_list, as_object


def read_foreign(host: str, payload: Mapping[str, Json]) -> list[Json] | None:
    """The messages of a hook's session; None where the host is not one of these.

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
    rows: list[dict[str, Json]] = []
    for part in [text, *text.splitlines()]:
        try:
            rows.append(as_object(json.loads(part)))
        except (ValueError, RecursionError):
            continue
        if part is text:
            break
    return rows


def _from_cursor(rows: Iterable[Mapping[str, Json]]) -> list[Json]:
    messages: list[Json] = []
    for row in rows:
        content = as_object(row.get("message")).get("content")
        if row.get("role") in {"user", "assistant"} and (texts := _text_blocks(content)):
            messages.append({"role": row["role"], "content": texts})
    return messages


def _text_blocks(content: Json) -> list[Json]:
    """The texts of a message, which may be a string, a block, or a list of either."""
    parts = as_list(content) or [content]
    texts = [part if isinstance(part, str) else as_object(part).get("text") for part in parts]
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
    return [message for one in found.values() for message in _gemini_messages(one)]


def _gemini_messages(one: Mapping[str, Json]) -> list[Json]:
    texts = _text_blocks(one.get("content"))
    if one.get("type") == "user":
        return [{"role": "user", "content": texts}] if texts else []
    uses: list[Json] = []
    results: list[Json] = []
    for call in map(as_object, as_list(one.get("toolCalls"))):
        call_id = str(call.get("id"))
        name, given = str(call.get("name")), as_object(call.get("args"))
        uses.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
        result = {"type": "tool_result", "tool_use_id": call_id}
        result["content"] = _gemini_output(call.get("result"))
        results.append({**result, "is_error": True} if call.get("status") == "error" else result)
    said = [{"role": "assistant", "content": [*texts, *uses]}] if texts or uses else []
    return [*said, {"role": "user", "content": results}] if results else said


def _gemini_output(result: Json) -> str:
    texts: list[str] = []
    for part in as_list(result) or [result]:
        response = as_object(as_object(part).get("functionResponse")).get("response")
        output = as_object(response).get("output")
        texts.append(output if isinstance(output, str) else json.dumps(response or part or ""))
    return "\n".join(texts)
