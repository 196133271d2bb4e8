"""`usage`, `prune`, `pin` and `delete`: what the archive keeps, and for how long."""

import json
import re
import time
from collections.abc import Sequence

import anyio
import click
from context_compaction.archive import PrunePlan, PruneRules, SessionUsage, Usage
from context_compaction.archive.opening import open_archive
from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject

from mcp_server_compaction.cli.short_names import whole_session
from mcp_server_compaction.cli.terminal import say, short_time
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.sessions import iso_time
from mcp_server_compaction.viewer.words import size

_AGE = re.compile(r"(\d{1,9})d?\Z")
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_DAY_SECONDS = 86_400


def run_usage(config: Config, *, as_json: bool) -> None:
    """Print how much room each session takes, the largest first.

    Raises:
        ArchiveError: The archive fails.
    """
    usage = anyio.run(_usage, config)
    sessions = sorted(usage.sessions, key=lambda one: -one.log_bytes - one.own_bytes)
    if as_json:
        figures = {"total_bytes": usage.total_bytes, "unnamed_output_bytes": usage.unnamed_bytes}
        say(json.dumps(figures | {"sessions": list(map(_document, sessions))}))
        return
    for session in sessions:
        say(
            f"{size(session.log_bytes):>10} + {size(session.own_bytes):>10} outputs, last "
            f"{short_time(iso_time(session.last_seconds))}"
            f"{', pinned' if session.is_retained else ''}"
        )
        say(f"    {session.session_id}")
    say(f"{size(usage.total_bytes)} in {len(sessions)} sessions.")
    if usage.unnamed_bytes:
        say(f"{size(usage.unnamed_bytes)} of outputs belong to no session; prune removes them.")


def _document(session: SessionUsage) -> JsonObject:
    return {
        "session_id": session.session_id,
        "parent_session_id": session.parent_session_id,
        "pinned": session.is_retained,
        "messages": session.message_count,
        "last_time": iso_time(session.last_seconds),
        "log_bytes": session.log_bytes,
        "output_bytes": session.own_bytes,
        "shared_output_bytes": session.shared_bytes,
    }


def run_prune(
    config: Config, *, older_than: str | None, max_size: str | None, dry_run: bool, as_json: bool
) -> None:
    """Delete what is too old, then the oldest until the rest fits; or report what that would be.

    Raises:
        SettingsError: Neither bound was given, or one cannot be read.
        ArchiveError: The archive fails.
    """
    if older_than is None and max_size is None:
        raise SettingsError("Give --older-than, as 90d, or --max-size, as 5GB, or both.")
    before_seconds = None
    if older_than is not None:
        before_seconds = time.time() - _days(older_than) * _DAY_SECONDS
    max_bytes = None if max_size is None else _bytes(max_size)
    plan = anyio.run(_prune, config, PruneRules(before_seconds, max_bytes), dry_run)
    if as_json:
        names = [session.session_id for session in plan.sessions]
        figures = {
            "dry_run": dry_run,
            "freed_bytes": plan.freed_bytes,
            "left_bytes": plan.left_bytes,
        }
        say(json.dumps(figures | {"sessions": names}))
        return
    for session in plan.sessions:
        say(f"{session.session_id}")
        say(f"    last {short_time(iso_time(session.last_seconds))}")
    done = "Would delete" if dry_run else "Deleted"
    say(
        f"{done} {len(plan.sessions)} of {plan.session_count} sessions: "
        f"{size(plan.freed_bytes)} freed, {size(plan.left_bytes)} left."
    )
    if max_bytes is not None and plan.left_bytes > max_bytes:
        say("What is left is pinned, or belongs to a pinned session.", err=True)


def run_pin(config: Config, session_ids: Sequence[str], *, pinned: bool, as_json: bool) -> None:
    """Pin sessions, or take the pins off; a beginning that one session alone has is enough.

    Raises:
        NotFoundError: There is no such session.
    """
    names = anyio.run(_pin, config, session_ids, pinned)
    if as_json:
        say(json.dumps({"sessions": names, "pinned": pinned}))
    else:
        say(f"{'Kept' if pinned else 'May be pruned'}: {', '.join(names)}")


def run_delete(
    config: Config, session_ids: Sequence[str], *, without_asking: bool, as_json: bool
) -> None:
    """Delete sessions, pinned or not; a beginning that one session alone has is enough.

    Raises:
        NotFoundError: There is no such session; nothing was deleted.
        QueryError: Several sessions begin so; nothing was deleted.
        Abort: The person who was asked did not say yes.
    """
    names = anyio.run(_whole_sessions, config, session_ids)
    if not without_asking:
        for name in names:
            say(name, err=True)
        click.confirm("Delete these sessions for good?", abort=True, err=True)
    freed = anyio.run(_delete, config, names)
    if as_json:
        say(json.dumps({"sessions": names, "freed_bytes": freed}))
    else:
        say(f"Deleted {len(names)} sessions: {size(freed)} freed.")


async def _usage(config: Config) -> Usage:
    async with open_archive(config.archive) as archive:
        return await archive.usage()


async def _prune(config: Config, rules: PruneRules, dry_run: bool) -> PrunePlan:
    async with open_archive(config.archive) as archive:
        return await archive.prune(rules, dry_run=dry_run)


async def _whole_sessions(config: Config, session_ids: Sequence[str]) -> list[str]:
    async with open_archive(config.archive) as archive:
        return [await whole_session(archive, session_id) for session_id in session_ids]


async def _delete(config: Config, session_ids: Sequence[str]) -> int:
    async with open_archive(config.archive) as archive:
        return await archive.delete(session_ids)


async def _pin(config: Config, session_ids: Sequence[str], pinned: bool) -> list[str]:
    async with open_archive(config.archive) as archive:
        names = [await whole_session(archive, session_id) for session_id in session_ids]
        for name in names:
            await archive.retain(name, retained=pinned)
        return names


def _days(text: str) -> int:
    found = _AGE.match(text)
    if found is None:
        raise SettingsError(f"--older-than is {text!r}. Give days, as 90d.")
    return int(found.group(1))


def _bytes(text: str) -> int:
    found = _SIZE.match(text)
    if found is None:
        raise SettingsError(f"--max-size is {text!r}. Give a size, as 500MB or 5GB.")
    return int(float(found.group(1)) * 1024 ** _POWERS[found.group(2).upper()])
