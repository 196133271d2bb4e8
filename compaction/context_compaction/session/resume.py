"""Where a message list continues its session.

A list belongs to the session that the caller names, or to the one that made a summary in it, or to
one with an ID derived from its beginning. There a call continues from one of these lists:

- the list itself: it is new, longer than at the last call, edited, or already compacted;
- what a compaction left of its beginning, and the messages after that. So a host that passes its
  whole conversation at every call gets the bytes of the earlier result, until the trigger is
  reached again. Positions in the request and in the result are those of the list that came in;
- for `prepare`, the messages of either that nothing will change.

Preparing compacts the first N messages and keeps the outcome in the session's state: nothing is
replaced yet, so a slow writer delays no call. Applying takes the list as it has become since. If
its first N messages are still those, exactly they are replaced, and what follows stays unchanged
(except for thinking that was bound to them). Anthropic's documentation calls it background
compaction.

Callers may pass only new messages: `current_context` is the list that these follow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive import AppendResult, Archive, MatchedContext
from context_compaction.context import Places, ReceivedInput
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.formats.list_cache import LIST_CACHE, CachedList
from context_compaction.messages.cache_control import cache_marker_count, without_cache_markers
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Messages, Thinking, leading_system_count
from context_compaction.messages.speakers import NO_PROVEN_TEXTS, Claims, ProvenTexts, claims_in
from context_compaction.messages.tool_pairs import (
    ProviderRules,
    index_calls,
    runs,
    safe_cuts,
    with_unique_call_ids,
)
from context_compaction.messages.tool_results import full_text_of
from context_compaction.policies import policy_named
from context_compaction.request import CompactRequest, check_session_id
from context_compaction.result import Recognised
from context_compaction.session.state import (
    NO_REJECTIONS,
    PreparedList,
    PromptTooLongRejections,
    SessionState,
    made_by,
    rejections_of,
    repeat_key,
    states_of,
)
from context_compaction.settings import override

# A host applies what was prepared within minutes; after a day the files that it restores are old.
LIFETIME_SECONDS = 86_400
# Only so many of the newest receipts are read at first: they contain what most calls need.
_NEWEST_RECEIPTS = 8
# A list may claim anything; only so many other sessions and outputs are looked up.
_MOST_CLAIMS = 16


@dataclass(frozen=True, slots=True)
class Session:
    """The list that a call continues from, and what earlier calls of the session left.

    Attributes:
        session_id: The session.
        appended: Where the archive has the list that came in.
        payload: The list that the call continues from ...
        known: ... parsed.
        seqs: For each of its messages the number in the transcript, or -1 ...
        heads: ... the hash of the history that ends there ...
        request: The wishes, with positions in this list.
        history: The hash of the list that came in, as far as this call is about it.
        states: The states that calls for this very list left, oldest first ...
        all_states: ... and those of all branches.
        places: The places of its messages in the list that came in; None if it is that list.
        recognised: How many messages replace how many; None if it is that list.
        rejections: What the provider rejected, if this call reports that.
        applied: What was prepared and is applied now, and what that vouches for.
        is_answered: Whether the session's last compaction gave this list for the same wishes.
        ours: Which parts of the list the archive vouches for.
    """

    session_id: str
    appended: AppendResult
    payload: Sequence[JsonObject]
    known: CachedList
    seqs: tuple[int, ...]
    heads: tuple[str, ...]
    request: CompactRequest
    history: str
    states: Sequence[SessionState]
    all_states: Sequence[SessionState]
    places: Places | None = None
    recognised: Recognised | None = None
    rejections: PromptTooLongRejections = NO_REJECTIONS
    applied: tuple[PreparedList, ProvenTexts] | None = None
    is_answered: bool = False
    ours: ProvenTexts = NO_PROVEN_TEXTS

    @property
    def messages(self) -> Messages:
        """The messages of the list."""
        return self.known.messages


async def store(given: ReceivedInput, archive: Archive) -> tuple[str, AppendResult]:
    """Archive the list in the session it belongs to: its ID, and the list's place in it.

    With the mode "plan" it is only looked up.
    """
    return await append_to_session(
        given.messages,
        format=given.format,
        archive=archive,
        named=given.request.session_id,
        claims=given.claims,
        parent_session_id=given.request.parent_session_id,
        dry_run=given.request.mode == "plan",
    )


async def load(
    given: ReceivedInput,
    session_id: str,
    appended: AppendResult,
    archive: Archive,
    now_seconds: float,
) -> Session:
    """The session of the call, where `appended` says how the list continues it.

    Raises:
        NotFoundError: The session has nothing prepared with the ID that `apply` gives.
        SettingsError: That has expired, or was prepared for another list.
    """
    after = _first_needed(appended.receipts, given.request)
    receipts: Sequence[JsonObject] = ()
    if appended.receipts:
        receipts = await archive.receipts(session_id, after=after)
    resuming = partial(_resumed, given, session_id, appended, now_seconds=now_seconds)
    session, claims = await to_thread.run_sync(resuming, receipts, after)
    if after and not claims.hashes_of(session_id) <= made_by(session.all_states):
        receipts = await archive.receipts(session_id)
        session, claims = await to_thread.run_sync(resuming, receipts, 0)
    return replace(session, ours=await _ours(claims, session, archive))


def _first_needed(is_own: Sequence[bool], request: CompactRequest) -> int:
    """How many of the oldest receipts most calls can do without."""
    if request.mode == "reactive" or request.apply is not None:
        return 0  # rejections and prepared lists may be in any
    own = [at for at, own in enumerate(is_own) if own]
    return min([*own[-_NEWEST_RECEIPTS:], max(0, len(is_own) - _NEWEST_RECEIPTS)])


def _resumed(
    given: ReceivedInput,
    session_id: str,
    appended: AppendResult,
    receipts: Sequence[JsonObject],
    after: int,
    *,
    now_seconds: float,
) -> tuple[Session, Claims]:
    """The session by its receipts without the first `after`, and what its list claims."""
    request = given.request
    all_states = states_of(receipts)
    # Others may have written receipts since.
    is_own = zip(all_states, appended.receipts[after:], strict=False)
    states = tuple(state for state, own in is_own if own)
    session = _continued(
        Session(
            session_id,
            appended,
            given.payload,
            given.known,
            appended.seqs,
            appended.heads,
            request,
            appended.head,
            states,
            all_states,
        ),
        given.format,
    )
    claims = session.known.once("claims", None, lambda: claims_in(session.messages))
    if request.mode == "reactive" and session.payload and not session.is_answered:
        settings = override(policy_named(request.policy).settings, request.settings)
        rejections = rejections_of(session.payload, all_states, settings.reactive_retries)
        session = replace(session, rejections=rejections)
    if request.apply is not None:
        applied = find_prepared(all_states, request.apply, session.payload, session_id, now_seconds)
        session = replace(session, applied=applied)
    return session, claims


def _continued(session: Session, format: str) -> Session:
    """`session` with the list that the call continues from; see the module."""
    request, standing = session.request, session.appended.matched_context
    found, is_answered = session, False
    if standing is not None and request.mode != "record" and not _applies(session):
        behind = _behind(session, standing, format)
        is_whole = standing.message_count == len(session.payload)
        is_answered = is_whole and _is_outcome(behind, request)
        if is_answered or not (is_whole and _asks_anew(session)):
            found = behind
    if not (is_answered or session.appended.written or request.mode == "reactive"):
        is_answered = _is_outcome(found, request)
    found = replace(found, is_answered=is_answered)
    return _settled(found, format) if request.prepare else found


def _applies(session: Session) -> bool:
    """Whether the list itself begins with what is to be applied."""
    prepared_id = session.request.apply
    if prepared_id is None:
        return False
    return is_prepared_for(session.all_states, prepared_id, session.payload)


def _behind(session: Session, standing: MatchedContext, format: str) -> Session:
    """`session` with the beginning of its list replaced by what a compaction left."""
    count, given = standing.message_count, session.payload
    given_of = {id(m.source): raw for m, raw in zip(session.messages, session.payload, strict=True)}
    raws = [given_of.get(id(entry.raw), entry.raw) for entry in standing.entries]
    made = _with_few_markers(raws, standing, given)
    payload = [*made, *given[count:]]
    originals = [entry.original_seq for entry in standing.entries]
    place_of_seq = {seq: at for at, seq in enumerate(session.seqs[:count]) if seq >= 0}
    places: Places = (
        *map(place_of_seq.get, originals),
        *range(count, len(given) + 1),  # and where the next message would be
    )
    return replace(
        session,
        payload=payload,
        known=LIST_CACHE.read(payload, format),
        seqs=(*originals, *session.seqs[count:]),
        heads=(*standing.heads, *session.heads[count:]),
        request=_placed(session, places, standing),
        places=places,
        recognised=Recognised(count, len(made)),
    )


def _placed(session: Session, places: Places, standing: MatchedContext) -> CompactRequest:
    """The request with positions in the list that replaces the one that came in.

    A usage report describes what was sent: for an answer since then, the present context and what
    followed; for an older one, a context that is replaced. A message that is to be pinned by
    its place, and was removed or edited, is pinned by its text.
    """
    request = session.request
    index = request.usage_message_index
    if index is not None and index < standing.message_count:
        request = replace(request, usage=None, usage_message_index=None)
    elif index is not None:
        request = replace(request, usage_message_index=places.index(index))
    edited = {at for at, entry in enumerate(standing.entries) if entry.seq < 0}
    position = {place: at for at, place in enumerate(places) if at not in edited}
    removed = [
        session.messages[place] for place in request.pinned_messages if place not in position
    ]
    return replace(
        request,
        pinned=(*request.pinned, *map(full_text_of, removed)),
        pinned_messages=tuple(position[at] for at in request.pinned_messages if at in position),
        snip_messages=tuple(places.index(at) for at in request.snip_messages if at in places),
    )


def _with_few_markers(
    raws: list[JsonObject], standing: MatchedContext, given: Sequence[JsonObject]
) -> list[JsonObject]:
    """`raws`, with no more cache markers than came in: a host moves its own."""
    if not any(cache_marker_count(entry.raw) for entry in standing.entries if entry.seq < 0):
        return raws
    before = sum(map(cache_marker_count, given[: standing.message_count]))
    if sum(map(cache_marker_count, raws)) <= before:
        return raws
    return [
        raw if entry.seq >= 0 else without_cache_markers(raw)
        for raw, entry in zip(raws, standing.entries, strict=True)
    ]


def _asks_anew(session: Session) -> bool:
    """Whether the call acts at once, whatever the budget, on a list that was compacted as a whole.

    A caller that passes that very list with other wishes for such a call wants them met by it,
    not by what the earlier wishes left of it. But what was asked for by hand, or after a
    rejection, is not undone by the next call of a loop.
    """
    request = session.request
    if request.mode not in ("auto", "plan"):
        return request.mode == "full"
    is_at_once = request.target_tokens is not None and request.context_window is None
    modes = (state.mode for state in reversed(session.states) if state.repeat_key)
    return is_at_once and next(modes, "") not in ("full", "reactive")


def _is_outcome(session: Session, wishes: CompactRequest) -> bool:
    """Whether the session's last compaction gave this very list for the same wishes."""
    keys = (state.repeat_key for state in reversed(session.states))
    last = next(filter(None, keys), None)
    if last is None or not session.payload:
        return False
    return last == repeat_key(history_hash(session.payload), wishes)


