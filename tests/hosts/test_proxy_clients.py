"""Real hosts work behind the proxy for many requests, and the strict provider refuses nothing.

`MCP_COMPACTION_PROXY_CALLS` is the number of tool calls in each session, 30 by default. The figures
in benchmarks/results/proxy.md come from a run with 300.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest

from tests.support.json_types import Json
from tests.support.strict_answers import Says
from tests.support.strict_provider import (
    Hangs,
    Provider,
    Reply,
    Request,
    serve_provider,
    shared_prefix,
)
from tests.support.strict_rules import Fails

from .clients import CLIENTS, Installed, installed, program_of

CALLS = int(os.environ.get("MCP_COMPACTION_PROXY_CALLS", "30"))
WINDOW_TOKENS = 120_000
WINDOW = ("--context-window", str(WINDOW_TOKENS))
WORK = "Please work on the list of steps."
DELEGATE = "Please give this to another agent."
SUMMARY = "Summary: the steps of the list were printed."
_PROXY = (sys.executable, "-m", "mcp_server_compaction", "proxy")
_SECONDS = 60 + CALLS * 10

# Tool that runs a shell command, with its arguments.
_SHELLS: dict[str, Callable[[str], Json]] = {
    "Bash": lambda command: {"command": command, "description": "Print"},
    "bash": lambda command: {"command": command, "description": "Print"},
    "exec_command": lambda command: {"cmd": command, "max_output_tokens": 12_000},
    "shell_command": lambda command: {"command": command},
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(_SECONDS * 4)]


@dataclass(frozen=True)
class Case:
    """A host with one kind of model.

    Attributes:
        host: Name of the host.
        model: Name of the model, as an option of the host.
        bound_models: Models whose thinking is bound to everything before it.
    """

    host: str
    model: str
    bound_models: str = ""


CASES = {
    "claude-enabled": Case("claude-code", "claude-sonnet-4-5"),
    "claude-bound": Case("claude-code", "claude-opus-4-8", "claude-opus-4-8"),
    "codex": Case("codex", "gpt-5"),
    "opencode": Case("opencode", "anthropic/claude-sonnet-4-5"),
}


class Script:
    """The model: it calls the shell `calls` times after each prompt for work.

    Attributes:
        calls: Number of tool calls after a prompt.
        faults: Replies to the next requests before the work goes on.
    """

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.faults: list[Reply] = []
        self._counts = Counter[str]()

    def __call__(self, request: Request) -> Reply:
        tools: list[Json] = request.json.get("tools") or []
        names = [str(tool.get("name")) for tool in tools]
        shell = next((name for name in _SHELLS if name in names), None)
        if shell is None:
            return Says("A title")
        if self.faults:
            return self.faults.pop(0)
        newest = [i for i in request.items if i.get("role") not in {"system", "developer"}][-1]
        text = json.dumps(newest)
        key = _conversation(request)
        if "a detailed summary" in text:  # the host adds this to its newest tool results
            return Says(f"<analysis>All.</analysis><summary>{SUMMARY}</summary>")
        if not re.search(r'"(tool_result|function_call_output)"', text):
            self._counts[key] = 0
            if DELEGATE in text:
                agent = next(name for name in names if name in {"Agent", "Task"})
                task = {"description": "Steps", "prompt": WORK, "subagent_type": "general-purpose"}
                return Says(thinking="Another agent.", calls=[(agent, task)] * 2)
            if WORK not in text:
                return Says("That is done.", thinking="Nothing to do.")
        if DELEGATE in json.dumps(request.items[-3:]) and self._counts[key] == 0:
            return Says("The agents are done.", thinking="Good.")
        self._counts[key] += 1
        number = self._counts[key]
        if number > self.calls:
            return Says("That is done.", thinking="All steps are done.")
        command = f"seq -f 'step {number} line %g of the log' 1 400"
        return Says(thinking=f"Step {number} is next.", calls=[(shell, _SHELLS[shell](command))])


def _conversation(request: Request) -> str:
    """Return the IDs of session and sub-agent in the headers."""
    names = ("x-claude-code-session-id", "x-claude-code-agent-id", "thread-id", "x-session-id")
    return " ".join(request.headers.get(name, "") for name in names)


def behind(host: Installed, provider: Provider, *options: str) -> Installed:
    """Return the host with `proxy run` before its command."""
    words = [*_PROXY, "run", "--upstream", provider.url, *options]
    return replace(host, prefix=(*words, "--"))


def host_for(case: Case, folder: Path, npm_folder: Path, provider: Provider) -> Installed:
    """Return the host, which is not yet behind a proxy."""
    program = program_of(CLIENTS[case.host], npm_folder)
    host = installed(case.host, program, folder, provider.url)
    environment = {**host.environment, "XDG_CACHE_HOME": str(host.home / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    if case.host == "codex":
        # The built-in provider, whose address `proxy run` sets.
        settings = host.home / ".codex/config.toml"
        lines = settings.read_text("utf-8").splitlines()
        lines = [line for line in lines if not line.startswith("model_provider =")]
        settings.write_text("\n".join(lines), "utf-8")
        environment["CODEX_API_KEY"] = environment["OPENAI_API_KEY"] = "scripted"
    if case.host == "claude-code":
        environment["ANTHROPIC_MODEL"] = case.model
    return replace(host, environment=environment)


def session_id(host: Installed, name: str, provider: Provider) -> str:
    """Return the ID with which the host continues its session."""
    if name == "opencode":
        return re.findall(r"ses_\w+", host.run([str(host.program), "session", "list"]))[0]
    header = "x-claude-code-session-id" if name == "claude-code" else "thread-id"
    return provider.asked[-1].headers[header]


def conversations(provider: Provider) -> dict[str, list[Request]]:
    """Return the requests with tools by their conversation."""
    found: dict[str, list[Request]] = {}
    for request in provider.asked:
        if request.json.get("tools") and request.status == 200:
            found.setdefault(_conversation(request), []).append(request)
    return found


def figures(provider: Provider) -> Json:
    """Return what a run shows."""
    groups = conversations(provider).values()
    pairs = [pair for group in groups for pair in pairwise(group)]
    # Claude Code adds the tools of a server that starts slowly. This changes every prompt.
    same = [(one, other) for one, other in pairs if _fixed_part(one) == _fixed_part(other)]
    shares = [shared_prefix(one, other) for one, other in same]
    used = [request.usage for request in provider.asked if request.usage]
    return {
        "requests": len(provider.asked),
        "refused": [request.refusal for request in provider.refused],
        "refused_under_same_prompt": refused_under_same_prompt(provider),
        "conversations": len(groups),
        "largest_request_tokens": max(usage.total for usage in used),
        "prefixes_kept": sum(share >= 0.999 for share in shares),
        "prefixes_changed": sum(share < 0.999 for share in shares),
        "prompts_changed_by_host": len(pairs) - len(same),
        "lowest_prefix": round(min(shares, default=1.0), 3),
        "read_tokens": sum(usage.read for usage in used),
        "written_tokens": sum(usage.written for usage in used),
        "other_tokens": sum(usage.other for usage in used),
    }


def refused_under_same_prompt(provider: Provider) -> int:
    """Return the number of refusals that no change of tools or system prompt explains."""
    accepted: dict[str, Request] = {}
    number = 0
    for request in provider.asked:
        before = accepted.get(_conversation(request))
        if request.refusal and before is not None:
            number += _fixed_part(before) == _fixed_part(request)
        elif request.json.get("tools"):
            accepted[_conversation(request)] = request
    return number


def _fixed_part(request: Request) -> list[object]:
    return [request.json.get(name) for name in ("tools", "system", "instructions")]


def status_of(host: Installed) -> list[Json]:
    """Return the figures of all proxies of the host."""
    return json.loads(host.run([*_PROXY, "status", "--json"]))


def report(name: str, provider: Provider, host: Installed) -> Json:
    """Print the figures of a run for the results page, and return them."""
    found = figures(provider)
    statuses = status_of(host)
    for key in ("edited", "compactions", "kept_out_tokens"):
        found[key] = sum(status[key] for status in statuses)
    found["fallbacks"] = [status["fallbacks"] for status in statuses if status["fallbacks"]]
    # The provider also refuses lists as the host sends them, for example after its own compaction,
    # because the host keeps thinking whose earlier messages it replaced.
    found["refused_edits"] = json.dumps(found["fallbacks"]).count("refused an edited list")
    found["notes"] = [note for status in statuses for note in status["notes"]]
    print(name, json.dumps(found, indent=1))  # noqa: T201 - the figures of the results page
    return found


@pytest.mark.parametrize("name", CASES)
def test_host_works_behind_the_proxy(name: str, npm_folder: Path, tmp_path: Path) -> None:
    case = CASES[name]
    script = Script(CALLS)
    with serve_provider(script, bound_models=case.bound_models) as provider:
        plain = host_for(case, tmp_path, npm_folder, provider)
        host = behind(plain, provider, *WINDOW)
        host.ask(WORK, seconds=_SECONDS)
        session = session_id(plain, case.host, provider)
        found = report(f"{name}: one prompt", provider, host)
        assert found["refused_edits"] == 0
        assert len(provider.asked) >= CALLS
        assert found["compactions"] > 0
        assert found["largest_request_tokens"] < WINDOW_TOKENS
        assert found["prefixes_changed"] <= found["compactions"]
        # Each `proxy run` is a new process, so the session continues after a restart.
        before = len(provider.asked)
        script.calls = 5
        host.ask(WORK, session, seconds=_SECONDS)
        assert len(provider.asked) > before + 5
        assert max(len(request.body) for request in provider.asked[before:]) < 4 * WINDOW_TOKENS
        found = report(f"{name}: restarted", provider, host)
        assert found["refused_edits"] == 0
        assert found["refused_under_same_prompt"] == 0
        # Without the proxy, the session goes on with the host's whole list.
        accepted = len(conversations(provider))
        direct(plain, case.host, provider).ask("What was the last step?", session, seconds=_SECONDS)
        assert provider.asked[-1].status == 200
        assert accepted
        report(f"{name}: without the proxy", provider, host)


def direct(host: Installed, name: str, provider: Provider) -> Installed:
    """Return the host with the provider's own address."""
    if name != "codex":
        return host
    return replace(host, options=("-c", f'openai_base_url="{provider.url}/v1"'))


