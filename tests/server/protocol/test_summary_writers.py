"""Choice of the summary writer, by configuration, call and client."""

import json
from dataclasses import replace
from threading import Event
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio import to_thread
from context_compaction.errors import SettingsError
from mcp_server_compaction.config import Config, Summaries, load_config

from tests.server.helpers import (
    TIMEOUT_SECONDS,
    Era,
    Json,
    Sampler,
    answer_of,
    connect,
    error_of,
    spawned,
)
from tests.support.story import GOAL, RULE, SUMMARY, story
from tests.support.strict_answers import Says
from tests.support.strict_provider import Hangs, Reply, Request, serve_provider

CALL: Json = {
    "messages": story(),
    "mode": "full",
    "target_tokens": 8_000,
    "session_id": "story",
    "reply": "receipt",
}
PROSE = "float arithmetic lost cents"
EMPTY_ENVIRONMENT: Json = {"environment": {}}


def with_summaries(config: Config, **options: Any) -> Config:
    return replace(config, summaries=Summaries(**options))


@pytest.fixture(autouse=True)
def key_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "test-key")


def with_model(config: Config, url: str, *models: str, **options: Any) -> Config:
    """Return a configuration with a model of Anthropic's API at `url`, or with `models`."""
    models = models or ("anthropic:claude-haiku-5-5",)
    return with_summaries(config, **options, models=models, key_env="MY_KEY", url=url)


async def test_extracts_are_used_without_key_and_client_model(config: Config) -> None:
    async with connect(config) as client:
        answer = answer_of(await client.call_tool("compact_messages", CALL))
    assert answer["receipt"]["writer"] == "extractive"
    assert answer["receipt"]["model"] is None
    assert all("No model is named" in warning for warning in answer["warnings"])


async def test_api_writes_with_a_key_and_the_receipt_has_its_usage(config: Config) -> None:
    with serve_provider(lambda _: Says(SUMMARY)) as api:
        configured = with_model(config, api.url, "anthropic:claude-sonnet-4-6")
        async with connect(configured) as client:
            answer = answer_of(await client.call_tool("compact_messages", CALL))
    assert PROSE in answer["summary"]
    assert answer["receipt"]["writer"] == "anthropic"
    assert answer["receipt"]["model"]["name"] == "claude-sonnet-4-6"
    assert answer["receipt"]["model"]["output_tokens"] > 0
    assert api.bodies[0]["model"] == "claude-sonnet-4-6"
    assert "test-key" not in json.dumps(answer)


async def test_cancelled_call_closes_the_connection_to_the_model(config: Config, era: Era) -> None:
    asked = Event()

    def script(_: Request) -> Reply:
        asked.set()
        return Hangs("## Goal")

    with serve_provider(script) as api:
        async with connect(with_model(config, api.url), era) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "compact_messages", CALL)
                assert await to_thread.run_sync(asked.wait, TIMEOUT_SECONDS)
                group.cancel_scope.cancel()
            assert await to_thread.run_sync(api.hung_up.wait, TIMEOUT_SECONDS)
            info = await client.read_resource("transcript://story")
    assert GOAL in str(info.contents)


@pytest.mark.slow
async def test_a_key_alone_sends_nothing(environment: dict[str, str]) -> None:
    """Keys and addresses that only exist send nothing, because hosts pass on their environment."""
    with serve_provider(lambda _: Says(SUMMARY)) as api:
        key = {"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": api.url, "MY_KEY": "mine"}
        async with spawned({**environment, **key, "OPENAI_API_KEY": "test-key"}) as client:
            answer = answer_of(await client.call_tool("compact_messages", CALL))
            assert answer["written_by"] == "extractive"
            assert api.requests == []
        configured = {
            "MCP_COMPACTION_SUMMARIZER_MODEL": "openai:m openai:n",
            "MCP_COMPACTION_SUMMARIZER_URL": f"{api.url}/v1",
            "MCP_COMPACTION_SUMMARIZER_KEY_ENV": "MY_KEY",
        }
        async with spawned({**environment, **key, **configured}) as client:
            asked = {**CALL, "session_id": "told"}
            answer = answer_of(await client.call_tool("compact_messages", asked))
    assert answer["written_by"] == "openai (m)"
    assert api.requests[0].headers["authorization"] == "Bearer mine"
    assert "test-key" not in str(api.requests[0].headers)


