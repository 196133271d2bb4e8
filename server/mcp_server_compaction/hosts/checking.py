"""Whether a host would find the server, and the server would start there."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from context_compaction import SettingsError

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.catalog import REGISTERED_NAME, ConfigScope, Host, UserFolders
from mcp_server_compaction.hosts.hook_events import as_object
from mcp_server_compaction.hosts.installing import (
    config_file,
    installed_command,
    read_value,
    runs_hooks,
)

# A program that is started from a desktop gets this PATH. Codex waits this long for a server.
_BARE_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; `text` also names the remedy where it failed."""

    is_ok: bool
    text: str


async def check_host(host: Host, places: UserFolders) -> list[Finding]:
    """What the host's configuration holds, and whether it works."""
    findings: list[Finding] = []
    scopes: tuple[ConfigScope, ...] = ("user", "project")
    for scope in scopes:
        if host.file(places, scope) is not None:
            findings += await _check_scope(host, scope, places)
    is_registered = any(finding.is_ok for finding in findings)
    package = _package(host, places)
    if package is not None:
        findings.append(Finding(True, f"installed as a package, with its hooks, in {package}"))
        findings.append(await _start(["sh", str(package / "start.sh")], {}))
    if package is not None and is_registered:
        problem = (
            "registered and installed as a package: it is started twice. Keep one: "
            f"mcp-server-compaction uninstall {host.name}"
        )
        findings.append(Finding(False, problem))
    elif package is None and not is_registered:
        hooks = " --hooks" if host.hooks else ""
        problem = (
            f"{host.title} does not know the server: mcp-server-compaction install "
            f"{host.name}{hooks}"
        )
        findings.append(Finding(False, problem))
    return findings


def _package(host: Host, places: UserFolders) -> Path | None:
    """Where the host's own manager of plugins has put this program's package, if it has."""
    if host.name == "gemini-cli":
        folder = places.home / ".gemini" / "extensions" / REGISTERED_NAME
        return folder if folder.is_dir() else None
    if host.name != "claude-code":
        return None
    listing = places.file("{claude}/plugins/installed_plugins.json")
    try:
        plugins = json.loads(listing.read_text("utf-8"))["plugins"]
        return Path(plugins[f"{REGISTERED_NAME}@mcp-server-compaction"][0]["installPath"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # none is installed, or by a version that notes it elsewhere


async def _check_scope(host: Host, scope: ConfigScope, places: UserFolders) -> list[Finding]:
    path = config_file(host, scope, places)
    try:
        value = read_value(path, host.format)
        command = installed_command(host, value)
        has_hooks = runs_hooks(host, scope, places)
    except SettingsError as error:
        return [Finding(False, str(error))]
    if not command:
        return []
    findings = [Finding(True, f"registered in {path}")]
    entry = as_object(as_object(value[host.section])[REGISTERED_NAME])
    if entry.get("enabled") is False or entry.get("disabled") is True:
        findings.append(Finding(False, f"it is turned off in {path}: enable it there"))
    findings.append(await _start(command, entry))
    if "--root" not in command:
        findings.append(Finding(True, "no --root: its tools read transcripts, and no other file"))
    if has_hooks:
        findings.append(Finding(True, "hooks are registered"))
    elif host.hooks:
        problem = (
            "no hooks: sessions are archived only when the server starts or searches. "
            f"mcp-server-compaction install {host.name} --hooks"
        )
        findings.append(Finding(False, problem))
    return findings


async def _start(command: list[str], entry: Mapping[str, Json]) -> Finding:
    """Start the server with the environment of a desktop, in the folder /."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    if not shutil.which(command[0], path=_BARE_PATH):
        problem = f"{command[0]} cannot be started by a host, whose PATH is short: install again"
        return Finding(False, problem)
    extra = as_object(entry.get("env") or entry.get("environment") or entry.get("envs"))
    home = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    server = StdioServerParameters(
        command=command[0],
        args=command[1:],
        env={**home, "PATH": _BARE_PATH, **{key: str(item) for key, item in extra.items()}},
        cwd="/",
    )
    started = time.monotonic()
    try:
        with anyio.fail_after(START_SECONDS):
            async with Client(server, mode="legacy") as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                seconds = time.monotonic() - started
    # Whatever keeps it from starting is what this command is there to show.
    except Exception as error:  # noqa: BLE001
        problem = (
            f"`{' '.join(command)}` does not start ({type(error).__name__}). Run it in a shell to "
            "see why"
        )
        return Finding(False, problem)
    return Finding(True, f"starts in {seconds:.1f} s and offers {', '.join(tools)}")
