"""The strict provider accepts valid sessions, and refuses what the real providers refuse."""

import copy
import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.json_types import Json
from tests.support.simulated_host import Api, SimulatedHost, function, send
from tests.support.strict_answers import Says
from tests.support.strict_provider import (
    Provider,
    in_turn,
    serve_provider,
    shared_prefix,
)

APIS: tuple[Api, ...] = ("messages", "responses", "chat")
CALL = Says(thinking="I run the next step.", calls=[("Bash", {"command": "make"})])
BOUND = "claude-opus-5-5"
ENABLED: Json = {"thinking": {"type": "enabled", "budget_tokens": 4_000}}


def working(calls: int) -> Any:
    """Return a script that calls a tool `calls` times, then says that it is done."""
    return in_turn(*[CALL] * calls, Says("That is done.", thinking="It is done."))


@pytest.fixture
def provider() -> Generator[Provider]:
    with serve_provider(working(4)) as running:
        yield running


def test_cache_is_not_read_after_an_edit(provider: Provider) -> None:
    host = SimulatedHost(provider.url)
    host.ask("Build it.")
    host.items[2]["content"][0]["content"] = "edited"
    host.ask("Once more.")
    edited = provider.asked[-1]
    assert edited.usage
    assert edited.usage.read < 100
    assert shared_prefix(provider.asked[-2], edited) < 0.3


def anthropic_session(provider: Provider, **options: Any) -> SimulatedHost:
    """Return a host after four tool calls, whose next request is valid."""
    host = SimulatedHost(provider.url, **options)
    host.ask("Build it.")
    assert provider.refused == []
    host.items.append({"role": "user", "content": "Go on."})
    return host


def refusal(host: SimulatedHost) -> str:
    """Send the list, and return the message of the error; "" if there is none."""
    reply = host.request()
    return "" if reply.status == 200 else json.loads(reply.body)["error"]["message"]


def test_provider_refuses_edited_thinking(provider: Provider) -> None:
    host = anthropic_session(provider)
    host.items[1]["content"][0]["thinking"] += "!"
    assert "Invalid `signature`" in refusal(host)


