"""Check whether a host can find and start the server."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread, Timer
from typing import TypeVar

from context_compaction import SettingsError
from context_compaction.system import command_line, desktop_environment, without_window

from mcp_server_compaction.hosts import installing
from mcp_server_compaction.hosts.catalog import REGISTERED_NAME, ConfigScope, Host, UserFolders
from mcp_server_compaction.hosts.hook_events import as_object
from mcp_server_compaction.program import own_command
from mcp_server_compaction.wrap.servers import variables_in

_T = TypeVar("_T")

# The command `doctor` ends within 3 seconds. This is the time for its checks and its imports.
TOTAL_SECONDS = 2.6
# A server gets this much less, so that it has ended when the command ends.
_END_SECONDS = 0.3
_PACKAGE = "package"
_QUESTIONS = b"""\
{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",\
 "capabilities": {}, "clientInfo": {"name": "doctor", "version": "1"}}}
{"jsonrpc": "2.0", "method": "notifications/initialized"}
{"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        is_ok: Whether the check passed.
        text: Description of the result; after a failure also how to fix it.
    """

    is_ok: bool
    text: str


@dataclass(frozen=True, slots=True)
class _Registration:
    """A place that may start the server.

    Attributes:
        findings: Results of its checks.
        command: Command that starts the server; empty if the place does not start it.
        env: Environment variables of the command.
    """

    findings: Sequence[Finding] = ()
    command: Sequence[str] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])


def deadline() -> float:
    """Return the end of all checks, on the clock `time.monotonic`; imports use some of the time."""
    return time.monotonic() + max(TOTAL_SECONDS / 2, TOTAL_SECONDS - time.process_time())


def run_checks(
    checks: Mapping[str, Callable[[], _T]], end_seconds: float
) -> Iterator[tuple[str, _T | None]]:
    """Run checks at the same time, and yield the name and result of each in their order.

    The result is None if a check has not ended at `end_seconds` on the clock `time.monotonic`. Its
    thread goes on until the process ends.
    """
    futures: dict[str, Future[_T]] = {name: Future() for name in checks}

    def run(name: str) -> None:
        try:
            futures[name].set_result(checks[name]())
        except Exception as error:  # noqa: BLE001 - raised where the result is read
            futures[name].set_exception(error)

    for name in checks:
        Thread(target=run, args=(name,), daemon=True).start()
    for name, future in futures.items():
        wait([future], max(0.0, end_seconds - time.monotonic()))
        yield name, future.result() if future.done() else None


def check_host(host: Host, folders: UserFolders, end_seconds: float) -> Iterator[Finding]:
    """Check the registration in a host's configurations and packages, and start each server.

    Yields each finding as soon as it is known, and ends at `end_seconds`; see `run_checks`.
    """
    places = {
        "user's configuration": partial(_check_scope, host, "user", folders),
        "project's configuration": partial(_check_scope, host, "project", folders),
        _PACKAGE: partial(_check_package, host, folders),
    }
    starts: dict[str, Callable[[], Finding]] = {}
    for place, found in run_checks(places, end_seconds):
        if found is None:
            yield Finding(False, f"The {place} of {host.title} could not be read in time.")
            continue
        yield from found.findings
        if found.command:
            starts[place] = partial(_start, host, found, end_seconds - _END_SECONDS)
    for place, finding in run_checks(starts, end_seconds):
        yield finding or Finding(False, f"The server in the {place} did not end in time.")
    if not starts:
        hooks = " --hooks" if host.hooks else ""
        problem = f"not registered in {host.title}. Run: {own_command()} install {host.name}{hooks}"
        yield Finding(False, problem)
    elif _PACKAGE in starts and len(starts) > 1:
        problem = (
            "registered and also installed as a package, so the server is started twice. To keep "
            f"only the package, run: {own_command()} uninstall {host.name}"
        )
        yield Finding(False, problem)


def _check_package(host: Host, folders: UserFolders) -> _Registration:
    """Look for this program's package in the host."""
    folder = folders.home / ".gemini" / "extensions" / REGISTERED_NAME
    if host.name == "claude-code":
        try:
            listing = folders.file("{claude}/plugins/installed_plugins.json").read_text("utf-8")
            plugin = json.loads(listing)["plugins"][f"{REGISTERED_NAME}@mcp-server-compaction"]
            folder = Path(plugin[0]["installPath"])
        except (OSError, ValueError, LookupError, TypeError):
            return _Registration()  # not installed, or recorded by an unknown version of the host
    elif host.name != "gemini-cli" or not folder.is_dir():
        return _Registration()
    finding = Finding(True, f"installed as a package with hooks in {folder}")
    return _Registration([finding], ["sh", str(folder / "start.sh")])


def _check_scope(host: Host, scope: ConfigScope, folders: UserFolders) -> _Registration:
    if host.file(folders, scope) is None:
        return _Registration()
    path = installing.config_file(host, scope, folders)
    try:
        value = installing.read_value(path, host.format)
        command = installing.installed_command(host, value)
        has_hooks = installing.are_hooks_registered(host, scope, folders)
    except SettingsError as error:
        return _Registration([Finding(False, str(error))])
    if not command:
        return _Registration()
    findings = [Finding(True, f"registered in {path}")]
    entry = as_object(as_object(value[host.section])[REGISTERED_NAME])
    if entry.get("enabled") is False or entry.get("disabled") is True:
        findings.append(Finding(False, f"disabled in {path}. Enable it there."))
    if "--root" not in command:
        text = "no --root: tools can read the transcripts of hosts, but no other files"
        findings.append(Finding(True, text))
    if has_hooks:
        findings.append(Finding(True, "hooks are registered"))
    elif host.hooks:
        problem = (
            "no hooks: sessions are archived only when the server starts or searches. "
            f"Run: {own_command()} install {host.name} --hooks"
        )
        findings.append(Finding(False, problem))
    return _Registration(findings, command, variables_in(entry))


def _start(host: Host, registration: _Registration, end_seconds: float) -> Finding:
    """Start the server as a desktop program does: with its environment, in the folder /."""
    command = registration.command
    env = desktop_environment() | registration.env
    if not shutil.which(command[0], path=env.get("PATH")):
        problem = (
            f"{command[0]} cannot be started with the host's PATH. "
            f"Run: {own_command()} install {host.name}"
        )
        return Finding(False, problem)
    started = time.monotonic()
    try:
        tools = _tools_of(command, env, end_seconds - started)
    except (OSError, EOFError, ValueError, LookupError) as error:
        problem = f"does not start ({type(error).__name__})"
        if time.monotonic() >= end_seconds:
            problem = "has not answered in time (hosts wait longer)"
        text = f"the server {problem}. To see why, run: {command_line(command)}"
        return Finding(False, text)
    seconds = time.monotonic() - started
    return Finding(True, f"starts in {seconds:.1f} s with the tools {', '.join(tools)}")


def _tools_of(command: Sequence[str], env: Mapping[str, str], seconds: float) -> list[str]:
    """Return the names of a server's tools. The program is killed if it does not end at once."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(  # noqa: S603 - the command in the user's configuration
        command, stdin=pipe, stdout=pipe, stderr=null, cwd="/", env=env, **without_window()
    ) as process:
        killer = Timer(max(0.0, seconds), process.kill)
        killer.start()
        try:
            if process.stdin and process.stdout:
                process.stdin.write(_QUESTIONS)
                process.stdin.flush()
                for answer in map(as_object, map(json.loads, process.stdout)):
                    if answer.get("id") == 2:
                        return [tool["name"] for tool in answer["result"]["tools"]]
            raise EOFError
        finally:
            killer.cancel()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_END_SECONDS)
            process.kill()
