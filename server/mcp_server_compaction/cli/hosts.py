"""The commands `install`, `uninstall`, `doctor` and `hook`, which connect the server to hosts."""

import difflib
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import click
from context_compaction import SettingsError, VocabularyError
from context_compaction.system import command_line

from mcp_server_compaction import program
from mcp_server_compaction.cli.terminal import answer, config_of, say, say_exactly
from mcp_server_compaction.config import ROOTS_VARIABLE, Config, is_folder, load_config, own_options
from mcp_server_compaction.hosts import installing
from mcp_server_compaction.hosts.catalog import (
    HOSTS,
    REGISTERED_NAME,
    ConfigScope,
    Host,
    installed_hosts,
    this_user,
)
from mcp_server_compaction.hosts.checking import Finding, check_host, deadline, run_checks
from mcp_server_compaction.hosts.config_text import changed_text

# A reset of the write-ahead log could corrupt a database that several processes write:
# SQLite 3.7.0 to 3.51.2, fixed in 3.51.3 (13 March 2026).
_WAL_FIXED = (3, 51, 3)
_PROBLEM = "PROBLEM: "
_NO_ROOTS = f"none: tools cannot read files (set {ROOTS_VARIABLE} or --root)"
_NOT_CHECKED = "not checked in time: the computer is busy, a folder does not answer, or it is huge"

_HOST = click.Choice(tuple(HOSTS))
_optional_host = click.argument("host_name", metavar="[HOST]", required=False, type=_HOST)


@click.command()
@_optional_host
@own_options
@click.pass_obj
def install(
    flags: Mapping[str, Any],
    host_name: str | None,
    *,
    scope: ConfigScope = "user",
    wrap: tuple[str, ...] = (),
    hooks: bool = False,
    roots: tuple[Path, ...] = (),
    print_: bool = False,
    dry_run: bool = False,
) -> None:
    """Register the server in HOST with its absolute path. Without HOST, ask for each host found.

    Other settings and comments in the host's files stay as they are. `uninstall` removes the
    registration. Run this command again at any time to update it.

    Options:
        scope: Change the configuration for all projects of your user, or for this folder only.
        wrap ([NAME]): Move the host's other servers behind this one, which shortens their large
            results: all, or the one with this name; repeatable (default: none).
        hooks: Register hooks that archive large outputs and sessions (default: no hooks).
        roots (DIR): Let the tools of the server read files in this folder; repeatable (default: the
            working folder and transcript folders).
        print_: Print the configuration, and write nothing.
        dry_run: Print the changes as a diff, and write nothing.
    """
    hosts = [HOSTS[host_name]] if host_name else _chosen_hosts()
    for host in hosts:
        notes: list[str] = []
        installation = installing.Installation(
            program.this_program(),
            _server_flags(flags, roots),
            with_hooks=hooks and bool(host_name or host.hooks),
        )
        if wrap:
            wrapped, notes = installing.servers_to_wrap(
                host, scope, this_user(), [*filter(None, wrap)]
            )
            installation = replace(installation, wrapped=wrapped)
        if print_:
            _print_entry(host, scope, installation)
            continue
        changes = installing.plan_install(host, scope, this_user(), installation)
        if dry_run:
            _print_diff(changes)
        elif not changes:
            say(f"{host.title}: already registered; nothing was changed.")
        else:
            _apply(changes)
            _print_installed(host, scope, installation, notes)


def _chosen_hosts() -> list[Host]:
    """Ask for each host on this machine whether to register the server in it."""
    found = installed_hosts(this_user())
    if not found:
        raise SettingsError(f"Found no host. Name the one to change: {', '.join(HOSTS)}.")
    if not sys.stdin.isatty():
        commands = "".join(f"\n  {program.own_command()} install {host.name}" for host in found)
        raise SettingsError(f"Name a host. These are on this machine:{commands}")
    return [host for host in found if click.confirm(f"Register in {host.title}?", default=True)]


