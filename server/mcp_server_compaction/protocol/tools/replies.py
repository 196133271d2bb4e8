"""Replies of the tools, as text and as structured content."""

from collections.abc import Mapping
from typing import Any, cast

from context_compaction import JsonObject, compact_json, is_list, is_object
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel
from pydantic_core import to_json

# Codex truncates a tool result at 12,000 characters and keeps both ends. Other hosts truncate
# shorter results.
MAX_REPLY_CHARS = 8_000
# A reply with a leading text leaves this many characters to its other fields.
_OTHER_FIELDS_CHARS = 1_600
# Limits that are tried in this order until the reply fits: characters of a text, items of a list.
_LIMITS = (
    (6_000, 100), (5_500, 100), (4_000, 100), (2_500, 40), (2_000, 20), (1_000, 12), (500, 8),
    (240, 6), (120, 3), (60, 2),
)  # fmt: skip
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
        content = {lead: text, **truncated(content, _OTHER_FIELDS_CHARS)}
    if truncate:
        content = truncated(content, MAX_REPLY_CHARS)
    if not is_utf8(content):
        content = cast("JsonObject", _with_escaped_surrogates(content))
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
    result = value
    for limits in _LIMITS:
        if len(compact_json(result)) <= max_chars:
            break
        result = {
            key: item if is_list(item) and any(map(is_object, item)) else _truncate(item, limits)
            for key, item in value.items()
        }
    return result


def _truncate(value: Any, limits: tuple[int, int]) -> Any:
    max_chars, max_items = limits
    if isinstance(value, str) and len(value) > max_chars:
        return f"{value[:max_chars]}… [{len(value) - max_chars} more characters]"
    if is_object(value):
        fields = list(value.items())[: max(_MIN_FIELDS, max_items)]
        result = {key: _truncate(item, limits) for key, item in fields}
        return result if len(fields) == len(value) else {**result, "…": f"{len(value)} fields"}
    if is_list(value):
        items = [_truncate(item, limits) for item in value[:max_items]]
        return items if len(value) <= max_items else [*items, f"… {len(value) - max_items} more"]
    return value


def _with_escaped_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return escape_surrogates(value)
    if is_object(value):
        return {
            _with_escaped_surrogates(key): _with_escaped_surrogates(item)
            for key, item in value.items()
        }
    if is_list(value):
        return [_with_escaped_surrogates(item) for item in value]
    return value
