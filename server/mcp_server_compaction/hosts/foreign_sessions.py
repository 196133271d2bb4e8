"""Sessions of hosts whose files are not read elsewhere, as messages of Anthropic's API.

Gemini CLI, Cursor and opencode give them to a hook.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from context_compaction import Messages, UnknownFormatError, parse, read_conversation
from context_compaction.formats.session_files.opencode import messages_in

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.hook_events import as_list, as_object


def read_foreign(host: str, payload: Mapping[str, Json]) -> Messages | None:
    """The messages of a hook's session; None where the host is not one of these.

    Raises:
        OSError: Its file cannot be read.
    """
    if host == "opencode":
        return parse(messages_in(payload.get("messages")), format="anthropic")
    if host not in {"gemini-cli", "cursor"}:
        return None
    path = payload.get("transcript_path")
    if not isinstance(path, str) or not Path(path).is_file():
        return ()
    if host == "gemini-cli":
        try:
            return read_conversation(Path(path).read_bytes(), name=Path(path).name).messages
        except UnknownFormatError:  # nothing was said yet
            return ()
    rows = _rows(Path(path).read_text("utf-8", "replace"))
    return parse(_from_cursor(rows), format="anthropic")


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
        if row.get("role") in ("user", "assistant") and (texts := _text_blocks(content)):
            messages.append({"role": row["role"], "content": texts})
    return messages


def _text_blocks(content: Json) -> list[Json]:
    """The texts of a message, which may be a string, a block, or a list of either."""
    parts = as_list(content) or [content]
    texts = [part if isinstance(part, str) else as_object(part).get("text") for part in parts]
    return [{"type": "text", "text": text} for text in texts if isinstance(text, str) and text]
