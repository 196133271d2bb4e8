"""How a tool's answer is put into both channels."""

from collections.abc import Mapping
from typing import Any, cast

from context_compaction import JsonObject, compact_json, is_list, is_object
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel
from pydantic_core import to_json

# Codex cuts a tool's answer at 12,000 characters, keeping its two ends; others at less than that.
MAX_ANSWER_CHARS = 8_000


def structured(
    answer: BaseModel,
    *,
    beside: Mapping[str, Any] | None = None,
    cut: bool = True,
    lead: str = "",
) -> CallToolResult:
    """The answer as structured content and, word for word, as JSON text.

    Hosts show a model either the one or the other, so both contain the same.

    Args:
        answer: The answer; fields that are None are left out.
        beside: Fields of the answer that only the structured content has: message lists,
            which only programs ask for.
        cut: Whether long texts in `answer` are cut to keep within `MAX_ANSWER_CHARS`.
        lead: The text field that comes first, whole up to 6,000 characters: the others make
            room.

    Raises:
        ToolError: A field in `beside` contains half a surrogate pair, which UTF-8 cannot carry.
    """
    content = answer.model_dump(mode="json", exclude_none=True)
    if lead in content:
        text = content.pop(lead)
        content = {lead: text, **bounded(content, 1_600)}
    if cut:
        content = bounded(content, MAX_ANSWER_CHARS)
    if not is_utf8(content):
        content = cast("JsonObject", _printable(content))
    for name, value in (beside or {}).items():
        if not is_utf8(value):
            raise ToolError(
                f"The {name} hold half a surrogate pair, which cannot be sent over MCP. Ask with "
                "reply='receipt', or use the command line: mcp-server-compaction compact --out."
            )
    return CallToolResult(
        content=[TextContent(type="text", text=compact_json(content))],
        structured_content={**content, **(beside or {})},
    )


def failure(error: Exception, *, is_read_only: bool = False) -> CallToolResult:
    """An expected failure, as a result that the model can read."""
    text = sendable(str(error).rstrip() + ("" if is_read_only else " Nothing was changed."))
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def is_utf8(value: Any) -> bool:
    """Whether `value` can be sent: lone surrogates in a string cannot."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def sendable(text: str) -> str:
    """`text` with lone surrogates spelt out as backslash, u and four digits."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def bounded(value: JsonObject, max_chars: int) -> JsonObject:
    """`value` with long texts and lists in it cut, as little as needed, to fit `max_chars`.

    Lists of objects at the top stay whole: their form is promised by the answer's schema.
    """
    result = value
    for limits in _CUTS:
        if len(compact_json(result)) <= max_chars:
            break
        result = {
            key: item if _is_table(item) else _cut(item, limits) for key, item in value.items()
        }
    return result


# Longest string in characters, and most items of a list; tried in this order until it fits.
_CUTS = (
    (6_000, 100), (5_500, 100), (4_000, 100), (2_500, 40), (2_000, 20), (1_000, 12), (500, 8),
    (240, 6), (120, 3), (60, 2),
)  # fmt: skip
_MIN_FIELDS = 12  # an object of the answer's own schema is never cut


def _is_table(value: Any) -> bool:
    return is_list(value) and any(map(is_object, value))


def _cut(value: Any, limits: tuple[int, int]) -> Any:
    max_chars, max_items = limits
    if isinstance(value, str) and len(value) > max_chars:
        return f"{value[:max_chars]}… [{len(value) - max_chars} more characters]"
    if is_object(value):
        fields = list(value.items())
        shown = {key: _cut(item, limits) for key, item in fields[: max(_MIN_FIELDS, max_items)]}
        return shown if len(shown) == len(fields) else {**shown, "…": f"{len(fields)} fields"}
    if is_list(value):
        kept = [_cut(item, limits) for item in value[:max_items]]
        return kept if len(value) <= max_items else [*kept, f"… {len(value) - max_items} more"]
    return value


def _printable(value: Any) -> Any:
    """`value` with lone surrogates spelt out as backslash, u and four digits."""
    if isinstance(value, str):
        return sendable(value)
    if is_object(value):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if is_list(value):
        return [_printable(item) for item in value]
    return value
