"""Large outputs are stored in the archive and read back without any change."""

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from context_compaction import Archive, make_blob, open_archive
from context_compaction.archive.values import OutputSlice
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.schemas import ReadArguments
from mcp_server_compaction.reading.slices import read_part
from mcp_server_compaction.reading.text_source import open_source

from tests.server.helpers import (
    Era,
    Json,
    answer_of,
    connect,
    conversation,
    error_of,
    output,
    parsed,
    text_of,
)

MAX_CHARS = 8_000
BIG = output(1, 4_000)
UNICODE = "\n".join(f"строка {n}: значение — 値 {n * 3} 🙂" for n in range(3_000)) + "\n"


async def _persist(client: object, text: str, **more: object) -> Json:
    arguments = {"output": text, "threshold_tokens": 0, **more}
    return answer_of(await client.call_tool("persist_large_output", arguments))  # type: ignore[attr-defined]


async def test_persist_returns_a_marker_with_the_output_id(config: Config, era: Era) -> None:
    async with connect(config, era) as client:
        result = await client.call_tool(
            "persist_large_output", {"output": BIG, "tool_name": "Bash", "session_id": "s1"}
        )
        answer = answer_of(result)
        assert answer["persisted"]
        assert answer["output_id"] in answer["marker"]
        assert "Bash" in answer["marker"]
        assert answer["size_chars"] == len(BIG)
        assert answer["line_count"] == 4_000
        assert parsed(result) == answer
        assert len(text_of(result)) <= MAX_CHARS


async def test_persist_stores_a_file_when_it_is_inside_the_roots(
    config: Config, files: Path
) -> None:
    (files / "build.log").write_bytes(UNICODE.encode())
    (files.parent / "secret.log").write_text(BIG, encoding="utf-8")
    async with connect(config) as client:
        result = await client.call_tool(
            "persist_large_output", {"path": str(files / "build.log"), "threshold_tokens": 1}
        )
        assert answer_of(result)["size_chars"] == len(UNICODE)
        message = error_of(
            await client.call_tool(
                "persist_large_output", {"path": str(files.parent / "secret.log")}
            )
        )
    assert str(files) in message


async def test_pattern_returns_numbered_lines_with_context(config: Config) -> None:
    async with connect(config) as client:
        output_id = (await _persist(client, BIG))["output_id"]
        result = await client.call_tool(
            "read_persisted_output",
            {"output_id": output_id, "pattern": r"value_1_(50|3000)\b", "context": 1},
        )
    lines = text_of(result).split("\n")
    assert [line.split(" ")[0] for line in lines] == [
        "49-line", "50:line", "51-line", "--", "2999-line", "3000:line", "3001-line",
    ]  # fmt: skip


async def test_pattern_returns_matches_in_pages_when_the_limit_is_reached(config: Config) -> None:
    async with connect(config) as client:
        output_id = (await _persist(client, BIG))["output_id"]
        seen: list[int] = []
        arguments: Json = {
            "output_id": output_id,
            "pattern": r"_1_\d*99 ",
            "context": 0,
            "limit": 20,
        }
        while True:
            result = await client.call_tool("read_persisted_output", arguments)
            assert len(text_of(result)) <= MAX_CHARS
            seen += [
                int(line.split(":")[0]) for line in text_of(result).split("\n") if line != "--"
            ]
            note = text_of(result, 1)
            if "start_line=" not in note:
                break
            arguments["start_line"] = int(note.rpartition("start_line=")[2].split(".")[0])
    assert seen == [number for number in range(1, 4_001) if number % 100 == 99]