def test_claude_code_compacts_delegates_and_recovers_behind_the_proxy(
    npm_folder: Path, tmp_path: Path
) -> None:
    case = CASES["claude-bound"]
    script = Script(max(CALLS // 3, 10))
    with serve_provider(script, bound_models=case.bound_models) as provider:
        plain = host_for(case, tmp_path, npm_folder, provider)
        host = behind(plain, provider, *WINDOW)
        host.ask(WORK, seconds=_SECONDS)
        session = session_id(plain, case.host, provider)
        host.ask("/compact", session, seconds=_SECONDS)
        compacted = len(provider.asked)
        host.ask(WORK, session, seconds=_SECONDS)
        assert SUMMARY in provider.asked[compacted].body.decode()
        host.ask(DELEGATE, session, seconds=_SECONDS)
        found = report("claude: /compact and sub-agents", provider, host)
        assert found["refused_edits"] == 0
        assert found["conversations"] >= 3
        script.faults = [
            Fails(529, "overloaded_error", "Overloaded"),
            Fails(429, "rate_limit_error", "Slow down", (("retry-after", "1"),)),
            Fails(500, "api_error", "Internal server error"),
            Says("x" * 2_000, broken="cut"),
            Says("x" * 2_000, broken="error"),
        ]
        script.calls = 5
        host.ask(WORK, session, seconds=_SECONDS)
        found = report("claude: errors", provider, host)
        assert found["refused_edits"] == 0
        # After /compact, Claude Code keeps thinking whose earlier messages it replaced.
        assert found["refused_under_same_prompt"] <= 1
        assert script.faults == []
        # The proxy sends a refused edited list once more as it came. The host shows other errors.
        for status, kind in ((401, "authentication_error"), (400, "invalid_request_error")):
            script.faults = [Fails(status, kind, "No.")]
            host.ask(WORK, session, seconds=_SECONDS, codes=(0, 1))
            host.ask(WORK, session, seconds=_SECONDS)
            assert provider.asked[-1].status == 200
        report("claude: 401 and 400", provider, host)


def test_hanging_answer_ends_when_the_host_is_stopped(npm_folder: Path, tmp_path: Path) -> None:
    case = CASES["claude-enabled"]

    asked = Event()

    def script(_: Request) -> Reply:
        asked.set()
        return Hangs("I begin.")

    with serve_provider(script) as provider:
        plain = host_for(case, tmp_path, npm_folder, provider)
        host = behind(plain, provider, *WINDOW)
        process = subprocess.Popen(
            host.command(WORK),
            env=dict(host.environment),
            cwd=host.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert asked.wait(60)
        finally:
            process.terminate()  # `proxy run` passes the signal to the host
            process.wait(60)
        assert provider.hung_up.wait(20)
