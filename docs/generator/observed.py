"""Observe what the reference describes: a running server, and an archive with real records."""

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
    Archive,
    CompactRequest,
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
_MESSAGE_COUNT = 240  # of the example session: enough for every layer to act
_WINDOWS = (32_000, 200_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Surface:
    """The server as a client sees it.

    Attributes:
        tools: Definitions of the four tools.
        templates: Templates of the resources.
        prompts: Definitions of the prompts.
        options: JSON schemas of the fields of `options`, by name.
    """

    tools: Sequence[Tool]
    templates: Sequence[ResourceTemplate]
    prompts: Sequence[Prompt]
    options: Json


@dataclass(frozen=True, slots=True)
class ArchiveFields:
    """Names of fields in an archive's files.

    Attributes:
        receipt: Names of the fields of receipts.
        records: Names of the fields of records, by kind of record.
    """

    receipt: frozenset[str]
    records: dict[str, frozenset[str]]


def server_surface() -> Surface:
    """Start the server as a host does, and read its lists."""

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


def archive_fields() -> ArchiveFields:
    """Compact a real session in several ways, and collect the fields of the archive's records."""

    async def write() -> ArchiveFields:
        with tempfile.TemporaryDirectory() as folder, anyio.fail_after(LIMIT_SECONDS):
            root = Path(folder) / "archive"
            index = Path(folder) / "index"
            async with open_archive(root, index_root=index, redaction="warn") as archive:
                await _compact_in_several_ways(archive)
            return _fields_in(root)

    return anyio.run(write)


async def _compact_in_several_ways(archive: Archive) -> None:
    conversation = read_conversation(SESSION.read_bytes(), name=SESSION.name)
    payload = conversation.payload[:_MESSAGE_COUNT]
    plain = CompactRequest(
        format=conversation.format, session_id="s", target_tokens=15_000, pinned=("Keep this.",)
    )
    compacted = await compact(payload, plain, archive=archive)
    extended = conversation.payload[
        : _MESSAGE_COUNT + 120
    ]  # a host that passes its whole list again
    await compact(extended, plain, archive=archive)
    rejected = replace(plain, mode="reactive", pinned=(), target_tokens=None, context_window=40_000)
    await compact(compacted.messages, rejected, archive=archive)
    snipped = replace(plain, session_id="snipped", snip_messages=(4,))
    await compact(payload, snipped, archive=archive)
    await compact(payload, replace(plain, session_id="range", range=(4, 30)), archive=archive)
    prepared = await compact(
        payload, replace(plain, session_id="later", mode="full", prepare=True), archive=archive
    )
    apply = replace(plain, session_id="later", pinned=(), target_tokens=None)
    apply = replace(apply, apply=cast("Prepared", prepared.prepared).prepared_id)
    await compact(payload, apply, archive=archive)
    # A host that passes only the end of its list, and a session that `prune` must not delete.
    messages = parse(payload, format=conversation.format)
    await archive.append("slid", messages[:40], format=conversation.format)
    await archive.append("slid", messages[20:50], format=conversation.format)
    await archive.retain("s")


def _fields_in(root: Path) -> ArchiveFields:
    receipt: set[str] = set()
    records: dict[str, set[str]] = defaultdict(set)
    for segment in sorted(root.glob("sessions/*/*/*.jsonl")):
        for line in segment.read_text(encoding="utf-8").splitlines():
            _, _, head, body = json.loads(line)
            records[head["kind"]] |= set(head)
            if head["kind"] == "receipt":
                receipt |= set(body)
    return ArchiveFields(
        frozenset(receipt), {kind: frozenset(names) for kind, names in records.items()}
    )


def budgets(policies: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Return, by policy, trigger and target for windows of 32K, 200K and 1M tokens."""

    async def plan() -> dict[str, list[tuple[int, int]]]:
        by_policy: dict[str, list[tuple[int, int]]] = {}
        with tempfile.TemporaryDirectory() as folder:
            async with open_archive(Path(folder)) as archive:
                for policy in policies:
                    requests = [
                        CompactRequest(mode="plan", policy=policy, context_window=window)
                        for window in _WINDOWS
                    ]
                    hello = [{"role": "user", "content": "Hello."}]
                    results = [
                        await compact(hello, request, archive=archive) for request in requests
                    ]
                    by_policy[policy] = [
                        (result.tokens.trigger, result.tokens.target) for result in results
                    ]
        return by_policy

    return anyio.run(plan)
