"""Which session a conversation belongs to, when nobody says."""

import re

from context_compaction import markers
from context_compaction.archive import Archive
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.history_hash import history_hash
from context_compaction.messages import Messages

_VALID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def check_session_id(session_id: str) -> str:
    """`session_id` itself.

    Raises:
        SettingsError: It is not a name that pointers can carry.
    """
    if _VALID.fullmatch(session_id) is None:
        raise SettingsError(
            f"{session_id[:140]!r} cannot name a session. Use 1 to 128 letters, digits and _ . : -"
        )
    return session_id


async def identify(messages: Messages, *, format: str, named: str | None, archive: Archive) -> str:
    """The session's id: as named, or that of our summary in the list, or one from its beginning.

    A list that only begins like the conversation of a session gets one of its own: where it leaves
    every history of that session before the assistant has spoken twice, its id comes from all up
    to there. So the same list, grown, finds its session again by what it holds.
    """
    if named is not None:
        return check_session_id(named)
    for message in messages:
        span = markers.span_of(message)
        if span is not None and await _is_ours(span.session_id, messages, format, archive):
            return span.session_id
    return await _session_of_list(messages, format, archive)


def derived_id(messages: Messages) -> str:
    """The id that a list has where no other conversation has it already; stable while it grows.

    It comes from the first message but those for the system, into which hosts write the date.
    """
    return _id_of(_said(messages)[:1])


async def _session_of_list(messages: Messages, format: str, archive: Archive) -> str:
    """The first of a list's ids under which no other conversation stands."""
    said = _said(messages)
    spoken = [at for at, message in enumerate(messages) if message.role == "assistant"]
    beginning = spoken[1] if len(spoken) > 1 else len(messages)
    first = next((at for at, message in enumerate(messages) if message.role != "system"), 0)
    beginnings = [said[:1], messages[: first + 1], *(said[:stop] for stop in range(2, len(said)))]
    session_id = ""
    for session_id in map(_id_of, beginnings):
        known = await archive.append(session_id, messages, format=format, dry_run=True)
        if known.forks_at is None or known.forks_at > beginning:
            break
    return session_id


def _said(messages: Messages) -> Messages:
    return tuple(message for message in messages if message.role != "system") or messages


def _id_of(beginning: Messages) -> str:
    return f"s_{history_hash(message.source for message in beginning)[:16] or 'empty'}"


async def _is_ours(session_id: str, messages: Messages, format: str, archive: Archive) -> bool:
    """Whether the archive itself put that summary there; text alone proves nothing."""
    try:
        known = await archive.append(session_id, messages, format=format, dry_run=True)
        await archive.session_info(session_id)
    except NotFoundError:
        return False
    return any(
        seq == -1 and markers.is_made(message)
        for seq, message in zip(known.seqs, messages, strict=True)
    )
