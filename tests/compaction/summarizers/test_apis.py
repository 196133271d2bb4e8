"""Summaries through each API that a model's server can speak: answers, failures, and where keys go.

The model is a script on loopback with the real wire formats. It refuses what the providers refuse.
"""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest
from anyio import to_thread
from context_compaction import (
    Archive,
    CompactRequest,
    CompactResult,
    SettingsError,
    compact,
    open_archive,
    summary_model,
)

from tests.support.json_types import Json
from tests.support.provider_rules import problems
from tests.support.story import SUMMARY, story
from tests.support.strict_answers import Says
from tests.support.strict_provider import (
    Hangs,
    Provider,
    Raw,
    Reply,
    Request,
    Script,
    in_turn,
    serve_provider,
)
from tests.support.strict_rules import Fails

WAIT_SECONDS = 150
KEY_ENV = "MY_SUMMARY_KEY"
KEY = "named-key"
REQUEST = CompactRequest(
    mode="full", model="claude-opus-4-5", target_tokens=8_000, session_id="story"
)
APIS = ("anthropic", "openai", "openai-responses")
# The paths that the clients add to the address differ: Anthropic's SDK adds the version itself.
PATHS = {"anthropic": "", "openai": "/v1", "openai-responses": "/v1"}

pytestmark = pytest.mark.parametrize("kind", APIS)


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncGenerator[Archive]:
    async with open_archive(tmp_path / "archive") as opened:
        yield opened


@pytest.fixture(autouse=True)
def named_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


def always(reply: Reply) -> Script:
    return lambda _: reply


def streamed(text: str) -> Raw:
    """Return a response that is a stream, but not of any API."""
    return Raw(text.encode(), headers=(("Content-Type", "text/event-stream"),))


def model_at(url: str, kind: str, **options: Any) -> Any:
    options = {"key_env": KEY_ENV, "timeout_seconds": 40.0} | options
    return summary_model(f"{kind}:some-model", url=url + PATHS[kind], **options)


async def run(
    archive: Archive,
    kind: str,
    script: Script,
    request: CompactRequest = REQUEST,
    *,
    is_strict: bool = True,
    **options: Any,
) -> tuple[CompactResult, Provider]:
    payload = story()
    with anyio.fail_after(WAIT_SECONDS), serve_provider(script, is_strict=is_strict) as api:
        model = model_at(api.url, kind, **options)
        result = await compact(payload, request, archive=archive, model=model)
    assert problems(result.messages, "anthropic", original=payload) == []
    assert result.fits
    assert KEY not in json.dumps([result.receipt, result.messages, list(result.warnings)])
    assert KEY not in repr(model)
    return result, api


def assert_extracts(result: CompactResult, *reasons: str) -> None:
    assert result.status == "compacted"
    assert result.receipt["writer"] == "extractive"
    for reason in reasons:
        assert reason in result.receipt["model"]["failure"]


async def test_text_and_usage_of_the_model_are_in_the_result(archive: Archive, kind: str) -> None:
    result, api = await run(archive, kind, always(Says(SUMMARY)))
    assert "float arithmetic lost cents" in (result.summary or "")
    assert not result.warnings
    report = result.receipt["model"]
    assert (report["writer"], report["name"]) == (kind.partition("-")[0], "some-model")
    assert report["input_tokens"] > 1_000
    assert report["output_tokens"] > 100
    assert report["cost_dollars"] is None, "nobody knows the price of this model"
    assert not report["is_estimated"]
    (request,) = api.requests
    assert request.json["stream"]
    assert request.json["model"] == "some-model"
    assert "tools" not in request.json
    if kind == "openai-responses":
        assert request.json["store"] is False


