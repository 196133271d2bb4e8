"""The server as hosts run it: a separate process over stdio, and HTTP on loopback."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.protocol.http_listening import bind

from tests.server.helpers import (
    Era,
    Json,
    answer_of,
    conversation,
    output,
    text_of,
)
from tests.server.http import Service, over_http, service
from tests.support.environment import unmeasured

__all__ = ["service"]  # a fixture

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "mcp_server_compaction"]
# Prefixes of module names: packages that are slow to load, and our modules that do the work.
HEAVY = (
    "aiofiles",
    "anthropic",
    "context_compaction.activity",
    "context_compaction.archive",
    "context_compaction.formats",
    "context_compaction.layers",
    "context_compaction.pipeline",
    "context_compaction.policies",
    "context_compaction.redaction",
    "context_compaction.session",
    "context_compaction.summarizers",
    "context_compaction.tokens",
    "detect_secrets",
    "mcp_server_compaction.compare",
    "mcp_server_compaction.hosts.catalog",
    "mcp_server_compaction.hosts.import",
    "mcp_server_compaction.protocol.compaction_call",
    "mcp_server_compaction.reading",
    "mcp_server_compaction.wrap",
    "regex",
    "rich",
    "ruamel",
    "sqlite3",
    "tiktoken",
    "tomlkit",
    "zstandard",
)

# Runs the real command line in a process that prints its imported modules at the end.
WATCHED = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=open(sys.argv.pop(1), "w")))
watched = sys.argv[1]
from mcp_server_compaction.cli import main
sys.argv = ["mcp-server-compaction"]
try:
    main(standalone_mode=False)
finally:
    sys.argv = ["", watched]
"""


# The real command line in a process that says when it imports the tokenizer.
REPORT_TIKTOKEN = """
import sys
sys.addaudithook(
    lambda event, about: event == "import" and about[0] == "tiktoken"
    and print("tiktoken is imported", file=sys.stderr, flush=True)
)
from mcp_server_compaction.cli import main
sys.argv = ["mcp-server-compaction"]
main(standalone_mode=False)
"""
GREETING: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}

LISTING = """
import json, sys
from mcp_server_compaction.protocol.tools import tool_definitions
print(len(tool_definitions()))
print(json.dumps(sorted(sys.modules)))
"""


def _mode(era: Era) -> str:
    return "legacy" if era == "legacy" else "auto"


async def test_a_spawned_server_works_from_compaction_to_search(
    environment: dict[str, str], era: Era
) -> None:
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=environment)
    messages = conversation()
    with anyio.fail_after(150):
        async with Client(server, mode=_mode(era)) as client:
            compacted = answer_of(
                await client.call_tool(
                    "compact_messages",
                    {"messages": messages, "target_tokens": 12_000, "session_id": "s"},
                )
            )
            stored = answer_of(
                await client.call_tool(
                    "persist_large_output", {"output": output(7), "threshold_tokens": 0}
                )
            )
            read = await client.call_tool(
                "read_persisted_output", {"output_id": stored["output_id"], "tail": 1}
            )
            found = answer_of(await client.call_tool("search_transcript", {"query": "value_3_17"}))
    assert compacted["fits"]
    assert text_of(read) == output(7).split("\n")[-1]
    assert found["hits"]


async def test_five_megabytes_pass_over_stdio(environment: dict[str, str]) -> None:
    text = output(1, 70_000)
    assert len(text) > 3_000_000
    server = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=environment)
    with anyio.fail_after(150):
        async with Client(server, mode="legacy") as client:
            stored = answer_of(await client.call_tool("persist_large_output", {"output": text}))
            read = await client.call_tool(
                "read_persisted_output",
                {"output_id": stored["output_id"], "offset": len(text) - 50},
            )
    assert text_of(read) == text[-50:]


def test_initialize_loads_only_the_modules_it_needs(
    environment: dict[str, str], tmp_path: Path
) -> None:
    report = tmp_path / "modules.json"
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(report)],
        input=json.dumps(GREETING) + "\n",
        stdout=subprocess.PIPE,
        env=unmeasured(environment),
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "mcp-server-compaction"
    loaded = json.loads(report.read_text(encoding="utf-8"))
    assert "mcp_server_compaction.protocol.app" in loaded
    assert _heavy(loaded) == []
    assert not Path(environment["MCP_COMPACTION_ARCHIVE"]).exists()


def test_engine_is_loaded_after_the_first_request(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", REPORT_TIKTOKEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=unmeasured(environment),
        encoding="utf-8",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    overdue = threading.Timer(150, process.kill)
    overdue.start()
    try:
        for message in (GREETING, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
            process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        assert "result" in json.loads(process.stdout.readline())
        # Nothing was called: it is loaded by itself.
        assert any("tiktoken is imported" in line for line in process.stderr)
    finally:
        overdue.cancel()
        process.kill()
        process.communicate()
    assert not Path(environment["MCP_COMPACTION_ARCHIVE"]).exists()


def test_listing_the_tools_loads_no_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTING],
        capture_output=True,
        env=unmeasured(),
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    count, loaded = map(json.loads, done.stdout.splitlines())
    assert count == 4
    assert _heavy(loaded) == []


def _heavy(loaded: Sequence[str]) -> list[str]:
    return [name for name in loaded if name.startswith(HEAVY)]


async def test_http_serves_both_eras(service: Service, era: Era) -> None:
    with anyio.fail_after(150):
        async with over_http(service, mode=_mode(era)) as client:
            answer = answer_of(
                await client.call_tool(
                    "compact_messages", {"messages": conversation(), "target_tokens": 12_000}
                )
            )
    assert answer["fits"]


async def test_http_takes_bodies_above_the_default_limit_and_reads_no_files(
    service: Service,
) -> None:
    text = output(1, 100_000)
    assert len(text) > 5_000_000
    with anyio.fail_after(150):
        async with over_http(service) as client:
            stored = answer_of(await client.call_tool("persist_large_output", {"output": text}))
            refused = await client.call_tool("persist_large_output", {"path": __file__})
    assert stored["persisted"]
    assert refused.is_error
    assert "none" in text_of(refused)


async def test_answers_are_sent_at_once() -> None:
    """Else each waits for the client's delayed acknowledgement, 40 ms and more."""
    found: list[int] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = writer.get_extra_info("socket")
        found.append(served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = bind("127.0.0.1", 0)
    assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # Windows takes it from here
    async with await asyncio.start_server(answer, sock=listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert found[0]


def test_service_refuses_other_than_loopback_addresses(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [*COMMAND, "serve", "--http", "--host", "0.0.0.0"],
        capture_output=True,
        env=environment,
        text=True,
        encoding="utf-8",
        timeout=150,
        check=False,
    )
    assert done.returncode == 2
    assert "loopback" in done.stderr
    assert "Traceback" not in done.stderr
