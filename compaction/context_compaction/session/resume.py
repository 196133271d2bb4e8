"""Find where a message list continues its session.

A list belongs to the session that the caller names, or to the session that wrote a summary in it,
or to the session whose ID derives from its first messages. A call then continues from one of:

- the caller's list, if it is new, longer than before, edited or already compacted;
- the stored compacted context that replaces its first messages, and the messages after them. A
  host that passes its whole conversation at every call gets the earlier result again, until the
  trigger is reached. Indices in requests and results refer to the caller's list;
- for `prepare`, the settled messages of either list. With `apply`, the call takes the list as it
  has become. If it starts with the same messages, exactly those are replaced, and later messages
  stay unchanged (except for thinking that was bound to replaced messages).

A caller may pass only new messages: `Archive.context` returns the list that they follow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from anyio import to_thread

from context_compaction import formats
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import AppendResult, MatchedContext
from context_compaction.compaction_state import (
    LIFETIME_SECONDS,
    CompactionState,
    PreparedList,
    hashes_made_by,
    rejections_of,
    repeat_key,
    states_of,
)
from context_compaction.context import InputIndices, ReceivedInput, Session
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.formats import LIST_CACHE, CachedList
from context_compaction.messages import model, tool_pairs
from context_compaction.messages.raw import cache_marker_count, history_hash, without_cache_markers
from context_compaction.messages.speakers import Claims, ProvenTexts, claims_in
from context_compaction.policies import policy_named
from context_compaction.request import CompactRequest, check_session_id, override
from context_compaction.result import Recognised

# The newest receipts contain what most calls need, so older ones are read only on demand.
_NEWEST_RECEIPTS = 8
# A list may claim anything, so at most this many other sessions and outputs are looked up.
_MOST_CLAIMS = 16


async def store(given: ReceivedInput, archive: Archive) -> tuple[str, AppendResult]:
    """Archive the caller's list; return its session's ID and its position in the transcript.

    The mode "plan" only looks the position up.
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
    """Return the session of the call, with the list that the call continues from.

    Raises:
        NotFoundError: The session has no prepared compaction with the ID that `apply` names.
        SettingsError: That compaction has expired, or was prepared for another list.
    """
    skipped = _skipped_receipts(appended.receipts, given.request)
    receipts: Sequence[model.JsonObject] = ()
    if appended.receipts:
        receipts = await archive.receipts(session_id, after=skipped)
    resume = partial(_resumed, given, session_id, appended, now_seconds=now_seconds)
    session, claims = await to_thread.run_sync(resume, receipts, skipped)
    if skipped and not claims.hashes_of(session_id) <= hashes_made_by(session.all_states):
        receipts = await archive.receipts(session_id)
        session, claims = await to_thread.run_sync(resume, receipts, 0)
    return replace(session, proven=await _proven_texts(claims, session, archive))


def _skipped_receipts(is_own: Sequence[bool], request: CompactRequest) -> int:
    """Return how many of the oldest receipts are not needed at first.

    `is_own` says of each receipt whether it belongs to this branch.
    """
    if request.mode == "reactive" or request.apply is not None:
        return 0  # rejections and prepared lists may be in any receipt
    own = [index for index, own in enumerate(is_own) if own]
    return min([*own[-_NEWEST_RECEIPTS:], max(0, len(is_own) - _NEWEST_RECEIPTS)])


def _resumed(
    given: ReceivedInput,
    session_id: str,
    appended: AppendResult,
    receipts: Sequence[model.JsonObject],
    skipped: int,
    *,
    now_seconds: float,
) -> tuple[Session, Claims]:
    """Return the session by its receipts after the first `skipped`, and what its list claims."""
    request, all_states = given.request, states_of(receipts)
    # Not strict, because other processes may have written receipts since the list was appended.
    branches = zip(all_states, appended.receipts[skipped:], strict=False)
    session = _continued(
        Session(
            given,
            session_id,
            appended,
            given.payload,
            given.known,
            appended.seqs,
            appended.heads,
            request,
            appended.head,
            states=tuple(state for state, is_own in branches if is_own),
            all_states=all_states,
        )
    )
    claims = session.known.once("claims", None, lambda: claims_in(session.messages))
    if request.mode == "reactive" and session.payload and not session.is_repeated:
        settings = override(policy_named(request.policy).settings, request.settings)
        rejections = rejections_of(session.payload, all_states, settings.reactive_retries)
        session = replace(session, rejections=rejections)
    if request.apply is not None:
        applied = find_prepared(all_states, request.apply, session.payload, session_id, now_seconds)
        session = replace(session, applied=applied)
    return session, claims


