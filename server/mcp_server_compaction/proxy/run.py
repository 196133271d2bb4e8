"""Run a host behind the proxy: its base URL and our MCP server are set for this run only.

Nothing is written into settings of the host, so nothing remains after its end.
"""

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from context_compaction import SettingsError, is_object
from context_compaction.system import find_program

from mcp_server_compaction.hosts.catalog import HOSTS, REGISTERED_NAME

DEFAULT_UPSTREAM = "https://api.anthropic.com"
_ANTHROPIC_VARIABLE, _OPENAI_VARIABLE = "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"
_OPENCODE_VARIABLE = "OPENCODE_CONFIG_CONTENT"
# Claude Code compacts its context below this window.
_CLAUDE_WINDOW_VARIABLE = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"


def upstream_for(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the address that the host would use without the proxy, by its own variable."""
    known = {"": DEFAULT_UPSTREAM, "codex": "https://api.openai.com"}.get(_name(command))
    return known or environment.get(_ANTHROPIC_VARIABLE) or DEFAULT_UPSTREAM


def check_upstream(url: str) -> str:
    """Return the address of a model's API without a slash at its end.

    Raises:
        SettingsError: The address has no host, a password, or another scheme than http and https.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        example = "https://api.anthropic.com, without a name or password"
        raise SettingsError(f"Invalid --upstream {url!r}. Use one like {example}.")
    return url.rstrip("/")


def host_window(command: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Return the window for which the host compacts its context, if a variable sets it."""
    value = environment.get(_CLAUDE_WINDOW_VARIABLE, "") if _name(command) == "claude" else ""
    return int(value) if value.isdecimal() and int(value) > 0 else None


def host_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    address: str,
    upstream: str,
    server: Sequence[str],
) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment that start the host behind the proxy.

    Args:
        command: Command of the host.
        environment: Environment of this process.
        address: Address of the proxy.
        upstream: Address of the model's API.
        server: Command of the MCP server on the archive of the proxy.
    """
    program, *arguments = command
    versioned = address if upstream.endswith("/v1") else f"{address}/v1"
    # The key of one provider must not reach the other.
    provider = urlsplit(upstream).hostname or ""
    is_anthropic, is_openai = (provider.endswith(f"{n}.com") for n in ("anthropic", "openai"))
    changes: dict[str, str] = {}
    match _name(command):
        case "claude":
            servers = {"mcpServers": {REGISTERED_NAME: HOSTS["claude-code"].entry_for(server)}}
            arguments = [f"--mcp-config={json.dumps(servers)}", *arguments]
            changes = {_ANTHROPIC_VARIABLE: address}
        case "codex":
            entry = HOSTS["codex"].entry_for(server)
            values = {f"mcp_servers.{REGISTERED_NAME}.{key}": value for key, value in entry.items()}
            # JSON texts and lists are TOML as well.
            for key, value in {"openai_base_url": versioned, **values}.items():
                arguments = ["-c", f"{key}={json.dumps(value)}", *arguments]
        case "opencode":
            options = {"options": {"baseURL": versioned}}
            providers = {} if is_openai else {"anthropic": options}
            providers |= {} if is_anthropic else {"openai": options}
            servers = {REGISTERED_NAME: HOSTS["opencode"].entry_for(server)}
            given = json.loads(environment.get(_OPENCODE_VARIABLE) or "{}")
            config = _merged(given, {"provider": providers, "mcp": servers})
            changes = {_OPENCODE_VARIABLE: json.dumps(config)}
        case _:
            changes = {} if is_openai else {_ANTHROPIC_VARIABLE: address}
            changes |= {} if is_anthropic else {_OPENAI_VARIABLE: versioned}
    return [program, *arguments], {**environment, **changes}


def run_host(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the host until its end, and return its exit code. Signals reach the host.

    Raises:
        OSError: The program cannot be started.
    """
    words = [find_program(command[0]), *command[1:]]
    child = subprocess.Popen(words, env=dict(environment))  # noqa: S603 - the user's command
    # A terminal sends Ctrl-C to the host itself, which decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), lambda got, _: child.send_signal(got))
    code = child.wait()
    return code if code >= 0 else 128 - code


def _name(command: Sequence[str]) -> str:
    return Path(command[0]).name.removesuffix(".exe") if command else ""


def _merged(given: Any, more: Any) -> Any:
    """Return the JSON value `given` with the settings `more`, table by table."""
    if not (is_object(given) and is_object(more)):
        return more
    return {**given, **{key: _merged(given.get(key), value) for key, value in more.items()}}