def _settled(session: Session, format: str) -> Session:
    """`session` with those of its messages that nothing will change."""
    count = settled_message_count(session.messages, formats.FORMATS[format].rules)
    return replace(
        session,
        payload=session.payload[:count],
        known=CachedList(session.messages[:count]),
        seqs=session.seqs[:count],
        heads=session.heads[:count],
        history=session.heads[count - 1] if count else "",
        request=settled_request(session.request, count, format),
        # Positions are kept as those of the list in which this will be found again.
        places=None,
    )


async def _ours(claims: Claims, session: Session, archive: Archive) -> ProvenTexts:
    """What of `claims` the archive vouches for.

    Another session may have made messages of the list, if a host continues a compacted list
    under a new name.
    """
    hashes = set(made_by(session.all_states)) if claims.messages else set[str]()
    for other in claims.session_ids[:_MOST_CLAIMS]:
        if other != session.session_id:
            hashes |= made_by(await _states_in(other, archive)) & claims.hashes_of(other)
    known: set[str] = set()
    if claims.output_ids:
        try:
            outputs = await archive.outputs(session.session_id)
            known = {info.output_id for info in outputs} & claims.output_ids
        except NotFoundError:
            pass
        for output_id in sorted(claims.output_ids - known)[:_MOST_CLAIMS]:
            try:
                known.add((await archive.output_info(output_id)).output_id)
            except NotFoundError:
                continue
    return ProvenTexts(frozenset(hashes), frozenset(known))


