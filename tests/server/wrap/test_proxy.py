"""The proxy before a server of another author: everything passes, what is large is demoted."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_server_compaction.cli import main
from mcp_server_compaction.wrap.demote import Demotion
from mcp_server_compaction.wrap.proxy import OTHER_READ_TOOL, Proxy
from mcp_types import CallToolResult, JSONRPCNotification, JSONRPCResponse

from tests.server.helpers import Era, Json, error_of, text_of

pytestmark = pytest.mark.slow

PROXY = [sys.executable, "-m", "mcp_server_compaction"]
BEHIND = [sys.executable, str(Path(__file__).with_name("talkative.py"))]
READ = "read_persisted_output"
LARGE = 3_000  # lines, about 30,000 tokens
_OUTPUT_ID = re.compile(r"o_[0-9a-f]{24}")


@asynccontextmanager
async def client_of(command: list[str], era: Era, **options: Any) -> AsyncGenerator[Client]:
    """A client of a program; whatever is done with it is bounded in time."""
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    with anyio.fail_after(150):
        mode = "legacy" if era == "legacy" else "auto"
        async with Client(server, mode=mode, **options) as client:
            yield client


@asynccontextmanager
async def both(
    tmp_path: Path, era: Era, *flags: str, **options: Any
) -> AsyncGenerator[tuple[Client, Client]]:
    """A client of the server itself, and one of the same server behind the proxy."""
    wrapped = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", *flags, "--", *BEHIND]
    async with (
        client_of(BEHIND, era, **options) as direct,
        client_of(wrapped, era, **options) as proxied,
    ):
        yield direct, proxied


def as_json(result: Any) -> Json:
    """An answer, as it went over the wire."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def shown(result: CallToolResult) -> str:
    """The texts of an answer."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def whole(client: Client, output_id: str, tool: str = READ) -> str:
    """A kept text, read part by part."""
    found, offset = "", 0
    while True:
        part = await client.call_tool(tool, {"output_id": output_id, "offset": offset})
        if not text_of(part):
            return found
        found += text_of(part)
        offset = len(found)
        if "offset=" not in text_of(part, 1):
            return found


async def test_small_results_pass_and_large_ones_are_demoted_and_read_back(
    tmp_path: Path, era: Era
) -> None:
    async with both(tmp_path, era) as (direct, proxied):
        await small_results_pass(direct, proxied)
        await proxied.list_tools()  # from here on the client checks answers by their schema
        for tool in ("lines", "text", "fails"):
            await a_large_text_is_demoted(direct, proxied, tool)
        await a_large_table_is_demoted(direct, proxied)


async def small_results_pass(direct: Client, proxied: Client) -> None:
    calls: list[tuple[str, Json]] = [
        ("lines", {"count": 3}),
        ("text", {"count": 3}),
        ("table", {"count": 3}),
        ("picture", {}),
        ("fails", {"count": 3}),
        ("lines", {}),
        ("no_such_tool", {}),
    ]
    for name, arguments in calls:
        answers: list[Any] = []
        for client in (direct, proxied):
            try:
                answers.append(as_json(await client.call_tool(name, arguments)))
            except MCPError as error:
                answers.append(error.error)
        assert answers[0] == answers[1]
    assert as_json(await direct.read_resource("note://one")) == as_json(
        await proxied.read_resource("note://one")
    )
    assert as_json(await direct.get_prompt("greet", {"name": "Ann"})) == as_json(
        await proxied.get_prompt("greet", {"name": "Ann"})
    )
    assert proxied.instructions == direct.instructions


async def a_large_text_is_demoted(direct: Client, proxied: Client, tool: str) -> None:
    original = await direct.call_tool(tool, {"count": LARGE})
    demoted = await proxied.call_tool(tool, {"count": LARGE})
    assert len(shown(demoted)) < 4_000
    assert demoted.is_error == original.is_error
    [output_id] = set(_OUTPUT_ID.findall(shown(demoted)))
    assert await whole(proxied, output_id) == shown(original)
    if original.structured_content is not None:
        # Hosts show a model the one or the other: both say where the text is.
        assert demoted.structured_content is not None
        assert output_id in demoted.structured_content["result"]
        assert len(str(demoted.structured_content)) < 4_000


async def a_large_table_is_demoted(direct: Client, proxied: Client) -> None:
    original = await direct.call_tool("table", {"count": LARGE})
    demoted = await proxied.call_tool("table", {"count": LARGE})
    assert original.structured_content is not None
    assert demoted.structured_content is not None
    kept = demoted.structured_content["rows"]
    assert 0 < len(kept) < LARGE
    assert kept == original.structured_content["rows"][: len(kept)]
    [output_id] = _OUTPUT_ID.findall(demoted.structured_content["persisted_output"])[:1]
    last = await proxied.call_tool(
        READ, {"output_id": output_id, "json_path": f"$.rows[{LARGE - 1}].name"}
    )
    assert f"row {LARGE - 1}" in text_of(last)


# A server by hand, which may do what the SDK never does; `written_server` fills in the expressions.
WRITTEN = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {}}
        result["serverInfo"] = {"name": "written", "version": "1"}
    elif asked.get("method") == "tools/list":
        names = ("read_persisted_output", "any")
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
    else:
        name = asked.get("params", {}).get("name")
        result = {"content": [{"type": "text", "text": TEXT}]}
    if "id" in asked:
        told = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        print("log", flush=True)
        print(TOLD if asked["method"] == "tools/call" else told, flush=True)
"""


