"""Reference servers with and without the proxy: the same answers, and what a call costs.

    python benchmarks/wrap.py            (needs npm, and a package registry)

The filesystem and everything servers come from npm, the fetch server from PyPI, each into a
temporary folder. Every call is made to the server itself and to the same server behind `wrap`:
below the threshold the answers must be equal, above it the proxy's must be small and the whole
readable. The cost is CPU time of the proxy's own process over 200 small calls, by /proc.
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
    """A server to be wrapped.

    Attributes:
        name: For the table.
        command: Starts it.
        small: Calls whose answers stay below the threshold.
        large: A call whose answer is above it, if it has one.
    """

    name: str
    command: list[str]
    small: list[Call]
    large: Call | None = None


@asynccontextmanager
async def client_of(command: list[str]) -> AsyncGenerator[Client]:
    """A client of a program."""
    server = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with Client(server, mode="legacy") as client:
        yield client


async def answer(client: Client, call: Call) -> str:
    """What a call gives, errors included, as one JSON text."""
    try:
        result = await client.call_tool(*call)
    except MCPError as error:
        return f"error {error.error}"
    return json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True))


def cpu_seconds(marker: str) -> float:
    """User and system time of the process that has `marker` in its command line."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                if marker in command and "mcp_server_compaction" in command:
                    fields = (folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
                    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                continue
    raise SystemExit(f"No process of {marker}.")


async def measured(reference: Reference, archive: Path) -> str:
    """The row of one server."""
    wrapped = [*PROXY, "--archive", str(archive), "wrap", "--", *reference.command]
    async with client_of(reference.command) as direct, client_of(wrapped) as proxied:
        tools = [await client.list_tools() for client in (direct, proxied)]
        same = tools[0].tools == tools[1].tools[:-1]
        for call in reference.small:
            first, second = await answer(direct, call), await answer(proxied, call)
            if first != second:
                same = False
                sys.stderr.write(f"{reference.name} {call}:\n  {first[:300]}\n  {second[:300]}\n")
        before = cpu_seconds(str(archive))
        for _ in range(CALLS):
            await answer(proxied, reference.small[0])
        cost_ms = (cpu_seconds(str(archive)) - before) / CALLS * 1000
        demotion = "-"
        if reference.large:
            whole, small = (
                await answer(direct, reference.large),
                await answer(proxied, reference.large),
            )
            if not (found := set(_OUTPUT_ID.findall(small))):
                raise SystemExit(f"{reference.name} was not demoted: {small[:500]}")
            output_id = min(found)
            read = await answer(
                proxied, ("read_persisted_output", {"output_id": output_id, "tail": 1})
            )
            last = f"line {LARGE_LINES - 1}"
            demotion = f"{len(whole):,} -> {len(small):,} characters, " + (
                "read back" if last in read else "NOT READ BACK"
            )
    return f"| {reference.name} | {'equal' if same else 'DIFFERENT'} | {demotion} | {cost_ms:.2f} |"


@contextmanager
def page(text: str) -> Generator[str]:
    """A page on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write((text if self.path == "/large" else "a small page").encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def install(folder: Path) -> tuple[Path, Path]:
    """Where npm put its programs, and the Python of the fetch server."""
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
            print(await measured(reference, folder / f"archive-{reference.name}"), flush=True)


if __name__ == "__main__":
    anyio.run(main)
