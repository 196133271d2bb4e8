"""Events that hosts send to hooks, and the answers that they accept.

This module imports only the standard library, because a host starts a new process for every tool
call and waits for it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

from mcp_server_compaction.hosts import Json

Payload: TypeAlias = Mapping[str, Json]
Kind: TypeAlias = Literal["tool", "prompt", "start", "compacting", "archive", "ending"]
# Stores a text and returns its replacement. The flag says whether the host numbers its lines.
StoreText: TypeAlias = Callable[[str, bool], str]

# About 5,000 tokens. Claude Code warns of results over 10,000 tokens. Logs and pages of half that
# size are rarely read in full, but a source file of 500 lines stays below this limit.
LARGE_CHARS = 20_000

_CLAUDE_CODE: Mapping[str, Kind] = {
    "PostToolUse": "tool",
    "UserPromptSubmit": "prompt",
    "SessionStart": "start",
    "PreCompact": "compacting",
    "Stop": "archive",
    "SessionEnd": "ending",
}
# The kind of each event, by host.
KINDS: Mapping[str, Mapping[str, Kind]] = {
    "claude-code": _CLAUDE_CODE,
    "codex": _CLAUDE_CODE,
    "gemini-cli": {
        "AfterTool": "tool",
        "BeforeAgent": "prompt",
        "SessionStart": "start",
        "PreCompress": "compacting",
        "AfterAgent": "archive",
        "SessionEnd": "ending",
    },
    "cursor": {
        "postToolUse": "tool",
        "beforeSubmitPrompt": "prompt",
        "preCompact": "compacting",
        "stop": "archive",
        "sessionEnd": "ending",
    },
    "opencode": {
        "tool.execute.after": "tool",
        "session.compacting": "compacting",
        "session.idle": "archive",
    },
}

# These hosts send no event after a compaction, so the notes are added to the next prompt.
NOTES_AT_PROMPT = frozenset({"cursor", "gemini-cli"})

_OWN_TOOLS = (
    "compact_messages", "persist_large_output", "read_persisted_output", "search_transcript",
)  # fmt: skip
# Arguments that select a part of a file. The model wants to see exactly this part.
_PART_ARGUMENTS = ("offset", "limit", "start_line", "end_line", "pages", "head_limit")
_MEDIA = frozenset({"image", "audio", "document", "pdf", "resource_link"})
# An object with one of these fields can contain bytes in base64, for example an output of a
# notebook or a resource of an MCP server. Hosts show them to the model as images and files.
_MEDIA_TYPES = ("media_type", "mimeType", "mime_type")
_MEDIA_BYTES = frozenset({"blob", "data", "base64", "image_data"})
# Repeats the library's `MARK`, because the library is not imported here.
_MARK = b"mcp_server_compaction"


def as_object(value: Json) -> dict[str, Json]:
    """Return a JSON object; an empty object for any other value."""
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """Return a JSON array; an empty list for any other value."""
    return list(cast("Sequence[Json]", value)) if isinstance(value, list) else []


def session_id_of(payload: Payload) -> str:
    """Return the ID of the host's session; an empty string if the event has none."""
    session_id = payload.get("session_id") or payload.get("conversation_id")
    return session_id if isinstance(session_id, str) else ""


def archived_id_in(path: Path) -> str | None:
    """Return the ID of the archived session in the mark of a file that `resume` wrote.

    None for any other file.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return archived_id_in_line(file.readline())


def archived_id_in_line(line: bytes) -> str | None:
    """Return the ID of the archived session in the first line of a file that `resume` wrote.

    None for the line of any other file.
    """
    if _MARK not in line:
        return None
    try:
        mark = as_object(as_object(json.loads(line)).get(_MARK.decode()))
    except (ValueError, RecursionError):
        return None
    session_id = mark.get("session_id")
    return session_id if isinstance(session_id, str) else None


def runs_in_cursor(host: str, payload: Payload) -> bool:
    """Whether Cursor runs a hook of Claude Code, in addition to Cursor's own hook."""
    return host == "claude-code" and "cursor_version" in payload


def full_output_file(host: str, payload: Payload) -> str:
    """Return the path of the file in which the host saved the full output; empty if none."""
    path = payload.get("output_path") if host == "opencode" else None
    if host == "claude-code":
        path = as_object(payload.get("tool_response")).get("persistedOutputPath")
    return path if isinstance(path, str) else ""