async def test_a_call_chooses_among_the_models_of_the_configuration(config: Config) -> None:
    with serve_provider(lambda _: Says(SUMMARY)) as api:
        configured = with_model(config, f"{api.url}/v1", "small:7b", "openai-responses:large")
        async with connect(configured) as client:
            for number, name in enumerate((None, "large", "openai-responses:large", "small:7b")):
                options = {} if name is None else {"options": {"summarizer_model": name}}
                call = {**CALL, "session_id": f"s{number}", **options}
                answer = answer_of(await client.call_tool("compact_messages", call))
                chosen = "large" if name and "large" in name else "small:7b"
                assert answer["written_by"] == f"openai ({chosen})"
            call = {**CALL, "options": {"summarizer_model": "anthropic:claude-opus-5-5"}}
            refused = error_of(await client.call_tool("compact_messages", call))
            assert "This server allows: small:7b, openai-responses:large" in refused
            call = {**CALL, "options": {"summarizer_url": "https://example.org"}}
            assert "summarizer_url" in error_of(await client.call_tool("compact_messages", call))
    assert len(api.requests) == 4


async def test_a_call_may_choose_extracts_though_there_is_a_key(config: Config) -> None:
    with serve_provider(lambda _: Says(SUMMARY)) as api:
        async with connect(with_model(config, api.url)) as client:
            chosen = {**CALL, "summarizer": "extractive"}
            answer = answer_of(await client.call_tool("compact_messages", chosen))
        extractive = with_model(config, api.url, writer="extractive")
        async with connect(extractive) as client:
            other = {**CALL, "session_id": "other"}
            answer = answer_of(await client.call_tool("compact_messages", other))
    assert api.requests == []
    assert answer["receipt"]["writer"] == "extractive"


async def test_unavailable_writer_is_refused_by_name(config: Config) -> None:
    async with connect(config) as client:
        for name, remedy in (("model", "Add --summarizer-model"), ("sampling", "client")):
            result = await client.call_tool("compact_messages", {**CALL, "summarizer": name})
            assert remedy in error_of(result)


async def test_the_clients_model_writes_where_its_refusal_cannot_end_the_call(
    config: Config, era: Era
) -> None:
    """Since 2026-07-28 a client that refuses ends the whole call, so it is not asked."""
    sampler = Sampler(lambda _: SUMMARY)
    async with connect(config, era, sampling_callback=sampler) as client:
        answer = answer_of(await client.call_tool("compact_messages", CALL))
    if era == "modern":
        assert answer["receipt"]["writer"] == "extractive"
        assert sampler.asked == []
        return
    assert PROSE in answer["summary"]
    assert answer["receipt"]["writer"] == "sampling"
    assert answer["receipt"]["model"]["is_estimated"]
    assert "untrusted data" in (sampler.asked[0].system_prompt or "")
    assert sampler.asked[0].include_context == "none"
    assert not sampler.asked[0].tools


@pytest.mark.parametrize(
    ("response", "warned"),
    [
        ("", "verbatim extracts"),
        ("I'm sorry, I can't.", "verbatim extracts"),
        ("no headings here", "verbatim extracts"),
        (types.ErrorData(code=-1, message="User rejected sampling request"), "User rejected"),
    ],
)
async def test_a_client_model_that_writes_no_summary_leads_to_extracts(
    config: Config, response: Any, warned: str
) -> None:
    async with connect(config, "legacy", sampling_callback=Sampler(lambda _: response)) as client:
        answer = answer_of(await client.call_tool("compact_messages", CALL))
    assert answer["receipt"]["writer"] == "extractive"
    assert any(warned in warning for warning in answer["warnings"])