def check_prepared(request: CompactRequest) -> None:
    """Refuse wishes that contradict each other.

    Raises:
        SettingsError: The mode cannot be prepared, or what was prepared is to be compacted again.
    """
    applies = request.apply is not None
    if request.prepare and applies:
        problem = "prepare and apply were given together. Prepare first, and apply in a later call."
    elif request.snip_messages:
        problem = (
            "snip_messages was given with prepare or apply, which keep the list as it is. Leave it "
            "out, or snip in a call of its own."
        )
    elif request.prepare and request.mode not in ("auto", "micro", "full"):
        problem = (
            f"prepare was given with mode {request.mode!r}, which has no outcome to keep. Use one "
            "of: auto, micro, full."
        )
    elif applies and request.mode != "auto":
        problem = (
            f"apply was given with mode {request.mode!r}. Leave the mode out: what is applied was "
            "decided when it was prepared."
        )
    else:
        return
    raise SettingsError(problem)


def settled_message_count(messages: Messages, rules: ProviderRules) -> int:
    """How many leading messages can be replaced while the rest is still being written.

    The newest turn of the assistant is not settled, nor what follows it, while one of its
    calls has no answer, or while it ends with reasoning that belongs to what comes next.
    """
    stop = len(messages)
    newest = max((start for start, _ in runs(messages, rules)), default=stop)
    messages = with_unique_call_ids(messages)
    index = index_calls(messages)
    is_open = any(at >= newest and key not in index.result_at for key, at in index.call_at.items())
    last = messages[-1].blocks[-1:] if messages else ()
    if is_open or (last and isinstance(last[0], Thinking)):
        stop = newest
    safe = safe_cuts(messages, rules)
    return max(at for at in range(stop + 1) if safe[at])


