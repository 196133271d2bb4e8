"""A conversation's own model gets the conversation itself, so that the provider's cache serves it.

The provider counts what is in its cache: blocks up to a breakpoint of an earlier request
(Anthropic), or a prefix of an earlier prompt (OpenAI).
"""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    compact,
    convert,
    formats,
    open_archive,
    parse,
    summary_model,
)

from tests.support.json_types import Json
from tests.support.story import SUMMARY, story
from tests.support.strict_answers import Says
from tests.support.strict_provider import Provider, Script, in_turn, serve_provider, shared_prefix
from tests.support.strict_rules import Fails

WAIT_SECONDS = 150
MODEL = "claude-opus-4-5"
SYSTEM = "You maintain the billing code. " * 20
FORMATS = {
    "anthropic": "anthropic",
    "openai": "openai-chat",
    "openai-responses": "openai-responses",
}
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions"}
HEADERS = {"x-api-key": "k", "authorization": "Bearer k", "anthropic-version": "2023-06-01"}
SCHEMA: Json = {"type": "object", "properties": {"file_path": {"type": "string"}}}

pytestmark = pytest.mark.parametrize("kind", FORMATS)


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncGenerator[Archive]:
    async with open_archive(tmp_path / "archive") as opened:
        yield opened


def conversation(kind: str) -> list[Json]:
    """Return the story without thinking, as a list of this API."""
    messages = story(turns=12)
    for message in messages:
        if isinstance(message["content"], list):
            blocks = cast("list[Json]", message["content"])
            message["content"] = [block for block in blocks if block["type"] != "thinking"]
    if kind == "anthropic":
        return messages
    target = FORMATS[kind]
    render = formats.FORMATS[target].render_message
    return [
        raw for m in convert(parse(messages, format="anthropic"), to=target) for raw in render(m)
    ]


def tools(kind: str) -> list[Json]:
    tool: Json = {"name": "Read", "description": "Reads a file. " * 40}
    if kind == "anthropic":
        return [{**tool, "input_schema": SCHEMA}]
    if kind == "openai":
        return [{"type": "function", "function": {**tool, "parameters": SCHEMA}}]
    return [{"type": "function", **tool, "parameters": SCHEMA}]


async def ask_as_the_agent(api: Provider, kind: str, messages: list[Json]) -> None:
    """Send the agent's own request, which fills the provider's cache."""
    body: Json = {"model": MODEL, "tools": tools(kind)}
    if kind == "openai":
        body["messages"] = [{"role": "system", "content": SYSTEM}, *messages]
    elif kind == "openai-responses":
        body |= {"instructions": SYSTEM, "input": messages, "store": False}
    else:
        *earlier, last = messages
        mark = {"cache_control": {"type": "ephemeral"}}
        content: Any = last["content"]
        blocks: list[Json] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content
        )
        marked = {**last, "content": [*blocks[:-1], {**blocks[-1], **mark}]}
        body |= {"max_tokens": 100, "system": SYSTEM, "messages": [*earlier, marked]}
    async with httpx2.AsyncClient(timeout=WAIT_SECONDS) as client:
        path = PATHS.get(kind, "/v1/responses")
        response = await client.post(api.url + path, json=body, headers=HEADERS)
        assert response.is_success, response.text


async def run(
    archive: Archive,
    kind: str,
    script: Script,
    *,
    change: Callable[[CompactRequest], CompactRequest] = lambda request: request,
    **options: Any,
) -> tuple[CompactResult, Provider]:
    """Ask as the agent, then compact with a summary by the same model."""
    messages = conversation(kind)
    request = CompactRequest(
        mode="full",
        format=FORMATS[kind],
        model=MODEL,
        target_tokens=8_000,
        session_id="story",
        system=SYSTEM,
        tools=tools(kind),
    )
    with anyio.fail_after(WAIT_SECONDS), serve_provider(script) as api:
        await ask_as_the_agent(api, kind, messages[:-1])
        url = api.url + ("" if kind == "anthropic" else "/v1")
        model = summary_model(f"{kind}:{MODEL}", url=url, key_env="MY_KEY", **options)
        result = await compact(messages, change(request), archive=archive, model=model)
    return result, api


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k")


async def test_cache_serves_nearly_all_of_the_request(archive: Archive, kind: str) -> None:
    result, api = await run(archive, kind, in_turn(Says("Done."), Says(SUMMARY)))
    assert "float arithmetic lost cents" in (result.summary or "")
    report = result.receipt["model"]
    assert report["routes"] == ["conversation"]
    agent, own = api.requests
    assert shared_prefix(agent, own) == 1.0
    usage = own.usage
    assert usage is not None
    assert agent.usage is not None
    assert usage.read >= 0.98 * agent.usage.total
    assert usage.read >= 0.8 * usage.total
    assert report["cache_read_tokens"] == usage.read
    expected = None if kind == "anthropic" else "none"  # elsewhere it is no part of the cache
    assert own.json.get("tool_choice") == expected
    instruction = str(own.items[-1]["content"])
    assert "call no tools" in instruction


@pytest.mark.parametrize(
    "first_reply",
    [
        Says("Let me look.", (("Read", {"file_path": "a"}),)),
        Fails(400, "invalid_request_error", "messages: odd"),
        Says("I do not want to.", stop_reason="refusal"),
    ],
)
async def test_transcript_is_sent_when_the_conversation_gives_no_summary(
    archive: Archive, kind: str, first_reply: Says | Fails
) -> None:
    result, api = await run(archive, kind, in_turn(Says("Done."), first_reply, Says(SUMMARY)))
    assert "float arithmetic lost cents" in (result.summary or "")
    (route,) = result.receipt["model"]["routes"]
    assert route.startswith("whole, after a request in the conversation failed")
    last = api.requests[-1].json
    assert "tools" not in last
    assert "<transcript>" in str(last)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"model": "claude-sonnet-4-5"}, {}),
        ({"model": None}, {}),
        ({"idle_seconds": 3_000.0}, {}),
        ({"range": (1, 40)}, {}),
        ({}, {"shares_cache": False}),
        ({}, {"context_window": 20_000}),
    ],
)
async def test_other_models_get_the_escaped_transcript(
    archive: Archive, kind: str, changes: Json, options: Json
) -> None:
    script = in_turn(Says("Done."), Says(SUMMARY))
    result, api = await run(
        archive, kind, script, change=lambda request: replace(request, **changes), **options
    )
    assert "float arithmetic lost cents" in (result.summary or "")
    (request,) = api.requests[1:]
    assert "tools" not in request.json
    assert "<transcript>" in str(request.json)