def _print_installed(
    host: Host, scope: ConfigScope, installation: installing.Installation, notes: Sequence[str]
) -> None:
    if installation.wrapped:
        say(f"Wrapped: {', '.join(installation.wrapped)}")
    for note in notes:
        say(f"Note: {note}")
    if "archive-v0" in Path(installation.program[0]).parts:
        say(
            "Note: this program is in uv's cache, which may be deleted. Install it with: "
            "uv tool install mcp-server-compaction"
        )
    if host.hooks and not installing.are_hooks_registered(host, scope, this_user()):
        say("Note: add --hooks to archive large outputs and whole sessions automatically.")
    say(host.after)
    say(f"Check it: {program.own_command()} doctor {host.name}")


def _server_flags(flags: Mapping[str, Any], roots: Sequence[Path]) -> list[str]:
    """Return the flags of this call as flags for the registered server."""
    context = click.get_current_context().find_root()
    flags = {
        name: value
        for name, value in flags.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.ENVIRONMENT
    }
    # Refuse invalid options now. The host's environment sets the key later, so any key is accepted.
    key_env = flags.get("summarizer_key_env") or ""
    load_config(**flags, environment={key_env: "set by the host"})
    archive = flags.pop("archive", None) or os.environ.get(program.ARCHIVE_VARIABLE)
    folder, address = program.archive_place(archive)
    words = ["--archive", address or str(folder)] if archive else []
    named_roots = flags.pop("roots", ())
    for option in context.command.params:
        value = flags.get(option.name or "") or ()
        values: Sequence[object] = value if option.multiple else (value,)
        words += [word for text in values if text for word in (option.opts[0], str(text))]
    for root in [*map(Path, named_roots), *roots]:
        if not is_folder(root):
            raise SettingsError(f"The root {root} is not a folder. Pass an existing folder.")
        words += ["--root", str(root.absolute())]
    return words


@click.command()
@click.argument("host_name", metavar="HOST", type=_HOST)
@own_options
def uninstall(host_name: str, *, scope: ConfigScope = "user", dry_run: bool = False) -> None:
    """Remove the server and its hooks from the configuration of HOST. The archive stays.

    Options:
        scope: Change the configuration for all projects of your user, or for this folder only.
        dry_run: Print the changes as a diff, and write nothing.
    """
    host = HOSTS[host_name]
    changes = installing.plan_uninstall(host, scope, this_user())
    if dry_run:
        _print_diff(changes)
        return
    if not changes:
        say(f"{host.title}: not registered; nothing was changed.")
        return
    _apply(changes)
    installing.delete_created_folders(changes)
    say(f"The archive stays. Show its size with: {program.own_command()} usage")


def _apply(changes: Sequence[installing.Change]) -> None:
    for change in changes:
        backup = installing.apply_change(change)
        say(f"{'Removed' if change.after is None else 'Written'}: {change.path}")
        if backup:
            say(f"Backup: {backup}")


def _print_diff(changes: Sequence[installing.Change]) -> None:
    if not changes:
        say("No changes.")
    for change in changes:
        lines = difflib.unified_diff(
            (change.before or "").splitlines(),
            (change.after or "").splitlines(),
            str(change.path) if change.before is not None else "/dev/null",
            str(change.path) if change.after is not None else "/dev/null",
            lineterm="",
        )
        for line in lines:
            say_exactly(line)


def _print_entry(host: Host, scope: ConfigScope, installation: installing.Installation) -> None:
    path = installing.config_file(host, scope, this_user())
    say_exactly(f"# {path}", err=True)
    entry = host.entry_for([*installation.program, *installation.flags])
    value = {host.section: {REGISTERED_NAME: entry}}
    say_exactly(changed_text(host.format, "", value, path).rstrip("\n"))
    if installation.with_hooks:
        for change in installing.plan_install(host, scope, this_user(), installation):
            if change.path != path:
                say_exactly(f"# {change.path}", err=True)
                say_exactly((change.after or "").rstrip("\n"))


