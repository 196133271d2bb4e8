"""The proxy in front of another server: it shortens large results and passes everything else."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
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
from mcp_server_compaction.wrap.connections import Host, Messages
from mcp_server_compaction.wrap.proxy import OWN_PREFIX, OWN_TOOLS
from mcp_types import CallToolResult, JSONRPCRequest, JSONRPCResponse

from tests.server.helpers import Era, Json, error_of, text_of

pytestmark = pytest.mark.slow

PROXY = [sys.executable, "-m", "mcp_server_compaction"]
WRAPPED = [sys.executable, str(Path(__file__).with_name("talkative.py"))]
READ, SEARCH = OWN_TOOLS
OTHER_READ_TOOL = f"{OWN_PREFIX}{READ}"
LARGE = 3_000  # number of lines, with about 30,000 tokens
_OUTPUT_ID = re.compile(r"o_[0-9a-f]{24}")


@asynccontextmanager
async def client_of(command: list[str], era: Era, **options: Any) -> AsyncGenerator[Client]:
    """Connect a client to a program, with a time limit for the whole block."""
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    with anyio.fail_after(150):
        mode = "legacy" if era == "legacy" else "auto"
        async with Client(server, mode=mode, **options) as client:
            yield client


@asynccontextmanager
async def both(
    tmp_path: Path, era: Era, *flags: str, **options: Any
) -> AsyncGenerator[tuple[Client, Client]]:
    """Connect a client directly to the server, and a client through the proxy."""
    proxy = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", *flags, "--", *WRAPPED]
    async with (
        client_of(WRAPPED, era, **options) as direct,
        client_of(proxy, era, **options) as proxied,
    ):
        yield direct, proxied


def as_json(result: Any) -> Json:
    """Return a result as it was sent."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def shown(result: CallToolResult) -> str:
    """Return the texts of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def full_text(client: Client, output_id: str, tool: str = READ) -> str:
    """Read a stored text in parts and return it."""
    text, offset = "", 0
    while True:
        part = await client.call_tool(tool, {"output_id": output_id, "offset": offset})
        if not text_of(part):
            return text
        text += text_of(part)
        offset = len(text)
        if "offset=" not in text_of(part, 1):
            return text


async def test_proxy_shortens_only_large_results_and_reads_the_full_text(tmp_path: Path) -> None:
    async with both(tmp_path, "legacy") as (direct, proxied):
        await check_small_results(direct, proxied)
        await (
            proxied.list_tools()
        )  # after this call the client validates results against their schemas
        for tool in ("lines", "text", "fails"):
            await check_large_text(direct, proxied, tool)
        await check_large_table(direct, proxied)


async def check_small_results(direct: Client, proxied: Client) -> None:
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
        results: list[Any] = []
        for client in (direct, proxied):
            try:
                results.append(as_json(await client.call_tool(name, arguments)))
            except MCPError as error:
                results.append(error.error)
        assert results[0] == results[1]
    assert as_json(await direct.read_resource("note://one")) == as_json(
        await proxied.read_resource("note://one")
    )
    assert as_json(await direct.get_prompt("greet", {"name": "Ann"})) == as_json(
        await proxied.get_prompt("greet", {"name": "Ann"})
    )
    assert proxied.instructions == direct.instructions


async def check_large_text(direct: Client, proxied: Client, tool: str) -> None:
    original = await direct.call_tool(tool, {"count": LARGE})
    shortened = await proxied.call_tool(tool, {"count": LARGE})
    assert len(shown(shortened)) < 4_000
    assert shortened.is_error == original.is_error
    [output_id] = set(_OUTPUT_ID.findall(shown(shortened)))
    assert await full_text(proxied, output_id) == shown(original)
    if original.structured_content is not None:
        # Hosts show the model either part of a result, so both parts contain the pointer.
        assert shortened.structured_content is not None
        assert output_id in shortened.structured_content["result"]
        assert len(str(shortened.structured_content)) < 4_000


async def check_large_table(direct: Client, proxied: Client) -> None:
    original = await direct.call_tool("table", {"count": LARGE})
    shortened = await proxied.call_tool("table", {"count": LARGE})
    assert original.structured_content is not None
    assert shortened.structured_content is not None
    rows = shortened.structured_content["rows"]
    assert 0 < len(rows) < LARGE
    assert rows == original.structured_content["rows"][: len(rows)]
    [output_id] = _OUTPUT_ID.findall(shortened.structured_content["persisted_output"])[:1]
    last = await proxied.call_tool(
        READ, {"output_id": output_id, "json_path": f"$.rows[{LARGE - 1}].name"}
    )
    assert f"row {LARGE - 1}" in text_of(last)


# A server without the SDK, so that it can send invalid messages. `scripted_server` replaces
# TEXT and OUTPUT by expressions.
SCRIPT = r"""
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {}}
        result["serverInfo"] = {"name": "scripted", "version": "1"}
    elif request.get("method") == "tools/list":
        names = ("read_persisted_output", "any")
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
    else:
        name = request.get("params", {}).get("name")
        result = {"content": [{"type": "text", "text": TEXT}]}
    if "id" in request:
        response = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        print("log", flush=True)
        print(OUTPUT if request["method"] == "tools/call" else response, flush=True)
