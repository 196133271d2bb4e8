"""Keeping, reading and finding over MCP: every way in, each to its last page."""

import random
from itertools import pairwise
from typing import Any

from context_compaction.tokens.counter import counter_for
from mcp import Client
from mcp_server_compaction.config import Config

from tests.server.helpers import Json, answer_of, connect, text_of

LINES = [f"{n:05} зона-{n} 値 module_{n % 7}: ok 🙂" for n in range(1, 1_501)]
OUTPUT = "\n".join(LINES) + "\n"
MAX_CHARS = 8_000
MAX_PAGES = 200  # a page that leads nowhere fails a test rather than hang it


async def stored(client: Client) -> str:
    arguments = {"output": OUTPUT, "threshold_tokens": 0, "tool_name": "Bash"}
    return answer_of(await client.call_tool("persist_large_output", arguments))["output_id"]


async def test_a_large_output_reads_back_by_lines_offset_tail_and_pattern(
    config: Config,
) -> None:
    async with connect(config) as client:
        output_id = await stored(client)

        async def read(**arguments: Any) -> tuple[str, str]:
            result = await client.call_tool(
                "read_persisted_output", {"output_id": output_id, **arguments}
            )
            assert not result.is_error, text_of(result)
            assert len(text_of(result)) <= MAX_CHARS
            return text_of(result), text_of(result, 1)

        by_lines = ""
        for _ in range(MAX_PAGES):
            part, note = await read(start_line=by_lines.count("\n") + 1)
            by_lines += part
            if "End of text" in note:
                break
        by_offset = ""
        while len(by_offset) < len(OUTPUT):
            part, _ = await read(offset=len(by_offset))
            assert part
            by_offset += part
        middle, _ = await read(start_line=700, limit=3)
        tail, _ = await read(tail=2)
        matches: list[str] = []
        arguments: Json = {"pattern": r"module_3: ok"}
        for _ in range(MAX_PAGES):
            part, note = await read(**arguments)
            matches += [line for line in part.split("\n") if line != "--"]
            if "start_line=" not in note:
                break
            arguments["start_line"] = int(note.rpartition("start_line=")[2].split(".")[0])
    assert by_lines == OUTPUT
    assert by_offset == OUTPUT
    assert middle == "".join(line + "\n" for line in LINES[699:702])
    assert tail.rstrip("\n") == "\n".join(LINES[-2:])
    assert matches == [f"{n}:{line}" for n, line in enumerate(LINES, 1) if "module_3:" in line]


TEST_RUN = (
    "".join(f"    ok {n} a case that passes\n" for n in range(60))
    + "  1 failing\n  1) initials\n\n    'CU' !== 'C'\n"
)
ADJUSTED = "The failure is the rule for single words. I adjust it."


async def test_pattern_returns_context_lines_with_their_authors(
    config: Config,
) -> None:
    called = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "npm test"}}
    printed = {"type": "tool_result", "tool_use_id": "t1", "content": TEST_RUN}
    messages: list[Json] = [
        {"role": "user", "content": "Run the tests."},
        {"role": "assistant", "content": [called]},
        {"role": "user", "content": [printed]},
        {"role": "assistant", "content": ADJUSTED},
    ]
    call_arguments = {"messages": messages, "mode": "record", "session_id": "s"}
    async with connect(config) as client:
        answer_of(await client.call_tool("compact_messages", call_arguments))

        async def read(**arguments: Any) -> str:
            asked = {"output_id": "transcript://s/messages/0-3", **arguments}
            return text_of(await client.call_tool("read_persisted_output", asked))

        widest = await read(pattern="failing")
        none = await read(pattern="failing", context=0)
        many = await read(pattern="ok|failing")
    assert "'CU' !== 'C'" in widest
    assert "[2] tool" in widest
    assert "[3] assistant" in widest
    assert ADJUSTED in widest
    [heading, line] = none.split("\n")
    assert "-[2] tool" in heading
    assert line.endswith(":  1 failing")
    assert sum(" ok " in line for line in many.split("\n")) == 60


async def test_search_reply_stays_within_its_token_limit(config: Config) -> None:
    session_id = "0123456789abcdef-" * 7
    dice = random.Random(5)
    alphabets = {
        "prose": ["the worker ", "reads a header ", "and waits. "],
        "base64": list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
        "quotes": ['"', "\\", "'", "\n"],
        "control": ["\x1b[31m", "\x00", "\x07", "\u2028"],
        "chinese": [chr(number) for number in range(0x4E00, 0x9FFF, 7)],
        "rare": [chr(number) for number in range(0x20000, 0x2A6DF, 11)],
        "emoji": ["👩\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "🙂", "🚀"],
    }
    count_tokens = counter_for("gpt-4o").text
    async with connect(config) as client:
        for name, alphabet in alphabets.items():
            texts = ["".join(dice.choices(alphabet, k=2_000)) for _ in range(24)]
            messages = [
                {"role": ("user", "assistant")[at % 2], "content": f"{before} {name}needle {after}"}
                for at, (before, after) in enumerate(pairwise(texts))
            ]
            call_arguments = {
                "messages": messages,
                "mode": "record",
                "session_id": f"{name}-{session_id}",
            }
            answer_of(await client.call_tool("compact_messages", call_arguments))
            arguments: Json = {"query": f"{name}needle"}
            seen: list[str] = []
            for _ in range(MAX_PAGES):
                result = await client.call_tool("search_transcript", arguments)
                assert count_tokens(text_of(result)) <= 2_400, name
                answer = answer_of(result)
                assert all(f"{name}needle" in hit["snippet"] for hit in answer["hits"]), name
                seen += [hit["pointer"] for hit in answer["hits"]]
                if "next_cursor" not in answer:
                    break
                arguments["cursor"] = answer["next_cursor"]
            assert len(seen) == len(set(seen)) == len(messages), name