async def test_reported_cost_is_in_the_receipt_and_missing_usage_is_estimated(
    archive: Archive, kind: str
) -> None:
    usage = {"input_tokens": 900, "output_tokens": 50, "prompt_tokens": 900, "cost": 0.0125}
    chat: list[Json] = [
        {"choices": [{"delta": {"content": SUMMARY}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage},
    ]
    done: Json = {"status": "completed", "output": [], "usage": usage}
    responses: list[Json] = [
        {"type": "response.output_text.delta", "delta": SUMMARY},
        {"type": "response.completed", "response": done},
    ]
    if kind == "anthropic":
        return  # it reports tokens, and no cost
    events = chat if kind == "openai" else responses
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    result, _ = await run(archive, kind, always(streamed(stream)))
    assert result.receipt["model"]["cost_dollars"] == 0.0125
    stream = stream.replace(json.dumps(usage), "null")
    other = replace(REQUEST, session_id="other")
    result, _ = await run(archive, kind, always(streamed(stream)), other)
    report = result.receipt["model"]
    assert report["is_estimated"]
    assert report["input_tokens"] > 1_000


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("recovers", [True, False])
async def test_busy_server_gets_at_most_three_requests(
    archive: Archive, kind: str, status: int, recovers: bool
) -> None:
    busy = Fails(status, "overloaded_error", headers=(("retry-after", "0.02"),))
    replies = in_turn(busy, busy, Says(SUMMARY) if recovers else busy)
    result, api = await run(archive, kind, replies)
    assert len(api.requests) == 3
    if recovers:
        assert result.receipt["model"]["failure"] is None
    else:
        assert_extracts(result, f"returned status {status}")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Says(""), "The model returned no text"),
        (Says(SUMMARY, stop_reason="refusal"), "refused to write"),
        (Says(SUMMARY, (("Bash", {"command": "rm -rf build"}),)), "called a tool"),
        (Says(SUMMARY, broken="close"), "was interrupted"),
        (Says(SUMMARY, broken="cut"), "The connection to some-model failed"),
        (Says(SUMMARY, broken="error"), "Overloaded"),
        (Fails(401, "authentication_error", f"wrong: {KEY}"), "check the variable that holds"),
        (Fails(404, "not_found_error"), "check the name and the address"),
        (Raw(b"<html><body>Log in to the proxy</body></html>"), "some-model"),
        (streamed(""), "some-model"),
        (streamed("data: {no json\n\n"), "some-model"),
        (streamed("data: [1, 2]\n\n"), "some-model"),
        (streamed('data: {"type": "response.completed", "choices": [7]}\n\n'), "some-model"),
    ],
)
async def test_extracts_are_used_when_there_is_no_summary(
    archive: Archive, kind: str, reply: Reply, reason: str
) -> None:
    result, _ = await run(archive, kind, always(reply))
    assert_extracts(result, reason)


@pytest.mark.parametrize(
    "reply",
    [Hangs(""), Hangs(SUMMARY), Fails(429, "busy", headers=(("retry-after", "3600"),))],
)
async def test_hanging_server_is_left_at_the_time_limit(
    archive: Archive, kind: str, reply: Reply
) -> None:
    result, _ = await run(archive, kind, always(reply), timeout_seconds=0.6)
    assert_extracts(result, "did not finish within 0.6 seconds")


async def test_prompt_is_shorter_after_a_refusal_as_too_long(archive: Archive, kind: str) -> None:
    def script(request: Request) -> Reply:
        if len(request.body) > 20_000:
            text = "This model's maximum context length is 4096 tokens."
            return Fails(400, "invalid_request_error", text)
        return Says(SUMMARY)

    result, api = await run(archive, kind, script)
    assert result.receipt["model"]["failure"] is None
    sizes = [len(request.body) for request in api.requests]
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)


async def test_answer_without_end_is_left(archive: Archive, kind: str) -> None:
    result, _ = await run(archive, kind, always(Says(SUMMARY + "and so on " * 60_000)))
    assert_extracts(result, "does not end its answer")


