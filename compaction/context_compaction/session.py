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

    Two conversations that begin alike share a derived id and stand in it as two branches; name the
    session to keep them apart.
    """
    if named is not None:
        return check_session_id(named)
    for message in messages:
        span = markers.span_of(message)
        if span is not None and await _is_ours(span.session_id, messages, format, archive):
            return span.session_id
    return derived_id(messages)


def derived_id(messages: Messages) -> str:
    """An id from everything up to the first message of the user; stable while the list grows."""
    first = next((at for at, m in enumerate(messages) if m.role == "user"), len(messages) - 1)
    beginning = history_hash(message.source for message in messages[: first + 1])
    return f"s_{beginning[:16] or 'empty'}"


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