def _continued(session: Session) -> Session:
    """Return `session` with the list that the call continues from; see the module."""
    request, matched = session.request, session.appended.matched_context
    continued, is_repeated = session, False
    if matched is not None and request.mode != "record" and not _is_prepared_here(session):
        replaced = _with_replaced_start(session, matched)
        covers_all = matched.message_count == len(session.payload)
        is_repeated = covers_all and _is_last_outcome(replaced, request)
        if is_repeated or not (covers_all and _forces_recompaction(session)):
            continued = replaced
    if not (is_repeated or session.appended.written or request.mode == "reactive"):
        is_repeated = _is_last_outcome(continued, request)
    continued = replace(continued, is_repeated=is_repeated)
    return _settled(continued) if request.prepare else continued


def _is_prepared_here(session: Session) -> bool:
    """Whether the caller's own list starts with the messages that `apply` was prepared for."""
    prepared_id, prepared = session.request.apply, (state.prepared for state in session.all_states)
    named = [item for item in prepared if item is not None and item.prepared_id == prepared_id]
    return any(_starts_with(session.payload, item) for item in named)


def _with_replaced_start(session: Session, matched: MatchedContext) -> Session:
    """Return `session` with the start of its list replaced by the stored compacted context."""
    count, given = matched.message_count, session.payload
    given_of = {id(m.source): raw for m, raw in zip(session.messages, session.payload, strict=True)}
    raws = [given_of.get(id(entry.raw), entry.raw) for entry in matched.entries]
    context = _without_extra_markers(raws, matched, given)
    payload = [*context, *given[count:]]
    originals = [entry.original_seq for entry in matched.entries]
    index_of_seq = {seq: index for index, seq in enumerate(session.seqs[:count]) if seq >= 0}
    input_indices: InputIndices = (*map(index_of_seq.get, originals), *range(count, len(given) + 1))
    return replace(
        session,
        payload=payload,
        known=LIST_CACHE.read(payload, session.given.format),
        seqs=(*originals, *session.seqs[count:]),
        heads=(*matched.heads, *session.heads[count:]),
        request=_reindexed_request(session, input_indices, matched),
        input_indices=input_indices,
        recognised=Recognised(count, len(context)),
    )


def _reindexed_request(
    session: Session, input_indices: InputIndices, matched: MatchedContext
) -> CompactRequest:
    """Return the request with indices in the list whose start was replaced.

    A usage report for a replaced message is dropped. A message whose index is pinned, and that was
    removed or edited, is pinned by its text.
    """
    request = session.request
    index = request.usage_message_index
    if index is not None and index < matched.message_count:
        request = replace(request, usage=None, usage_message_index=None)
    elif index is not None:
        request = replace(request, usage_message_index=input_indices.index(index))
    edited = {index for index, entry in enumerate(matched.entries) if entry.seq < 0}
    new_index = {old: new for new, old in enumerate(input_indices) if new not in edited}
    pinned = request.pinned_messages
    removed = [session.messages[old] for old in pinned if old not in new_index]
    chosen = request.range
    if chosen is not None:
        # An earlier compaction has replaced the messages that are missing.
        places = [
            new for new, old in enumerate(input_indices) if old in range(chosen[0], chosen[1] + 1)
        ]
        chosen = (places[0], places[-1]) if places else (-1, -1)
    return replace(
        request,
        range=chosen,
        pinned=(*request.pinned, *map(model.full_text_of, removed)),
        pinned_messages=tuple(new_index[old] for old in pinned if old in new_index),
        snip_messages=tuple(
            input_indices.index(old) for old in request.snip_messages if old in input_indices
        ),
    )


def _without_extra_markers(
    raws: list[model.JsonObject], matched: MatchedContext, given: Sequence[model.JsonObject]
) -> list[model.JsonObject]:
    """Return `raws` with no more cache markers than the caller's list, whose host moves them."""
    if not any(cache_marker_count(entry.raw) for entry in matched.entries if entry.seq < 0):
        return raws
    before = sum(map(cache_marker_count, given[: matched.message_count]))
    if sum(map(cache_marker_count, raws)) <= before:
        return raws
    return [
        raw if entry.seq >= 0 else without_cache_markers(raw)
        for raw, entry in zip(raws, matched.entries, strict=True)
    ]