async def test_cancelled_call_closes_the_connection(archive: Archive, kind: str) -> None:
    asked = Event()

    def script(_: Request) -> Reply:
        asked.set()
        return Hangs("## Goal")

    with serve_provider(script) as api, anyio.fail_after(WAIT_SECONDS):
        async with anyio.create_task_group() as group:
            model = model_at(api.url, kind)
            group.start_soon(partial(compact, story(), REQUEST, archive=archive, model=model))
            assert await to_thread.run_sync(asked.wait, WAIT_SECONDS)
            group.cancel_scope.cancel()
        assert await to_thread.run_sync(api.hung_up.wait, WAIT_SECONDS)
    assert await archive.receipts("story") == []
    archived = await archive.read_messages("story", 0, 100)
    assert [message.raw for message in archived] == story()


async def test_progress_tells_how_much_is_written(archive: Archive, kind: str) -> None:
    events: list[tuple[float, str]] = []

    async def log(fraction: float, step: str) -> None:
        events.append((fraction, step))

    with serve_provider(always(Says(SUMMARY))) as api:
        model = model_at(api.url, kind)
        await compact(story(), REQUEST, archive=archive, model=model, report_progress=log)
    fractions = [fraction for fraction, _ in events]
    assert fractions == sorted(set(fractions))
    assert any(step.startswith("writing, ") for _, step in events)


# Everything that SDKs, proxies and tools of this field read from the environment.
OTHER_KEYS = {
    "ANTHROPIC_API_KEY": "other-1",
    "ANTHROPIC_AUTH_TOKEN": "other-2",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Api-Key: other-3\nAuthorization: other-4\nX-More: other-5",
    "OPENAI_API_KEY": "other-6",
    "OPENAI_ORG_ID": "other-7",
    "OPENAI_PROJECT_ID": "other-8",
    "OPENROUTER_API_KEY": "other-9",
}


@pytest.mark.parametrize("key_env", [KEY_ENV, None])
async def test_only_the_named_key_is_sent_and_only_to_the_chosen_address(
    archive: Archive,
    kind: str,
    key_env: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with serve_provider(always(Says(SUMMARY))) as elsewhere:
        for name, value in OTHER_KEYS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", elsewhere.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{elsewhere.url}/v1")
        netrc = tmp_path / ".netrc"
        netrc.write_text("default login me password other-10", encoding="ascii")
        monkeypatch.setenv("NETRC", str(netrc))
        # Without a key the strict rules would refuse the request.
        is_strict = key_env is not None
        result, api = await run(
            archive, kind, always(Says(SUMMARY)), is_strict=is_strict, key_env=key_env
        )
        assert elsewhere.requests == []
    assert result.receipt["model"]["failure"] is None
    sent = "".join(f"{request.headers}{request.body}" for request in api.requests)
    assert "other-" not in sent
    assert (KEY in sent) == (key_env is not None)


@pytest.mark.parametrize("status", [302, 307])
async def test_nothing_follows_a_redirect(archive: Archive, kind: str, status: int) -> None:
    with serve_provider(always(Says(SUMMARY))) as elsewhere:
        path = "/v1/messages" if kind == "anthropic" else "/v1/chat/completions"
        moved = Fails(status, "moved", headers=(("Location", f"{elsewhere.url}{path}"),))
        result, _ = await run(archive, kind, always(moved))
        assert elsewhere.requests == []
    assert_extracts(result, str(status))


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("{}:m", {}, "needs a key"),
        ("{}:m", {"key_env": "UNSET_KEY"}, "UNSET_KEY"),
        ("{}:", {"key_env": KEY_ENV}, "does not name its API"),
        ("{}", {"key_env": KEY_ENV}, "does not name its API"),
        ("{}:m", {"url": "ftp://example.org"}, "Invalid address"),
        ("{}:m", {"url": "http://[::1"}, "Invalid address"),
        ("{}:m", {"url": "http://example.org"}, "unencrypted"),
        ("{}:m", {"url": "http://127.example.org"}, "unencrypted"),
        ("{}:m", {"url": "https://me:cret@example.org"}, "name or password"),
    ],
)
def test_invalid_choice_is_refused(
    kind: str, name: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem) as raised:
        summary_model(name.format(kind), **options)
    assert "cret" not in str(raised.value)
