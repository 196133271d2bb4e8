"""Short forms of sessions and pointers, as people read and type them: `d703a1a9/30-35`.

The ids that hosts give are UUIDs, and a pointer with one does not fit a line of 80 columns. A short
form that was printed is accepted, as is any beginning that only one session has.
"""

import contextlib
import re

from anyio import to_thread
from context_compaction import Archive, NotFoundError, QueryError, SessionInfo, SettingsError

from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.session_places import archived_id_of

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_POINTER = re.compile(r"transcript://(.+)/messages/(\d+)(?:-(\d+))?(@\w+)?\Z")
_SHORT_POINTER = re.compile(r"([^/\s]+)/(\d+)(?:-(\d+))?(@\w+)?\Z")
_MIN_CHARS = 4


def short_session(session_id: str) -> str:
    """The first eight characters of a UUID, thirteen of a timed one; any other id as it is."""
    found = _UUID.fullmatch(session_id)
    if found is None:
        return session_id
    # A UUID of version 7 begins with its time in milliseconds, of which eight digits name a minute.
    return session_id[: 13 if found[1] == "7" else 8]


def short_pointer(pointer: str) -> str:
    """`SESSION/3-7` for a range of messages; any other pointer as it is."""
    found = _POINTER.match(pointer)
    if found is None:
        return pointer
    session_id, start, stop, head = found.groups()
    last = f"-{stop}" if stop and stop != start else ""
    return f"{short_session(session_id)}/{start}{last}{head or ''}"


async def whole_session(archive: Archive, text: str) -> str:
    """The id of the session that `text` names, or is the beginning of.

    Raises:
        NotFoundError: No session is named so.
        QueryError: Several begin so.
    """
    base, at, head = text.partition("@")
    try:
        await archive.session_info(base)
    except NotFoundError:
        names = [session.session_id for session in await all_sessions(archive)]
        found = [name for name in names if name.startswith(base)]
        if origin := await _continued_in(archive, base):
            return f"{origin}{at}{head}"
        if not found or len(base) < _MIN_CHARS:
            raise
        # A conversion of a session (`UUID.openai-chat`) begins as it does, and is printed in full.
        printed_so = [name for name in found if short_session(name) == base]
        if len(printed_so) == 1:
            found = printed_so
        if len(found) > 1:
            some = ", ".join(found[:5])
            raise QueryError(f"{len(found)} sessions begin with {base!r}: {some}.") from None
        return f"{found[0]}{at}{head}"
    return text


def is_short_pointer(text: str) -> bool:
    """Whether `text` names messages of a session as `short_pointer` does."""
    return _SHORT_POINTER.match(text) is not None


async def _continued_in(archive: Archive, name: str) -> str | None:
    """The session of this archive to which `resume` gave another name; None if there is none."""
    origin = await to_thread.run_sync(archived_id_of, name, this_user())
    if origin is not None:
        with contextlib.suppress(NotFoundError, SettingsError):
            await archive.session_info(origin)
            return origin
    return None


async def whole_pointer(archive: Archive, text: str) -> str:
    """The pointer that a short form abbreviates; any other text as it is.

    Raises:
        NotFoundError: No session is named so.
        QueryError: Several sessions begin so, or it is a session alone.
    """
    if found := _SHORT_POINTER.match(text):
        session, start, stop, head = found.groups()
        session_id = await whole_session(archive, session)
        return f"transcript://{session_id}/messages/{start}-{stop or start}{head or ''}"
    try:
        session_id = await whole_session(archive, text)
    except (NotFoundError, SettingsError):
        return text
    raise QueryError(
        f"{text!r} is a session. Name messages of it, as {short_session(session_id)}/0-9, or its "
        f"current context: transcript://{session_id}/context."
    )


async def all_sessions(archive: Archive) -> list[SessionInfo]:
    """Every session, newest first."""
    found: list[SessionInfo] = []
    cursor: str | None = None
    while True:
        page, cursor = await archive.sessions(limit=500, cursor=cursor)
        found += page
        if cursor is None:
            return found