def settled_request(request: CompactRequest, count: int, format: str) -> CompactRequest:
    """`request` for the first `count` messages: a usage report for a later one is dropped."""
    request = replace(request, format=format)
    if (request.usage_message_index or 0) < count:
        return request
    return replace(request, usage=None, usage_message_index=None)


def is_prepared_for(
    states: Sequence[SessionState], prepared_id: str, payload: Sequence[JsonObject]
) -> bool:
    """Whether `payload` begins with what something under `prepared_id` was prepared for."""
    kept = (state.prepared for state in states if state.prepared is not None)
    return any(item.prepared_id == prepared_id and _begins(payload, item) for item in kept)


def find_prepared(
    states: Sequence[SessionState],
    prepared_id: str,
    payload: Sequence[JsonObject],
    session_id: str,
    now_seconds: float,
) -> tuple[PreparedList, ProvenTexts]:
    """What was prepared under `prepared_id`, if it belongs to `payload`; and what it vouches for.

    Raises:
        NotFoundError: The session holds nothing under that name.
        SettingsError: It has expired, or `payload` does not begin with what it was prepared for.
    """
    found = (
        (state.prepared, state.made)
        for state in reversed(states)
        if state.prepared is not None and state.prepared.prepared_id == prepared_id
    )
    kept, made = next(found, (None, ()))
    if kept is None:
        raise NotFoundError(
            f"Session {session_id} holds nothing prepared under {prepared_id!r}. Give the "
            "prepared_id as it was answered, with the session_id that it was prepared for, or "
            "prepare anew."
        )
    if now_seconds > kept.expires_seconds:
        raise SettingsError(
            f"What was prepared under {prepared_id} has expired: it holds for "
            f"{LIFETIME_SECONDS // 3_600} hours. Prepare anew."
        )
    if not _begins(payload, kept):
        is_short = len(payload) < kept.message_count
        found_count = f"the list has {len(payload)}" if is_short else "they differ now"
        raise SettingsError(
            f"{prepared_id} was prepared for {kept.message_count} messages that the list must "
            f"begin with, but {found_count}. Apply it to a list that only grew since, or prepare "
            "anew."
        )
    pointers = (pointer for edit in kept.report["edits"] for pointer in edit["pointers"])
    return kept, ProvenTexts(frozenset(made), frozenset(pointers))


