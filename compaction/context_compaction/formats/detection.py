"""Which format a list of content blocks, or of tool definitions, speaks for."""

from context_compaction.formats.parsing import list_or_none, object_or_none, text_or_none

BLOCK_TYPES: dict[str, frozenset[str]] = {
    "anthropic": frozenset({
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
        "mcp_tool_use",
        "mcp_tool_result",
        "image",
        "document",
        "search_result",
    }),
    "openai-chat": frozenset({"text", "image_url", "input_audio", "file", "refusal"}),
    "openai-responses": frozenset({
        "input_text",
        "output_text",
        "input_image",
        "input_file",
        "input_audio",
        "refusal",
        "computer_screenshot",
    }),
    "pi": frozenset({"text", "thinking", "toolCall", "image"}),
}  # fmt: skip


def weigh_content(content: object, format: str) -> int:
    """0 if a type is only known in other formats, 2 if one is only known in `format`, else 1.

    A string fits every format; what is neither string nor array fits none, and neither does a block
    without a type. Types that no format knows say nothing, for providers add some every month.
    """
    if isinstance(content, str):
        return 1
    blocks = list_or_none(content)
    if blocks is None:
        return 0
    kinds = {text_or_none((object_or_none(block) or {}).get("type")) for block in blocks}
    if None in kinds or kinds & _ONLY_ELSEWHERE[format]:
        return 0
    return 2 if kinds & _ONLY_HERE[format] else 1


def format_of_tools(tools: object) -> str | None:
    """The format that goes with `tools`, by the shape of the first; None where that tells none."""
    listed = list_or_none(tools)
    first = (object_or_none(listed[0]) if listed else None) or {}
    return next((name for field, name in _TOOL_FIELDS if field in first), None)


_TOOL_FIELDS = (
    ("input_schema", "anthropic"),
    ("function", "openai-chat"),
    ("parameters", "openai-responses"),
)


def _others(format: str) -> frozenset[str]:
    return frozenset[str]().union(*(kinds for name, kinds in BLOCK_TYPES.items() if name != format))


_ONLY_HERE = {name: kinds - _others(name) for name, kinds in BLOCK_TYPES.items()}
_ONLY_ELSEWHERE = {name: _others(name) - kinds for name, kinds in BLOCK_TYPES.items()}
