"""What the archive keeps: `import`, `migrate`, `usage`, `prune`, `pin` and `delete`."""

import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import anyio
import click
from anyio import to_thread
from context_compaction import (
    Archive,
    Copied,
    PruneRules,
    SessionInfo,
    SettingsError,
    copy_archive,
    host_folders,
    open_archive,
)

from mcp_server_compaction.archive_place import archive_place
from mcp_server_compaction.cli.terminal import (
    answer,
    config_of,
    json_option,
    progress,
    say,
    short_time,
    with_archive,
)
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.importing import (
    Imported,
    Importer,
    files_to_import,
    session_files,
)
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.reading.text_source import find_session
from mcp_server_compaction.viewer.formatting import size

_AGE = re.compile(r"(\d{1,9})d?\Z")
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_DAY_SECONDS = 86_400


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@json_option
@click.pass_context
def import_(context: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Archive session files of Claude Code, Codex and pi, and message lists.

    PATHS are files or folders; without any, the folders where these hosts keep their transcripts.
    Call it again at any time: only what is new is read.
    """
    config = config_of(context)
    files = session_files(paths or _host_folders(), config.archive_folder)
    outcomes = anyio.run(_import, files, config)
    # A file that was found in a folder may hold anything; one that was named may not.
    named = {path.absolute() for path in paths}
    problems = [one for one in outcomes if one.problem]
    failed = [one for one in problems if one.is_conversation or one.path in named]
    figures = {
        "files": len(files),
        "unchanged": len(files) - len(outcomes),
        "passed_over": len(problems) - len(failed),
        "failed": len(failed),
        "sessions": len({session for one in outcomes for session in one.sessions}),
        "messages_written": sum(one.written for one in outcomes),
        "outputs": sum(one.outputs for one in outcomes),
    }
    text = (
        "{messages_written:,} new messages and {outputs} outputs in {sessions} sessions. "
        "{files} files: {unchanged} unchanged, {passed_over} without a conversation, "
        "{failed} failed."
    )
    answer(as_json, figures, text.format(**figures))
    for one in outcomes:
        for note in one.notes:
            say(f"{one.path}: {note}", err=True)
    for one in failed:
        say(f"{one.path}: {one.problem}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


def _host_folders() -> list[Path]:
    found = host_folders(Path.home())
    existing = [folder for folder in found if folder.is_dir()]
    if not existing:
        raise SettingsError(
            f"There are no transcripts in {', '.join(map(str, found))}. Name files or folders."
        )
    return existing


async def _import(files: Sequence[Path], config: Config) -> list[Imported]:
    """Import the files that have changed."""
    changed = await to_thread.run_sync(files_to_import, config.archive_folder, files)
    if not changed:
        return []
    sizes = [path.stat().st_size if path.exists() else 0 for path in changed]
    total_bytes = sum(sizes) or 1
    outcomes: list[Imported] = []
    async with open_archive(config.archive, redaction=config.redaction) as archive:
        with progress("Importing") as report:
            importer = Importer(archive, config.archive_folder)
            for at, path in enumerate(changed):
                report(sum(sizes[:at]) / total_bytes, path.name)
                outcomes.append(await importer.import_file(path))
    return outcomes


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--tenant", metavar="NAME", help="Whose sessions, of a team's archives.")
@json_option
def migrate(source: str, target: str, tenant: str | None, as_json: bool) -> None:
    """Copy all sessions of the archive SOURCE into TARGET, and compare them.

    Each is a folder or postgresql://…. What TARGET holds already is passed over: run it again to go
    on, or to take over what is new. Of a team's archive, one tenant is copied at a time.
    """
    folder, address = archive_place(source)
    target_folder, target_address = archive_place(target)
    if address is None and not folder.is_dir():
        raise SettingsError(f"There is no archive in {folder}. Name the one to copy from.")
    if (folder, address) == (target_folder, target_address):
        raise SettingsError("Source and target are the same archive. Name two.")
    copied, copied_tenant = anyio.run(
        _copy, address or folder, target_address or target_folder, tenant
    )
    figures = {
        "tenant": copied_tenant,
        "sessions": copied.session_count,
        "records": copied.record_count,
        "new_records": copied.new_count,
    }
    text = (
        f"{copied.session_count} sessions with {copied.record_count:,} records are the same in "
        f"both; {copied.new_count:,} of these were new there. These are all of the tenant "
        f"{copied_tenant!r}; each other one, and its tokens, is a matter of its own (--tenant)."
    )
    answer(as_json, figures, text)


async def _copy(source: Path | str, target: Path | str, tenant: str | None) -> tuple[Copied, str]:
    # As it is: what was kept with secrets is copied with them.
    async with open_archive(source) as first, open_archive(target) as second:
        one: Archive = first
        other: Archive = second
        if tenant is not None:
            one = await first.for_tenant(tenant, opens=False)
            other = await second.for_tenant(tenant)
        session_count = max((await one.health()).session_count, 1)
        done = 0

        with progress("Copying") as report:

            def report_session(session: SessionInfo, _records: int) -> None:
                nonlocal done
                done += 1
                report(done / session_count, session.session_id)

            return await copy_archive(one, other, report=report_session), one.tenant


@click.command()
@json_option
@click.pass_context
def usage(context: click.Context, as_json: bool) -> None:
    """Show how much room each archived session takes."""
    usage = with_archive(context, lambda archive: archive.usage())
    sessions = sorted(usage.sessions, key=lambda one: -one.log_bytes - one.own_bytes)
    lines = [
        f"{size(session.log_bytes):>10} + {size(session.own_bytes):>10} outputs, last "
        f"{short_time(iso_time(session.last_seconds))}"
        f"{', pinned' if session.is_retained else ''}\n    {session.session_id}"
        for session in sessions
    ]
    lines.append(f"{size(usage.total_bytes)} in {len(sessions)} sessions.")
    if usage.unnamed_bytes:
        unnamed = size(usage.unnamed_bytes)
        lines.append(f"{unnamed} of outputs belong to no session; prune removes them.")
    figures = {
        "total_bytes": usage.total_bytes,
        "unnamed_output_bytes": usage.unnamed_bytes,
        "sessions": list(map(asdict, sessions)),
    }
    answer(as_json, figures, "\n".join(lines))


@click.command()
@click.option("--older-than", metavar="DAYS", help="Sessions last used so long ago, as 90d.")
@click.option("--max-size", metavar="SIZE", help="Then the oldest, until the rest fits: 5GB.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@json_option
@click.pass_context
def prune(
    context: click.Context,
    older_than: str | None,
    max_size: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete old sessions with all their bytes. Pinned ones stay."""
    if older_than is None and max_size is None:
        raise SettingsError("Give --older-than, as 90d, or --max-size, as 5GB, or both.")
    before_seconds = None
    if older_than is not None:
        before_seconds = time.time() - _days(older_than) * _DAY_SECONDS
    max_bytes = None if max_size is None else _bytes(max_size)
    rules = PruneRules(before_seconds, max_bytes)
    plan = with_archive(context, lambda archive: archive.prune(rules, dry_run=dry_run))
    figures = {
        "dry_run": dry_run,
        "freed_bytes": plan.freed_bytes,
        "left_bytes": plan.left_bytes,
        "sessions": [session.session_id for session in plan.sessions],
    }
    lines = [
        f"{session.session_id}\n    last {short_time(iso_time(session.last_seconds))}"
        for session in plan.sessions
    ]
    done = "Would delete" if dry_run else "Deleted"
    lines.append(
        f"{done} {len(plan.sessions)} of {plan.session_count} sessions: "
        f"{size(plan.freed_bytes)} freed, {size(plan.left_bytes)} left."
    )
    answer(as_json, figures, "\n".join(lines))
    if max_bytes is not None and plan.left_bytes > max_bytes:
        say("What is left is pinned, or belongs to a pinned session.", err=True)


@click.command()
@click.argument("sessions", nargs=-1, required=True)
@click.option("--off", is_flag=True, help="Take the pin off.")
@json_option
@click.pass_context
def pin(context: click.Context, sessions: tuple[str, ...], off: bool, as_json: bool) -> None:
    """Keep SESSIONS, and those that they started, from being pruned."""

    async def retain(archive: Archive) -> list[str]:
        names = [await find_session(archive, session_id) for session_id in sessions]
        for name in names:
            await archive.retain(name, retained=not off)
        return names

    names = with_archive(context, retain)
    text = f"{'May be pruned' if off else 'Kept'}: {', '.join(names)}"
    answer(as_json, {"sessions": names, "pinned": not off}, text)


@click.command()
@click.argument("sessions", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def delete(context: click.Context, sessions: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete SESSIONS with all their bytes, pinned or not."""

    async def whole(archive: Archive) -> list[str]:
        return [await find_session(archive, session_id) for session_id in sessions]

    names = with_archive(context, whole)
    if not yes:
        for name in names:
            say(name, err=True)
        click.confirm("Delete these sessions for good?", abort=True, err=True)
    freed_bytes = with_archive(context, lambda archive: archive.delete(names))
    text = f"Deleted {len(names)} sessions: {size(freed_bytes)} freed."
    answer(as_json, {"sessions": names, "freed_bytes": freed_bytes}, text)


def _days(text: str) -> int:
    found = _AGE.match(text)
    if found is None:
        raise SettingsError(f"--older-than is {text!r}. Give days, as 90d.")
    return int(found.group(1))


def _bytes(text: str) -> int:
    found = _SIZE.match(text)
    if found is None:
        raise SettingsError(f"--max-size is {text!r}. Give a size, as 500MB or 5GB.")
    return int(float(found.group(1)) * 1024 ** " KMGT".index(found.group(2).upper() or " "))
