"""One proxy for several servers: names, restarts, list changes, and servers that misbehave."""

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_server_compaction.wrap.proxy import OWN_TOOLS
from mcp_server_compaction.wrap.servers import read_servers

from tests.server.helpers import Era, text_of
from tests.server.wrap.test_proxy import (
    LONG,
    PROXY,
    WRAPPED,
    address,
    client_of,
    full_text,
    scripted_server,
    served,
    shown,
)

pytestmark = pytest.mark.slow
__all__ = ["address"]  # a fixture

READ, SEARCH = OWN_TOOLS
# A server whose tools end it, send many log messages before a result of 20 MB, change its list, or
# stop it from reading.
MISCHIEF = r"""
import json, os, sys, time
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
extra = 0
for line in sys.stdin:
    request = json.loads(line)
    method, params, result = request["method"], request.get("params") or {}, {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "mischief", "version": "1"}
    elif method == "tools/list":
        names = ["die", "flood", "grow", "hang", "pid"] + ["new"] * extra
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif method == "tools/call":
        name = params["name"]
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
        if name == "die":
            os._exit(3)
        if name == "hang":
            time.sleep(1_000)
        if name == "flood":
            for number in range(10_000_000):
                send({"method": "notifications/message", "params": {"level": "info", "data": 1}})
                if number > 50_000 and os.path.exists(params["arguments"]["until"]):
                    break
            result["content"][0]["text"] = "a row of text\n" * 1_500_000
        if name == "grow":
            extra = 1
            send({"method": "notifications/tools/list_changed"})
    if "id" in request:
        send({"id": request["id"], "result": result})
"""
MISCHIEVOUS = {"command": sys.executable, "args": ["-c", MISCHIEF]}
TALKATIVE = {"command": WRAPPED[0], "args": WRAPPED[1:]}


@asynccontextmanager
async def wrapped(
    tmp_path: Path, servers: dict[str, Any], era: Era = "legacy", **options: Any
) -> AsyncGenerator[Client]:
    """Connect a client to one proxy for all servers."""
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    archive = str(tmp_path / "archive")
    command = [*PROXY, "--archive", archive, "wrap", "--config", str(config)]
    async with client_of(command, era, **options) as client:
        yield client


