"""`install`, `uninstall`, `doctor` and `hook`: the server in the hosts of this machine."""

import difflib
import json
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import click
from context_compaction import ArchiveError, Health, SettingsError, VocabularyError, open_archive

from mcp_server_compaction.archive_place import ARCHIVE_VARIABLE, archive_place
from mcp_server_compaction.cli.terminal import config_of, json_option, say
from mcp_server_compaction.config import (
    KEY_VARIABLE,
    ROOTS_VARIABLE,
    Config,
    is_folder,
    load_config,
)
from mcp_server_compaction.hosts.catalog import (
    HOSTS,
    REGISTERED_NAME,
    ConfigScope,
    Host,
    this_user,
)
from mcp_server_compaction.hosts.checking import check_host
from mcp_server_compaction.hosts.config_text import changed_text
from mcp_server_compaction.hosts.installing import (
    Change,
    Installation,
    apply_change,
    are_hooks_registered,
    config_file,
    delete_backups,
    plan_install,
    plan_uninstall,
    this_program,
)

# A reset of the write-ahead log could corrupt a database that several processes write:
# SQLite 3.7.0 to 3.51.2, fixed in 3.51.3 (13 March 2026).
_WAL_FIXED = (3, 51, 3)
_MIB = 1024 * 1024
_PROBLEM = "PROBLEM: "

_host = click.argument("host_name", metavar="HOST", type=click.Choice(tuple(HOSTS)))
_scope = click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="For every project, or for the one in this folder.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")


@click.command()
@_host
@_scope
@click.option("--hooks", is_flag=True, help="Archive outputs and sessions without being asked.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A folder that the server's tools may read files in.",
)
@click.option("--print", "print_only", is_flag=True, help="Show what to write; write nothing.")
@_dry_run
@click.pass_obj
def install(
    flags: Mapping[str, Any],
    host_name: str,
    scope: ConfigScope,
    hooks: bool,
    roots: tuple[Path, ...],
    print_only: bool,
    dry_run: bool,
) -> None:
    """Register the server in HOST, with its absolute path.

    What else the host's file holds stays as it is, comments too, and `uninstall` takes back what
    was written. Again at any time: it changes what is not yet so.
    """
    host = HOSTS[host_name]
    installation = Installation(this_program(), _server_flags(flags, roots), with_hooks=hooks)
    if print_only:
        _print_entry(host, scope, installation)
        return
    changes = plan_install(host, scope, this_user(), installation)
    if dry_run:
        _show_diff(changes)
        return
    if not changes:
        say(f"{host.title}: all is as it should be; nothing was changed.")
        return
    _apply(changes)
    if "archive-v0" in Path(installation.program[0]).parts:
        say("This program runs from uv's cache, which may be emptied: `uv tool install` it.")
    if host.hooks and not are_hooks_registered(host, scope, this_user()):
        say("With --hooks, large outputs and whole sessions are archived without being asked for.")
    say(f"{host.after} Check it: mcp-server-compaction doctor {host.name}")


def _server_flags(flags: Mapping[str, Any], roots: Sequence[Path]) -> list[str]:
    """The flags that this program itself was given, as the server takes them."""
    context = click.get_current_context().find_root()
    flags = {
        name: value
        for name, value in flags.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.ENVIRONMENT
    }
    # What the server would refuse is not registered; a key comes to it from the host.
    load_config(**flags, environment={KEY_VARIABLE: "the host's"})
    archive = flags.pop("archive", None) or os.environ.get(ARCHIVE_VARIABLE)
    folder, address = archive_place(archive)
    words = ["--archive", address or str(folder)] if archive else []
    named_roots = flags.pop("roots", ())
    for option in context.command.params:
        if value := flags.get(option.name or ""):
            words += [option.opts[0], str(value)]
    for root in [*map(Path, named_roots), *roots]:
        if not is_folder(root):
            raise SettingsError(f"The root {root} is not a folder. Name an existing one.")
        words += ["--root", str(root.absolute())]
    return words


