"""One hash for each output of the product: a change of its shape shows that it changed nothing.

    python benchmarks/fingerprint.py OUT [--all] [--texts DIR]
    python benchmarks/fingerprint.py OUT --against BEFORE

Writes a line for each case to OUT: transcripts of the tests x policies x formats x modes through
`compact()` (messages, edits, receipt), what search, read and the resources answer over stdio, and
what the command line prints. Times, temporary paths and random names are left out. A dozen
transcripts of every kind are taken; `--all` takes every one. `--texts` keeps the outputs, for a
diff. `--against` compares OUT with an earlier file and exits with 1 where they differ.

Only public names are used, so the script runs unchanged before and after a move of modules.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import POLICIES, CompactionError, CompactRequest, compact, open_archive

from tests.support.converted import PROVIDER_FORMATS, in_format
from tests.support.corpus import PI_SESSION, Transcript, all_transcripts, sample_transcripts
from tests.support.json_types import is_list, is_object

MODES = ("auto", "plan", "micro", "full", "reactive", "record")
TARGET_SHARE = 0.3  # of what a transcript holds: deep enough that every layer has its turn
QUERIES = ("error", "test", "file", "user name", "def ", "refund")
PROCESSES = 2

_TIME_KEYS = frozenset({
    "archived_seconds",
    "created_seconds",
    "expires_seconds",
    "expires",
    "seconds",
    "ts",
    "took",
    "apply_before",
    "prepared_id",
    "continuation",
})
_NOW = re.compile(
    datetime.now(UTC).strftime("%Y-%m-%d") + r"([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?)?"
)


@dataclass(frozen=True, slots=True)
class Job:
    """All runs of one transcript in one format; `number` counts in the list that was chosen."""

    number: int
    format: str
    takes_all: bool


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--against", type=Path)
    given = parser.parse_args()
    if given.against:
        return compared(given.against, given.out)
    outputs = dict(produced(given.all))
    given.out.write_text(
        "".join(f"{_hash(text)}  {name}\n" for name, text in sorted(outputs.items())),
        encoding="utf-8",
    )
    if given.texts:
        given.texts.mkdir(parents=True, exist_ok=True)
        for name, text in outputs.items():
            (given.texts / (name.replace("/", "_").replace(" ", "_") + ".json")).write_text(
                text, encoding="utf-8", errors="surrogatepass"
            )
    print(f"{len(outputs)} outputs")
    return 0


def compared(before: Path, after: Path) -> int:
    """Print what differs between two files of fingerprints."""
    old, new = _read(before), _read(after)
    differing = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for name in differing:
        state = "missing" if name not in new else "new" if name not in old else "differs"
        print(f"{state}  {name}")
    print(f"{len(differing)} of {len(old.keys() | new.keys())} outputs differ")
    return 1 if differing else 0


def produced(takes_all: bool) -> Iterator[tuple[str, str]]:
    """Every case with its output as text."""
    transcripts = chosen(takes_all)
    jobs = [
        Job(number, format, takes_all)
        for number, transcript in enumerate(transcripts)
        for format in dict.fromkeys((transcript.format, *PROVIDER_FORMATS))
    ]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for outputs in pool.map(outputs_of, jobs):
            yield from outputs
    yield from anyio.run(tool_outputs)
    yield from command_outputs()


def chosen(takes_all: bool) -> list[Transcript]:
    return all_transcripts() if takes_all else sample_transcripts()


def outputs_of(job: Job) -> list[tuple[str, str]]:
    """What `compact()` gives for one transcript in one format, in a process of the pool."""
    return anyio.run(_outputs_of, job)


async def _outputs_of(job: Job) -> list[tuple[str, str]]:
    transcript = chosen(job.takes_all)[job.number]
    payload = in_format(transcript, job.format)
    recorded = await _compacted(payload, CompactRequest(mode="record", format=job.format))
    target_tokens = max(1, int(recorded.tokens.before * TARGET_SHARE))
    outputs: list[tuple[str, str]] = []
    for policy in POLICIES:
        for mode in MODES:
            wish = CompactRequest(
                mode=mode, format=job.format, policy=policy, target_tokens=target_tokens
            )
            name = f"compact/{transcript.name}/{job.format}/{policy}/{mode}"
            try:
                outputs.append((name, _text(await _compacted(payload, wish))))
            except CompactionError as error:
                outputs.append((name, f"{type(error).__name__}: {error}"))
    return outputs


async def _compacted(payload: list[dict[str, Any]], request: CompactRequest) -> Any:
    with TemporaryDirectory() as folder:
        async with open_archive(
            Path(folder) / "archive", index_root=Path(folder) / "index"
        ) as archive:
            return await compact(payload, request, archive=archive)


async def tool_outputs() -> list[tuple[str, str]]:
    """What the tools and resources answer over stdio, with the sample transcripts archived."""
    outputs: list[tuple[str, str]] = []
    async for client in _served():
        tools = await client.list_tools()
        outputs.append(("stdio/tools", _text(tools.model_dump(mode="json"))))
        for number, transcript in enumerate(sample_transcripts()):
            given = {"messages": transcript.payload, "session_id": f"s{number}"}
            for mode in ("auto", "full"):
                reply = await client.call_tool(
                    "compact_messages", {**given, "mode": mode, "context_window": 60_000}
                )
                outputs.append((
                    f"stdio/compact/{transcript.name}/{mode}",
                    _text(reply.model_dump(mode="json")),
                ))
        calls = [
            ("search_transcript", {"query": query, "kind": kind})
            for query in QUERIES
            for kind in ("words", "phrase", "regex")
        ] + [
            ("read_persisted_output", {"output_id": f"transcript://s{number}/messages/0-6"})
            for number in range(len(sample_transcripts()))
        ]
        for tool, arguments in calls:
            reply = await client.call_tool(tool, arguments)
            name = f"stdio/{tool}/{json.dumps(arguments, sort_keys=True)}"
            outputs.append((name, _text(reply.model_dump(mode="json"))))
        for resource in (await client.list_resources()).resources:
            read = await client.read_resource(resource.uri)
            outputs.append((f"stdio/resource/{resource.uri}", _text(read.model_dump(mode="json"))))
    return outputs


async def _served() -> AsyncGenerator[Client]:
    with TemporaryDirectory() as folder:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "mcp_server_compaction"],
            env=_environment(folder),
        )
        async with Client(server) as client:
            yield client


def command_outputs() -> Iterator[tuple[str, str]]:
    """What the command line prints."""
    with TemporaryDirectory() as folder:
        session = str(PI_SESSION)
        for words in (
            ["--help"],
            ["compact", session, "--target", "25%"],
            ["sessions"],
            ["usage"],
            ["policies"],
            ["search", "dark theme"],
            ["search", "dark theme", "--json"],
        ):
            ran = subprocess.run(
                [sys.executable, "-m", "mcp_server_compaction", *words],
                env=_environment(folder),
                capture_output=True,
                text=True,
                check=False,
            )
            shown = (
                (ran.stdout + ran.stderr).replace(folder, "<folder>").replace(session, "<session>")
            )
            yield f"cli/{' '.join(words).replace(session, 'FILE')}", _NOW.sub("<now>", shown)


def _environment(folder: str) -> dict[str, str]:
    return {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": f"{folder}/archive",
        "XDG_CACHE_HOME": f"{folder}/cache",
        "COLUMNS": "100",
    }


def _text(value: Any) -> str:
    """`value` as JSON without what differs from run to run."""
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    text = json.dumps(_timeless(plain), sort_keys=True, indent=1, default=str)
    return _NOW.sub("<now>", text)


def _timeless(value: Any) -> Any:
    if is_object(value):
        return {key: _timeless(item) for key, item in value.items() if key not in _TIME_KEYS}
    if is_list(value):
        return [_timeless(item) for item in value]
    if isinstance(value, tuple):
        return _timeless(list(cast("tuple[Any, ...]", value)))
    return _hash(value.decode("utf-8", "replace")) if isinstance(value, bytes) else value


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: found for found, _, name in (line.partition("  ") for line in lines)}


if __name__ == "__main__":
    sys.exit(main())
