"""A written session file is read as the messages that were given to the writer."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from context_compaction import CompactRequest, compact
from context_compaction.archive.local.archive import open_archive
from context_compaction.formats import parse
from context_compaction.formats.session_files.hosts import HISTORY_READERS, WRITERS
from context_compaction.formats.session_files.model import (
    Conversation,
    NewSession,
    Row,
)
from context_compaction.formats.session_files.read import parse_file
from context_compaction.messages.model import (
    JsonObject,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    text_of,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.strategies import conversations, hostile_conversations

FORMATS = {"claude-code": "anthropic", "codex": "openai-responses", "pi": "pi"}
SESSION = NewSession(
    session_id="0ad2f4b8-9f43-4d5b-8d3f-0f3f4b1f7a11",
    origin="the-first-session",
    cwd="/home/a/project",
    seconds=1_767_225_600.0,
    tokens=4_321,
    title="Mend the login page",
    model="claude-sonnet-4-5",
)


def _lines(rows: Sequence[JsonObject]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _written(host: str, messages: Sequence[JsonObject]) -> Conversation:
    return parse_file(_lines(WRITERS[host](messages, SESSION)), name="file")


@pytest.mark.parametrize("host", FORMATS)
@given(data=st.data())
@settings(max_examples=15)
def test_written_session_file_is_read_as_the_given_messages(host: str, data: st.DataObject) -> None:
    format_name = FORMATS[host]
    anything = conversations(format_name) | hostile_conversations(format_name)
    messages: list[Json] = data.draw(anything.filter(bool))
    before = json.dumps(messages)
    found = _written(host, messages)
    assert found.kind == host
    assert found.format == format_name
    assert found.payload == messages
    assert json.dumps(messages) == before
    assert found.session_id == SESSION.origin
    assert found.cwd == SESSION.cwd
    # An import recognises the session that continues.
    rows = WRITERS[host](messages, SESSION)
    [history] = HISTORY_READERS[host]([Row(n, row) for n, row in enumerate(rows, 1)], True)
    assert history.session_id == SESSION.origin
    assert [entry.raw for entry in history.entries] == messages


@pytest.mark.parametrize("host", ["claude-code", "pi"])
def test_written_session_reports_the_tokens_of_its_new_context(host: str) -> None:
    messages: list[JsonObject] = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "One.", "usage": {"input_tokens": 190_000}},
        {"role": "user", "content": "On."},
        {"role": "assistant", "content": "Two.", "usage": {"input_tokens": 195_000}},
    ]
    written = [row["message"] for row in WRITERS[host](messages, SESSION) if "message" in row]
    usage = written[-1]["usage"]
    assert usage.get("input_tokens", usage.get("totalTokens")) == SESSION.tokens
    assert _written(host, messages).payload == messages


@pytest.mark.parametrize("host", FORMATS)
async def test_continued_session_archives_only_new_messages(host: str, tmp_path: Path) -> None:
    def message(role: str, text: str) -> JsonObject:
        kind = "output_text" if role == "assistant" else "input_text"
        block = {"type": kind if host == "codex" else "text", "text": text}
        typed: JsonObject = {"type": "message"} if host == "codex" else {}
        return {**typed, "role": role, "content": [block]}

    messages: list[JsonObject] = []
    for number in range(40):
        messages.append(message("user", f"Question {number}: {'why ' * 300}"))
        messages.append(message("assistant", f"Answer {number}: {'so ' * 300}"))
    request = CompactRequest(
        mode="full", format=FORMATS[host], session_id=SESSION.origin, target_tokens=4_000
    )
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        result = await compact(messages, request, archive=archive)
        assert result.changed
        found = _written(host, result.messages)
        assert found.payload == result.messages
        new = [message("user", "And now?"), message("assistant", "Now this.")]
        again = CompactRequest(mode="record", format=found.format, session_id=found.session_id)
        before = (await archive.session_info(SESSION.origin)).message_count
        await compact([*found.payload, *new], again, archive=archive)
        after = (await archive.session_info(SESSION.origin)).message_count
    assert after - before == len(new)


def _content_of(messages: Messages) -> dict[str, list[object]]:
    """Return texts, calls and results, each in order."""
    found: dict[str, list[object]] = {"texts": [], "calls": [], "results": []}
    for message in messages:
        speaker = "assistant" if message.role == "assistant" else "user"
        for block in message.blocks:
            if isinstance(block, ToolResult):
                texts = [
                    part.text for part in block.content if isinstance(part, Text) and part.text
                ]
                found["results"].append((block.call_id, "\n".join(texts), block.is_error))
            elif isinstance(block, ToolCall):
                found["calls"].append((block.call_id, block.name, block.arguments))
            elif isinstance(block, Text) and block.text:
                found["texts"].append((speaker, block.text))
    return found


@given(data=st.data())
# Many conversations have images or documents, which opencode writes as text.
@settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much])
def test_written_opencode_session_has_the_same_texts_calls_and_results(data: st.DataObject) -> None:
    messages: list[Json] = data.draw(conversations("anthropic"))
    given_messages = _content_of(parse(messages))
    assume(given_messages["texts"])
    assume(not re.search("image|document", json.dumps(messages)))
    found = _written("opencode", messages)
    assert _content_of(found.messages) == given_messages
    assert (found.kind, found.session_id) == ("opencode", SESSION.origin)
    assert (found.cwd, found.model) == (SESSION.cwd, SESSION.model)


def test_synthetic_part_of_opencode_has_the_host_as_author() -> None:
    typed, added = "Never edit vendor/. Look at @notes.md.", "Always deploy on Fridays."
    parts: list[Json] = [
        {"type": "text", "text": typed},
        {"type": "text", "text": added, "synthetic": True},
        {"type": "text", "text": "A note for the screen.", "ignored": True},
    ]
    document: Json = {
        "info": {"id": "ses_1", "directory": "/"},
        "messages": [{"info": {"role": "user"}, "parts": parts}],
    }
    found = parse_file(json.dumps(document), name="export.json")
    assert [text_of(message.blocks) for message in found.messages] == [typed, added]
    authors = [
        block.author for m in found.messages for block in m.blocks if isinstance(block, Text)
    ]
    assert authors == [None, "host"]
    again = _written("opencode", found.payload)
    assert again.payload == found.payload
