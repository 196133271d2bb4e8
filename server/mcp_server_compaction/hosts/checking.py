"""Whether a host would find the server, and the server would start there."""

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import anyio
from context_compaction.errors import SettingsError

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.catalog import REGISTERED_NAME, ConfigScope, Host, UserFolders
from mcp_server_compaction.hosts.config_text import JSON, TextFormat, value_of
from mcp_server_compaction.hosts.hook_events import as_object
from mcp_server_compaction.hosts.installing import config_file, has_hooks, installed_command

# What a program gets that is started from a desktop, and the patience of Codex.
_BARE_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked; `text` says what is, and what to do where that is not well."""

    is_ok: bool
    text: str


async def check_host(host: Host, places: UserFolders) -> list[Finding]:
    """What is in the host's configuration, and whether it works."""
    findings: list[Finding] = []
    scopes: tuple[ConfigScope, ...] = ("user", "project")
    for scope in scopes:
        if host.file(places, scope) is not None:
            findings += await _check_scope(host, scope, places)
    is_registered = any(finding.text.startswith("registered") for finding in findings)
    package = host.package(places)
    if package is not None:
        findings.append(Finding(True, f"installed as a package, with its hooks, in {package}"))
        findings.append(await _start(["sh", str(package / "start.sh")], {}))
        if is_registered:
            findings.append(
                Finding(
                    False,
                    "registered and installed as a package: it is started twice. Keep one: "
                    f"mcp-server-compaction uninstall {host.name}",
                )
            )
        return findings
    if not is_registered:
        hooks = " --hooks" if host.hooks else ""
        problems = [finding for finding in findings if not finding.is_ok]
        missing = Finding(
            False,
            f"{host.title} does not know the server: mcp-server-compaction install "
            f"{host.name}{hooks}",
        )
        return [*problems, missing]
    return findings


async def _check_scope(host: Host, scope: ConfigScope, places: UserFolders) -> list[Finding]:
    path = config_file(host, scope, places)
    try:
        value = _value_at(path, host.format)
        command = installed_command(host, value)
    except SettingsError as error:
        return [Finding(False, str(error))]
    if command is None:
        return []
    findings = [Finding(True, f"registered in {path}")]
    section = cast("dict[str, Json]", value[host.section])
    entry = cast("dict[str, Json]", section[REGISTERED_NAME])
    if entry.get("enabled") is False or entry.get("disabled") is True:
        findings.append(Finding(False, f"it is turned off in {path}: enable it there"))
    findings.append(await _start(command, entry))
    if "--root" not in command:
        findings.append(Finding(True, "no --root: its tools read transcripts, and no other file"))
    if host.hooks:
        findings.append(_check_hooks(host, scope, places))
    return findings


def _value_at(path: Path, format: TextFormat) -> dict[str, Json]:
    try:
        return value_of(format, path.read_text("utf-8"), path)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}. Correct its permissions.") from error


async def _start(command: list[str], entry: Mapping[str, Json]) -> Finding:
    """Start the server with the environment of a desktop, in the folder /."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    if not shutil.which(command[0], path=_BARE_PATH):
        return Finding(
            False,
            f"{command[0]} cannot be started by a host, whose PATH is short: install again",
        )
    extra = as_object(entry.get("env") or entry.get("environment") or entry.get("envs"))
    home = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    server = StdioServerParameters(
        command=command[0],
        args=command[1:],
        env={**home, "PATH": _BARE_PATH, **{key: str(item) for key, item in extra.items()}},
        cwd="/",
    )
    started = time.monotonic()
    tools: list[str] = []
    try:
        with anyio.fail_after(_START_SECONDS):
            async with Client(server, mode="legacy") as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
    # Whatever keeps it from starting is what this command is there to show.
    except Exception as error:  # noqa: BLE001
        return Finding(
            False,
            f"`{' '.join(command)}` does not start ({type(error).__name__}). Run it in a shell to "
            "see why",
        )
    seconds = time.monotonic() - started
    return Finding(True, f"starts in {seconds:.1f} s and offers {', '.join(tools)}")


def _check_hooks(host: Host, scope: ConfigScope, places: UserFolders) -> Finding:
    hooks = host.hooks
    if hooks is None:
        return Finding(True, f"{host.title} has no hooks")
    file = hooks.file(places, scope)
    try:
        is_there = file.exists() if hooks.style == "plugin" else has_hooks(_value_at(file, JSON))
    except SettingsError as error:
        return Finding(False, str(error))
    if is_there:
        return Finding(True, f"hooks registered in {file}")
    return Finding(
        False,
        "no hooks: sessions are archived only when the server starts or searches. "
        f"mcp-server-compaction install {host.name} --hooks",
    )