async def test_pattern_is_stopped_when_it_takes_exponential_time(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server_compaction.reading.slices.PATTERN_SECONDS", 0.2)
    async with connect(config) as client:
        output_id = (await _persist(client, "a" * 5_000 + "b"))["output_id"]
        message = error_of(
            await client.call_tool(
                "read_persisted_output", {"output_id": output_id, "pattern": "(a|aa)+$"}
            )
        )
    assert "longer than" in message


async def test_pattern_truncates_a_long_line_around_its_match(config: Config) -> None:
    text = "first\n" + "x" * 9_000 + "NEEDLE" + "y" * 9_000 + "\n"
    async with connect(config) as client:
        output_id = (await _persist(client, text))["output_id"]
        result = await client.call_tool(
            "read_persisted_output", {"output_id": output_id, "pattern": "NEEDLE"}
        )
        excerpt = text_of(result)
        offset = int(excerpt.rpartition("offset=")[2].rstrip("]"))
        part = await client.call_tool(
            "read_persisted_output", {"output_id": output_id, "offset": offset, "limit": 200}
        )
    assert len(excerpt) < 1_000
    assert "NEEDLE" in excerpt
    assert "NEEDLE" in text_of(part)


async def test_description_of_context_names_the_number_of_lines_without_it(
    config: Config,
) -> None:
    text = "".join(f"line {n}{' HIT' if n == 50 else ''}\n" for n in range(100))
    async with connect(config) as client:
        [description] = [
            tool.input_schema["properties"]["context"]["description"]
            for tool in (await client.list_tools()).tools
            if tool.name == "read_persisted_output"
        ]
        output_id = (await _persist(client, text))["output_id"]
        result = await client.call_tool(
            "read_persisted_output", {"output_id": output_id, "pattern": "HIT"}
        )
    assert description.endswith(f"Default: up to {text_of(result).count(chr(10)) // 2}.")


async def test_pattern_reduces_context_lines_when_all_matches_would_not_fit(
    config: Config,
) -> None:
    text = "".join(f"line {n} {'HIT' if n % 50 == 0 else 'x' * 60}\n" for n in range(2_000))
    async with connect(config) as client:
        output_id = (await _persist(client, text))["output_id"]
        result = await client.call_tool(
            "read_persisted_output", {"output_id": output_id, "pattern": "HIT", "context": 20}
        )
    lines = text_of(result).split("\n")
    assert sum("HIT" in line for line in lines) == 40
    assert len(lines) > 40
    assert len(text_of(result)) <= MAX_CHARS
    assert "Fewer context lines than requested" in text_of(result, 1)


@pytest.mark.parametrize(
    ("part", "text", "note"),
    [
        (
            {"start_line": 100, "limit": 3},
            "\n".join(BIG.split("\n")[99:102]) + "\n",
            "Lines 100-102",
        ),
        ({"tail": 2}, "\n".join(BIG.split("\n")[-2:]), "End of text."),
        ({"pattern": "= compute(8", "context": 0}, BIG.split("\n")[0], "1:"),
        ({"pattern": "absent"}, "", "No line of 4000 matches"),
        ({"start_line": 5_000}, None, "4000 lines"),
        ({"offset": 10_000_000}, None, f"{len(BIG)} characters"),
        ({"output_id": "o_0123456789abcdef01234567"}, None, "o_0123456789abcdef01234567"),
        ({"output_id": "transcript://nobody/messages/0-3"}, None, "nobody"),
        ({"output_id": "../../etc/passwd"}, None, "Invalid pointer"),
        ({"output_id": "transcript://outputs/receipts/x"}, None, "Invalid pointer"),
    ],
)
async def test_read_returns_the_exact_part_or_an_error_that_explains_its_absence(
    config: Config, part: Json, text: str | None, note: str
) -> None:
    async with connect(config) as client:
        stored = await _persist(client, BIG)
        assert await _persist(client, BIG) == stored
        arguments = {"output_id": stored["output_id"], **part}
        result = await client.call_tool("read_persisted_output", arguments)
    if text is None:
        assert note in error_of(result)
    else:
        assert text in text_of(result)
        assert note in text_of(result) + text_of(result, 1)


async def test_read_returns_messages_as_exact_json_lines(config: Config) -> None:
    messages = conversation(calls=3)
    async with connect(config) as client:
        session_id = answer_of(
            await client.call_tool("compact_messages", {"messages": messages, "mode": "record"})
        )["session_id"]
        last = len(messages) - 1
        read = ""
        for _ in range(100):
            result = await client.call_tool(
                "read_persisted_output",
                {
                    "output_id": f"transcript://{session_id}/messages/0-{last}",
                    "as_json": True,
                    "offset": len(read),
                },
            )
            read += text_of(result)
            if "End of text" in text_of(result, 1):
                break
    assert [json.loads(line) for line in read.splitlines()] == messages


class _Counting:
    """An archive that counts the bytes that are read from its outputs."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.bytes_read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._archive, name)

    async def read_output(self, output_id: str, **part: int) -> OutputSlice:
        found = await self._archive.read_output(output_id, **part)
        self.bytes_read += len(found.data)
        return found


async def test_text_that_is_not_ascii_is_read_once(tmp_path: Path) -> None:
    long_line = "値" * 3_000 + "HIT\n"
    blob = make_blob((UNICODE + long_line) * 20, tool_name="Bash")
    size = len(blob.data)
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as opened:
        await opened.commit("s", blobs=[blob])
        counting = _Counting(opened)
        archive = cast("Archive", counting)
        source = await open_source(archive, blob.output_id)
        parts = [await source.characters(n, 9_000) for n in range(0, source.size_chars, 9_000)]
        assert "".join(parts).encode() == blob.data
        assert counting.bytes_read == size
        source = await open_source(archive, blob.output_id)
        arguments = ReadArguments(output_id=blob.output_id, pattern="HIT", context=0)
        found = (await read_part(source, arguments)).text
        offsets = [int(number) for number in re.findall(r"offset=(\d+)]", found)]
        assert all(blob.data.decode()[n : n + 100] in found for n in offsets)
        assert len(offsets) > 2
        assert counting.bytes_read <= 2 * size