def _forces_recompaction(session: Session) -> bool:
    """Whether the call compacts a list again whose whole was compacted before.

    A caller that passes that list with other options for a call that acts at once wants them
    applied to the original list. But "auto" never undoes what "full" or "reactive" left.
    """
    request = session.request
    if request.range is not None:
        return False
    if request.mode not in ("auto", "plan"):
        return request.mode == "full"
    is_at_once = request.target_tokens is not None and request.context_window is None
    modes = (state.mode for state in reversed(session.states) if state.repeat_key)
    return is_at_once and next(modes, "") not in ("full", "reactive")


def _is_last_outcome(session: Session, request: CompactRequest) -> bool:
    """Whether the session's last compaction returned this list for the same request."""
    keys = (state.repeat_key for state in reversed(session.states))
    last = next(filter(None, keys), None)
    if last is None or not session.payload:
        return False
    return last == repeat_key(history_hash(session.payload), request)


def _settled(session: Session) -> Session:
    """Return `session` with only the messages that the running turn will not change."""
    format_name = session.given.format
    count = settled_message_count(session.messages, formats.FORMATS[format_name].rules)
    request = replace(session.request, format=format_name)
    if (request.usage_message_index or 0) >= count:
        request = replace(request, usage=None, usage_message_index=None)
    return replace(
        session,
        payload=session.payload[:count],
        known=CachedList(session.messages[:count]),
        seqs=session.seqs[:count],
        heads=session.heads[:count],
        history=session.heads[count - 1] if count else "",
        request=request,
        # A prepared list refers to the list in which it will be found again.
        input_indices=None,
    )


async def _proven_texts(claims: Claims, session: Session, archive: Archive) -> ProvenTexts:
    """Return the claimed texts that the archive proves to be written by this library.

    Another session may have written them, if a host continues a compacted list under a new ID.
    """
    hashes = set(hashes_made_by(session.all_states)) if claims.messages else set[str]()
    for other in claims.session_ids[:_MOST_CLAIMS]:
        if other != session.session_id:
            hashes |= hashes_made_by(await _states_in(other, archive)) & claims.hashes_of(other)
    output_ids: set[str] = set()
    if claims.output_ids:
        try:
            outputs = await archive.outputs(session.session_id)
            output_ids = {info.output_id for info in outputs} & claims.output_ids
        except NotFoundError:
            pass
        for output_id in sorted(claims.output_ids - output_ids)[:_MOST_CLAIMS]:
            try:
                output_ids.add((await archive.output_info(output_id)).output_id)
            except NotFoundError:
                continue
    return ProvenTexts(frozenset(hashes), frozenset(output_ids))


async def append_to_session(
    messages: model.Messages,
    *,
    format: str,
    archive: Archive,
    named: str | None,
    claims: Claims | None = None,
    parent_session_id: str | None = None,
    dry_run: bool = False,
) -> tuple[str, AppendResult]:
    """Archive `messages` in their session; return its ID and their position in the transcript.

    The session is the named one, or the one that wrote a summary in the list by its own receipts,
    or one whose ID derives from the first messages. A list that leaves all branches of that session
    before the assistant has dialogue twice is another conversation: its ID derives from more
    messages. So the same list finds its session again when it has grown.

    Args:
        messages: The parsed messages.
        format: Name of their format.
        archive: The archive.
        named: The session's ID if the caller names one.
        claims: The result of `claims_in(messages)`, if known.
        parent_session_id: The session that started this one.
        dry_run: Whether to write nothing.
    """
    append = partial(
        archive.append, format=format, parent_session_id=parent_session_id, dry_run=dry_run
    )
    if named is None:
        named = await _session_of_summary(claims or claims_in(messages), archive)
    if named is not None:
        return named, await append(check_session_id(named), messages)
    least_shared = _least_shared(messages)
    session_id = ""
    for session_id in _possible_ids(messages):
        appended = await append(session_id, messages, least_shared=least_shared)
        is_known = appended.forks_at is None or appended.matched_context is not None
        if is_known or (appended.forks_at or 0) >= least_shared:
            return session_id, appended
    return session_id, await append(session_id, messages)


