"""Each conversation has its own session, and a host's own changes of its list keep working."""

import json
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.json_types import Json
from tests.support.simulated_host import Api, SimulatedHost, log_of, steps
from tests.support.strict_answers import Says
from tests.support.strict_provider import Provider, in_turn

from .running import (
    ADAPTIVE,
    APIS,
    BOUND_MODEL,
    Proxy,
    check_all_accepted,
    edited,
    host_of,
    run,
    working,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def sessions_of(folder: Path) -> list[Json]:
    """Return the sessions in the archive."""
    return [json.loads(line) for line in run(folder, "sessions", "--json").splitlines()]


# Pitfall 13


def test_parallel_sub_agents_are_sessions_of_their_own(proxy: Proxy, provider: Provider) -> None:
    main = host_of(proxy, model=BOUND_MODEL, fields=ADAPTIVE)
    hosts = [main]
    for name in ("alpha", "beta", "gamma"):
        agent = host_of(proxy, session_id=main.session_id, agent_id=name)
        hosts.append(agent)
    for name, host in zip(("main", "alpha", "beta", "gamma"), hosts, strict=True):
        host.result = lambda number, _, name=name: f"only {name} sees this\n{log_of(number)}"
    threads = [
        Thread(target=host.ask, args=(f"Build the part {name}.",))
        for name, host in zip(("main", "alpha", "beta", "gamma"), hosts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    check_all_accepted(provider)
    assert {reply.status for host in hosts for reply in host.replies} == {200}
    assert len(provider.asked) == 4 * 13
    for request in provider.asked:
        agent = request.headers.get("x-claude-code-agent-id", "main")
        others = {"main", "alpha", "beta", "gamma"} - {agent}
        text = request.body.decode()
        assert not any(f"only {other} sees this" in text for other in others)
    archived = [s for s in sessions_of(proxy.folder) if main.session_id in json.dumps(s)]
    assert len(archived) == 4


@pytest.mark.parametrize("api", APIS)
def test_two_conversations_under_one_id_are_never_mixed(
    api: Api, proxy: Proxy, provider: Provider
) -> None:
    one = host_of(proxy, api)
    other = host_of(proxy, api, session_id=one.session_id)
    one.result = lambda number, _: f"alpha\n{log_of(number)}"
    other.result = lambda number, _: f"omega\n{log_of(number)}"
    one.ask("Build alpha.")
    other.ask("Build omega.")
    one.ask("Go on with alpha.")
    other.ask("Go on with omega.")
    check_all_accepted(provider)
    for request in provider.asked:
        text = request.body.decode()
        assert ("alpha" in text) != ("omega" in text)


@pytest.mark.parametrize("api", APIS)
def test_conversations_without_an_id_are_recognized_by_their_list(
    api: Api, proxy: Proxy, provider: Provider
) -> None:
    hosts = [host_of(proxy, api, session_id="") for _ in range(2)]
    for number, host in enumerate(hosts):
        host.ask(f"Build part {number} of {api}.")
    check_all_accepted(provider)

    sent = [body for host in hosts for body in host.sent]
    assert sum(request.body not in sent for request in provider.asked) > 5


# Pitfall 15


SUMMARY = "This session is being continued. Summary: modules 1 to 12 are built."


def test_hosts_own_compaction_works_on_the_small_list(proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy, model=BOUND_MODEL, fields=ADAPTIVE)
    host.ask("Build it.")
    provider.script = in_turn(Says(SUMMARY, thinking="I sum up."))
    host.ask("Your task is to create a detailed summary of the conversation so far.")
    asked = provider.asked[-1]
    assert len(asked.body) < len(host.sent[-1]) * 0.6
    assert "Your task is to create a detailed summary" in asked.body.decode()
    host.items = [{"role": "user", "content": SUMMARY}]
    provider.script = working(12)
    host.ask("Go on.")
    check_all_accepted(provider, host)
    assert SUMMARY in provider.asked[-1].body.decode()


def test_rewound_session_is_valid_and_forgets_what_was_taken_back(
    proxy: Proxy, provider: Provider
) -> None:
    host = host_of(proxy, model=BOUND_MODEL, fields=ADAPTIVE)
    host.ask("Build it.")
    place = len(host.items)
    host.ask("Now delete the ZEBRA module.")
    del host.items[place:]
    host.ask("Now test it.")
    check_all_accepted(provider, host)
    assert "ZEBRA" not in provider.asked[-1].body.decode()
    del host.items[9:]
    host.ask("Another way.")
    check_all_accepted(provider, host)
    assert "Now test it." not in provider.asked[-1].body.decode()


@pytest.mark.parametrize("same_id", [True, False])
def test_forked_session_is_valid(same_id: bool, proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy, model=BOUND_MODEL, fields=ADAPTIVE)
    host.ask("Build it.")
    options: Json = {"session_id": host.session_id} if same_id else {}
    fork = host_of(proxy, model=BOUND_MODEL, fields=ADAPTIVE, items=[*host.items], **options)
    fork.ask("Build it for ARM.")
    host.ask("Build it for x86.")
    fork.ask("Test it.")
    assert {reply.status for reply in [*host.replies, *fork.replies]} == {200}
    # The fork with a new ID has thinking that belongs to the edited list of another session.
    assert len(provider.refused) <= (0 if same_id else 1)
    assert "for x86" not in provider.asked[-1].body.decode()


def test_continued_session_is_valid(proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy, model=BOUND_MODEL, fields=ADAPTIVE)
    host.ask("Build it.")
    items: list[Json] = json.loads(json.dumps(host.items))
    again = SimulatedHost(proxy.url, session_id=host.session_id, items=items)
    again.model, again.fields = BOUND_MODEL, ADAPTIVE
    again.ask("Go on.")
    check_all_accepted(provider, again)
    assert len(provider.asked[-1].body) < len(again.sent[-1]) // 2


# Pitfall 16


def big_host(proxy: Proxy, **options: Any) -> SimulatedHost:
    """Return a host with a list of about 220,000 tokens."""
    host = host_of(proxy, **options)
    host.items = [{"role": "user", "content": "Build it."}, *steps(55, 320)]
    return host


@pytest.mark.parametrize(
    ("options", "is_compacted"),
    [
        ({}, True),
        ({"headers": {"anthropic-beta": "x-1,context-1m-2025-08-07"}}, False),
        ({"model": "claude-opus-4-8[1m]"}, False),
    ],
    ids=["200K", "beta", "suffix"],
)
def test_window_of_a_million_tokens_is_used(
    options: Json, is_compacted: bool, default_proxy: Proxy, provider: Provider
) -> None:
    provider.script = in_turn(Says("Done."))
    host = big_host(default_proxy, **options)
    host.request()
    check_all_accepted(provider, host)
    assert bool(edited(provider, host)) == is_compacted
