"""`proxy run` starts a host behind the proxy, and summaries by the caller's own model."""

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from mcp_server_compaction.proxy.run import host_command, host_window

from tests.support.strict_answers import Says
from tests.support.strict_provider import Provider, Reply, Request, serve_provider
from tests.support.waiting import eventually

from .running import (
    COMMAND,
    SMALL,
    Proxy,
    check_all_accepted,
    environment_of,
    host_of,
    proxied,
    working,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

UPSTREAM = "http://127.0.0.1:9"
_LINES = "\n".join(f"- Step {n} fitted the orange lamp {n} of the module {n}." for n in range(60))
SUMMARY = (
    f"## Task\nBuild all.\n## Work done\n{_LINES}\n## Current state\nGo on with the next part."
)


def run_behind_proxy(
    folder: Path, *words: str, path: str = ""
) -> "subprocess.CompletedProcess[str]":
    environment = environment_of(folder)
    environment["PATH"] = f"{path}:{environment['PATH']}"
    command = [*COMMAND, "proxy", "run", "--upstream", UPSTREAM, *words]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def program(folder: Path, name: str) -> str:
    """Write a program that prints its arguments and its base URL; return its folder."""
    path = folder / name
    path.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho "url $ANTHROPIC_BASE_URL"\nexit 7\n')
    path.chmod(0o755)
    return str(folder)


def test_a_host_gets_the_address_and_the_server_and_its_exit_code_is_kept(tmp_path: Path) -> None:
    done = run_behind_proxy(tmp_path, "--", "claude", "-p", "hi", path=program(tmp_path, "claude"))
    assert done.returncode == 7, done.stderr
    servers, *arguments, url = done.stdout.splitlines()
    [server] = json.loads(servers.removeprefix("--mcp-config="))["mcpServers"].values()
    assert str(tmp_path / "archive") in server["args"]
    assert arguments == ["-p", "hi"]
    assert url.startswith("url http://127.0.0.1:")
    assert "0 requests" in done.stderr


def test_a_host_starts_without_the_proxy_if_its_port_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["--port", port, "--", "claude", "-p", "hi"]
        done = run_behind_proxy(tmp_path, *words, path=program(tmp_path, "claude"))
    assert done.returncode == 7
    assert done.stdout.splitlines() == [
        "-p",
        "hi",
        "url " + os.environ.get("ANTHROPIC_BASE_URL", ""),
    ]
    assert "runs without it" in done.stderr


def test_a_program_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    done = run_behind_proxy(tmp_path, "--", "no-such-program")
    assert done.returncode == 1
    assert "no-such-program" in done.stderr


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        ("https://api.anthropic.com", ["ANTHROPIC_BASE_URL"]),
        ("https://api.openai.com", ["OPENAI_BASE_URL"]),
        ("http://127.0.0.1:1", ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"]),
    ],
)
def test_a_key_of_one_provider_never_reaches_the_other(
    upstream: str, expected: Sequence[str]
) -> None:
    _, variables = host_command(
        ["aider"], {}, address="http://127.0.0.1:2", upstream=upstream, server=["server"]
    )
    assert sorted(variables) == expected


def test_a_configuration_of_opencode_is_kept() -> None:
    given = {"OPENCODE_CONFIG_CONTENT": '{"theme": "dark", "mcp": {"other": {"enabled": true}}}'}
    address, upstream = "http://127.0.0.1:2", "https://api.anthropic.com"
    _, variables = host_command(
        ["opencode"], given, address=address, upstream=upstream, server=["server"]
    )
    config = json.loads(variables["OPENCODE_CONFIG_CONTENT"])
    assert config["theme"] == "dark"
    assert sorted(config["mcp"]) == ["compaction", "other"]
    assert config["provider"] == {"anthropic": {"options": {"baseURL": f"{address}/v1"}}}


@pytest.mark.parametrize(("value", "expected"), [("100000", 100_000), ("no", None), ("0", None)])
def test_the_window_that_a_host_compacts_for_is_known(value: str, expected: int | None) -> None:
    assert host_window(["claude"], {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": value}) == expected


def summary_requests(provider: Provider) -> list[Request]:
    return [request for request in provider.asked if request.json.get("stream") is False]


def archived(proxy: Proxy, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in proxy.archive.rglob("*") if path.is_file())


def test_the_callers_model_writes_the_summary_of_a_later_request(tmp_path: Path) -> None:
    scripted = working(12)

    def script(request: Request) -> Reply:
        if request.json.get("stream") is False:
            return Says(SUMMARY)
        if summary_requests(provider):  # the host would else be faster than the proxy
            eventually(lambda: archived(proxy, b"prepared_id"))
        return scripted(request)

    with (
        serve_provider(script) as provider,
        proxied(provider.url, tmp_path, *SMALL, "--summaries", "caller") as proxy,
    ):
        host = host_of(proxy)
        for turn in range(8):
            host.ask(f"Build part {turn}.")
            if any(b"orange lamp" in request.body for request in provider.asked):
                break
        check_all_accepted(provider, host)
        asked = summary_requests(provider)
        assert asked
        for request in asked:
            before = next(r for r in provider.asked if request.items[:-1] == r.items)
            assert before.json["tools"] == request.json["tools"]
        assert any(b"orange lamp" in request.body for request in provider.asked)


def test_extracts_are_used_and_counted_if_the_callers_model_fails(tmp_path: Path) -> None:
    scripted = working(12)

    def script(request: Request) -> Reply:
        return Says("I cannot.") if request.json.get("stream") is False else scripted(request)

    with serve_provider(script) as provider:
        with proxied(provider.url, tmp_path, *SMALL, "--summaries", "caller") as proxy:
            host = host_of(proxy)
            for turn in range(2):
                host.ask(f"Build part {turn}.")
            check_all_accepted(provider, host)
        assert any(b"originals=" in request.body for request in provider.asked)
        assert any("extracts are used" in reason for reason in proxy.status()["fallbacks"])
