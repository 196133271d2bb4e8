"""What hosts say to their hooks, and what they take for an answer.

Nothing here is imported but the standard library: a host starts a hook anew for every call of a
tool, and waits for it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

from mcp_server_compaction.hosts import Json

Payload: TypeAlias = Mapping[str, Json]
Kind: TypeAlias = Literal["tool", "prompt", "start", "compacting", "archive", "ending"]
# What replaces a text in a result. The flag says that the host numbers the lines of the text.
Put: TypeAlias = Callable[[str, bool], str]

# Some 5,000 tokens. Claude Code warns of results over 10,000 tokens; a quarter of that is a log or
# a page that nobody reads whole, while a source file of 500 lines stays as it is.
LARGE_CHARS = 20_000

_CLAUDE: Mapping[str, Kind] = {
    "PostToolUse": "tool",
    "UserPromptSubmit": "prompt",
    "SessionStart": "start",
    "PreCompact": "compacting",
    "Stop": "archive",
    "SessionEnd": "ending",
}
KINDS: Mapping[str, Mapping[str, Kind]] = {
    "claude-code": _CLAUDE,
    "codex": _CLAUDE,
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

# After a compaction these start no session: what is to be told waits for the next prompt.
TELLS_AT_PROMPT = frozenset({"cursor", "gemini-cli"})

_OUR_TOOLS = (
    "compact_messages", "persist_large_output", "read_persisted_output", "search_transcript",
)  # fmt: skip
# A read of a part that the model named is just what it wants to see.
_PART_OF_A_FILE = ("offset", "limit", "start_line", "end_line", "pages", "head_limit")
_MEDIA = frozenset({"image", "audio", "document", "pdf", "resource_link"})
# Bytes in base64, beside what says of which kind they are: an output of a notebook's cell, a
# resource of an MCP server. Hosts make pictures and files of them for the model.
_MEDIA_TYPES = ("media_type", "mimeType", "mime_type")
_MEDIA_BYTES = frozenset({"blob", "data", "base64", "image_data"})
# As the library names it, which is not imported here.
_MARK = b"mcp_server_compaction"


def as_object(value: Json) -> dict[str, Json]:
    """A JSON object; an empty one for anything else."""
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    """A JSON array; an empty one for anything else."""
    return list(cast("Sequence[Json]", value)) if isinstance(value, list) else []


def session_of(payload: Payload) -> str:
    """The session's id; empty where the host names none."""
    named = payload.get("session_id") or payload.get("conversation_id")
    return named if isinstance(named, str) else ""


def continued_session(host: str, payload: Payload) -> str | None:
    """The archived session that `resume` continued in the host's; None if it made no such file."""
    path = Path(str(payload.get("transcript_path") or os.devnull))
    if host == "opencode":  # its database has no mark of ours, but the imported file stays
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
        path = Path(data, "opencode/compacted", f"{session_of(payload)}.json")
    return origin_in(path)