@click.command()
@_optional_host
@own_options
@click.pass_context
def doctor(context: click.Context, host_name: str | None, *, as_json: bool = False) -> None:
    """Check versions, vocabulary, archive, roots, summary writers and proxies, within 3 seconds.

    With HOST, check its configuration and start the server as HOST does. The exit code is 1 if
    there is a problem.

    Options:
        as_json: Print JSON instead of text.
    """
    end_seconds = deadline()
    if host_name is not None:
        findings: list[Finding] = []
        for finding in check_host(HOSTS[host_name], this_user(), end_seconds):
            findings.append(finding)
            if not as_json:
                say(f"{'ok     ' if finding.is_ok else 'PROBLEM'}  {finding.text}")
        is_ok = all(finding.is_ok for finding in findings)
        report: object = [asdict(finding) for finding in findings]
    else:
        sections: dict[str, list[str]] = {}
        for name, found in run_checks(_program_checks(context), end_seconds):
            lines = [_NOT_CHECKED] if found is None else found
            sections[name] = lines
            for index, line in enumerate(() if as_json else lines):
                say(f"{'' if index else name:<22} {line}")
        is_ok = not any(line.startswith(_PROBLEM) for texts in sections.values() for line in texts)
        report = sections
    if as_json:
        answer(True, report, "")
    if not is_ok:
        raise click.exceptions.Exit(1)


def _program_checks(context: click.Context) -> dict[str, Callable[[], list[str]]]:
    """Return the check of each part of the program; each returns lines for people.

    A wrong configuration is refused here, before anything is printed.
    """
    from mcp_server_compaction.protocol.compaction_call import writer_lines  # loads the engine

    config = config_of(context)
    return {
        "mcp-server-compaction": lambda: [version("mcp-server-compaction")],
        "python": lambda: [platform.python_version()],
        "sqlite": _check_sqlite,
        "mcp": lambda: [version("mcp")],
        "tiktoken": lambda: [version("tiktoken")],
        "roots": lambda: [str(folder) for folder in config.roots.folders] or [_NO_ROOTS],
        "summary writers": lambda: [*writer_lines(config)],
        "proxy": lambda: _check_proxies(config),
        "vocabulary": _check_vocabulary,
        "archive": lambda: _check_archive(config),
    }


def _check_sqlite() -> list[str]:
    is_fixed = sqlite3.sqlite_version_info >= _WAL_FIXED
    fault = "rarely damages the search index, which is then rebuilt; fixed in 3.51.3"
    return [sqlite3.sqlite_version + ("" if is_fixed else f" ({fault})")]


def _check_proxies(config: Config) -> list[str]:
    """Return the figures of running proxies; if none runs, of the last one."""
    from mcp_server_compaction.proxy.status import read_statuses

    statuses = read_statuses(config.archive_folder)
    shown = [status for status in statuses if status.is_running] or statuses[:1]
    lines = [line.strip() for status in shown for line in status.lines]
    return lines or ["not used (start a host with: mcp-server-compaction proxy run -- HOST)"]


def _check_vocabulary() -> list[str]:
    from context_compaction import counter_for

    try:
        counter_for().text("hello world")
    except VocabularyError as error:
        pip = [sys.executable, "-m", "pip", "install", "--force-reinstall", program.SCRIPT]
        return [f"{_PROBLEM}{error} Run: {command_line(pip)}"]
    return ["ok (o200k_base, checksum verified)"]


def _check_archive(config: Config) -> list[str]:
    if config.archive_address is None and not config.archive_folder.exists():
        return [f"{config.archive_folder} (empty: created on first use)"]
    from context_compaction import CompactionError, Health, open_archive

    from mcp_server_compaction.viewer.formatting import size

    async def health() -> Health:
        async with open_archive(config.archive) as archive:
            return await archive.health()

    try:
        state = anyio.run(health)
    except CompactionError as error:  # or a package for the database is missing
        other = f"To use another archive, run: {program.own_command()} --archive DIR doctor"
        return [f"{_PROBLEM}{error}", other]
    return [
        state.location,
        f"{state.session_count} sessions, {state.message_count} messages, "
        f"{state.output_count} outputs",
        f"log {size(state.log_bytes)}, outputs {size(state.blob_bytes)}, "
        f"index {size(state.index_bytes)}",
        *(state.problems or ["health: ok"]),
    ]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("event")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def hook(flags: Mapping[str, Any], event: str, rest: tuple[str, ...]) -> None:
    """Handle EVENT of a host, with its JSON on standard input.

    `install --hooks` registers this command. REST are options of the hook.
    """
    from mcp_server_compaction.hosts.hook import run_hook

    options = [f"--{name}={flags[name]}" for name in ("archive", "redaction") if flags.get(name)]
    run_hook([event, *options, *rest])