LONG = r'f"{name}\n" * 9_000'


def written_server(text: str, told: str = "told") -> list[str]:
    """A server with a reading tool of its own.

    Its answers to calls have a text, by the tool's `name`, and are written as `told` has them.
    """
    return [sys.executable, "-c", WRITTEN.replace("TEXT", text).replace("TOLD", told)]


async def test_reading_tool_has_another_name_when_the_server_has_one_with_its_name(
    tmp_path: Path,
) -> None:
    command = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", "--", *written_server(LONG)]
    async with client_of(command, "legacy") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == [READ, "any", OTHER_READ_TOOL]
        for name in names[:2]:
            demoted = await client.call_tool(name, {})
            assert f"Read it with {OTHER_READ_TOOL}" in text_of(demoted, -1)
            [output_id] = set(_OUTPUT_ID.findall(shown(demoted)))
            assert await whole(client, output_id, OTHER_READ_TOOL) == f"{name}\n" * 9_000


async def test_an_answer_is_queued_when_more_notifications_come_than_the_host_takes() -> None:
    queue, queued = anyio.create_memory_object_stream[SessionMessage](8)
    server, _unread = anyio.create_memory_object_stream[SessionMessage](1)
    deps: Any = None  # no result is stored
    messages: list[Any] = []
    async with queue, queued, server, _unread, anyio.create_task_group() as tasks:
        proxy = Proxy(queue, server, deps, Demotion(10, 10, len), "s", tasks)
        with anyio.fail_after(60):
            for number in range(5_000):
                await proxy.from_server(
                    JSONRPCNotification(
                        jsonrpc="2.0",
                        method="notifications/message",
                        params={"level": "info", "data": number},
                    )
                )
            answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={"tools": []})
            tasks.start_soon(proxy.from_server, answer)
            messages = [(await queued.receive()).message for _ in range(10)]
    assert [message.params["data"] for message in messages[:8]] == list(range(8))
    assert "4992 log and progress messages" in messages[8].params["data"]
    assert messages[9].id == 1


