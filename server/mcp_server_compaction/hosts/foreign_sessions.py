"""Sessions of Gemini CLI, Cursor and opencode, whose hooks name or send the whole conversation."""

import json
from collections.abc import Mapping
from pathlib import Path

from context_compaction import Conversation, UnknownFormatError, read_conversation

from mcp_server_compaction.hosts import Json

FOREIGN_HOSTS = ("gemini-cli", "cursor", "opencode")


def read_foreign(host: str, payload: Mapping[str, Json]) -> Conversation | None:
    """Return the conversation of a hook's session; None if it has no messages yet.

    Args:
        host: One of `FOREIGN_HOSTS`.
        payload: The event. opencode sends its messages; the other hosts name a file.

    Raises:
        OSError: The file cannot be read.
    """
    if host == "opencode":
        data = json.dumps({"info": {"directory": ""}, "messages": payload.get("messages") or []})
        content, name = data.encode(), "opencode"
    else:
        path = payload.get("transcript_path")
        if not isinstance(path, str) or not Path(path).is_file():
            return None
        content, name = Path(path).read_bytes(), Path(path).name
    try:
        return read_conversation(content, name=name)
    except UnknownFormatError:
        return None
