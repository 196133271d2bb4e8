"""Hostile texts: no sign again and again costs more than its length, no nesting is a fault."""

from pathlib import Path
from statistics import median
from time import process_time

import pytest
from context_compaction import CompactRequest, compact, open_archive
from context_compaction.messages.model import JsonObject

SIZE_CHARS = 30_000
# Linear work takes as long for one sign as for another, within a factor of five; quadratic work on
# so much text takes sixty times as long.
MOST_OF_MEDIAN = 20
UNITS = [
    *"aA1[*-`\"' <>/\\.{(é中#=~“@|$,!?:;_\t\n",
    "aA", "a.", "a/", "a-", "a_", "A.", "a ", "1. ", ": ", "- ", "# ", "x=", "0x", "a1",
    "<pin>", "</pin>", "<a", "http://", "```", "you ", "never ", "Error: ", 'File "', "😀",
]  # fmt: skip


# Python's parser of JSON gives up at a depth of a thousand.
NESTED = [
    f"{before}{opening * 5_000}1{closing * 5_000}{after}"
    for opening, closing in (('{"a":', "}"), ("[", "]"), ('{"output":', ""))
    for before, after in (("", ""), ('{"output":"x","metadata":', "}"), ('{"id":1}\n', "\n"))
]
TOOLS = {
    "Bash": "command",
    "exec_command": "cmd",
    "exec": "input",
    "Read": "file_path",
    "apply_patch": "input",
    "mcp__tracker__list": "query",
    "TodoWrite": "todos",
}


def conversation(text: str, place: str, tool: str = "Bash") -> list[JsonObject]:
    said = {name: text if name == place else "x" for name in ("user", "agent", "input", "result")}
    call = {"type": "tool_use", "id": "t", "name": tool, "input": {TOOLS[tool]: said["input"]}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": said["result"]}
    if place == "error":
        result = {**result, "content": text, "is_error": True}
    return [
        {"role": "user", "content": f"Start here. {said['user']}"},
        {"role": "assistant", "content": [{"type": "text", "text": said["agent"]}, call]},
        {"role": "user", "content": [result]},
        *(
            {"role": role, "content": f"step {step}. " + "It has many lines of code. " * 40}
            for step in range(8)
            for role in ("assistant", "user")
        ),
    ]


@pytest.mark.parametrize("place", ["user", "agent", "input", "result", "error"])
async def test_no_text_takes_more_than_its_length(tmp_path: Path, place: str) -> None:
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:

        async def seconds(unit: str, session: str) -> float:
            text = (unit * SIZE_CHARS)[:SIZE_CHARS]
            request = CompactRequest(mode="full", context_window=60_000, session_id=session)
            began = process_time()
            await compact(conversation(text, place), request, archive=archive)
            return process_time() - began

        await seconds("a", "first")  # whatever is loaded by it
        took = {unit: await seconds(unit, f"s{at}") for at, unit in enumerate(UNITS)}
        most = MOST_OF_MEDIAN * median(took.values())
        for at, unit in enumerate(UNITS):
            if took[unit] < most:
                continue
            # What else the machine does is not in the least of several.
            again = [await seconds(unit, f"s{at}-{count}") for count in range(3)]
            assert min(again) < most, unit


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("place", ["user", "agent", "input", "result", "error"])
async def test_text_that_nests_too_deeply_for_a_parser_is_text(
    tmp_path: Path, place: str, tool: str
) -> None:
    async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
        for at, text in enumerate(NESTED):
            request = CompactRequest(mode="full", context_window=60_000, session_id=f"s{at}")
            result = await compact(conversation(text, place, tool), request, archive=archive)
            assert result.status == "compacted"
