"""The proxy as a process between a simulated host and the strict provider."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from threading import Thread
from typing import Any

from tests.support.json_types import Json, is_list
from tests.support.simulated_host import Api, SimulatedHost
from tests.support.strict_answers import Says
from tests.support.strict_provider import Provider, Reply, Request, Script, shared_prefix

COMMAND = (sys.executable, "-m", "mcp_server_compaction")
APIS: tuple[Api, ...] = ("messages", "responses", "chat")
# Models without and with thinking that is bound to everything before it.
PLAIN_MODEL = "claude-sonnet-4-5"
BOUND_MODEL = "claude-opus-5-5"
ENABLED: Json = {"thinking": {"type": "enabled", "budget_tokens": 4_000}}
ADAPTIVE: Json = {"thinking": {"type": "adaptive"}}
# A small window, so that a compaction is due after every few results of `log_of`.
SMALL = ("--context-window", "24000")
_MIN_PREFIX = 0.999
_END_SECONDS = 60
_STARTED = "Proxy listening on "


@dataclass
class Proxy:
    """A proxy process.

    Attributes:
        url: Address of the proxy.
        folder: Folder with its archive and its cache.
        process: The process.
        log: Lines on standard error.
    """

    url: str
    folder: Path
    process: "subprocess.Popen[str]"
    log: list[str] = field(default_factory=list[str])

    @property
    def archive(self) -> Path:
        """Folder of the archive."""
        return self.folder / "archive"

    def status(self) -> Json:
        """Return what `proxy status` reports of this process, which must have ended."""
        assert self.process.poll() is not None, "the figures are complete when the proxy has ended"
        [newest, *_] = json.loads(run(self.folder, "proxy", "status", "--json"))
        return newest


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment of a process with its archive in `folder`."""
    return {
        **os.environ,
        "MCP_COMPACTION_ARCHIVE": str(folder / "archive"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def run(folder: Path, *arguments: str, codes: Sequence[int] = (0,)) -> str:
    """Run a command of the program, and return its output."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment_of(folder),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_END_SECONDS,
        check=False,
    )
    assert done.returncode in codes, done.stderr
    return done.stdout


@contextmanager
def proxied(upstream: str, folder: Path, *flags: str, limit: str = "") -> Generator[Proxy]:
    """Run a proxy until the end of the block. `limit` is a `ulimit` command."""
    command = [*COMMAND, "proxy", "--upstream", upstream, *flags]
    if limit:
        command = ["sh", "-c", f'{limit}; exec "$@"', "sh", *command]
    process = subprocess.Popen(
        command,
        env=environment_of(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    proxy = Proxy("", folder, process)
    output, errors = process.stdout, process.stderr
    assert output is not None
    assert errors is not None
    reader = Thread(target=lambda: proxy.log.extend(errors), daemon=True)
    try:
        for line in errors:
            proxy.log.append(line)
            if line.startswith(_STARTED):
                break
        assert "".join(proxy.log[-1:]).startswith(f"{_STARTED}http://127.0.0.1:"), proxy.log
        proxy.url = proxy.log[-1].removeprefix(_STARTED).strip()
        reader.start()
        yield proxy
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        finally:
            process.kill()
            process.wait()
            if reader.ident:
                reader.join(_END_SECONDS)
            text = output.read()
            output.close()
            errors.close()
    assert text == ""  # standard output stays empty


def working(calls: int) -> Script:
    """Return a script for any number of conversations with different session headers.

    After each prompt of the user the model calls a tool `calls` times, then says that it is done.
    """
    counts: Counter[str] = Counter()

    def reply(request: Request) -> Reply:
        names = (name for name in request.headers if name.endswith(("session-id", "agent-id")))
        session = " ".join(request.headers[name] for name in sorted(names))
        if not is_answering_tools(request):
            counts[session] = 0
        counts[session] += 1
        if counts[session] > calls:
            return Says("That is done.", thinking="Everything is done.")
        command = f"make step {counts[session]}"
        return Says(thinking=f"I think about {command}.", calls=[("Bash", {"command": command})])

    return reply


def is_answering_tools(request: Request) -> bool:
    """Whether the newest message is a tool result, not a prompt of the user."""
    items = [item for item in request.items if item.get("role") not in {"system", "developer"}]
    last = items[-1]
    content = last.get("content")
    blocks = content if is_list(content) else []
    kinds = {block.get("type") for block in blocks}
    is_output = str(last.get("type", "")).endswith("_output")
    return last.get("role") == "tool" or is_output or "tool_result" in kinds


_numbers = count(1)


def host_of(proxy: Proxy, api: Api = "messages", **options: Any) -> SimulatedHost:
    """Return a host before the proxy, with a session of its own."""
    options.setdefault("session_id", f"session-{os.getpid()}-{next(_numbers)}")
    return SimulatedHost(proxy.url, api, **options)


def check_all_accepted(provider: Provider, host: SimulatedHost | None = None) -> None:
    """Check that the provider refused nothing, and that the host got only successes."""
    assert [request.refusal for request in provider.refused] == []
    if host is not None:
        assert {reply.status for reply in host.replies} == {200}


def edited(provider: Provider, host: SimulatedHost) -> list[int]:
    """Return the positions of requests that reached the provider with another body."""
    pairs = zip(host.sent, provider.asked, strict=True)
    return [place for place, (sent, request) in enumerate(pairs) if sent != request.body]


def broken_prefixes(requests: Sequence[Request]) -> list[int]:
    """Return the positions of requests that do not continue the request before them."""
    shares = [shared_prefix(earlier, later) for earlier, later in pairwise(requests)]
    return [place for place, share in enumerate(shares, 1) if share < _MIN_PREFIX]
