"""Long sessions stay valid, cacheable and complete while their lists are edited."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json, is_list
from tests.support.simulated_host import Api, SimulatedHost, function, log_of, steps
from tests.support.simulated_host import Reply as HostReply
from tests.support.strict_answers import Says
from tests.support.strict_provider import (
    Provider,
    Reply,
    Request,
    in_turn,
    serve_provider,
)
from tests.support.strict_rules import Fails, blocks_of

from .running import (
    ADAPTIVE,
    BOUND_MODEL,
    ENABLED,
    PLAIN_MODEL,
    SMALL,
    Proxy,
    broken_prefixes,
    check_all_accepted,
    edited,
    host_of,
    proxied,
    run,
    working,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

KINDS: dict[str, Json] = {
    "enabled": {"model": PLAIN_MODEL, "fields": ENABLED},
    "bound": {"model": BOUND_MODEL, "fields": ADAPTIVE},
    "responses": {"api": "responses"},
    "chat": {"api": "chat"},
}
# A long session takes seconds, so some tests use the strictest model and the other way to store.
FEW_KINDS = ("bound", "responses")


def check_cache(requests: list[Request]) -> None:
    """Check that nearly all requests continue the request before them."""
    # At this window a compaction is due after every few results. All others keep the prefix.
    assert len(broken_prefixes(requests)) <= len(requests) // 3


# Pitfalls 4 and 5, and 9 between compactions


@pytest.mark.parametrize("kind", KINDS)
def test_session_with_many_compactions_is_never_refused(
    kind: str, proxy: Proxy, provider: Provider
) -> None:
    provider.script = working(24)
    host = host_of(proxy, **KINDS[kind])
    host.ask("Build it, and never push to the branch main.")
    host.ask("Once more, please.")
    check_all_accepted(provider, host)
    assert len(provider.asked) == 50
    assert len(edited(provider, host)) > 25
    assert all(request.usage and request.usage.total < 20_000 for request in provider.asked)
    assert len(host.sent[-1]) > 2 * 50_000
    check_cache(provider.asked)
    assert "never push to the branch main" in provider.asked[-1].body.decode()


def test_newest_message_of_a_tool_loop_keeps_its_thinking(proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy, **KINDS["enabled"])
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert edited(provider, host)
    for request in provider.asked[1:]:
        newest = [item for item in request.items if item["role"] == "assistant"][-1]
        assert newest["content"][0]["type"] == "thinking"


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(sorted(KINDS)),
    prompts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    sizes=st.lists(st.sampled_from([0, 1, 5, 40, 80, 300]), min_size=5, max_size=5),
    parallel=st.integers(1, 3),
)
def test_no_edited_list_is_refused(
    proxy: Proxy,
    provider: Provider,
    kind: str,
    prompts: list[int],
    sizes: list[int],
    parallel: int,
) -> None:
    provider.requests.clear()
    calls = [("Bash", {"command": f"make {number}"}) for number in range(parallel)]
    host = host_of(proxy, **KINDS[kind])
    host.result = lambda number, _: log_of(number, sizes[number % 5])
    for number, count in enumerate(prompts):
        answers = [Says("I go on.", calls, thinking="Hm.") for _ in range(count)]
        provider.script = in_turn(*answers, Says("Done.", thinking="Ready."))
        host.ask(f"Do part {number}.")
    check_all_accepted(provider, host)
    assert broken_prefixes(provider.asked) == [] or edited(provider, host)


# Pitfall 6


def test_failed_compaction_after_an_edit_is_never_refused_and_told(tmp_path: Path) -> None:
    with serve_provider(working(40)) as provider:
        # The log of the archive cannot grow beyond this size, as on a full disk.
        with proxied(provider.url, tmp_path, *SMALL, limit="ulimit -f 160") as proxy:
            host = host_of(proxy, **KINDS["bound"])
            host.ask("Build it.")
            check_all_accepted(provider, host)
            places = edited(provider, host)
            assert places
            assert len(provider.asked[-1].body) > len(host.sent[-1]) // 2
            check_cache(provider.asked)
        assert sum(proxy.status()["fallbacks"].values()) > 0


# Pitfall 7, and 9 over a restart


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_restarted_proxy_continues_with_the_same_bytes(kind: str, tmp_path: Path) -> None:
    with serve_provider(working(20)) as provider:
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host = host_of(proxy, **KINDS[kind])
            host.ask("Build it.")
            assert edited(provider, host)
            host.items.append({"role": "user", "content": "Go on."})
            host.request()
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host.url = proxy.url
            host.request()
            *_, before, after = provider.asked
            assert before.body == after.body
            host.ask("Go on.")
        check_all_accepted(provider, host)
        check_cache(provider.asked)


def test_lost_archive_costs_at_most_one_refusal(tmp_path: Path) -> None:
    with serve_provider(working(20)) as provider:
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host = host_of(proxy, **KINDS["bound"])
            host.ask("Build it.")
        shutil.rmtree(tmp_path / "archive")
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host.url = proxy.url
            host.ask("Go on.")
        assert {reply.status for reply in host.replies} == {200}
        assert len(provider.refused) <= 1


# Pitfall 8


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_session_goes_on_without_the_proxy(kind: str, proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy, **KINDS[kind])
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert edited(provider, host)
    host.url = provider.url
    host.items.append({"role": "user", "content": "Go on."})
    if kind == "bound":
        # Claude Code removes the thinking after this error, and asks again.
        assert b"bound to a different conversation" in host.request().body
        for item in host.items:
            if item["role"] == "assistant":
                item["content"] = [b for b in item["content"] if b["type"] != "thinking"]
    assert host.request().status == 200


# Pitfalls 9 and 10


class RetryingHost(SimulatedHost):
    """A host that sends each request twice, and uses the second answer."""

    def request(self) -> HostReply:
        super().request()
        return super().request()


@pytest.mark.parametrize("kind", FEW_KINDS)
def test_every_request_of_a_session_can_be_repeated(
    kind: str, proxy: Proxy, provider: Provider
) -> None:
    provider.script = working(24)
    one = host_of(proxy, **KINDS[kind])
    host = RetryingHost(proxy.url, session_id=one.session_id, **KINDS[kind])
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert len(edited(provider, host)) > 10
    for first, again in zip(provider.asked[::2], provider.asked[1::2], strict=True):
        assert first.body == again.body


def test_cache_breakpoints_stay_on_the_system_prompt_and_the_last_message(
    proxy: Proxy, provider: Provider
) -> None:
    host = host_of(proxy)
    host.ask("Build it.")
    assert edited(provider, host)
    for request in provider.asked:
        blocks = [block for item in request.items for block in blocks_of(item)]
        assert ["cache_control" in block for block in blocks].index(True) == len(blocks) - 1
        assert json.dumps(request.json).count('"cache_control"') == 3


# Pitfall 11


@pytest.mark.parametrize(
    ("api", "role"),
    [("messages", "system"), ("responses", "developer"), ("chat", "system")],
)
def test_newest_result_stays_whole_before_a_message_of_the_host(
    api: Api, role: str, proxy: Proxy, provider: Provider
) -> None:
    reminder = {"role": role, "content": "<system-reminder>Stay focused.</system-reminder>"}
    host = host_of(proxy, api, after_results=[reminder])
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert edited(provider, host)
    for number, request in enumerate(provider.asked[1:], 1):
        assert json.dumps(log_of(number))[1:-1] in request.body.decode()


# Pitfall 12


def test_special_blocks_survive(proxy: Proxy, provider: Provider) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    document = {"type": "text", "media_type": "text/plain", "data": "The plan."}
    search: Json = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {},
    }
    found = {"type": "web_search_result", "url": "https://x.y", "encrypted_content": "EncrYpted=="}
    references = [{"type": "tool_reference", "tool_name": "WebFetch"}]
    blocks: list[Json] = [
        {"type": "image", "source": picture},
        {"type": "document", "source": document, "title": "plan.txt"},
        {"type": "text", "text": "Look at these."},
    ]
    searched: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1"}
    searched["content"] = [found]
    compaction = {"type": "compaction", "content": "Earlier we chose PostgreSQL."}
    call = {"type": "tool_use", "id": "toolu_s", "name": "ToolSearch", "input": {"q": "web"}}
    loaded: Json = {"type": "tool_result", "tool_use_id": "toolu_s", "content": references}
    start = [
        message("user", *blocks),
        message("assistant", compaction, search, searched, call),
        message("user", loaded, text_block("Tool loaded.")),
        message("assistant", text_block("I know enough.")),
    ]
    provider.script = working(30)
    tools = [function("Bash"), function("ToolSearch"), function("WebFetch")]
    host = host_of(proxy, items=start, tools=tools)
    host.ask("Build it.")
    check_all_accepted(provider, host)
    assert edited(provider, host)
    sent = provider.asked[-1]
    kept = [
        part for item in sent.items for block in blocks_of(item) for part in [block, *_inner(block)]
    ]
    assert references[0] in kept
    server_blocks = [part for part in kept if part.get("type") == "web_search_tool_result"]
    assert all(block["content"] == [found] for block in server_blocks)
    compactions = [part for part in kept if part.get("type") == "compaction"]
    assert compactions in ([], [compaction])
    originals = run(proxy.folder, "search", "Earlier we chose PostgreSQL", "--json")
    assert compactions or json.loads(originals)["hits"]


def _inner(block: Json) -> list[Json]:
    content = block.get("content")
    return content if is_list(content) else []


# Pitfall 24


def test_skills_and_reminders_stay_whole(default_proxy: Proxy, provider: Provider) -> None:
    rules = "\n".join(f"Rule {number}: keep module {number} sorted." for number in range(60))
    reminder = f"<system-reminder>\n# claudeMd\n{rules}\n</system-reminder>"
    skill_steps = "\n".join(
        f"Step {number} of the skill: check part {number}." for number in range(60)
    )
    skill = f"Base directory for this skill: /skills/release\n\n{skill_steps}"
    call = {"type": "tool_use", "id": "toolu_k", "name": "Skill", "input": {"skill": "release"}}
    launched: Json = {"type": "tool_result", "tool_use_id": "toolu_k"}
    launched["content"] = "Launching skill: release"
    host = host_of(default_proxy, tools=[function("Bash"), function("Skill")])
    host.items = [
        message("user", text_block(reminder), text_block("Hello.")),
        message("assistant", text_block("Hello, what shall I do?")),
        message("user", text_block("Use the skill release.")),
        message("assistant", call),
        message("user", launched, text_block(skill)),
        message("assistant", text_block("I follow the skill.")),
        message("user", text_block("Now release it.")),
    ]
    host.items += steps(60, 240)
    host.request()
    check_all_accepted(provider, host)
    assert edited(provider, host)
    texts = [
        block.get("text", "") for item in provider.asked[-1].items for block in blocks_of(item)
    ]
    for whole in (rules, skill_steps):
        assert any(whole in text for text in texts)


def message(role: str, *blocks: Json) -> Json:
    return {"role": role, "content": list(blocks)}


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


# The fallbacks after a refusal


def test_edits_continue_when_the_host_adds_a_tool_that_makes_its_thinking_invalid(
    tmp_path: Path,
) -> None:
    with serve_provider(working(20)) as provider:
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host = host_of(proxy, **KINDS["bound"])
            host.ask("Build it.")
            host.tools = [*host.tools, function("Read")]
            host.ask("Go on.")
        assert {reply.status for reply in host.replies} == {200}
        assert len(provider.refused) == 1
        assert len(provider.asked[-1].body) < len(host.sent[-1]) // 2
        assert not any("edited list" in reason for reason in proxy.status()["fallbacks"])


@pytest.mark.parametrize("status", [400, 413])
def test_refused_edit_is_sent_once_more_as_it_came_and_told(status: int, tmp_path: Path) -> None:
    def script(request: Request) -> Reply:
        if b"[tool result" in request.body or len(request.body) < len(host.sent[-1]):
            return Fails(status, "invalid_request_error", "An unknown rule.")
        return work(request)

    work = working(20)
    with serve_provider(script) as provider:
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host = host_of(proxy, **KINDS["enabled"])
            reply = host.ask("Build it.")
            assert reply.status == 200
            refused = [request for request in provider.asked if request.status == status]
            assert len(refused) == 1
            assert len(provider.asked) == len(host.sent) + 1
            assert provider.asked[-1].body == host.sent[-1]
        assert any("refused an edited list" in reason for reason in proxy.status()["fallbacks"])
