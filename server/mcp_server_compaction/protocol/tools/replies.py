"""Replies of the tools, as text and as structured content."""

import json
from collections.abc import Mapping
from typing import Any

from context_compaction import JsonObject, compact_json, is_list, is_object
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel
from pydantic_core import to_json

# Codex truncates a tool result at 12,000 characters and keeps both ends. Other hosts truncate
# shorter results.
MAX_REPLY_CHARS = 8_000
_MIN_FIELDS = 12  # More than any object of the reply's own schema has.


def structured(
    reply: BaseModel,
    *,
    lists: Mapping[str, Any] | None = None,
    truncate: bool = True,
    lead: str = "",
) -> CallToolResult:
    """Return the reply as structured content and as the same JSON in a text block.

    Hosts show a model only one of the two, so both contain the same information.

    Args:
        reply: The reply. Fields that are None are omitted.
        lists: Message lists and edits, which only the structured content contains, because only
            programs ask for them.
        truncate: Whether to truncate long texts in `reply` to keep it within `MAX_REPLY_CHARS`.
        lead: Name of the text field to put first. The other fields are truncated before it.

    Raises:
        ToolError: A value in `lists` contains half of a surrogate pair, which is not valid UTF-8.
    """
    content = reply.model_dump(mode="json", exclude_none=True)
    if lead in content:
        text = content.pop(lead)
        content = {lead: text, **truncated(content, MAX_REPLY_CHARS // 5)}
    if truncate:
        content = truncated(content, MAX_REPLY_CHARS)
    if not is_utf8(content):  # Halves of surrogate pairs become question marks.
        content = json.loads(compact_json(content).encode("utf-8", "replace"))
    for name, value in (lists or {}).items():
        if not is_utf8(value):
            raise ToolError(
                f"The {name} contain half of a surrogate pair, which MCP cannot transfer. Call "
                "again with reply='receipt', or use the command line: "
                "mcp-server-compaction compact --out FILE."
            )
    return CallToolResult(
        content=[TextContent(type="text", text=compact_json(content))],
        structured_content={**content, **(lists or {})},
    )


def failure(error: Exception, *, is_read_only: bool = False) -> CallToolResult:
    """Return an expected failure as a result that the model can read."""
    text = escape_surrogates(
        str(error).rstrip() + ("" if is_read_only else " Nothing was changed.")
    )
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def is_utf8(value: Any) -> bool:
    """Whether every string in `value` can be sent as UTF-8, so has no lone surrogates."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def escape_surrogates(text: str) -> str:
    r"""Return `text` with each lone surrogate as an escape such as \udc80."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def truncated(value: JsonObject, max_chars: int) -> JsonObject:
    """Return `value` with long texts and lists truncated as little as needed to fit `max_chars`.

    Lists of objects at the top level stay complete, because the reply's schema describes them.
    """
    result, text_chars = value, max_chars
    is_whole = {key: is_list(item) and any(map(is_object, item)) for key, item in value.items()}
    while len(compact_json(result)) > max_chars and text_chars > 1:
        text_chars = text_chars * 3 // 4
        result = {
            key: item if is_whole[key] else _truncate(item, text_chars)
            for key, item in value.items()
        }
    return result


def _truncate(value: Any, max_chars: int) -> Any:
    """Return `value` with texts of at most `max_chars`, and lists of fewer items."""
    max_items = max(2, max_chars // 50)
    if isinstance(value, str) and len(value) > max_chars:
        return f"{value[:max_chars]}… [{len(value) - max_chars} more characters]"
    if is_object(value):
        fields = list(value.items())[: max(_MIN_FIELDS, max_items)]
        result = {key: _truncate(item, max_chars) for key, item in fields}
        return result if len(fields) == len(value) else {**result, "…": f"{len(value)} fields"}
    if is_list(value):
        items = [_truncate(item, max_chars) for item in value[:max_items]]
        return items if len(value) <= max_items else [*items, f"… {len(value) - max_items} more"]
    return value
