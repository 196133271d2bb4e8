"""The session of a list, its place there, the states that earlier calls left, and what is ours.

A call goes on from the list that came in, or from what a compaction left of its beginning. The
session's receipts are read once, and only where it has any.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive import AppendResult, OutputInfo, Store
from context_compaction.context import ReceivedInput
from context_compaction.errors import NotFoundError
from context_compaction.messages.attribution import NOTHING, Claims, Ours, claims_in
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Messages, lead_of
from context_compaction.policies import policy_named
from context_compaction.request import CompactRequest, check_session_id
from context_compaction.session import prepared
from context_compaction.session.recognised import Start, asks_anew, start_of
from context_compaction.session.rejections import PromptTooLongRejections, rejections_of
from context_compaction.session.state import (
    PreparedList,
    SessionState,
    made_by,
    repeat_key,
    states_of,
)
from context_compaction.settings import override

# So many of a list's newest receipts are read, however many there are.
_NEWEST = 8
# A list may claim anything; so many other sessions and outputs are looked for.
_MOST_CLAIMS = 16


@dataclass(frozen=True, slots=True)
class Stored:
    """A list in the archive: all of it is durable, but with the mode "plan"."""

    session_id: str
    appended: AppendResult


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a list, as the archive holds it.

    Attributes:
        start: The list that the call goes on from ...
        messages: ... parsed.
        stored: The place of the list that came in.
        states: States left by calls for this very list and what it came from, oldest first.
        all_states: The same of all branches: for what names its own list or contains no text.
        rejections: What the provider refused, where this call reports that.
        applied: What is to be applied, if anything is, and what that vouches for.
        is_answered: Whether these wishes were met before by this list, or by what it became.
        ours: What in the list the archive vouches for.
    """

    start: Start
    messages: Messages
    stored: Stored
    states: Sequence[SessionState]
    all_states: Sequence[SessionState]
    rejections: PromptTooLongRejections
    applied: tuple[PreparedList, Ours] | None
    is_answered: bool
    ours: Ours = NOTHING


async def store(given: ReceivedInput, archive: Store) -> Stored:
    """Keep the list durably in the session it belongs to; with the mode "plan", only look it up."""
    session_id, appended = await append_to_session(
        given.messages,
        format=given.format,
        archive=archive,
        named=given.request.session_id,
        claims=given.claims,
        parent_session_id=given.request.parent_session_id,
        dry_run=given.request.mode == "plan",
        counted_by=given.counted_by,
    )
    return Stored(session_id, appended)


async def load(given: ReceivedInput, stored: Stored, archive: Store, now_seconds: float) -> Session:
    """The session of the call, from the archive.

    Raises:
        NotFoundError: The session holds nothing prepared under the name that `apply` gives.
        SettingsError: That has expired, or was prepared for another list.
    """
    after = _first_needed(stored.appended.receipts, given.request)
    session, claims = await _begun_after(after, given, stored, archive, now_seconds)
    if after and not claims.hashes_of(stored.session_id) <= made_by(session.all_states):
        session, claims = await _begun_after(0, given, stored, archive, now_seconds)
    return replace(session, ours=await _ours(claims, session, archive))


def _first_needed(is_own: Sequence[bool], request: CompactRequest) -> int:
    """Without how many of the oldest receipts the session is known as well as with all.

    The newest of a list contain what this call needs, and name all that is ours in it; refusals of
    a provider, and what was prepared, may be in older ones.
    """
    if request.mode == "reactive" or request.apply is not None:
        return 0
    own = [at for at, own in enumerate(is_own) if own]
    return min([*own[-_NEWEST:], max(0, len(is_own) - _NEWEST)])


async def _begun_after(
    after: int, given: ReceivedInput, stored: Stored, archive: Store, now_seconds: float
) -> tuple[Session, Claims]:
    has_receipts = bool(stored.appended.receipts)
    receipts = await archive.receipts(stored.session_id, after=after) if has_receipts else []
    begun = partial(_begun, given, stored, receipts, after, now_seconds)
    if receipts or stored.appended.standing is not None or given.request.prepare:
        return await to_thread.run_sync(begun)
    return begun()  # nothing that would take its time


def _begun(
    given: ReceivedInput,
    stored: Stored,
    receipts: Sequence[JsonObject],
    after: int,
    now_seconds: float,
) -> tuple[Session, Claims]:
    """The session by its receipts, and the list from which this one claims to go on."""
    all_states = states_of(receipts)
    # Others may have come since.
    is_own = zip(all_states, stored.appended.receipts[after:], strict=False)
    states = tuple(state for state, own in is_own if own)
    start = _start(given, stored.appended, all_states, states)
    messages, claims = given.messages, given.claims
    if start.recognised is not None:
        messages = formats.parse(start.payload, format=given.format)
    if start.request.prepare:
        start = _settled(start, messages, given.format)
        messages = formats.parse(start.payload, format=given.format)
    if messages is not given.messages:
        claims = claims_in(messages)
    session = Session(
        start,
        messages,
        stored,
        states,
        all_states,
        rejections=_rejections(start, all_states),
        applied=_applied(start, all_states, stored.session_id, now_seconds),
        is_answered=_is_answered(start, given.request, stored.appended, states),
    )
    return session, claims


def _start(
    given: ReceivedInput,
    appended: AppendResult,
    all_states: Sequence[SessionState],
    states: Sequence[SessionState],
) -> Start:
    """The start of this call: the list itself, or what a compaction left of its beginning."""
    payload, request, standing = given.payload, given.request, appended.standing
    plain = Start(
        payload,
        appended.seqs,
        appended.heads,
        request,
        appended.head,
        fingerprints=appended.fingerprints,
        counts=appended.counts,
    )
    if standing is None or request.mode == "record":
        return plain
    if request.apply is not None and prepared.is_prepared_for(all_states, request.apply, payload):
        return plain
    start = start_of(payload, given.messages, appended, request, standing)
    if standing.message_count < len(payload):
        return start
    is_repeated = _is_outcome(start.payload, request, states)
    if is_repeated or not asks_anew(request, _newest_mode(states)):
        return replace(start, is_repeated=is_repeated)
    return plain


