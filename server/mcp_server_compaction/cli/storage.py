"""The commands that change or measure the archive, and `token` for the callers of a service."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import click
from anyio import to_thread
from context_compaction import (
    Archive,
    Copied,
    NotFoundError,
    PruneRules,
    SessionInfo,
    SettingsError,
    copy_archive,
    host_folders,
    open_archive,
)

from mcp_server_compaction.access.access_tokens import create_access_token
from mcp_server_compaction.access.principal import Scope
from mcp_server_compaction.cli.terminal import (
    answer,
    config_of,
    progress,
    say,
    say_exactly,
    short_time,
    with_archive,
)
from mcp_server_compaction.config import Config, own_options
from mcp_server_compaction.hosts.importing import Imported, Importer, files_to_import, session_files
from mcp_server_compaction.program import archive_place
from mcp_server_compaction.reading.text_source import find_session
from mcp_server_compaction.viewer.formatting import size


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@own_options
@click.pass_context
def import_(context: click.Context, paths: tuple[Path, ...], *, as_json: bool = False) -> None:
    """Archive session files of Claude Code, Codex and pi, exported chats, and lists of messages.

    PATHS are files or folders, or the zip file that claude.ai or ChatGPT exports (default: the
    transcript folders of these hosts). Run it again at any time, because unchanged files are
    skipped.

    Options:
        as_json: Print JSON instead of text.
    """
    config = config_of(context)
    files = session_files(paths or _transcript_folders(), config.archive_folder)
    outcomes = anyio.run(_import, files, config)
    # A named file must contain a conversation; another file in a folder need not.
    named_files = {path.absolute() for path in paths}
    problems = [outcome for outcome in outcomes if outcome.problem]
    failed = [o for o in problems if o.is_conversation or o.path in named_files]
    figures = {
        "files": len(files),
        "unchanged": len(files) - len(outcomes),
        "passed_over": len(problems) - len(failed),
        "failed": len(failed),
        "sessions": len({session for outcome in outcomes for session in outcome.sessions}),
        "messages_written": sum(outcome.written for outcome in outcomes),
        "outputs": sum(outcome.outputs for outcome in outcomes),
    }
    text = (
        "Archived: {messages_written:,} new messages and {outputs} outputs in {sessions} sessions\n"
        "Files: {files} ({unchanged} unchanged, {passed_over} without a conversation, {failed} "
        "failed)"
    )
    answer(as_json, figures, text.format(**figures))
    for outcome in outcomes:
        for note in outcome.notes:
            say(f"{outcome.path}: {note}", err=True)
    for outcome in failed:
        say(f"{outcome.path}: {outcome.problem}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


def _transcript_folders() -> list[Path]:
    folders = host_folders(Path.home())
    existing = [folder for folder in folders if folder.is_dir()]
    if not existing:
        raise SettingsError(
            f"No transcripts in {', '.join(map(str, folders))}. Name files or folders to import."
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
            for index, path in enumerate(changed):
                report(sum(sizes[:index]) / total_bytes, path.name)
                outcomes.append(await importer.import_file(path))
    return outcomes


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@own_options
def migrate(source: str, target: str, *, tenant: str | None = None, as_json: bool = False) -> None:
    """Copy all sessions of a tenant from archive SOURCE to archive TARGET, and compare them.

    Each archive is a folder or a postgresql:// address. Existing records of TARGET are skipped, so
    run it again to continue or to copy new records.

    Options:
        tenant (NAME): Copy the sessions of this tenant (default: default).
        as_json: Print JSON instead of text.
    """
    folder, address = archive_place(source)
    target_folder, target_address = archive_place(target)
    if address is None and not folder.is_dir():
        raise SettingsError(f"There is no archive in {folder}. Pass the archive to copy from.")
    if (folder, address) == (target_folder, target_address):
        raise SettingsError("SOURCE and TARGET are the same archive. Pass two archives.")
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
        f"Equal in both archives: {copied.session_count} sessions, {copied.record_count:,} records "
        f"({copied.new_count:,} of them new)\n"
        f"Tenant: {copied_tenant} (copy another tenant with --tenant; tokens are not copied)"
    )
    answer(as_json, figures, text)


async def _copy(source: Path | str, target: Path | str, tenant: str | None) -> tuple[Copied, str]:
    # Without redaction, because the copy must be equal to the source.
    async with open_archive(source) as source_archive, open_archive(target) as target_archive:
        from_archive: Archive = source_archive
        to_archive: Archive = target_archive
        if tenant is not None:
            from_archive = await source_archive.for_tenant(tenant, opens=False)
            to_archive = await target_archive.for_tenant(tenant)
        session_count = max((await from_archive.health()).session_count, 1)
        done_count = 0

        with progress("Copying") as report:

            def report_session(session: SessionInfo, _records: int) -> None:
                nonlocal done_count
                done_count += 1
                report(done_count / session_count, session.session_id)

            copied = await copy_archive(from_archive, to_archive, report=report_session)
        return copied, from_archive.tenant


@click.command()
@own_options
@click.pass_context
def usage(context: click.Context, *, as_json: bool = False) -> None:
    """List the sessions by size, and print the size of the archive.

    Options:
        as_json: Print JSON instead of text.
    """
    usage = with_archive(context, lambda archive: archive.usage())
    sessions = sorted(usage.sessions, key=lambda session: -session.log_bytes - session.own_bytes)
    lines = [
        f"{size(session.log_bytes):>10} + {size(session.own_bytes):>10} outputs, last "
        f"{short_time(session.last_seconds)}"
        f"{', pinned' if session.is_retained else ''}\n    {session.session_id}"
        for session in sessions
    ]
    lines.append(f"Total: {size(usage.total_bytes)} in {len(sessions)} sessions")
    if usage.unnamed_bytes:
        lines.append(
            f"Outputs without a session: {size(usage.unnamed_bytes)} (remove them with prune)"
        )
    figures = {
        "total_bytes": usage.total_bytes,
        "unnamed_output_bytes": usage.unnamed_bytes,
        "sessions": list(map(asdict, sessions)),
    }
    answer(as_json, figures, "\n".join(lines))


@click.command()
@own_options
@click.pass_context
def prune(
    context: click.Context,
    *,
    older_than: str | None = None,
    max_size: str | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> None:
    """Delete old sessions with all their content, except pinned sessions.

    Pass --older-than, --max-size or both.

    Options:
        older_than (DAYS): Delete sessions unused for this many days, for example 90d (default:
            none).
        max_size (SIZE): Delete the oldest until the rest has this size, for example 5GB (default:
            no limit).
        dry_run: List the sessions to delete, and delete nothing.
        as_json: Print JSON instead of text.
    """
    if older_than is None and max_size is None:
        raise SettingsError("Pass --older-than, for example 90d, or --max-size, for example 5GB.")
    before_seconds = None
    if older_than is not None:
        before_seconds = time.time() - timedelta(days=_days(older_than)).total_seconds()
    max_bytes = None if max_size is None else _bytes(max_size)
    rules = PruneRules(before_seconds, max_bytes)
    plan = with_archive(context, lambda archive: archive.prune(rules, dry_run=dry_run))
    figures = {
        "dry_run": dry_run,
        "freed_bytes": plan.freed_bytes,
        "remaining_bytes": plan.remaining_bytes,
        "sessions": [session.session_id for session in plan.sessions],
    }
    lines = [
        f"{session.session_id}\n    last {short_time(session.last_seconds)}"
        for session in plan.sessions
    ]
    lines.append(
        f"{'Would delete' if dry_run else 'Deleted'}: {len(plan.sessions)} of "
        f"{plan.session_count} sessions, {size(plan.freed_bytes)} "
        f"({size(plan.remaining_bytes)} remain)"
    )
    answer(as_json, figures, "\n".join(lines))
    if max_bytes is not None and plan.remaining_bytes > max_bytes:
        say("Note: the remaining sessions are pinned or belong to a pinned session.", err=True)


@click.command()
@click.argument("sessions", nargs=-1, required=True)
@own_options
@click.pass_context
def pin(
    context: click.Context, sessions: tuple[str, ...], *, off: bool = False, as_json: bool = False
) -> None:
    """Protect SESSIONS and their sub-agents from pruning.

    Options:
        off: Allow pruning again.
        as_json: Print JSON instead of text.
    """

    async def retain(archive: Archive) -> list[str]:
        session_ids = [await find_session(archive, session) for session in sessions]
        for session_id in session_ids:
            await archive.retain(session_id, retained=not off)
        return session_ids

    session_ids = with_archive(context, retain)
    text = f"{'Not protected' if off else 'Protected'}: {', '.join(session_ids)}"
    answer(as_json, {"sessions": session_ids, "pinned": not off}, text)


@click.command()
@click.argument("sessions", nargs=-1, required=True)
@own_options
@click.pass_context
def delete(
    context: click.Context, sessions: tuple[str, ...], *, yes: bool = False, as_json: bool = False
) -> None:
    """Delete SESSIONS with all their content, even if they are pinned.

    Options:
        yes: Delete without asking for confirmation.
        as_json: Print JSON instead of text.
    """

    async def find_all(archive: Archive) -> list[str]:
        return [await find_session(archive, session) for session in sessions]

    session_ids = with_archive(context, find_all)
    if not yes:
        for session_id in session_ids:
            say(session_id, err=True)
        click.confirm("Delete these sessions permanently?", abort=True, err=True)
    freed_bytes = with_archive(context, lambda archive: archive.delete(session_ids))
    text = f"Deleted: {len(session_ids)} sessions, {size(freed_bytes)}"
    answer(as_json, {"sessions": session_ids, "freed_bytes": freed_bytes}, text)


def _days(text: str) -> int:
    number = text.removesuffix("d")
    if not number.isdecimal() or len(number) > 6:
        raise SettingsError(f"Invalid --older-than {text!r}. Pass days, for example 90d.")
    return int(number)


def _bytes(text: str) -> int:
    from pydantic import ByteSize, TypeAdapter

    try:
        return TypeAdapter(ByteSize).validate_python(text)
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f"Invalid --max-size {text!r}. Pass a size, for example 500MB or 5GB."
        ) from error


@click.group()
def token() -> None:
    """Create, list or revoke access tokens for the callers of a team's service."""


