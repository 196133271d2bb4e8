"""Compare MCP servers with and without the proxy `wrap`: equal results, and the CPU of the proxy.

Run: python benchmarks/wrap.py            (needs npm and package registries)

The servers filesystem and everything come from npm, fetch from PyPI, each in a temporary folder.
Every call is made to the server itself and to a copy behind `wrap`. Below the threshold
the results must be equal. Above it the proxy's result must be short and the full text readable. The
cost is the CPU time of the proxy's process over 200 small calls, by /proc.
"""

import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import venv
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

PROXY = [sys.executable, "-m", "mcp_server_compaction"]
CALLS = 200
LARGE_LINES = 5_000
_OUTPUT_ID = re.compile(r"o_[0-9a-f]{24}")
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Reference:
    """A server and its calls.

    Attributes:
        name: Name in the table.
        command: Command that starts the server.
        small: Calls with results below the threshold.
        large: Call with a result above the threshold, or None.
    """

    name: str
    command: list[str]
    small: list[Call]
    large: Call | None = None


@asynccontextmanager
async def client_of(command: list[str]) -> AsyncGenerator[Client]:
    """Start a server and connect to it."""
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(server, mode="legacy") as client:
        yield client


async def call_tool(client: Client, call: Call) -> str:
    """Return the result of a call, or its error, as JSON."""
    try:
        result = await client.call_tool(*call)
    except MCPError as error:
        return f"error {error.error}"
    return json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True))


def cpu_seconds(marker: str) -> float:
    """Return the CPU seconds of the proxy with `marker` in its command line."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                if marker in command and "mcp_server_compaction" in command:
                    fields = (folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
                    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                continue
    raise SystemExit(f"No process has {marker!r} in its command line.")


async def measure(reference: Reference, archive: Path) -> str:
    """Return the table row of one server."""
    wrapped = [*PROXY, "--archive", str(archive), "wrap", "--", *reference.command]
    async with client_of(reference.command) as direct, client_of(wrapped) as proxied:
        tools = [await client.list_tools() for client in (direct, proxied)]
        is_equal = tools[0].tools == tools[1].tools[:-2]
        for call in reference.small:
            first, second = await call_tool(direct, call), await call_tool(proxied, call)
            if first != second:
                is_equal = False
                sys.stderr.write(f"{reference.name} {call}:\n  {first[:300]}\n  {second[:300]}\n")
        before = cpu_seconds(str(archive))
        for _ in range(CALLS):
            await call_tool(proxied, reference.small[0])
        cost_ms = (cpu_seconds(str(archive)) - before) / CALLS * 1000
        large_cell = "-"
        if reference.large:
            full, short = (
                await call_tool(direct, reference.large),
                await call_tool(proxied, reference.large),
            )
            if not (output_ids := set(_OUTPUT_ID.findall(short))):
                raise SystemExit(f"{reference.name}: the result was not stored: {short[:500]}")
            read = await call_tool(
                proxied, ("read_persisted_output", {"output_id": min(output_ids), "tail": 1})
            )
            last = f"line {LARGE_LINES - 1}"
            large_cell = f"{len(full):,} to {len(short):,} characters, full text " + (
                "readable" if last in read else "NOT READABLE"
            )
    small_cell = "equal" if is_equal else "DIFFERENT"
    return f"| {reference.name} | {small_cell} | {large_cell} | {cost_ms:.2f} |"


@contextmanager
def page(text: str) -> Generator[str]:
    """Serve a small page, and `text` at /large, on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write((text if self.path == "/large" else "a small page").encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Print no log."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def install(folder: Path) -> tuple[Path, Path]:
    """Install the servers; return npm's program folder and the Python of the fetch server."""
    packages = [f"@modelcontextprotocol/server-{name}" for name in ("filesystem", "everything")]
    subprocess.run(
        ["npm", "install", "--silent", "--prefix", str(folder), *packages],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "mcp-server-fetch"], check=True)
    return folder / "node_modules" / ".bin", python


async def main() -> None:
    """Print the table."""
    large = "\n".join(f"line {number}: value_{number * 7}" for number in range(LARGE_LINES))
    with tempfile.TemporaryDirectory() as temporary, page(large) as address:
        folder = Path(temporary)
        programs, python = install(folder)
        data = folder / "data"
        data.mkdir()
        (data / "small.txt").write_text("hello\n", encoding="utf-8")
        (data / "large.txt").write_text(large, encoding="utf-8")
        references = [
            Reference(
                "filesystem",
                [str(programs / "mcp-server-filesystem"), str(data)],
                [
                    ("read_text_file", {"path": str(data / "small.txt")}),
                    ("list_directory", {"path": str(data)}),
                    ("read_text_file", {"path": str(folder / "no")}),
                    ("read_text_file", {}),
                    ("no_such_tool", {}),
                ],
                ("read_text_file", {"path": str(data / "large.txt")}),
            ),
            Reference(
                "everything",
                [str(programs / "mcp-server-everything")],
                [
                    ("echo", {"message": "hello"}),
                    ("get-sum", {"a": 1, "b": 2}),
                    ("get-tiny-image", {}),
                    ("get-structured-content", {"location": "Chicago"}),
                    ("get-resource-links", {"count": 2}),
                    ("echo", {}),
                ],
            ),
            Reference(
                "fetch",
                [
                    str(python),
                    "-m",
                    "mcp_server_fetch",
                    "--ignore-robots-txt",
                    "--allow-private-ips",
                ],
                [("fetch", {"url": f"{address}/small"}), ("fetch", {"url": "no address"})],
                ("fetch", {"url": f"{address}/large", "max_length": 900_000}),
            ),
        ]
        print("| server | below the threshold | above it | CPU of the proxy, ms a call |")
        print("|---|---|---|---|")
        for reference in references:
            print(await measure(reference, folder / f"archive-{reference.name}"), flush=True)


if __name__ == "__main__":
    anyio.run(main)