"""


LONG = r'f"{name}\n" * 9_000'


def scripted_server(text: str, output: str = "response") -> list[str]:
    """Return the command of a server that has its own tool `read_persisted_output`.

    Args:
        text: Expression for the text of a result, which may use the tool's `name`.
        output: Expression for the line of a result, which may use the `response`.
    """
    return [sys.executable, "-c", SCRIPT.replace("TEXT", text).replace("OUTPUT", output)]


async def test_reading_tool_has_another_name_when_the_server_has_one_with_its_name(
    tmp_path: Path,
) -> None:
    command = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", "--", *scripted_server(LONG)]
    async with client_of(command, "legacy") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == [READ, "any", OTHER_READ_TOOL, SEARCH]
        for name in names[:2]:
            shortened = await client.call_tool(name, {})
            assert f"call {OTHER_READ_TOOL}" in text_of(shortened, -1)
            [output_id] = set(_OUTPUT_ID.findall(shown(shortened)))
            assert await full_text(client, output_id, OTHER_READ_TOOL) == f"{name}\n" * 9_000


async def test_response_is_queued_when_the_host_does_not_read_notifications_fast_enough() -> None:
    stream, queued = anyio.create_memory_object_stream[SessionMessage](8)
    ended, incoming = anyio.create_memory_object_stream[Any]()
    host = Host(incoming, stream)
    messages: list[Any] = []
    async with ended, incoming, host, queued, anyio.create_task_group() as tasks:
        for number in range(5_000):
            await host.notify("notifications/message", {"level": "info", "data": number})
        request = JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
        tasks.start_soon(host.send, SessionMessage(request))
        with anyio.fail_after(60):
            messages += [(await queued.receive()).message for _ in range(10)]
    assert [message.params["data"] for message in messages[:8]] == list(range(8))
    assert "Dropped 4992 log and progress messages" in messages[8].params["data"]
    assert messages[9].method == "ping"


async def test_flood_waits_in_its_server_when_its_notifications_must_not_be_dropped() -> None:
    read_count, total = 0, 5_000
    stream, queued = anyio.create_memory_object_stream[SessionMessage](8)
    ended, incoming = anyio.create_memory_object_stream[Any]()
    host = Host(incoming, stream)
    received: list[SessionMessage] = []

    async def lines() -> AsyncIterator[bytes]:
        nonlocal read_count
        for _ in range(total):
            read_count += 1
            yield b'{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}'
        yield b'{"jsonrpc": "2.0", "id": 1, "result": {}}'

    messages = Messages(lines(), host.notify)

    async def receive() -> None:
        received.append(await messages.receive())

    async with ended, incoming, host, queued, anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        assert read_count == 9, "more than the queue has room for"
        with anyio.fail_after(60):
            for _ in range(total):
                notification: Any = (await queued.receive()).message
                assert notification.method == "notifications/tools/list_changed"
    assert isinstance(received[0].message, JSONRPCResponse)


async def test_proxy_passes_progress_cancellation_elicitation_and_errors(
    tmp_path: Path, era: Era
) -> None:
    reported: list[tuple[float, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        assert total == 3
        reported.append((progress, message))

    async def answer(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"color": "green"})

    options = {"elicitation_callback": answer} if era == "legacy" else {}
    async with both(tmp_path, era, "--threshold-tokens", "10", **options) as (direct, proxied):
        before = (await direct.list_tools()).tools
        after = (await proxied.list_tools()).tools
        assert after[:-2] == before
        assert [tool.name for tool in after[-2:]] == [READ, SEARCH]
        result = await proxied.call_tool("slowly", {"steps": 3}, progress_callback=report)
        assert text_of(result) == "done"
        assert reported == [(0, "step 0"), (1, "step 1"), (2, "step 2")]
        with anyio.move_on_after(1) as waiting:
            await proxied.call_tool("never", {})
        assert waiting.cancelled_caught
        if era == "legacy":
            assert "green" in text_of(await proxied.call_tool("asks", {}))
        picture = as_json(await direct.call_tool("picture", {}))
        assert as_json(await proxied.call_tool("picture", {})) == picture
        missing = await proxied.call_tool(READ, {"output_id": "o_" + "0" * 24})
        assert "o_000000000000000000000000" in error_of(missing)


async def test_proxy_passes_the_full_result_when_it_cannot_archive_it(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "outputs").write_text("not a folder")
    (tmp_path / "archive" / "blobs").write_text("not a folder")
    async with both(tmp_path, "legacy") as (direct, proxied):
        original = await direct.call_tool("lines", {"count": LARGE})
        assert as_json(await proxied.call_tool("lines", {"count": LARGE})) == as_json(original)


@contextmanager
def served(port: int = 0) -> Generator[str]:
    """Run the server with Streamable HTTP and yield its address."""
    command = [*WRAPPED, "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on" in line)
        yield f"{line.partition('running on ')[2].split()[0]}/mcp"
    finally:
        process.terminate()
        process.communicate(timeout=150)


@pytest.fixture(scope="session")
def address() -> Generator[str]:
    with served() as address:
        yield address


async def test_proxy_wraps_a_server_at_an_address(tmp_path: Path, address: str) -> None:
    command = [*PROXY, "--archive", str(tmp_path / "archive"), "wrap", "--url", address]
    async with (
        httpx2.AsyncClient() as http,
        Client(streamable_http_client(address, http_client=http), mode="legacy") as direct,
        client_of(command, "legacy") as proxied,
    ):
        small = await direct.call_tool("text", {"count": 3})
        assert as_json(await proxied.call_tool("text", {"count": 3})) == as_json(small)
        shortened = await proxied.call_tool("lines", {"count": LARGE})
        [output_id] = set(_OUTPUT_ID.findall(shown(shortened)))
        original = await direct.call_tool("lines", {"count": LARGE})
        assert await full_text(proxied, output_id) == shown(original)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "Give --config FILE, --url URL or, after --, the command"),
        (["--url", "http://127.0.0.1:1/mcp", "--", "true"], "Give --config"),
        (["--config", "/no/such/file"], "Cannot read the servers"),
        (["--url", "nowhere"], "Give an address such as https://host/mcp"),
        (["--", "/no/such/program"], "Cannot start the wrapped server"),
        (["--url", "http://127.0.0.1:1/mcp", "--header", "nothing"], "Name: value"),
    ],
)
def test_wrap_reports_an_invalid_command_or_address(
    tmp_path: Path, arguments: list[str], error: str
) -> None:
    done = CliRunner().invoke(main, ["--archive", str(tmp_path / "archive"), "wrap", *arguments])
    assert done.exit_code in {1, 2}
    assert error in done.stderr
