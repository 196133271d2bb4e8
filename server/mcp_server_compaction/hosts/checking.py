"""Check whether a host can find and start the server."""

import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from context_compaction import SettingsError

from mcp_server_compaction.hosts import Json
from mcp_server_compaction.hosts.catalog import REGISTERED_NAME, ConfigScope, Host, UserFolders
from mcp_server_compaction.hosts.hook_events import as_object
from mcp_server_compaction.hosts.installing import (
    are_hooks_registered,
    config_file,
    installed_command,
    read_value,
)
from mcp_server_compaction.own_command import own_command

# `PATH` of programs that are started from a desktop.
_DESKTOP_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
# Codex waits this long for the start of a server.
START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        is_ok: Whether the check passed.
        text: Description of the result; after a failure also how to fix it.
    """

    is_ok: bool
    text: str


async def check_host(host: Host, folders: UserFolders) -> AsyncIterator[Finding]:
    """Check the registration in a host's configurations and packages, and start the server.

    Yields each finding at once, because starting the server can take seconds.
    """
    is_registered = False
    scopes: tuple[ConfigScope, ...] = ("user", "project")
    for scope in scopes:
        if host.file(folders, scope) is not None:
            async for finding in _check_scope(host, scope, folders):
                is_registered = is_registered or finding.is_ok
                yield finding
    package = _package_folder(host, folders)
    if package is not None:
        yield Finding(True, f"installed as a package with hooks in {package}")
        yield await _start(["sh", str(package / "start.sh")], {})
    if package is not None and is_registered:
        problem = (
            "registered and also installed as a package, so the server is started twice. To keep "
            f"only the package, run: {own_command()} uninstall {host.name}"
        )
        yield Finding(False, problem)
    elif package is None and not is_registered:
        hooks = " --hooks" if host.hooks else ""
        problem = f"not registered in {host.title}. Run: {own_command()} install {host.name}{hooks}"
        yield Finding(False, problem)


def _package_folder(host: Host, folders: UserFolders) -> Path | None:
    """Return the folder of this program's package in the host; None if it is not installed."""
    if host.name == "gemini-cli":
        folder = folders.home / ".gemini" / "extensions" / REGISTERED_NAME
        return folder if folder.is_dir() else None
    if host.name != "claude-code":
        return None
    try:
        listing = folders.file("{claude}/plugins/installed_plugins.json").read_text("utf-8")
        plugin = json.loads(listing)["plugins"][f"{REGISTERED_NAME}@mcp-server-compaction"]
        return Path(plugin[0]["installPath"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # not installed, or recorded by an unknown version of the host


async def _check_scope(
    host: Host, scope: ConfigScope, folders: UserFolders
) -> AsyncIterator[Finding]:
    path = config_file(host, scope, folders)
    try:
        value = read_value(path, host.format)
        command = installed_command(host, value)
        has_hooks = are_hooks_registered(host, scope, folders)
    except SettingsError as error:
        yield Finding(False, str(error))
        return
    if not command:
        return
    yield Finding(True, f"registered in {path}")
    entry = as_object(as_object(value[host.section])[REGISTERED_NAME])
    if entry.get("enabled") is False or entry.get("disabled") is True:
        yield Finding(False, f"disabled in {path}. Enable it there.")
    yield await _start(command, entry)
    if "--root" not in command:
        text = "no --root: tools can read the transcripts of hosts, but no other files"
        yield Finding(True, text)
    if has_hooks:
        yield Finding(True, "hooks are registered")
    elif host.hooks:
        problem = (
            "no hooks: sessions are archived only when the server starts or searches. "
            f"Run: {own_command()} install {host.name} --hooks"
        )
        yield Finding(False, problem)


async def _start(command: list[str], entry: Mapping[str, Json]) -> Finding:
    """Start the server as a desktop program does: with a short `PATH`, in the folder /."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    if not shutil.which(command[0], path=_DESKTOP_PATH):
        problem = f"{command[0]} cannot be started with the host's short PATH. Install it again."
        return Finding(False, problem)
    variables = as_object(entry.get("env") or entry.get("environment") or entry.get("envs"))
    home = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    server = StdioServerParameters(
        command=command[0],
        args=command[1:],
        env={**home, "PATH": _DESKTOP_PATH, **{key: str(item) for key, item in variables.items()}},
        cwd="/",
    )
    started = time.monotonic()
    try:
        with anyio.fail_after(START_SECONDS):
            async with Client(server, mode="legacy") as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                seconds = time.monotonic() - started
    # Every failure is caught, because this command reports why the server does not start.
    except Exception as error:  # noqa: BLE001
        problem = (
            f"`{' '.join(command)}` does not start ({type(error).__name__}). Run it in a shell to "
            "see the error."
        )
        return Finding(False, problem)
    return Finding(True, f"starts in {seconds:.1f} s with the tools {', '.join(tools)}")
