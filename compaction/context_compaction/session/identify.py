"""Which session a conversation belongs to when nobody says, and how a list of it is named."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from context_compaction.archive import AppendResult, Archive
from context_compaction.errors import NotFoundError
from context_compaction.messages.attribution import Claims, claims_in
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.request import CompactRequest, check_session_id
from context_compaction.session.state import SessionState, made_by, states_of

# A list may claim anything; so many other sessions and outputs are looked for.
MOST_CLAIMS = 16


async def append_to_session(
    messages: Messages,
    *,
    format: str,
    archive: Archive,
    named: str | None = None,
    claims: Claims | None = None,
    parent_session_id: str | None = None,
    dry_run: bool = False,
) -> tuple[str, AppendResult]:
    """Archive `messages` in the session they belong to: its id, and where they stand in it.

    That is the session as named, or that of our summary in the list, or one by its beginning. A
    summary is ours where a receipt of the session that it names lists it.

    A list that only begins like the conversation of a session gets one of its own: where it leaves
    every history of that session before the assistant has spoken twice, its id comes from all up
    to there. So the same list, grown, finds its session again by what it holds.
    """
    append = partial(
        archive.append, format=format, parent_session_id=parent_session_id, dry_run=dry_run
    )
    if named is None:
        named = await _session_of_summary(claims or claims_in(messages), archive)
    if named is not None:
        return named, await append(check_session_id(named), messages)
    least_shared = _beginning(messages)
    session_id = ""
    for session_id in _ids_of(messages):
        appended = await append(session_id, messages, least_shared=least_shared)
        if appended.forks_at is None or appended.forks_at >= least_shared:
            return session_id, appended
    return session_id, await append(session_id, messages)


async def _session_of_summary(claims: Claims, archive: Archive) -> str | None:
    """The session that made a summary in the list, by its own receipts."""
    for session_id in claims.session_ids[:MOST_CLAIMS]:
        listed = made_by(await states_in(session_id, archive))
        if not listed.isdisjoint(claims.hashes_of(session_id)):
            return session_id
    return None


def derived_id(messages: Messages) -> str:
    """The id that a list has where no other conversation has it already; stable while it grows.

    It comes from the first message but those for the system, into which hosts write the date.
    """
    return _id_of(_said(messages)[:1])


def _ids_of(messages: Messages) -> Iterator[str]:
    """The ids that a list may have: the first under which no other conversation stands is its."""
    said = _said(messages)
    yield _id_of(said[:1])
    first = next((at for at, message in enumerate(messages) if message.role != "system"), 0)
    yield _id_of(messages[: first + 1])
    for stop in range(2, len(said)):
        yield _id_of(said[:stop])


def _beginning(messages: Messages) -> int:
    """How many messages two lists of one conversation have in common at least."""
    spoken = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return 1 + (spoken[1] if len(spoken) > 1 else len(messages))


def _said(messages: Messages) -> Messages:
    return tuple(message for message in messages if message.role != "system") or messages


def _id_of(beginning: Messages) -> str:
    return f"s_{history_hash(message.source for message in beginning)[:16] or 'empty'}"


async def states_in(session_id: str, archive: Archive) -> Sequence[SessionState]:
    """What the calls of a session left, oldest first; nothing where there is no such session."""
    try:
        return states_of(await archive.receipts(session_id))
    except NotFoundError:
        return ()


def stop_seq_of(seqs: Sequence[int]) -> int:
    """The number of the newest archived message of a list; -1 where there is none."""
    return max(seqs, default=-1)


def repeat_key(messages: Sequence[JsonObject], request: CompactRequest) -> str:
    """Names a list together with what was asked of it.

    A call whose list and wishes are those that the newest receipt of the session ended with finds
    nothing to do, whatever a borderline count would say the second time.
    """
    asked = replace(request, session_id=None, usage=None, usage_message_index=None)
    asked = replace(asked, summary=None, continuation=None)
    digest = hashlib.blake2b(repr(asked).encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(history_hash(messages).encode("ascii"))
    return digest.hexdigest()