def _begins(payload: Sequence[JsonObject], kept: PreparedList) -> bool:
    return history_hash(payload[: kept.message_count]) == kept.prefix_hash


async def append_to_session(
    messages: Messages,
    *,
    format: str,
    archive: Archive,
    named: str | None,
    claims: Claims | None = None,
    parent_session_id: str | None = None,
    dry_run: bool = False,
) -> tuple[str, AppendResult]:
    """Archive `messages` in the session they belong to: its ID, and their place in it.

    That is the session as named, or that of our summary in the list, or one by its beginning. A
    summary is ours if a receipt of the session that it names lists it.

    A list that only begins like the conversation of a session gets one of its own: if it leaves
    every history of that session before the assistant has spoken twice, its ID comes from all up
    to there. So the same list, when it is longer, finds its session again by its content.
    """
    append = partial(
        archive.append,
        format=format,
        parent_session_id=parent_session_id,
        dry_run=dry_run,
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
    for session_id in claims.session_ids[:_MOST_CLAIMS]:
        listed = made_by(await _states_in(session_id, archive))
        if not listed.isdisjoint(claims.hashes_of(session_id)):
            return session_id
    return None


def derived_id(messages: Messages) -> str:
    """The ID of a list if no other conversation has it already; stable while the list grows.

    It comes from the first message that is not a system message: hosts write the date into those.
    """
    return _id_of(_said(messages)[:1])


def _ids_of(messages: Messages) -> Iterator[str]:
    """The IDs that a list may have: the first that no other conversation has is its own."""
    said = _said(messages)
    yield derived_id(messages)
    yield _id_of(messages[: leading_system_count(messages) + 1])
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


async def _states_in(session_id: str, archive: Archive) -> Sequence[SessionState]:
    """The states that a session's calls left, oldest first; empty without such a session."""
    try:
        return states_of(await archive.receipts(session_id))
    except NotFoundError:
        return ()


@dataclass(frozen=True, slots=True)
class CurrentContext:
    """The list that a session continues from.

    Attributes:
        format: Its format.
        messages: Its messages. Callers must not change them.
        name: Its hash, as `history_hash` computes it.
    """

    format: str
    messages: Sequence[JsonObject]
    name: str


async def current_context(session_id: str, archive: Archive) -> CurrentContext:
    """What `Archive.context` returns, with its name.

    Raises:
        NotFoundError: There is no such session.
    """
    format_name, messages = await archive.context(session_id)
    name = await to_thread.run_sync(history_hash, messages)
    return CurrentContext(format_name, messages, name)


async def name_if_current(
    messages: Sequence[JsonObject], session_id: str, archive: Archive
) -> str | None:
    """The hash of `messages` if `Archive.context` returns this very list; else None."""
    name = await to_thread.run_sync(history_hash, messages)
    try:
        if archive.redaction == "on":  # the archive's names are those before it
            current = (await current_context(session_id, archive)).name
        else:
            current = await archive.context_name(session_id)
    except NotFoundError:
        return None
    return name if name == current else None