def _settled(start: Start, messages: Messages, format: str) -> Start:
    """`start` with those of its messages that nothing will change."""
    count = prepared.settled_message_count(messages, formats.FORMATS[format].rules)
    return replace(
        start,
        payload=start.payload[:count],
        seqs=start.seqs[:count],
        heads=start.heads[:count],
        fingerprints=start.fingerprints[:count],
        counts=start.counts[:count],
        history=start.heads[count - 1] if count else "",
        request=prepared.settled_request(start.request, count, format),
        # Positions are kept as those of the list in which this will be found again.
        places=None,
    )


def _rejections(start: Start, states: Sequence[SessionState]) -> PromptTooLongRejections:
    """The refusals of the list, where this call reports one."""
    request = start.request
    if request.mode != "reactive" or not start.payload or start.is_repeated:
        return PromptTooLongRejections()
    settings = override(policy_named(request.policy).settings, request.settings)
    return rejections_of(start.payload, states, settings.reactive_retries)


def _applied(
    start: Start, states: Sequence[SessionState], session_id: str, now_seconds: float
) -> tuple[PreparedList, Ours] | None:
    prepared_id = start.request.apply
    if prepared_id is None:
        return None
    return prepared.find(states, prepared_id, start.payload, session_id, now_seconds)


def _is_answered(
    start: Start, wishes: CompactRequest, appended: AppendResult, states: Sequence[SessionState]
) -> bool:
    """Whether this call was answered before, or passes in that answer; not one that was refused."""
    if start.is_repeated:
        return True
    if not start.payload or appended.written or wishes.mode == "reactive":
        return False
    return _is_outcome(start.payload, wishes, states)


def _is_outcome(
    payload: Sequence[JsonObject], request: CompactRequest, states: Sequence[SessionState]
) -> bool:
    """Whether this very list is what the session's last compaction gave for the same wishes."""
    keys = (state.repeat_key for state in reversed(states))
    last = next(filter(None, keys), None)
    return last is not None and last == repeat_key(history_hash(payload), request)


def _newest_mode(states: Sequence[SessionState]) -> str:
    """The mode of the newest of the calls that left `states`, where it is known."""
    return next((state.mode for state in reversed(states) if state.repeat_key), "")


async def _ours(claims: Claims, session: Session, archive: Store) -> Ours:
    """What of `claims` the archive vouches for.

    Another session may have made messages of the list, where a host continues a compacted list
    under a new name.
    """
    session_id = session.stored.session_id
    hashes = set(made_by(session.all_states)) if claims.messages else set[str]()
    for other in claims.session_ids[:_MOST_CLAIMS]:
        if other != session_id:
            hashes |= made_by(await _states_in(other, archive)) & claims.hashes_of(other)
    known: set[str] = set()
    if claims.output_ids:
        kept = {info.output_id for info in await _outputs(session_id, archive)}
        known = kept.intersection(claims.output_ids)
        for output_id in sorted(claims.output_ids - known)[:_MOST_CLAIMS]:
            known |= await _known_output(output_id, archive)
    return Ours(frozenset(hashes), frozenset(known))


async def _outputs(session_id: str, archive: Store) -> Sequence[OutputInfo]:
    try:
        return await archive.outputs(session_id)
    except NotFoundError:
        return ()


async def _known_output(output_id: str, archive: Store) -> set[str]:
    try:
        return {(await archive.output_info(output_id)).output_id}
    except NotFoundError:
        return set()


async def append_to_session(
    messages: Messages,
    *,
    format: str,
    archive: Store,
    named: str | None,
    claims: Claims | None = None,
    parent_session_id: str | None = None,
    dry_run: bool = False,
    counted_by: str = "",
) -> tuple[str, AppendResult]:
    """Archive `messages` in the session they belong to: its id, and their place in it.

    That is the session as named, or that of our summary in the list, or one by its beginning. A
    summary is ours where a receipt of the session that it names lists it.

    A list that only begins like the conversation of a session gets one of its own: where it leaves
    every history of that session before the assistant has spoken twice, its id comes from all up
    to there. So the same list, grown, finds its session again by what it holds.
    """
    append = partial(
        archive.append,
        format=format,
        parent_session_id=parent_session_id,
        dry_run=dry_run,
        counted_by=counted_by,
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


async def _session_of_summary(claims: Claims, archive: Store) -> str | None:
    """The session that made a summary in the list, by its own receipts."""
    for session_id in claims.session_ids[:_MOST_CLAIMS]:
        listed = made_by(await _states_in(session_id, archive))
        if not listed.isdisjoint(claims.hashes_of(session_id)):
            return session_id
    return None


def derived_id(messages: Messages) -> str:
    """The id that a list has where no other conversation has it already; stable while it grows.

    It comes from the first message but those for the system, into which hosts write the date.
    """
    return _id_of(_said(messages)[:1])


def _ids_of(messages: Messages) -> Iterator[str]:
    """The ids that a list may have: the first that no other conversation has is its own."""
    said = _said(messages)
    yield derived_id(messages)
    yield _id_of(messages[: lead_of(messages) + 1])
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


async def _states_in(session_id: str, archive: Store) -> Sequence[SessionState]:
    """The states that a session's calls left, oldest first; empty without such a session."""
    try:
        return states_of(await archive.receipts(session_id))
    except NotFoundError:
        return ()
