"""Short input that could take any time: each is answered, and others are served meanwhile."""

import anyio
import pytest
from mcp import Client

from tests.server.helpers import Json, answer_of, error_of, spawned, text_of

pytestmark = pytest.mark.slow

ALTERNATIVES = "|".join(f"ab{number}" for number in range(150))
HOSTILE_PATTERNS = (
    "x{1000000000}",
    "((x{999}){999}){99}",
    f"(?:{ALTERNATIVES}){{900000}}",
    "(?:" + r"\p{Lu}" * 150 + "){1000000}",
    "(a+)+$",
    "(a|aa)+$",
    r"(a*)*\1$",
    "(?R)?a(?R)?b",
    "(?<=(a+)+)b",
    "(?:aaaaaaaaaaaaaaaaaaaaaaaaaaab){e<=9}",
)
LONG_QUERIES = (
    "a " * 10_000,
    " ".join(f"word{number}" for number in range(2_000)),
    "a" * 18_000,
    "2026-01-01 " * 1_500,
    "\u6f22" * 18_000,
    "a* " * 6_000,
)


async def stored(client: Client, output: str) -> str:
    given = {"output": output, "threshold_tokens": 0, "session_id": "s"}
    found: str = answer_of(await client.call_tool("persist_large_output", given))["output_id"]
    return found


async def test_hostile_patterns_do_not_block_other_searches(
    environment: dict[str, str],
) -> None:
    async with spawned(environment) as client:
        output_id = await stored(client, "a" * 200_000 + "!")
        first_call: Json = {
            "messages": [{"role": "user", "content": "needle_7"}],
            "session_id": "other",
        }
        answer_of(await client.call_tool("compact_messages", first_call))

        async def ask(tool: str, arguments: Json) -> None:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error or "pattern" in text_of(result)

        async with anyio.create_task_group() as calls:
            for pattern in HOSTILE_PATTERNS:
                reading = {"output_id": output_id, "pattern": pattern}
                calls.start_soon(ask, "read_persisted_output", reading)
                searching = {"query": pattern, "kind": "regex"}
                calls.start_soon(ask, "search_transcript", searching)
            for query in ({"query": "needle_7"}, {"query": "needle_[0-9]", "kind": "regex"}):
                found = await client.call_tool("search_transcript", query)
                assert answer_of(found)["total"] == 1


async def test_ordinary_pattern_still_matches(environment: dict[str, str]) -> None:
    async with spawned(environment) as client:
        output_id = await stored(client, "def f(x): pass\n\nE4032: cafe\u0301 \U0001f600\n")
        for pattern, shown in (
            ("f(x", "1:def f(x): pass"),
            (r"E\d{4}", "3:E4032: cafe\u0301 \U0001f600"),
            (r"^$", "2:"),
            ("(?i)DEF|none", "1:def f(x): pass"),
            (r"\p{So}|\X{99}", "3:E4032: cafe\u0301 \U0001f600"),
        ):
            given = {"output_id": output_id, "pattern": pattern, "context": 0}
            result = await client.call_tool("read_persisted_output", given)
            assert text_of(result) == shown, pattern
        for wrong in ("x" * 1_001, "", "x{9999}{9999}"):
            given = {"output_id": output_id, "pattern": wrong}
            assert "pattern" in error_of(await client.call_tool("read_persisted_output", given))


async def test_query_of_any_length_gets_a_result_or_an_error(environment: dict[str, str]) -> None:
    async with spawned(environment) as client:
        await stored(client, "a b needle_7 a a a \u6f22\u6f22\u6f22 aB aB\n" * 5_000)
        for query in LONG_QUERIES:
            for kind in ("words", "phrase"):
                given = {"query": query, "kind": kind}
                result = await client.call_tool("search_transcript", given)
                assert not result.is_error or "query" in text_of(result)
        given = {"query": "a " * 1_000_000}
        assert "characters" in error_of(await client.call_tool("search_transcript", given))