async def _session_of_summary(claims: Claims, archive: Archive) -> str | None:
    """Return the session whose receipts list a summary of the list, or None."""
    for session_id in claims.session_ids[:_MOST_CLAIMS]:
        hashes = hashes_made_by(await _states_in(session_id, archive))
        if not hashes.isdisjoint(claims.hashes_of(session_id)):
            return session_id
    return None


def derived_id(messages: model.Messages) -> str:
    """Return the session ID of a list that no other conversation has; it is stable as lists grow.

    It derives from the first message that is no system message: hosts write the date into those.
    """
    return _id_of(_without_system(messages)[:1])


def _possible_ids(messages: model.Messages) -> Iterator[str]:
    """Yield the IDs that a list may have: the first that no other conversation has is used."""
    dialogue = _without_system(messages)
    yield derived_id(messages)
    yield _id_of(messages[: model.leading_system_count(messages) + 1])
    for stop in range(2, len(dialogue)):
        yield _id_of(dialogue[:stop])


def _least_shared(messages: model.Messages) -> int:
    """Return how many messages two lists of one conversation have in common at least."""
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    return 1 + (replies[1] if len(replies) > 1 else len(messages))


def _without_system(messages: model.Messages) -> model.Messages:
    return tuple(message for message in messages if message.role != "system") or messages


def _id_of(beginning: model.Messages) -> str:
    return f"s_{history_hash(message.source for message in beginning)[:16] or 'empty'}"


async def _states_in(session_id: str, archive: Archive) -> Sequence[CompactionState]:
    """Return the states that a session's calls saved, oldest first; none without that session."""
    try:
        return states_of(await archive.receipts(session_id))
    except NotFoundError:
        return ()


def settled_message_count(messages: model.Messages, rules: tool_pairs.ProviderRules) -> int:
    """Return how many leading messages can be replaced while the rest is still being written.

    The assistant's newest turn and later messages are not settled while one of its calls has no
    result, or while it ends with reasoning that belongs to the next message.
    """
    stop = len(messages)
    newest, _ = tool_pairs.newest_run(messages, rules) or (stop, stop)
    messages = tool_pairs.with_unique_call_ids(messages)
    calls = tool_pairs.index_calls(messages)
    is_open = any(
        index >= newest and key not in calls.result_at for key, index in calls.call_at.items()
    )
    last = messages[-1].blocks[-1:] if messages else ()
    if is_open or (last and isinstance(last[0], model.Thinking)):
        stop = newest
    safe = tool_pairs.safe_cuts(messages, rules)
    return max(index for index in range(stop + 1) if safe[index])


def find_prepared(
    states: Sequence[CompactionState],
    prepared_id: str,
    payload: Sequence[model.JsonObject],
    session_id: str,
    now_seconds: float,
) -> tuple[PreparedList, ProvenTexts]:
    """Return the prepared list with that ID, and the texts in it that it proves.

    Raises:
        NotFoundError: The session has no prepared list with that ID.
        SettingsError: It has expired, or `payload` does not start with its messages.
    """
    matches = (
        (state.prepared, state.own_hashes)
        for state in reversed(states)
        if state.prepared is not None and state.prepared.prepared_id == prepared_id
    )
    prepared, hashes = next(matches, (None, ()))
    if prepared is None:
        raise NotFoundError(
            f"Session {session_id} has no prepared compaction {prepared_id!r}. Pass the "
            "prepared_id of the reply together with its session_id, or prepare again."
        )
    if now_seconds > prepared.expires_seconds:
        raise SettingsError(
            f"The prepared compaction {prepared_id} has expired after "
            f"{LIFETIME_SECONDS // 3_600} hours. Prepare again."
        )
    if not _starts_with(payload, prepared):
        is_short = len(payload) < prepared.message_count
        problem = f"has only {len(payload)}" if is_short else "starts with other messages"
        raise SettingsError(
            f"{prepared_id} was prepared for {prepared.message_count} messages, but the list "
            f"{problem}. Apply it to a list that only grew since, or prepare again."
        )
    pointers = (pointer for edit in prepared.report["edits"] for pointer in edit["pointers"])
    return prepared, ProvenTexts(frozenset(hashes), frozenset(pointers))


def _starts_with(payload: Sequence[model.JsonObject], prepared: PreparedList) -> bool:
    return history_hash(payload[: prepared.message_count]) == prepared.prefix_hash
