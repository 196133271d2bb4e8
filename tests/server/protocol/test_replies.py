"""Replies: truncation, internal errors, and text that is not valid UTF-8."""

import json
from typing import Any

import pytest
from context_compaction.messages.model import compact_json
from mcp.shared.exceptions import MCPError
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.tools import MAX_REPLY_CHARS, truncated

from tests.server.helpers import Era, connect, error_of, text_of


def test_long_reply_is_truncated_and_marks_each_cut() -> None:
    edit = {"layer": "microcompact", "pointers": ["o_" + "0" * 24], "note": "x" * 80}
    answer: dict[str, Any] = {
        "status": "compacted",
        "tokens": {"before": 1, "after": 1, "upper": 1, "trigger": 1, "target": 1, "method": "m"},
        "layers": [{"name": f"layer {number}"} for number in range(9)],
        "warnings": [f"Message {number}: " + "w" * 300 for number in range(300)],
        "summary": "s" * 16_000,
        "receipt": {
            "edits": [edit] * 500,
            "digest": {
                "files": [f"src/{number}.py" for number in range(200)],
                "calls": {f"tool {number}": number for number in range(200)},
            },
        },
    }
    cut = truncated(answer, MAX_REPLY_CHARS)
    assert len(compact_json(cut)) <= MAX_REPLY_CHARS
    assert cut["layers"] == answer["layers"]
    assert cut["tokens"] == answer["tokens"]
    assert cut["warnings"][-1].endswith("more")
    assert "more characters" in cut["summary"]


async def test_internal_error_is_hidden_from_the_client(
    config: Config, era: Era, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("what somebody said")

    monkeypatch.setattr("mcp_server_compaction.protocol.tools.archived.query_of", fail)
    async with connect(config, era) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("search_transcript", {"query": "x"})
    assert refused.value.error.code == -32603
    assert "somebody" not in refused.value.error.message
    assert "what somebody said" in caplog.text


async def test_lone_surrogate_is_escaped_in_reads_and_refused_in_lists(config: Config) -> None:
    messages = [
        {"role": "user", "content": "broken \ud83d here"},
        {"role": "assistant", "content": "yes " * 3_000},
        {"role": "user", "content": "go on"},
    ]
    arguments = {"messages": messages, "session_id": "s", "mode": "full", "target_tokens": 900}
    async with connect(config) as client:
        answer = await client.call_tool("compact_messages", {**arguments, "reply": "receipt"})
        assert not answer.is_error, text_of(answer)
        read = await client.call_tool(
            "read_persisted_output", {"output_id": "transcript://s/messages/0-0", "as_json": True}
        )
        refused = error_of(await client.call_tool("compact_messages", arguments))
    assert json.loads(text_of(read)) == messages[0]
    assert "surrogate" in refused
