"""Text that nests too deeply for a parser is treated as text."""

from pathlib import Path

import pytest
from context_compaction import CompactRequest, compact, open_archive
from context_compaction.messages.model import JsonObject

# Python's JSON parser raises RecursionError at a depth of about 1,000.
NESTED = [
    f"{before}{opening * 5_000}1{closing * 5_000}{after}"
    for opening, closing in (('{"a":', "}"), ("[", "]"), ('{"output":', ""))
    for before, after in (("", ""), ('{"output":"x","metadata":', "}"), ('{"id":1}\n', "\n"))
]
TOOLS = {
    "Bash": "command",
    "Read": "file_path",
    "apply_patch": "input",
    "mcp__tracker__list": "query",
}


def conversation(text: str, place: str, tool: str = "Bash") -> list[JsonObject]:
    texts = {name: text if name == place else "x" for name in ("user", "agent", "input", "result")}
    call = {"type": "tool_use", "id": "t", "name": tool, "input": {TOOLS[tool]: texts["input"]}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": texts["result"]}
    if place == "error":
        result = {**result, "content": text, "is_error": True}
    return [
        {"role": "user", "content": f"Start here. {texts['user']}"},
        {"role": "assistant", "content": [{"type": "text", "text": texts["agent"]}, call]},
        {"role": "user", "content": [result]},
        *(
            {"role": role, "content": f"step {step}. " + "It has many lines of code. " * 40}
            for step in range(8)
            for role in ("assistant", "user")
        ),
    ]


@pytest.mark.parametrize(
    ("place", "tool"),
    [(place, "Bash") for place in ("user", "agent", "result", "error")]
    + [("input", tool) for tool in TOOLS],
)
async def test_deeply_nested_text_is_treated_as_text(tmp_path: Path, place: str, tool: str) -> None:
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
        for index, text in enumerate(NESTED):
            request = CompactRequest(mode="full", context_window=60_000, session_id=f"s{index}")
            result = await compact(conversation(text, place, tool), request, archive=archive)
            assert result.status == "compacted"
