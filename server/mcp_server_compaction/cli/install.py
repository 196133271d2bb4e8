"""`install`, `uninstall` and `doctor HOST`: hosts' configurations, shown to a person."""

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from context_compaction.errors import SettingsError

from mcp_server_compaction.archive_place import ARCHIVE_VARIABLE, archive_place
from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.config import KEY_VARIABLE, is_folder, load_config
from mcp_server_compaction.hosts.catalog import (
    REGISTERED_NAME,
    ConfigScope,
    Host,
    host_named,
    this_user,
)
from mcp_server_compaction.hosts.config_text import changed_text
from mcp_server_compaction.hosts.installing import (
    Change,
    Installation,
    apply_change,
    config_file,
    forget_backup,
    plan_install,
    plan_uninstall,
    runs_hooks,
    this_program,
)

# Flags of the program that its server is started with too, by their names in the command line.
_SERVER_FLAGS = {
    "summarizer": "--summarizer",
    "summary_model": "--summary-model",
    "summary_url": "--summary-url",
    "summary_timeout": "--summary-timeout",
    "redaction": "--redaction",
    "imports": "--import-sessions",
}


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """The options of `install`.

    Attributes:
        host: Name of the host.
        scope: For the user or for the project in the working folder.
        hooks: Whether to register the host's hooks too.
        roots: Folders that the server's tools may read files in.
        print_only: Show what the file would contain, and write nothing.
        dry_run: Show what would change, and write nothing.
    """

    host: str
    scope: ConfigScope
    hooks: bool
    roots: tuple[Path, ...]
    print_only: bool
    dry_run: bool


def run_install(options: InstallOptions, flags: Mapping[str, Any]) -> None:
    """Register the server, and report what was written and what comes next.

    Raises:
        SettingsError: The host cannot be configured so, or a file cannot be read or written.
    """
    host = host_named(options.host)
    installation = _installation(options, flags)
    if options.print_only:
        _print_entry(host, options.scope, installation)
        return
    changes = plan_install(host, options.scope, this_user(), installation)
    if options.dry_run:
        _show_diff(changes)
        return
    if not changes:
        say(f"{host.title}: all is as it should be; nothing was changed.")
        return
    _apply(changes)
    if "archive-v0" in Path(installation.program[0]).parts:
        say("This program runs from uv's cache, which may be emptied: `uv tool install` it.")
    if host.hooks and not runs_hooks(host, options.scope, this_user()):
        say("With --hooks, large outputs and whole sessions are archived without being asked for.")
    say(f"{host.after} Check it: mcp-server-compaction doctor {host.name}")


def _installation(options: InstallOptions, flags: Mapping[str, Any]) -> Installation:
    """What is to be registered, with the flags that this program itself was given."""
    # What the server would refuse is not registered; a key comes to it from the host.
    load_config(**flags, environment={KEY_VARIABLE: "the host's"})
    archive = flags.get("archive") or os.environ.get(ARCHIVE_VARIABLE)
    folder, address = archive_place(archive)
    kept = ["--archive", address or str(folder)] if archive else []
    for name, flag in _SERVER_FLAGS.items():
        if flags.get(name):
            kept += [flag, str(flags[name])]
    for root in [*map(Path, flags.get("roots") or ()), *options.roots]:
        if not is_folder(root):
            raise SettingsError(f"The root {root} is not a folder. Name an existing one.")
        kept += ["--root", str(root.absolute())]
    return Installation(this_program(), kept, with_hooks=options.hooks)


def run_uninstall(host_name: str, scope: ConfigScope, *, dry_run: bool) -> None:
    """Take the server and its hooks out of a host's configuration.

    Raises:
        SettingsError: A file cannot be read or written.
    """
    host = host_named(host_name)
    changes = plan_uninstall(host, scope, this_user())
    if dry_run:
        _show_diff(changes)
        return
    if not changes:
        say(f"{host.title}: nothing of this program stands there; nothing was changed.")
        return
    _apply(changes)
    for change in changes:
        forget_backup(change.path)
    say("The archive stays; `mcp-server-compaction usage` shows it.")


def _apply(changes: Sequence[Change]) -> None:
    for change in changes:
        backup = apply_change(change)
        done = "removed" if change.after is None else "written"
        say(f"{done}  {change.path}")
        if backup:
            say(f"   copy  {backup}")


def _show_diff(changes: Sequence[Change]) -> None:
    if not changes:
        say("Nothing would change.")
    for change in changes:
        lines = difflib.unified_diff(
            (change.before or "").splitlines(),
            (change.after or "").splitlines(),
            str(change.path) if change.before is not None else "/dev/null",
            str(change.path) if change.after is not None else "/dev/null",
            lineterm="",
        )
        for line in lines:
            say(line)


def _print_entry(host: Host, scope: ConfigScope, installation: Installation) -> None:
    places = this_user()
    path = config_file(host, scope, places)
    say(f"# {path}", err=True)
    entry = host.entry([*installation.program, *installation.flags])
    value = {host.section: {REGISTERED_NAME: entry}}
    say(changed_text(host.format, "", value, path).rstrip("\n"))
    if installation.with_hooks:
        for change in plan_install(host, scope, places, installation):
            if change.path != path:
                say(f"# {change.path}", err=True)
                say((change.after or "").rstrip("\n"))


def run_doctor_of_host(host_name: str, *, as_json: bool) -> bool:
    """Start the server as the host would, and report what is missing; whether all is well."""
    from mcp_server_compaction.hosts.checking import Finding, check_host

    host = host_named(host_name)
    findings: list[Finding] = anyio.run(check_host, host, this_user())
    if as_json:
        say(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            say(f"{'ok     ' if finding.is_ok else 'PROBLEM'}  {finding.text}")
    problems = sum(not finding.is_ok for finding in findings)
    if problems:
        say(f"{problems} of {len(findings)} checks of {host.title} failed.", err=True)
    return not problems