def shortened_result(
    host: str, payload: Payload, store: StoreText, full_output: str | None = None
) -> Json:
    """Return the answer that replaces long texts in a tool's result by pointers.

    The result keeps the shape that the host gave it. Only long texts in it change.

    Args:
        host: Name of the host.
        payload: The event.
        store: Stores a text and returns its replacement.
        full_output: Content of the file `full_output_file`; None if it cannot be read.

    Returns:
        The answer. None if no text is long.
    """
    name = str(payload.get("tool_name") or "")
    arguments = as_object(payload.get("tool_input"))
    if name.endswith(_OWN_TOOLS) or any(arguments.get(key) is not None for key in _PART_ARGUMENTS):
        return None
    if host == "cursor":
        return _cursor_answer(name, payload, store)
    response = payload.get("tool_response")
    if host == "gemini-cli":
        response = as_object(response).get("llmContent")
    if host in {"codex", "gemini-cli"}:
        return _refusal(host, response, store)
    if full_output is not None:
        is_text = host == "opencode"
        response = full_output if is_text else {**as_object(response), "stdout": full_output}
    changed = _with_pointers(response, store)
    if changed is None:
        return None
    if host == "opencode":
        return {"output": changed}
    if name.startswith("mcp__"):
        blocks = [{"type": "text", "text": changed}] if isinstance(changed, str) else changed
        return _specific("PostToolUse", updatedMCPToolOutput=blocks)
    return _specific("PostToolUse", updatedToolOutput=changed)


def added_context(host: str, event: str, text: str) -> Json:
    """Return the answer that adds `text` to the model's context."""
    if host == "cursor":
        return {"additional_context": text}
    if host == "opencode":
        return {"context": text}
    return _specific(event, additionalContext=text)


def _specific(event: str, **fields: Json) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def _with_pointers(value: Json, store: StoreText, *, is_numbered: bool = False) -> Json:
    """Return `value` with its long texts replaced; None if it has no long text."""
    if isinstance(value, str):
        is_large = len(value) > LARGE_CHARS and not value.startswith("data:image/")
        return store(value, is_numbered) if is_large else None
    items = as_list(value)
    new_items = [_with_pointers(item, store) for item in items]
    if any(item is not None for item in new_items):
        return [old if new is None else new for old, new in zip(items, new_items, strict=True)]
    members = as_object(value)
    if str(members.get("type")) in _MEDIA:
        return None
    excluded = _MEDIA_BYTES if any(name in members for name in _MEDIA_TYPES) else ()
    # Claude Code numbers the lines of a file from this field's value.
    is_numbered = "startLine" in members
    new_members = {
        key: _with_pointers(item, store, is_numbered=is_numbered)
        for key, item in members.items()
        if key not in excluded
    }
    changed = {key: item for key, item in new_members.items() if item is not None}
    return {**members, **changed} if changed else None


def _cursor_answer(name: str, payload: Payload, store: StoreText) -> Json:
    """Return the answer for Cursor, which accepts changed results only from MCP tools."""
    if not name.startswith("MCP:"):
        return None
    output = payload.get("tool_output")
    try:
        value = json.loads(output) if isinstance(output, str) else output
    except ValueError:
        return None
    changed = None if as_object(value).get("isError") else _with_pointers(value, store)
    return {"updated_mcp_tool_output": changed} if as_object(changed) else None


def _refusal(host: str, response: Json, store: StoreText) -> Json:
    """Return a refusal: Codex and Gemini CLI show its reason instead of the whole result."""
    text = _text_of(response)
    if text is None or len(text) <= LARGE_CHARS:
        return None
    # The reason must not say that the call succeeded, because failed calls arrive here as well.
    reason = f"Not refused: the call has run, and its output was archived.\n{store(text, False)}"
    return {"decision": "block" if host == "codex" else "deny", "reason": reason}


def _text_of(response: Json) -> str | None:
    """Return the text of a result; None if it contains anything except text."""
    if isinstance(response, str):
        return response
    if isinstance(response, list):
        texts = [_text_of(item) for item in as_list(response)]
        return "\n".join(filter(None, texts)) if None not in texts else None
    members = as_object(response)
    if isinstance(text := members.get("text"), str):
        return text
    has_content = isinstance(members.get("content"), list) and not members.get("isError")
    inner = members.get("content") if has_content else members.get("output")
    return None if inner is None else _text_of(inner)
