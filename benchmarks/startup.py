"""Measure the CPU time of a start until `initialize` is answered, next to a bare server of the SDK.

Run: python benchmarks/startup.py [RUNS]

Both servers are started in turn and get one request. The kernel (`os.wait4`) reports their
user and system time. Medians are compared. The second figure is the CPU time of `import
context_compaction` without the start of the interpreter. Exits with 1 if a limit is exceeded.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

DEFAULT_RUNS = 9
MAX_RATIO = 1.1
MAX_IMPORT_SECONDS = 0.15

REFERENCE_SERVER = """
from mcp.server import MCPServer

server = MCPServer("bare")

@server.tool()
def echo(text: str) -> str:
    '''Repeat a text.'''
    return text

server.run("stdio")
"""

INITIALIZE = json.dumps({
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "benchmark", "version": "1"},
    },
})


def seconds_to_initialize(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Return the CPU seconds of a server from its start to its reply to `initialize`."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(INITIALIZE.encode() + b"\n")
    process.stdin.flush()
    reply = json.loads(process.stdout.readline())
    assert "serverInfo" in reply["result"], reply
    # Killed, so that the shutdown is not measured.
    process.kill()
    return _seconds_of(process)


def seconds_to_run(code: str) -> float:
    """Return the CPU seconds of an interpreter that runs `code`."""
    return _seconds_of(subprocess.Popen([sys.executable, "-c", code]))


def _seconds_of(process: "subprocess.Popen[bytes]") -> float:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # because wait4 has already collected it
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    return usage.ru_utime + usage.ru_stime


def measure_servers(runs: int) -> tuple[float, float]:
    """Return the median CPU seconds of the bare server and of this server."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MCP_COMPACTION_ARCHIVE": f"{folder}/archive"}
        reference_command = [sys.executable, "-c", REFERENCE_SERVER]
        own_command = [sys.executable, "-m", "mcp_server_compaction"]
        for command in (reference_command, own_command):  # the first run fills caches
            seconds_to_initialize(command, environment)
        reference: list[float] = []
        own: list[float] = []
        for _ in range(runs):
            reference.append(seconds_to_initialize(reference_command, environment))
            own.append(seconds_to_initialize(own_command, environment))
    return statistics.median(reference), statistics.median(own)


def measure_import(runs: int) -> float:
    """Return the median CPU seconds of `import context_compaction`."""
    empty: list[float] = []
    library: list[float] = []
    for _ in range(runs):
        empty.append(seconds_to_run("pass"))
        library.append(seconds_to_run("import context_compaction"))
    return statistics.median(library) - statistics.median(empty)


def main() -> int:
    """Print the figures; return 1 if a limit is exceeded."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_RUNS
    reference, own = measure_servers(runs)
    library = measure_import(runs)
    print(f"bare server   {reference:.3f} s CPU (median of {runs})")
    print(
        f"this server   {own:.3f} s CPU, {own / reference:.2f} x the bare one (limit {MAX_RATIO})"
    )
    print(f"import        {library:.3f} s CPU (limit {MAX_IMPORT_SECONDS})")
    return 0 if own <= reference * MAX_RATIO and library < MAX_IMPORT_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
