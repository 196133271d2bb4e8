"""Which session a conversation belongs to, when nobody says; and what in it is from us."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from context_compaction.archive import Archive, OutputInfo
from context_compaction.errors import NotFoundError
from context_compaction.messages.attribution import Ours, claims_in
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.request import CompactRequest, check_session_id
from context_compaction.session.state import SessionState, made_by, states_of

# A list may claim anything; so many other sessions and outputs are looked for.
_MOST_CLAIMS = 16


async def identify(messages: Messages, *, format: str, named: str | None, archive: Archive) -> str:
    """The session's id: as named, or that of our summary in the list, or one from its beginning.

    A summary is ours where a receipt of the session that it names lists it.

    A list that only begins like the conversation of a session gets one of its own: where it leaves
    every history of that session before the assistant has spoken twice, its id comes from all up
    to there. So the same list, grown, finds its session again by what it holds.
    """
    if named is not None:
        return check_session_id(named)
    claims = claims_in(messages)
    for session_id in claims.session_ids[:_MOST_CLAIMS]:
        listed = made_by(await _states(session_id, archive))
        if not listed.isdisjoint(claims.hashes_of(session_id)):
            return session_id
    return await _session_of_list(messages, format, archive)


async def ours_in(messages: Messages, session_id: str, archive: Archive) -> Ours:
    """What in `messages`, of the session `session_id`, the archive vouches for.

    Another session may have made what stands in the list, where a host goes on with a compacted
    list under a new name.
    """
    claims = claims_in(messages)
    hashes: set[str] = set()
    if claims.messages:
        hashes |= made_by(await _states(session_id, archive))
    for other in claims.session_ids[:_MOST_CLAIMS]:
        if other != session_id:
            hashes |= made_by(await _states(other, archive)) & claims.hashes_of(other)
    known: set[str] = set()
    if claims.output_ids:
        kept = {info.output_id for info in await _outputs(session_id, archive)}
        known = kept.intersection(claims.output_ids)
        for output_id in sorted(claims.output_ids - known)[:_MOST_CLAIMS]:
            known |= await _known_output(output_id, archive)
    return Ours(frozenset(hashes), frozenset(known))


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


async def _states(session_id: str, archive: Archive) -> Sequence[SessionState]:
    try:
        return states_of(await archive.receipts(session_id))
    except NotFoundError:
        return ()


async def _outputs(session_id: str, archive: Archive) -> Sequence[OutputInfo]:
    try:
        return await archive.outputs(session_id)
    except NotFoundError:
        return ()


async def _known_output(output_id: str, archive: Archive) -> set[str]:
    try:
        return {(await archive.output_info(output_id)).output_id}
    except NotFoundError:
        return set()


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
