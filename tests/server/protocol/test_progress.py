"""Progress over real stdio: a client learns when a compaction begins and how it ended."""

import os
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from tests.server.helpers import Era, answer_of, conversation


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_is_told_before_and_after_a_compaction(tmp_path: Path, era: Era) -> None:
    environment = {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction"], env=environment
    )
    told: list[tuple[float, str]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    arguments = {"messages": conversation(), "mode": "full", "reply": "receipt"}
    with anyio.fail_after(150):
        async with Client(server, mode="legacy" if era == "legacy" else "auto") as client:
            answer = answer_of(
                await client.call_tool("compact_messages", arguments, progress_callback=tell)
            )
    tokens = answer["tokens"]
    fractions = [fraction for fraction, _ in told]
    assert fractions == sorted(fractions)
    words = [word for _, word in told]
    assert any(
        word.startswith("compacting ") and f"{tokens['before']} tokens" in word for word in words
    )
    assert words[-1].startswith(f"done: {tokens['before']} -> {tokens['after']} tokens")
