"""Check whether a host can find and start the server."""

import contextlib
import errno
import json
import os
import shlex
import shutil
import subprocess
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
# All servers together must answer in this time, so that the command ends within 3 seconds.
START_SECONDS = 2.0
_END_SECONDS = 0.3
_QUESTIONS = b"".join(
    json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
    for message in (
        {
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "doctor", "version": "1"},
            },
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    )
)


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
    deadline = time.monotonic() + START_SECONDS
    scopes: tuple[ConfigScope, ...] = ("user", "project")
    for scope in scopes:
        if host.file(folders, scope) is not None:
            async for finding in _check_scope(host, scope, folders, deadline):
                is_registered = is_registered or finding.is_ok
                yield finding
    package = _package_folder(host, folders)
    if package is not None:
        yield Finding(True, f"installed as a package with hooks in {package}")
        yield await _start(host, ["sh", str(package / "start.sh")], {}, deadline)
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
    host: Host, scope: ConfigScope, folders: UserFolders, deadline: float
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
    yield await _start(host, command, entry, deadline)
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


async def _start(
    host: Host, command: list[str], entry: Mapping[str, Json], deadline: float
) -> Finding:
    """Start the server as a desktop program does: with a short `PATH`, in the folder /."""
    if not shutil.which(command[0], path=_DESKTOP_PATH):
        problem = (
            f"{command[0]} cannot be started with the host's short PATH. "
            f"Run: {own_command()} install {host.name}"
        )
        return Finding(False, problem)
    variables = as_object(entry.get("env") or entry.get("environment") or entry.get("envs"))
    home = {name: os.environ[name] for name in ("HOME", "USER") if name in os.environ}
    env = {**home, "PATH": _DESKTOP_PATH, **{key: str(item) for key, item in variables.items()}}
    started = time.monotonic()
    problem = "has not answered in time (hosts wait longer)"
    with anyio.move_on_after(max(0.1, deadline - started)):
        try:
            tools = await _tools_of(command, env)
        except (OSError, ValueError, LookupError, anyio.EndOfStream) as error:
            problem = f"does not start ({type(error).__name__})"
        else:
            seconds = time.monotonic() - started
            return Finding(True, f"starts in {seconds:.1f} s with the tools {', '.join(tools)}")
    return Finding(False, f"the server {problem}. To see why, run: {shlex.join(command)}")


async def _tools_of(command: list[str], env: dict[str, str]) -> list[str]:
    """Return the names of a server's tools. The program is killed if it does not end at once.

    The SDK's client would give it seconds to end.
    """
    process = await anyio.open_process(command, env=env, cwd="/", stderr=subprocess.DEVNULL)
    try:
        if process.stdin is None or process.stdout is None:
            raise OSError(errno.EPIPE, "no pipe to the program")
        await process.stdin.send(_QUESTIONS)
        data = b""
        while True:
            *lines, data = (data + await process.stdout.receive()).split(b"\n")
            for answer in map(json.loads, lines):
                if answer.get("id") == 2:
                    return [tool["name"] for tool in answer["result"]["tools"]]
    finally:
        with anyio.CancelScope(shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            with anyio.move_on_after(_END_SECONDS):
                await process.wait()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.aclose()
