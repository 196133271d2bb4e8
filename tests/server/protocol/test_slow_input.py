"""Short input that could take any time: it is bounded, and meanwhile others are served."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic

import anyio
import pytest
from mcp import Client

from tests.server.helpers import Json, answer_of, error_of, spawned, text_of

pytestmark = pytest.mark.slow

# What a host waits for an answer to a ping at most, on a loaded machine.
MOST_PING_SECONDS = 2.0
MOST_SECONDS = 15.0

ALTERNATIVES = "|".join(f"ab{number}" for number in range(150))
HOSTILE_PATTERNS = (
    "x{1000000000}",
    "((x{999}){999}){99}",
    "(?:x{1000}){1000}",
    f"(?:{ALTERNATIVES}){{900000}}",
    "(?:" + r"\p{Lu}" * 150 + "){1000000}",
    "(?:" + r"\X" * 19 + "){50000}",
    "(a+)+$",
    "(a|aa)+$",
    r"(a*)*\1$",
    "(?R)?a(?R)?b",
    "(?<=(a+)+)b",
    "(?:aaaaaaaaaaaaaaaaaaaaaaaaaaab){e<=9}",
)


@asynccontextmanager
async def answered_pings(client: Client) -> AsyncGenerator[None]:
    """Pings the server all the while, each of which must be answered soon."""

    async def ping() -> None:
        while True:
            with anyio.fail_after(MOST_PING_SECONDS):
                await client.list_tools()
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ping)
        yield
        tasks.cancel_scope.cancel()


async def stored(client: Client, output: str, session_id: str = "s") -> str:
    given = {"output": output, "threshold_tokens": 0, "session_id": session_id}
    answer = answer_of(await client.call_tool("persist_large_output", given))
    found: str = answer["output_id"]
    return found


async def said(client: Client, text: str, session_id: str) -> None:
    given: Json = {"messages": [{"role": "user", "content": text}], "session_id": session_id}
    answer_of(await client.call_tool("compact_messages", given))


async def test_hostile_patterns_are_answered_in_time_and_hold_up_nobody(
    environment: dict[str, str],
) -> None:
    async with spawned(environment) as client:
        output_id = await stored(client, "a" * 200_000 + "!")
        await said(client, "needle_7", "other")
        places = anyio.CapacityLimiter(4)

        async def ask(tool: str, arguments: Json) -> None:
            async with places:
                began = monotonic()
                result = await client.call_tool(tool, arguments)
                assert monotonic() - began < MOST_SECONDS
                assert not result.is_error or "pattern" in text_of(result)

        async with answered_pings(client), anyio.create_task_group() as calls:
            for pattern in HOSTILE_PATTERNS:
                reading = {"output_id": output_id, "pattern": pattern}
                calls.start_soon(ask, "read_persisted_output", reading)
                searching = {"query": pattern, "kind": "regex"}
                calls.start_soon(ask, "search_transcript", searching)
            for _ in range(10):
                with anyio.fail_after(MOST_PING_SECONDS):
                    found = await client.call_tool("search_transcript", {"query": "needle_7"})
                assert answer_of(found)["total"] == 1
                await anyio.sleep(0.5)


async def test_a_slow_pattern_neither_delays_a_search_nor_outlives_its_cancellation(
    environment: dict[str, str],
) -> None:
    async with spawned(environment) as client:
        await stored(client, "a" * 200_000 + "!")
        await said(client, "needle_7", "other")
        async with anyio.create_task_group() as tasks:
            slow = {"query": "(a|aa)+$", "kind": "regex"}
            for _ in range(3):
                tasks.start_soon(client.call_tool, "search_transcript", slow)
            await anyio.sleep(0.5)
            with anyio.fail_after(MOST_PING_SECONDS):
                for query in ({"query": "needle_7"}, {"query": "needle_[0-9]", "kind": "regex"}):
                    found = await client.call_tool("search_transcript", query)
                    assert answer_of(found)["total"] == 1
            tasks.cancel_scope.cancel()
        with anyio.fail_after(MOST_PING_SECONDS):
            await client.call_tool("search_transcript", {"query": "needle_7"})


async def test_an_ordinary_pattern_finds_what_it_did(environment: dict[str, str]) -> None:
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


LONG_QUERIES = (
    "a " * 10_000,
    "a needle_7 " * 1_000,
    " ".join(f"word{number}" for number in range(2_000)),
    "a" * 18_000,
    "aB" * 9_000,
    "2026-01-01 " * 1_500,
    "-" * 18_000,
    "\u6f22" * 18_000,
    "a* " * 6_000,
)


async def test_long_queries_are_answered_in_time(environment: dict[str, str]) -> None:
    async with spawned(environment) as client:
        await stored(client, "a b needle_7 a a a \u6f22\u6f22\u6f22 aB aB\n" * 30_000)
        await client.call_tool("search_transcript", {"query": "needle_7"})  # it is indexed now
        async with answered_pings(client):
            for query in LONG_QUERIES:
                for kind in ("words", "phrase"):
                    began = monotonic()
                    given = {"query": query, "kind": kind}
                    result = await client.call_tool("search_transcript", given)
                    assert monotonic() - began < MOST_SECONDS, (query[:20], kind)
                    assert not result.is_error or "query" in text_of(result)


async def test_a_query_of_any_length_is_refused_or_answered(environment: dict[str, str]) -> None:
    async with spawned(environment) as client:
        await said(client, "needle_7", "s")
        given = {"query": "a " * 1_000_000}
        assert "characters" in error_of(await client.call_tool("search_transcript", given))
