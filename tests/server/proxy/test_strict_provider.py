"""The strict provider accepts valid sessions, and refuses what the real providers refuse."""

import copy
import gzip
import http.client
import json
from collections.abc import Generator
from typing import Any

import pytest
import zstandard

from tests.support.json_types import Json
from tests.support.messages_api import Fails, Hangs
from tests.support.simulated_host import Api, SimulatedHost, function, log_of, send
from tests.support.strict_answers import Says
from tests.support.strict_provider import (
    Provider,
    Raw,
    Reply,
    Request,
    in_turn,
    serve_provider,
    shared_prefix,
)
from tests.support.strict_rules import blocks_of

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


@pytest.mark.parametrize("api", APIS)
def test_provider_accepts_a_whole_session_with_tools(provider: Provider, api: Api) -> None:
    host = SimulatedHost(provider.url, api)
    reply = host.ask("Build it.")
    assert reply.status == 200
    assert "That is done." in json.dumps(host.items[-1])
    assert len(provider.asked) == 5
    assert provider.refused == []
    assert b"".join(provider.asked[0].sent) == host.replies[0].body
    assert provider.asked[0].body.startswith(b'{"model":"claude-sonnet-4-5","stream":true')


@pytest.mark.parametrize("api", APIS)
def test_provider_reads_the_earlier_prompt_from_its_cache(provider: Provider, api: Api) -> None:
    SimulatedHost(provider.url, api).ask("Build it.")
    [*_, before, last] = provider.asked
    assert before.usage
    assert last.usage
    assert shared_prefix(before, last) == 1.0
    assert last.usage.read >= before.usage.total - 128
    assert last.usage.total < before.usage.total + 1_500
    assert str(last.usage.read).encode() in b"".join(last.sent)


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


def test_provider_accepts_thinking_after_an_edit_if_the_model_does_not_bind_it(
    provider: Provider,
) -> None:
    host = anthropic_session(provider)
    host.items[2]["content"][0]["content"] = "[cleared]"
    assert refusal(host) == ""


def test_bound_thinking_is_refused_after_an_edit_before_it(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    host.items[4]["content"][0]["content"] = "[cleared]"
    assert "bound to a different conversation" in refusal(host)


def test_bound_thinking_is_accepted_after_an_edit_behind_it(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    host.items[8]["content"][0]["content"] = "[cleared]"
    del host.items[9]["content"][0]
    assert refusal(host) == ""


def test_bound_thinking_is_refused_when_one_between_others_is_missing(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    del host.items[3]["content"][0]
    assert "bound to a different conversation" in refusal(host)


def test_bound_thinking_is_accepted_when_the_first_blocks_are_missing(provider: Provider) -> None:
    host = anthropic_session(provider, model=BOUND)
    del host.items[1]["content"][0]
    del host.items[3]["content"][0]
    assert refusal(host) == ""


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


def test_answers_without_thinking_may_come_back_without_it() -> None:
    call = Says(calls=[("Bash", {"command": "make"})])
    with serve_provider(in_turn(call, call, Says("Done."))) as provider:
        reply = SimulatedHost(provider.url, fields=ENABLED).ask("Build it.")
        assert reply.status == 200


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


def test_chat_results_must_follow_their_calls(provider: Provider) -> None:
    host = anthropic_session(provider, api="chat")
    whole = host.items
    host.items = [*whole[:2], *whole[3:]]
    assert "has no result" in refusal(host)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [400, 401, 429, 500, 529])
def test_scripted_errors_have_the_form_of_the_api(api: Api, status: int) -> None:
    script = in_turn(Fails(status, "some_error", "No.", (("retry-after", "7"),)))
    with serve_provider(script) as provider:
        reply = SimulatedHost(provider.url, api).ask("Build it.")
        assert (reply.status, reply.headers["retry-after"]) == (status, "7")
        assert json.loads(reply.body)["error"]["message"] == "No."
        assert provider.refused == []


@pytest.mark.parametrize("broken", ["close", "cut", "error"])
def test_streams_break_as_scripted(broken: Any) -> None:
    with serve_provider(in_turn(Says("x" * 4_000, broken=broken))) as provider:
        host = SimulatedHost(provider.url, items=[{"role": "user", "content": "Hello"}])
        if broken == "cut":
            with pytest.raises(http.client.IncompleteRead):
                host.request()
        else:
            kinds = [event["type"] for event in host.request().events]
            assert "message_stop" not in kinds
            assert ("error" in kinds) == (broken == "error")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("stream", [True, False])
def test_answers_can_be_compressed(encoding: Any, stream: bool) -> None:
    with serve_provider(in_turn(Says("Hello", encoding=encoding))) as provider:
        host = SimulatedHost(provider.url, fields={"stream": stream})
        host.items = [{"role": "user", "content": "Hello"}]
        reply = host.request()
        assert reply.headers["content-encoding"] == encoding
        if encoding == "gzip":
            assert b"Hello" in gzip.decompress(reply.body)
        else:
            assert b"Hello" in zstandard.ZstdDecompressor().decompressobj().decompress(reply.body)


def test_hanging_answer_notices_that_the_client_hangs_up() -> None:
    with serve_provider(in_turn(Hangs())) as provider:
        host = SimulatedHost(provider.url, items=[{"role": "user", "content": "Hello"}])
        address = provider.url.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("POST", "/v1/messages", host.body(), host.request_headers())
        response = connection.getresponse()
        assert response.readline()
        response.close()
        connection.close()
        assert provider.hung_up.wait(20)


def test_other_paths_are_answered(provider: Provider) -> None:
    assert send(provider.url, method="HEAD", path="/").status == 200
    assert send(provider.url, method="GET", path="/v1/models").status == 200
    assert send(provider.url, method="GET", path="/nowhere").status == 404
    counted = send(provider.url, b"{}" * 20, path="/v1/messages/count_tokens?beta=true")
    assert json.loads(counted.body) == {"input_tokens": 10}
    assert provider.asked == []


def test_scripts_see_requests_and_can_reply_with_bytes() -> None:
    def script(request: Request) -> Reply:
        return Raw(b"<html>", 200, (("Content-Type", "text/html"),)) if request.items else Says("")

    with serve_provider(script) as provider:
        host = SimulatedHost(provider.url, items=[{"role": "user", "content": "Hello"}])
        assert host.request().body == b"<html>"


def test_simulated_host_keeps_one_cache_breakpoint_on_its_last_message() -> None:
    host = SimulatedHost("", items=[{"role": "user", "content": [{"type": "text", "text": "x"}]}])
    sent = json.loads(host.body())
    assert "cache_control" in blocks_of(sent["messages"][-1])[-1]
    assert "cache_control" not in json.dumps(host.items)
    assert len(log_of(1)) > 3_000