async def names_of(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


async def test_one_proxy_serves_programs_and_addresses_with_one_read_tool_and_one_search(
    tmp_path: Path, address: str
) -> None:
    servers = {"one": TALKATIVE, "my files": MISCHIEVOUS, "far": {"url": address}}
    async with wrapped(tmp_path, servers) as client:
        names = await names_of(client)
        assert names[-2:] == [READ, SEARCH]
        assert {name.partition("__")[0] for name in names[:-2]} == {"one", "my_files", "far"}
        for server in ("one", "far"):
            result = await client.call_tool(f"{server}__lines", {"count": 3_000})
            [output_id] = set(re.findall(r"o_[0-9a-f]{24}", shown(result)))
            text = await full_text(client, output_id)
            assert text.endswith("line 2999: value_20993")
            small = await client.call_tool(f"{server}__lines", {"count": 1})
            assert text_of(small) == "line 0: value_0"
        found = await client.call_tool(SEARCH, {"query": "value_20993"})
        assert output_id in text_of(found)
        greeting = await client.get_prompt("far__greet", {"name": "Ann"})
        assert "Greet Ann." in str(greeting.messages)
        [note] = {resource.uri for resource in (await client.list_resources()).resources}
        assert "line 3999" in str((await client.read_resource(note)).contents)
        assert client.instructions == "# one\nSay hello.\n\n# far\nSay hello."
        with pytest.raises(MCPError, match="No wrapped server has what tools/call names"):
            await client.call_tool("two__lines", {})


async def test_server_that_ends_is_reported_and_started_again(tmp_path: Path) -> None:
    reports: list[str] = []
    changed = anyio.Event()

    async def log(params: Any) -> None:
        reports.append(str(params.data))

    async def note(message: Any) -> None:
        if "tools/list_changed" in str(message):
            changed.set()

    servers = {"bad": MISCHIEVOUS, "good": MISCHIEVOUS}
    options: Any = {"logging_callback": log, "message_handler": note}
    async with wrapped(tmp_path, servers, **options) as client:
        first = text_of(await client.call_tool("bad__pid", {}))
        with pytest.raises(MCPError, match=r"server .bad. ended\. Next attempt in 0\.5 s"):
            await client.call_tool("bad__die", {})
        assert text_of(await client.call_tool("good__pid", {}))
        await changed.wait()
        assert text_of(await client.call_tool("bad__pid", {})) != first
        assert any("server 'bad' ended" in report for report in reports)


async def test_server_at_an_address_is_used_again_when_it_was_started_again(tmp_path: Path) -> None:
    returned = anyio.Event()

    async def note(message: Any) -> None:
        if "tools/list_changed" in str(message):
            returned.set()

    with ExitStack() as first:
        address = first.enter_context(served())
        async with wrapped(tmp_path, {"far": {"url": address}}, message_handler=note) as client:
            assert text_of(await client.call_tool("far__lines", {"count": 1}))
            first.close()
            with served(int(address.split(":")[2].split("/")[0])):
                # The new server does not know the session of the server before.
                with pytest.raises(MCPError, match=r"cannot be reached"):
                    await client.call_tool("far__lines", {"count": 1})
                await returned.wait()
                assert text_of(await client.call_tool("far__lines", {"count": 1}))


async def test_error_of_a_server_is_passed_at_once_when_it_has_the_code_of_a_lost_connection(
    tmp_path: Path,
) -> None:
    error = '{"code": -32000, "message": "busy"}'
    response = f'json.dumps({{"jsonrpc": "2.0", "id": request["id"], "error": {error}}})'
    command = scripted_server(LONG, response)
    server = {"command": command[0], "args": command[1:]}
    async with wrapped(tmp_path, {"one": server}) as client:
        for _ in range(20):
            with pytest.raises(MCPError, match=r"^busy$"):
                await client.call_tool("one__any", {})


async def test_missing_program_does_not_stop_the_other_servers(tmp_path: Path) -> None:
    servers = {"gone": {"command": "/no/such/program"}, "good": MISCHIEVOUS}
    async with wrapped(tmp_path, servers) as client:
        assert "good__pid" in await names_of(client)
        with pytest.raises(MCPError, match="cannot be started with '/no/such/program'"):
            await client.call_tool("gone__pid", {})


async def test_changed_list_is_announced_and_read_again(tmp_path: Path) -> None:
    changed = anyio.Event()

    async def note(message: Any) -> None:
        if "list_changed" in str(message):
            changed.set()

    async with wrapped(tmp_path, {"one": MISCHIEVOUS}, message_handler=note) as client:
        assert "one__new" not in await names_of(client)
        await client.call_tool("one__grow", {})
        await changed.wait()
        assert "one__new" in await names_of(client)


@pytest.mark.parametrize("mischief", ["hang", "flood"])
async def test_mischief_of_one_server_does_not_block_another(tmp_path: Path, mischief: str) -> None:
    order: list[str] = []
    ended = tmp_path / "ended"  # the flood goes on until this file exists
    servers = {"bad": MISCHIEVOUS, "good": MISCHIEVOUS}
    async with wrapped(tmp_path, servers) as client, anyio.create_task_group() as tasks:

        async def call_bad() -> None:
            result = await client.call_tool(f"bad__{mischief}", {"until": str(ended)})
            order.append("bad")
            assert len(shown(result)) < 4_000

        await names_of(client)
        tasks.start_soon(call_bad)
        for _ in range(3):
            await client.call_tool("good__pid", {})
        order.append("good")
        ended.touch()
        if mischief == "hang":
            tasks.cancel_scope.cancel()
    assert order == (["good"] if mischief == "hang" else ["good", "bad"])


ODD_REQUESTS: list[tuple[str, Any]] = [
    ("tools/call", {"name": READ, "arguments": 7}),
    ("tools/call", {"name": SEARCH, "arguments": {"query": None}}),
    ("tools/call", {"name": ["x"]}),
    ("prompts/get", {"name": None}),
    ("resources/read", {"uri": ["x"]}),
    ("completion/complete", {"ref": "x", "argument": 1}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": 5}}),
    ("unknown/method", None),
    ("tools/list", {"cursor": {}}),
]


async def test_odd_requests_get_an_answer_and_stop_nothing(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"one": TALKATIVE}}), encoding="utf-8")
    command = [*PROXY, "--archive", str(tmp_path / "a"), "wrap", "--config", str(config)]
    start: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    start["clientInfo"] = {"name": "test", "version": "1"}
    requests: list[tuple[str, Any]] = [("initialize", start), *ODD_REQUESTS, ("ping", {})]
    with anyio.fail_after(150):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            cancel: Any = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
            lines = [cancel | {"params": {"requestId": []}}]
            lines += [
                {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                for number, (method, params) in enumerate(requests)
            ]
            for line in lines:
                if line.get("params") is None:
                    del line["params"]
                await process.stdin.send(json.dumps(line).encode() + b"\n")
            answered: set[int] = set()
            text = b""
            while len(answered) < len(requests):
                *complete, text = (text + await process.stdout.receive()).split(b"\n")
                answered |= {json.loads(line).get("id") for line in complete} - {None}
            await process.stdin.aclose()


async def test_call_fails_with_an_error_when_the_response_cannot_be_parsed(tmp_path: Path) -> None:
    broken = (
        "response[:-1]",
        "response.replace('any', chr(1))",
        "response.replace('{\"content\"', '[{\"content\"').replace('}]}', '}]}]')",
    )
    commands = [scripted_server(LONG, response) for response in broken]
    servers = {
        f"s{number}": {"command": command[0], "args": command[1:]}
        for number, command in enumerate(commands)
    }
    async with wrapped(tmp_path, servers) as client:
        for name in servers:
            with pytest.raises(MCPError, match=r"response of the wrapped server"):
                await client.call_tool(f"{name}__any", {})
        assert (await names_of(client))[-2:] == [READ, SEARCH]


def test_names_that_would_collide_are_changed_and_reported(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    names = ("a b", "a_b", "a__b", "plain")
    servers = {name: {"command": "x"} for name in names}
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    found, notes = read_servers(config)
    assert [server.name for server in found] == ["a_b", "a_b-2", "a_b-3", "plain"]
    assert [note.partition(" are")[0] for note in notes] == [
        "The tools of 'a b'",
        "The tools of 'a_b'",
        "The tools of 'a__b'",
    ]