async def ask_host(client: Any, **more: Any) -> Json:
    asked = await client.call_tool(
        "compact_messages", {**CALL, "summarizer": "host", "reply": "messages", **more}
    )
    answer = answer_of(asked)
    assert answer["status"] == "needs_summary"
    return answer["summary_request"]


async def hand_in(client: Any, summary: str, continuation: str | None, **more: Any) -> Any:
    options = {} if continuation is None else {"options": {"continuation": continuation}}
    return await client.call_tool(
        "compact_messages", {**CALL, "summarizer": "host", "summary": summary, **options, **more}
    )


async def test_the_hosts_summary_comes_with_a_token_that_another_process_confirms(
    config: Config,
) -> None:
    async with connect(config) as client:
        request = await ask_host(client)
        assert GOAL in request["user"]
    async with connect(config) as client:
        answer = answer_of(await hand_in(client, SUMMARY, request["continuation"]))
    assert answer["receipt"]["writer"] == "host"
    assert PROSE in answer["summary"]
    assert RULE in answer["summary"].partition("</pinned>")[0]
    assert all("No model is named" in warning for warning in answer["warnings"])


async def test_a_token_of_another_conversation_is_refused(config: Config) -> None:
    async with connect(config) as client:
        request = await ask_host(client)
        other = {"messages": story(turns=7)[1:], "session_id": "other"}
        wrong = await hand_in(client, SUMMARY, request["continuation"], **other)
        assert "does not belong to this list of session other" in error_of(wrong)
        garbled = await hand_in(client, SUMMARY, "3@nonsense")
        assert "exactly as summary_request contains it" in error_of(garbled)


async def test_grown_conversation_is_reported_when_its_summary_arrives(config: Config) -> None:
    async with connect(config) as client:
        request = await ask_host(client)
        grown = [*story(), {"role": "assistant", "content": "Here it is."}, *story(turns=3)[4:]]
        result = await hand_in(client, SUMMARY, request["continuation"], messages=grown)
        answer = answer_of(result)
    assert answer["receipt"]["writer"] == "host"
    assert any("has grown since" in warning for warning in answer["warnings"])


async def test_server_option_makes_hosts_write_summaries(config: Config) -> None:
    async with connect(with_summaries(config, writer="host")) as client:
        answer = answer_of(await client.call_tool("compact_messages", CALL))
    assert answer["status"] == "needs_summary"
    assert "options={'continuation'" in answer["next_step"]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"summarizer": "model"}, "--summarizer-model"),
        ({"summarizer_model": ("claude",)}, "does not name its API"),
        ({"summarizer_model": ("openai:m",), "summarizer_key_env": "OTHER"}, "OTHER"),
        ({"environment": {"OTHER": "se\u00e9cret"}, "summarizer_key_env": "OTHER"}, "OTHER"),
        ({"summarizer_url": "http://example.org"}, "unencrypted"),
    ],
)
def test_invalid_setting_is_refused_by_name(given: Json, named: str) -> None:
    models: Json = {} if "summarizer" in given else {"summarizer_model": ("openai:m",)}
    with pytest.raises(SettingsError, match=named) as raised:
        load_config(**{**EMPTY_ENVIRONMENT, **models, **given})
    assert "cret" not in str(raised.value).replace("secret", "")


async def test_plan_shows_the_models_text_only_when_the_call_asks_for_it(config: Config) -> None:
    plan = {**CALL, "mode": "plan"}
    with serve_provider(lambda _: Says(SUMMARY)) as api:
        async with connect(with_model(config, api.url)) as client:
            free = answer_of(await client.call_tool("compact_messages", plan))
            assert "draft" not in free
            assert api.requests == []
            asked = {**plan, "summarizer": "model"}
            draft = answer_of(await client.call_tool("compact_messages", asked))["draft"]
            assert PROSE in draft
            taken = {**CALL, "summary": draft.replace("lost cents", "lost many cents")}
            answer = answer_of(await client.call_tool("compact_messages", taken))
    assert answer["written_by"] == "host"
    assert "lost many cents" in answer["summary"]
    assert len(api.requests) == 1
