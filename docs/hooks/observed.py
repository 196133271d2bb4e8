"""What is there to be described: a server as its clients see it, an archive as it was written."""

import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
from context_compaction import (
    CompactRequest,
    LocalArchive,
    Prepared,
    compact,
    open_archive,
    parse,
    read_conversation,
)
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import Prompt, ResourceTemplate, TextResourceContents, Tool

Json: TypeAlias = dict[str, Any]

SESSION = Path(__file__).parents[2] / "examples" / "pi-session.jsonl"
LIMIT_SECONDS = 120
_MESSAGES = 240  # of the example session: enough for every layer to act
_WINDOWS = (32_000, 200_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Surface:
    """What a client of the server sees.

    Attributes:
        tools: The four tools.
        templates: The resources.
        prompts: The prompts.
        options: Schemas of the fields of `options`, by name.
    """

    tools: Sequence[Tool]
    templates: Sequence[ResourceTemplate]
    prompts: Sequence[Prompt]
    options: Json


@dataclass(frozen=True, slots=True)
class Written:
    """What compactions left in an archive.

    Attributes:
        receipt: Names of the fields that receipts had.
        records: By kind of record, the fields of its head.
    """

    receipt: frozenset[str]
    records: dict[str, frozenset[str]]


def server_surface() -> Surface:
    """Start the server, as a host does, and ask it for its lists."""

    async def ask() -> Surface:
        with tempfile.TemporaryDirectory() as folder, anyio.fail_after(LIMIT_SECONDS):
            server = StdioServerParameters(
                command=sys.executable,
                args=["-m", "mcp_server_compaction", "--archive", folder],
                env={"HOME": folder, "PATH": os.environ.get("PATH", "")},
                cwd=folder,
            )
            async with Client(server) as client:
                (options,) = (await client.read_resource("options://compact_messages")).contents
                return Surface(
                    (await client.list_tools()).tools,
                    (await client.list_resource_templates()).resource_templates,
                    (await client.list_prompts()).prompts,
                    json.loads(cast("TextResourceContents", options).text)["options"],
                )

    return anyio.run(ask)


def written() -> Written:
    """Compact a real session in several ways, and look at what stands in the archive."""

    async def write() -> Written:
        with tempfile.TemporaryDirectory() as folder, anyio.fail_after(LIMIT_SECONDS):
            root = Path(folder) / "archive"
            index = Path(folder) / "index"
            async with open_archive(root, index_root=index, redaction="warn") as archive:
                await _work(archive)
            return _look(root)

    return anyio.run(write)


async def _work(archive: LocalArchive) -> None:
    conversation = read_conversation(SESSION.read_bytes(), name=SESSION.name)
    payload = conversation.payload[:_MESSAGES]
    plain = CompactRequest(
        format=conversation.format, session_id="s", target_tokens=15_000, pinned=("Keep this.",)
    )
    done = await compact(payload, plain, archive=archive)
    grown = conversation.payload[: _MESSAGES + 120]  # a host that hands in its whole list again
    await compact(grown, plain, archive=archive)
    refused = replace(plain, mode="reactive", pinned=(), target_tokens=None, context_window=40_000)
    await compact(done.messages, refused, archive=archive)
    snipped = replace(plain, session_id="snipped", snip_messages=(4,))
    await compact(payload, snipped, archive=archive)
    prepared = await compact(
        payload, replace(plain, session_id="later", mode="full", prepare=True), archive=archive
    )
    apply = replace(plain, session_id="later", pinned=(), target_tokens=None)
    apply = replace(apply, apply=cast("Prepared", prepared.prepared).prepared_id)
    await compact(payload, apply, archive=archive)
    # A host that shows the end of the same history only, and a session that retention must leave.
    messages = parse(payload, format=conversation.format)
    await archive.append("slid", messages[:40], format=conversation.format)
    await archive.append("slid", messages[20:50], format=conversation.format)
    await archive.retain("s")


def _look(root: Path) -> Written:
    receipt: set[str] = set()
    records: dict[str, set[str]] = defaultdict(set)
    for segment in sorted(root.glob("sessions/*/*/*.jsonl")):
        for line in segment.read_text(encoding="utf-8").splitlines():
            record: Json = json.loads(line)
            records[record["kind"]] |= set(record)
            if record["kind"] == "receipt":
                receipt |= set(record["body"])
    return Written(frozenset(receipt), {kind: frozenset(names) for kind, names in records.items()})


def budgets(policies: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """By policy, trigger and target of windows of 32K, 200K and 1M tokens."""

    async def plan() -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        with tempfile.TemporaryDirectory() as folder:
            async with open_archive(Path(folder)) as archive:
                for policy in policies:
                    requests = [
                        CompactRequest(mode="plan", policy=policy, context_window=window)
                        for window in _WINDOWS
                    ]
                    hello = [{"role": "user", "content": "Hello."}]
                    results = [await compact(hello, one, archive=archive) for one in requests]
                    found[policy] = [(one.tokens.trigger, one.tokens.target) for one in results]
        return found

    return anyio.run(plan)