def origin_in(path: Path) -> str | None:
    """The archived session that a file of `resume` names in its first line; None in any other."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        line = file.readline()
    if _MARK not in line:
        return None
    try:
        mark = as_object(as_object(json.loads(line)).get(_MARK.decode()))
    except (ValueError, RecursionError):
        return None
    origin = mark.get("session_id")
    return origin if isinstance(origin, str) else None


def is_foreign(host: str, payload: Payload) -> bool:
    """Whether another host runs this: Cursor runs the hooks of Claude Code beside its own."""
    return host == "claude-code" and "cursor_version" in payload


def whole_output_file(host: str, payload: Payload) -> str:
    """The file in which the host says it saved the whole output; empty if it names none."""
    if host == "claude-code":
        named = as_object(payload.get("tool_response")).get("persistedOutputPath")
    else:
        named = payload.get("output_path") if host == "opencode" else None
    return named if isinstance(named, str) else ""


def shortened(host: str, payload: Payload, put: Put, whole: str | None = None) -> Json:
    """Return the answer that replaces long texts of a tool's result by pointers.

    The result keeps the shape that the host gave it: only long texts in it change.

    Args:
        host: The host.
        payload: The event.
        put: Stores a text and returns what replaces it.
        whole: The text of the file that `whole_output_file` names, if it can be read.

    Returns:
        The answer; None if no text is long.
    """
    name = str(payload.get("tool_name") or "")
    arguments = payload.get("tool_input")
    if name.endswith(_OUR_TOOLS) or _names_a_part(arguments):
        return None
    if host == "cursor":
        return _for_cursor(name, payload, put)
    response = payload.get("tool_response")
    if host == "gemini-cli":
        response = as_object(response).get("llmContent")
    if host in {"codex", "gemini-cli"}:
        return _instead(host, response, put)
    if whole is not None:
        response = whole if host == "opencode" else {**as_object(response), "stdout": whole}
    changed = _with_pointers(response, put)
    if changed is None:
        return None
    if host == "opencode":
        return {"output": changed}
    if name.startswith("mcp__"):
        blocks = [{"type": "text", "text": changed}] if isinstance(changed, str) else changed
        return _specific("PostToolUse", updatedMCPToolOutput=blocks)
    return _specific("PostToolUse", updatedToolOutput=changed)


def told(host: str, event: str, text: str) -> Json:
    """The answer that adds `text` to what the model sees."""
    if host == "cursor":
        return {"additional_context": text}
    if host == "opencode":
        return {"context": text}
    return _specific(event, additionalContext=text)


def _specific(event: str, **fields: Json) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def _names_a_part(arguments: Json) -> bool:
    given = as_object(arguments)
    return any(given.get(name) is not None for name in _PART_OF_A_FILE)


def _with_pointers(value: Json, put: Put, *, is_numbered: bool = False) -> Json:
    """`value` with its long texts replaced; None where it has none."""
    if isinstance(value, str):
        is_text = len(value) > LARGE_CHARS and not value.startswith("data:image/")
        return put(value, is_numbered) if is_text else None
    items = as_list(value)
    new = [_with_pointers(item, put) for item in items]
    if any(item is not None for item in new):
        return [old if item is None else item for old, item in zip(items, new, strict=True)]
    members = as_object(value)
    if str(members.get("type")) in _MEDIA:
        return None
    kept = _MEDIA_BYTES if any(name in members for name in _MEDIA_TYPES) else ()
    # Claude Code counts the lines of a file that it shows from here on.
    is_numbered = "startLine" in members
    fields = {
        key: _with_pointers(item, put, is_numbered=is_numbered)
        for key, item in members.items()
        if key not in kept
    }
    found = {key: item for key, item in fields.items() if item is not None}
    return {**members, **found} if found else None


def _for_cursor(name: str, payload: Payload, put: Put) -> Json:
    """Cursor takes another result from tools of MCP servers only."""
    if not name.startswith("MCP:"):
        return None
    output = payload.get("tool_output")
    try:
        value = json.loads(output) if isinstance(output, str) else output
    except ValueError:
        return None
    changed = None if as_object(value).get("isError") else _with_pointers(value, put)
    return {"updated_mcp_tool_output": changed} if as_object(changed) else None


def _instead(host: str, response: Json, put: Put) -> Json:
    """Codex and Gemini CLI show the reason of a refusal in the place of the whole result."""
    text = _text_of(response)
    if text is None or len(text) <= LARGE_CHARS:
        return None
    # How the call ended is said by its output: a failed one is handed over just so.
    reason = f"Not refused: the call was made, and its output is stored.\n{put(text, False)}"
    return {"decision": "block" if host == "codex" else "deny", "reason": reason}


def _text_of(response: Json) -> str | None:
    """The text of a result; None where it holds anything but text."""
    if isinstance(response, str):
        return response
    if isinstance(response, list):
        texts = [_text_of(item) for item in as_list(response)]
        return "\n".join(filter(None, texts)) if None not in texts else None
    members = as_object(response)
    if isinstance(text := members.get("text"), str):
        return text
    if isinstance(members.get("content"), list) and not members.get("isError"):
        return _text_of(members["content"])
    return _text_of(members["output"]) if "output" in members else None
