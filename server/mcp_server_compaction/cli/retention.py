"""`usage`, `prune`, `pin` and `delete`: what the archive keeps, and for how long."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import anyio
from context_compaction.archive import SessionUsage, Usage
from context_compaction.archive.local.retention import choose
from context_compaction.archive.opening import open_archive
from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject

from mcp_server_compaction.cli.short_names import whole_session
from mcp_server_compaction.cli.terminal import say, short_time
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.sessions import iso_time

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
    rooms = sorted(_rooms(usage), key=lambda room: -room.log_bytes - room.own_bytes)
    named = {digest for session in usage.sessions for digest in session.blobs}
    unnamed_bytes = _bytes_of(usage, usage.blob_bytes.keys() - named)
    if as_json:
        figures = {"total_bytes": usage.total_bytes, "unnamed_output_bytes": unnamed_bytes}
        say(json.dumps(figures | {"sessions": list(map(_document, rooms))}))
        return
    for room in rooms:
        say(
            f"{_shown(room.log_bytes):>10} + {_shown(room.own_bytes):>10} outputs, last "
            f"{short_time(iso_time(room.session.last_seconds))}"
            f"{', pinned' if room.session.is_retained else ''}"
        )
        say(f"    {room.session.session_id}")
    say(f"{_shown(usage.total_bytes)} in {len(rooms)} sessions.")
    if unnamed_bytes:
        say(f"{_shown(unnamed_bytes)} of outputs belong to no session; prune removes them.")


@dataclass(frozen=True, slots=True)
class _Room:
    """What one session takes: its log, outputs that are its own, and those that others share."""

    session: SessionUsage
    log_bytes: int
    own_bytes: int
    shared_bytes: int


def _rooms(usage: Usage) -> list[_Room]:
    users = Counter(digest for session in usage.sessions for digest in session.blobs)
    rooms: list[_Room] = []
    for session in usage.sessions:
        own = [digest for digest in session.blobs if users[digest] == 1]
        shared = _bytes_of(usage, session.blobs.difference(own))
        rooms.append(_Room(session, session.log_bytes, _bytes_of(usage, own), shared))
    return rooms


def _document(room: _Room) -> JsonObject:
    return {
        "session_id": room.session.session_id,
        "parent_session_id": room.session.parent_session_id,
        "pinned": room.session.is_retained,
        "messages": room.session.message_count,
        "last_time": iso_time(room.session.last_seconds),
        "log_bytes": room.log_bytes,
        "output_bytes": room.own_bytes,
        "shared_output_bytes": room.shared_bytes,
    }


def run_prune(
    config: Config, *, older_than: str | None, max_size: str | None, dry_run: bool, as_json: bool
) -> None:
    """Delete what is too old, then the oldest until the rest fits; or say what that would be.

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
    usage = anyio.run(_usage, config)
    chosen = choose(usage, before_seconds=before_seconds, max_bytes=max_bytes)
    freed = _freed(usage, chosen)
    if not dry_run:
        freed = anyio.run(_delete, config, [session.session_id for session in chosen])
    left = usage.total_bytes - freed
    if as_json:
        names = [session.session_id for session in chosen]
        figures = {"dry_run": dry_run, "freed_bytes": freed, "left_bytes": left}
        say(json.dumps(figures | {"sessions": names}))
        return
    for session in chosen:
        say(f"{session.session_id}")
        say(f"    last {short_time(iso_time(session.last_seconds))}")
    done = "Would delete" if dry_run else "Deleted"
    say(
        f"{done} {len(chosen)} of {len(usage.sessions)} sessions: {_shown(freed)} freed, "
        f"{_shown(left)} left."
    )
    if max_bytes is not None and left > max_bytes:
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


def run_delete(config: Config, session_ids: Sequence[str], *, as_json: bool) -> None:
    """Delete sessions, pinned or not.

    Raises:
        NotFoundError: There is no such session; nothing was deleted.
    """
    freed = anyio.run(_delete, config, session_ids)
    if as_json:
        say(json.dumps({"sessions": list(session_ids), "freed_bytes": freed}))
    else:
        say(f"Deleted {len(session_ids)} sessions: {_shown(freed)} freed.")


async def _usage(config: Config) -> Usage:
    async with open_archive(config.archive) as archive:
        return await archive.usage()


async def _delete(config: Config, session_ids: Sequence[str]) -> int:
    async with open_archive(config.archive) as archive:
        return await archive.delete(session_ids)


async def _pin(config: Config, session_ids: Sequence[str], pinned: bool) -> list[str]:
    async with open_archive(config.archive) as archive:
        names = [await whole_session(archive, session_id) for session_id in session_ids]
        for name in names:
            await archive.retain(name, retained=pinned)
        return names


def _freed(usage: Usage, chosen: Sequence[SessionUsage]) -> int:
    """What deleting the chosen sessions frees, with the outputs that no session names now."""
    gone = {session.session_id for session in chosen}
    kept = {
        digest
        for session in usage.sessions
        if session.session_id not in gone
        for digest in session.blobs
    }
    unnamed = [digest for digest in usage.blob_bytes if digest not in kept]
    return sum(session.log_bytes for session in chosen) + _bytes_of(usage, unnamed)


def _bytes_of(usage: Usage, digests: Iterable[str]) -> int:
    return sum(usage.blob_bytes[digest] for digest in digests)


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


def _shown(count: float) -> str:
    """A number of bytes for people; units are powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