@click.command()
@_host
@_scope
@_dry_run
def uninstall(host_name: str, scope: ConfigScope, dry_run: bool) -> None:
    """Take the server and its hooks out of HOST's configuration. The archive stays."""
    host = HOSTS[host_name]
    changes = plan_uninstall(host, scope, this_user())
    if dry_run:
        _show_diff(changes)
        return
    if not changes:
        say(f"{host.title}: nothing of this program is there; nothing was changed.")
        return
    _apply(changes)
    delete_backups(changes)
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
    path = config_file(host, scope, this_user())
    say(f"# {path}", err=True)
    entry = host.entry_for([*installation.program, *installation.flags])
    value = {host.section: {REGISTERED_NAME: entry}}
    say(changed_text(host.format, "", value, path).rstrip("\n"))
    if installation.with_hooks:
        for change in plan_install(host, scope, this_user(), installation):
            if change.path != path:
                say(f"# {change.path}", err=True)
                say((change.after or "").rstrip("\n"))


@click.command()
@click.argument("host_name", metavar="[HOST]", required=False, type=click.Choice(tuple(HOSTS)))
@json_option
@click.pass_context
def doctor(context: click.Context, host_name: str | None, as_json: bool) -> None:
    """Check versions, vocabulary, archive, roots and summary writers.

    With HOST, start the server as that host would, and say what is missing there.
    """
    if host_name is not None:
        findings = anyio.run(check_host, HOSTS[host_name], this_user())
        report: object = [asdict(finding) for finding in findings]
        lines = [f"{'ok     ' if one.is_ok else 'PROBLEM'}  {one.text}" for one in findings]
        is_well = all(finding.is_ok for finding in findings)
    else:
        report = checked = _checked(config_of(context))
        lines = [
            f"{'' if at else name:<22} {line}"
            for name, said in checked.items()
            for at, line in enumerate(said)
        ]
        is_well = not any(line.startswith(_PROBLEM) for said in checked.values() for line in said)
    for line in [json.dumps(report, indent=1)] if as_json else lines:
        say(line)
    if not is_well:
        raise click.exceptions.Exit(1)


def _checked(config: Config) -> dict[str, list[str]]:
    """What there is to say of each part of the program."""
    from mcp_server_compaction.protocol.writers import writer_lines

    is_fixed = sqlite3.sqlite_version_info >= _WAL_FIXED
    wal = "" if is_fixed else " (has the WAL-reset bug, fixed in 3.51.3)"
    folders = [str(folder) for folder in config.roots.folders]
    return {
        "mcp-server-compaction": [version("mcp-server-compaction")],
        "python": [platform.python_version()],
        "sqlite": [sqlite3.sqlite_version + wal],
        "mcp": [version("mcp")],
        "tiktoken": [version("tiktoken")],
        "vocabulary": [_vocabulary()],
        **_archive(config),
        "roots": folders or [f"none: tools read no files (set {ROOTS_VARIABLE} or --root)"],
        "summary writers": [*writer_lines(config)],
    }


def _vocabulary() -> str:
    from context_compaction import counter_for

    try:
        counted = counter_for().text("hello world")
    except VocabularyError as error:
        return f"{_PROBLEM}{error}"
    return f"ok (o200k_base, checksum verified; a test text counts {counted})"


def _archive(config: Config) -> dict[str, list[str]]:
    if config.archive_address is None and not config.archive_folder.exists():
        return {"archive": [f"{config.archive_folder} (empty: made when it is first used)"]}

    async def checked() -> Health:
        async with open_archive(config.archive) as archive:
            return await archive.health()

    try:
        health = anyio.run(checked)
    except ArchiveError as error:
        return {"archive": [f"{_PROBLEM}{error}"]}
    figures = [
        health.location,
        f"{health.session_count} sessions, {health.message_count} messages, "
        f"{health.output_count} outputs",
        f"log {health.log_bytes / _MIB:.1f} MiB, outputs {health.blob_bytes / _MIB:.1f} MiB, "
        f"index {health.index_bytes / _MIB:.1f} MiB",
    ]
    return {"archive": figures, "archive health": list(health.problems) or ["ok"]}


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("event")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def hook(flags: Mapping[str, Any], event: str, rest: tuple[str, ...]) -> None:
    """Answer EVENT of a host, as `install --hooks` registers it; its JSON on standard input."""
    from mcp_server_compaction.hosts.hook import run_hook

    before = [f"--{name}={flags[name]}" for name in ("archive", "redaction") if flags.get(name)]
    run_hook([event, *before, *rest])