@token.command("create")
@own_options
@click.pass_context
def token_create(
    context: click.Context,
    *,
    tenant: str = "default",
    user: str,
    scopes: tuple[Scope, ...] = ("read", "write"),
    days: float | None = None,
) -> None:
    """Create a token and print it. It cannot be printed again.

    Options:
        tenant (NAME): Use the archive of this tenant.
        user (NAME): Name this user in the audit log.
        scopes: Allow this kind of access; repeatable.
        days (N): Expire after N days (default: never).
    """
    create = partial(create_access_token, user=user, scopes=scopes, days=days)
    say_exactly(with_archive(context, create, tenant))


@token.command("list")
@own_options
@click.pass_context
def token_list(context: click.Context, *, tenant: str = "default", as_json: bool = False) -> None:
    """List the tokens of a tenant without their secrets.

    Options:
        tenant (NAME): Use the archive of this tenant.
        as_json: Print JSON instead of text.
    """
    tokens = with_archive(context, lambda archive: archive.tokens(), tenant)
    if not (tokens or as_json):
        say(f"Tenant {tenant} has no tokens. Create one with: token create", err=True)
        return
    lines: list[str] = []
    for token in tokens:
        seconds = token.expires_seconds
        expires = "never expires" if seconds is None else f"expires {short_time(seconds)}"
        lines.append(f"{token.token_id}  {token.user}  {' '.join(token.scopes)}  {expires}")
    figures = [asdict(token) for token in tokens]
    for figure in figures:
        del figure["secret_hash"]
    answer(as_json, figures, "\n".join(lines))


@token.command("revoke")
@click.argument("token_ids", nargs=-1, required=True)
@own_options
@click.pass_context
def token_revoke(
    context: click.Context, token_ids: tuple[str, ...], *, tenant: str = "default"
) -> None:
    """Revoke tokens. The service refuses them within 5 seconds.

    Options:
        tenant (NAME): Use the archive of this tenant.
    """

    async def revoke(archive: Archive) -> None:
        for token_id in token_ids:
            if not await archive.revoke_token(token_id):
                raise NotFoundError(
                    f"Tenant {tenant} has no token {token_id!r}. List the IDs with: token list"
                )
            say(f"Revoked: {token_id} of tenant {tenant}")

    with_archive(context, revoke, tenant)