def test_bound_thinking_is_refused_after_an_edit_before_it(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    host.items[4]["content"][0]["content"] = "[cleared]"
    assert "bound to a different conversation" in refusal(host)


def test_bound_thinking_is_refused_when_one_between_others_is_missing(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    del host.items[3]["content"][0]
    assert "bound to a different conversation" in refusal(host)


@pytest.mark.parametrize("change", ["system", "tools"])
def test_bound_thinking_is_refused_after_a_change_of(provider: Provider, change: str) -> None:
    host = anthropic_session(provider, model=BOUND)
    if change == "system":
        host.fields = {"system": "You are somebody else."}
    else:
        host.tools = [*host.tools, function("Read")]
    assert "bound to a different conversation" in refusal(host)


def test_bound_thinking_may_be_dropped_by_the_provider_with_the_beta(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    host.items[4]["content"][0]["content"] = "[cleared]"
    binding = {"prefix_mismatch_behavior": "drop_block"}
    host.fields = {"thinking": {"type": "adaptive", "block_binding": binding}}
    assert "block_binding" in refusal(host)
    host.headers = {"anthropic-beta": "thinking-binding-controls-2026-08-01"}
    assert refusal(host) == ""


def test_enabled_thinking_must_begin_the_newest_message_of_a_tool_loop() -> None:
    with serve_provider(working(3)) as provider:
        host = SimulatedHost(provider.url, fields=ENABLED)
        host.ask("Build it.")
        loop = host.items[:-1]
        stripped = copy.deepcopy(loop)
        del stripped[-2]["content"][0]
        assert loop[-2]["content"][0]["type"] == "thinking"
        host.items = stripped
        assert "Expected `thinking`" in refusal(host)
        host.items = copy.deepcopy(loop)
        del host.items[1]["content"][0]
        assert refusal(host) == ""


def test_provider_refuses_broken_pairs(provider: Provider) -> None:
    host = anthropic_session(provider)
    whole = host.items
    host.items = [*whole[:2], *whole[3:]]
    assert "has no result" in refusal(host)
    host.items = [whole[0], *whole[2:]]
    assert refusal(host)
    host.items = [*whole[:2], whole[2], whole[2], *whole[3:]]
    assert "2 results" in refusal(host)


def test_provider_refuses_a_fifth_cache_breakpoint_in_the_whole_request(provider: Provider) -> None:
    host = anthropic_session(provider)
    mark: Json = {"type": "ephemeral"}
    host.tools = [{**function("Bash"), "cache_control": mark}]
    assert refusal(host) == ""
    host.items[2]["content"][0]["cache_control"] = mark
    assert "A maximum of 4 blocks" in refusal(host)


def test_provider_refuses_cache_breakpoints_in_the_wrong_order(provider: Provider) -> None:
    host = anthropic_session(provider)
    host.items[2]["content"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}
    assert "must not come after" in refusal(host)


def test_provider_refuses_unknown_fields_and_references_to_unknown_tools(
    provider: Provider,
) -> None:
    host = anthropic_session(provider)
    host.fields = {"archive": True}
    assert "Extra inputs" in refusal(host)
    host.fields = {}
    host.items[2]["content"][0]["content"] = [{"type": "tool_reference", "tool_name": "Web"}]
    assert "Tool reference 'Web' not found" in refusal(host)
    host.items[2]["content"][0]["content"] = [{"type": "tool_reference", "tool_name": "Bash"}]
    assert refusal(host) == ""


@pytest.mark.parametrize("api", APIS)
def test_provider_refuses_requests_without_credentials(provider: Provider, api: Api) -> None:
    host = SimulatedHost(provider.url, api)
    headers = host.request_headers()
    names = ("x-api-key", "authorization")
    without = {name: value for name, value in headers.items() if name not in names}
    host.items = [{"role": "user", "content": "Hello"}]
    paths = {"messages": "/v1/messages", "responses": "/v1/responses"}
    path = paths.get(api, "/v1/chat/completions")
    assert send(provider.url, host.body(), without, path=path).status == 401
    assert send(provider.url, host.body(), headers, path=path).status == 200


@pytest.mark.parametrize("api", APIS)
def test_provider_refuses_prompts_that_are_too_long(api: Api) -> None:
    with serve_provider(working(4), window_tokens=2_500) as provider:
        host = SimulatedHost(provider.url, api)
        reply = host.ask("Build it.")
        assert reply.status == 400
        assert len(provider.refused) == 1
        assert len(provider.asked) < 5


def test_encrypted_reasoning_must_be_as_issued(provider: Provider) -> None:
    host = anthropic_session(provider, api="responses")
    assert refusal(host) == ""
    [reasoning, *_] = [item for item in host.items if item.get("type") == "reasoning"]
    issued = reasoning["encrypted_content"]
    reasoning["encrypted_content"] = f"{issued[:-1]}0"
    assert "could not be verified" in refusal(host) or issued.endswith("0")
    reasoning["encrypted_content"] = "gAAAAxyz"
    assert "could not be verified" in refusal(host)
    del reasoning["encrypted_content"]
    assert "Items are not persisted" in refusal(host)


def test_responses_items_keep_their_reasoning_and_their_outputs(provider: Provider) -> None:
    host = anthropic_session(provider, api="responses")
    whole = host.items
    reasoning = next(i for i, item in enumerate(whole) if item.get("type") == "reasoning")
    host.items = [*whole[:reasoning], *whole[reasoning + 1 :]]
    assert "without its required 'reasoning' item" in refusal(host)
    output = next(i for i, item in enumerate(whole) if item.get("type") == "function_call_output")
    host.items = [*whole[:output], *whole[output + 1 :]]
    assert "has no output" in refusal(host)
    host.items = [*whole[:output], whole[output], whole[output], *whole[output + 1 :]]
    assert "second output" in refusal(host)
    host.items = [*whole, whole[reasoning], whole[reasoning + 1], whole[output]]
    assert "is used 2 times" in refusal(host)


def test_previous_responses_are_known_only_if_they_were_stored(provider: Provider) -> None:
    host = SimulatedHost(provider.url, "responses", fields={"store": True})
    host.items = [{"role": "user", "content": "Build it."}]
    [call] = [
        item
        for item in host.request().events[-1]["response"]["output"]
        if item["type"] == "function_call"
    ]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"}
    host.items = [output]
    assert "answers no call" in refusal(host)
    host.fields = {"store": False, "previous_response_id": "resp_000001"}
    assert refusal(host) == ""
    host.fields = {"previous_response_id": "resp_000002"}
    assert "not found" in refusal(host)