async def test_flood_and_huge_result_pass_through_the_proxy(tmp_path: Path) -> None:
    notes = 'json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": NOTE})'
    notes = notes.replace("NOTE", '{"level": "info", "data": "x" * 100}')
    behind = written_server('"row of text\\n" * 500_000', f'({notes} + "\\n") * 20_000 + told')
    async with client_of(
        [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", "--", *behind], "legacy"
    ) as client:
        demoted = await client.call_tool("any", {})
        assert len(shown(demoted)) < 4_000


@pytest.mark.parametrize(
    "broken",
    [
        "told[:-1]",
        "told.replace('any', chr(1))",
        "told.replace('{\"content\"', '[{\"content\"').replace('}]}', '}]}]')",
    ],
)
async def test_an_answer_that_cannot_be_read_becomes_an_error_for_who_asked(
    tmp_path: Path, broken: str
) -> None:
    archive = str(tmp_path / "archive")
    command = [*PROXY, "--archive", archive, "wrap", "--", *written_server(LONG, broken)]
    async with client_of(command, "legacy") as client:
        with pytest.raises(MCPError, match="answer of the server behind"):
            await client.call_tool("any", {})
        assert len((await client.list_tools()).tools) == 3


async def test_progress_cancellation_questions_and_errors_pass(tmp_path: Path, era: Era) -> None:
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        assert total == 3
        told.append((progress, message))

    async def answer(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"color": "green"})

    options = {"elicitation_callback": answer} if era == "legacy" else {}
    async with both(tmp_path, era, "--threshold-tokens", "10", **options) as (direct, proxied):
        before = (await direct.list_tools()).tools
        after = (await proxied.list_tools()).tools
        assert after[:-1] == before
        assert after[-1].name == READ
        result = await proxied.call_tool("slowly", {"steps": 3}, progress_callback=tell)
        assert text_of(result) == "done"
        assert told == [(0, "step 0"), (1, "step 1"), (2, "step 2")]
        with anyio.move_on_after(1) as waiting:
            await proxied.call_tool("never", {})
        assert waiting.cancelled_caught
        if era == "legacy":
            assert "green" in text_of(await proxied.call_tool("asks", {}))
        picture = as_json(await direct.call_tool("picture", {}))
        assert as_json(await proxied.call_tool("picture", {})) == picture
        found = await proxied.call_tool(READ, {"output_id": "o_" + "0" * 24})
        assert "o_000000000000000000000000" in error_of(found)


async def test_where_nothing_can_be_kept_the_result_passes_whole(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "outputs").write_text("no folder")
    (tmp_path / "archive" / "blobs").write_text("no folder")
    async with both(tmp_path, "legacy") as (direct, proxied):
        original = await direct.call_tool("lines", {"count": LARGE})
        assert as_json(await proxied.call_tool("lines", {"count": LARGE})) == as_json(original)


@pytest.fixture
def address() -> Generator[str]:
    """Where the same server answers Streamable HTTP."""
    process = subprocess.Popen([*BEHIND, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on" in line)
        yield f"{line.partition('running on ')[2].split()[0]}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=150)


async def test_a_server_at_an_address_is_wrapped_too(
    tmp_path: Path, era: Era, address: str
) -> None:
    command = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", "--url", address]
    mode = "legacy" if era == "legacy" else "auto"
    async with (
        httpx2.AsyncClient() as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as direct,
        client_of(command, era) as proxied,
    ):
        small = await direct.call_tool("text", {"count": 3})
        assert as_json(await proxied.call_tool("text", {"count": 3})) == as_json(small)
        demoted = await proxied.call_tool("lines", {"count": LARGE})
        [output_id] = set(_OUTPUT_ID.findall(shown(demoted)))
        original = await direct.call_tool("lines", {"count": LARGE})
        assert await whole(proxied, output_id) == shown(original)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Give either --url URL or, after --, the command"),
        (["--url", "http://127.0.0.1:1/mcp", "--", "true"], "Give either"),
        (["--url", "nowhere"], "Give an address as https://host/mcp"),
        (["--", "/no/such/program"], "cannot be started"),
        (["--url", "http://127.0.0.1:1/mcp", "--header", "nothing"], "Name: value"),
    ],
)
def test_a_server_that_cannot_be_wrapped_is_named(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    done = CliRunner().invoke(main, ["--archive", str(tmp_path / "archive"), "wrap", *arguments])
    assert done.exit_code in {1, 2}
    assert says in done.stderr


def test_a_server_that_ends_ends_the_proxy(tmp_path: Path) -> None:
    command = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap"]
    command += ["--", sys.executable, "-c", "pass"]
    # Its standard input stays open: only the end of the server ends it.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        told = process.stderr.read()
        assert process.wait(timeout=150) == 1
    assert "the server behind the proxy ended" in told
    assert "Traceback" not in told
