"""Undo a compaction: the list as it was before it, followed by everything since.

Or undo only a part of it: put single messages and outputs back into the list, by their pointers. A
message that was shortened becomes its original. A message that a summary replaced follows the
summary, together with the messages that have its calls or results.

Nothing is deleted. The archive stores the list as a context of its own, so no later call replaces
it by the undone context again. The mode "auto" leaves it alone until it exceeds the window.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from anyio import to_thread

from context_compaction.archive.archive import Archive
from context_compaction.archive.values import NO_SEQ, ArchivedMessage, ContextEntry
from context_compaction.budget import TokenBudget, token_budget_of, window_of
from context_compaction.compaction_state import CompactionState, with_state
from context_compaction.context import Session
from context_compaction.errors import NotFoundError, QueryError, SettingsError
from context_compaction.formats import FORMATS, LIST_CACHE
from context_compaction.layers.repair import repair
from context_compaction.layers.strip_thinking import strip_invalid_thinking
from context_compaction.messages import model
from context_compaction.messages.raw import chain_hashes, content_hash, without_cache_markers
from context_compaction.messages.speakers import with_authors
from context_compaction.policies import policy_named
from context_compaction.request import override
from context_compaction.result import CompactResult
from context_compaction.tokens.counter import counter_for

# Messages at most so far from each other may have a call and its result.
_PAIR_DISTANCE = 40
_MESSAGES = re.compile(
    r"transcript://(?P<session>[^/@]+)(?P<head>@[0-9a-f]+)?/messages/(?P<first>\d{1,12})"
    r"(?:-(?P<last>\d{1,12}))?(?P<branch>@[0-9a-f]+)?"
)


async def undo(session: Session, archive: Archive) -> CompactResult:
    """Return the session's list without the compaction that the request names, and store it.

    If the request names originals to restore, only they are put back into the list.

    Raises:
        NotFoundError: The list did not go through that compaction, or has no such originals.
        QueryError: The pointer to restore identifies neither messages nor an output.
        SettingsError: The list does not fit the window; nothing was changed.
        ArchiveError: The list cannot be read or stored.
    """
    request, session_id = session.request, session.session_id
    if request.restore is not None:
        entries, seqs = await _with_originals(request.restore, session, archive)
        done: model.JsonObject = {"restore": request.restore, "restored_messages": seqs}
        listed = session.heads[-1]  # so a later undo of a compaction finds this list
    else:
        number, entries = await archive.list_before(session_id, request.undo, session.heads)
        done = {"undone": number}
        listed = chain_hashes([entry.content for entry in entries])[-1]
    # Hosts move their cache markers at every call, and providers limit their number. Two messages
    # may differ only in the form of their text and have the same hash, so the number counts, too.
    raws = session.given.payload
    keys = zip(session.appended.seqs, map(content_hash, raws), strict=True)
    given = dict(zip(keys, raws, strict=True))
    payload = [
        given.get((e.original_seq, e.content)) or without_cache_markers(e.raw) for e in entries
    ]
    if request.restore is not None:
        entries, payload = await to_thread.run_sync(_made_valid, entries, payload, session)
    budget = await to_thread.run_sync(_budget, payload, session)
    before = budget.before
    if before.upper > budget.trigger_tokens:
        what = request.restore or f"all that compaction {done['undone']} removed"
        raise SettingsError(
            f"With {what} the list has up to {before.upper:,} tokens, but the window has room for "
            f"{budget.trigger_tokens:,}. Undo a later compaction, pass a larger `context_window`, "
            "or restore or read single messages by their pointers."
        )
    tokens = budget.report(before, "undo")
    receipt: model.JsonObject = {
        "session_id": session_id,
        "format": session.given.format,
        "status": "undone",
        **done,
        "tokens": asdict(tokens),
        "context_window": window_of(request),
        "counted_for": request.model,
    }
    await archive.commit(
        session_id,
        receipt=with_state(receipt, CompactionState(mode="undo")),
        context=entries,
        head=session.history,
        listed=listed,
    )
    return CompactResult(
        session_id=session_id,
        format=session.given.format,
        status="undone",
        messages=payload,
        changed=payload != list(session.given.payload),
        fits=True,
        tokens=tokens,
        recognised=session.recognised,
        receipt=receipt,
    )


def _budget(payload: Sequence[model.JsonObject], session: Session) -> TokenBudget:
    request = replace(session.request, usage=None, usage_message_index=None)
    settings = override(policy_named(request.policy).settings, request.settings)
    messages = LIST_CACHE.read(payload, session.given.format).messages
    count = counter_for(request.model, estimator=settings.estimator)
    return token_budget_of(request, settings, messages, count, fills_window=True)


async def _with_originals(
    pointer: str, session: Session, archive: Archive
) -> tuple[list[ContextEntry], list[int]]:
    """Return the session's list with the originals at a pointer in their places.

    The second value has the numbers of these originals.

    Raises:
        QueryError: The pointer identifies neither messages nor an output.
        NotFoundError: The list already has the originals, or no place for them.
        ArchiveError: A message cannot be read.
    """
    pointer = pointer.removeprefix("output://")
    entries = await archive.list_now(session.session_id, session.heads)
    match = _MESSAGES.fullmatch(pointer)
    if match is None and not pointer.startswith(model.OUTPUT_ID_PREFIX):
        raise QueryError(
            f"Cannot restore {pointer[:200]!r} in a list. Pass the pointer of messages, such as "
            "transcript://SESSION/messages/3-7, or an output ID. To restore a file, save it with: "
            "mcp-server-compaction read POINTER --save FILE"
        )
    if match is None:
        shortened = (e for e in entries if e.seq == NO_SEQ and e.source_seq != NO_SEQ)
        seqs = [e.source_seq for e in shortened if pointer in model.compact_json(e.raw)]
        spans, head = [(seq, seq) for seq in seqs], None
    else:
        head = (match["head"] or match["branch"] or "")[1:] or None
        is_own = match["session"] == session.session_id
        spans = [(int(match["first"]), int(match["last"] or match["first"]))] if is_own else []
    originals: dict[int, ArchivedMessage] = {}
    for first, last in spans:
        start, stop = max(0, first - _PAIR_DISTANCE), last + _PAIR_DISTANCE
        archived = await archive.read_messages(session.session_id, start, stop, head=head)
        originals |= {message.seq: message for message in archived}
    wanted = {seq for seq in originals if any(first <= seq <= last for first, last in spans)}
    found = _put_back(entries, originals, wanted)
    if found == entries:
        raise NotFoundError(
            f"Nothing to restore: the list of session {session.session_id} already contains "
            f"{pointer!r} in full, or has no place for it. Pass the pointer of a message."
        )
    return found, sorted({entry.seq for entry in found} - {entry.seq for entry in entries})


def _put_back(
    entries: Sequence[ContextEntry], archived: Mapping[int, ArchivedMessage], wanted: set[int]
) -> list[ContextEntry]:
    """Return a list with the originals of some messages.

    A shortened message becomes its original. A message that is not in the list is inserted before
    the next later one, together with the messages that have its calls or results.

    Args:
        entries: The list.
        archived: The originals and the messages near them, by number.
        wanted: Numbers of the originals.
    """
    present = {entry.original_seq for entry in entries}
    parsed = {
        seq: FORMATS[message.format].parse_message(message.raw, 0)
        for seq, message in archived.items()
        if seq not in present
    }
    # In some formats reasoning is a message of its own, which its next message needs.
    thinking = {
        seq for seq, m in parsed.items() if all(isinstance(b, model.Thinking) for b in m.blocks)
    }
    ids = {seq: _call_ids(message) | ({seq, seq - 1} & thinking) for seq, message in parsed.items()}
    missing, more = set[int](), wanted & ids.keys()
    while more:
        missing |= more
        own = set[int | str]().union(*map(ids.__getitem__, more))
        more = {seq for seq in ids.keys() - missing if not own.isdisjoint(ids[seq])}
    found: list[ContextEntry] = []
    for entry in entries:
        if entry.seq == NO_SEQ and entry.source_seq in wanted & archived.keys():
            if found and found[-1].seq == entry.source_seq:
                continue  # one message became several entries
            entry = ContextEntry(entry.source_seq, archived[entry.source_seq].raw)
        found.append(entry)
    for seq in sorted(missing):
        index = next((i for i, e in enumerate(found) if e.original_seq > seq), len(found))
        found.insert(index, ContextEntry(seq, archived[seq].raw))
    return found


def _made_valid(
    entries: list[ContextEntry], payload: list[model.JsonObject], session: Session
) -> tuple[list[ContextEntry], list[model.JsonObject]]:
    """Return a list with restored messages as the provider accepts it.

    Thinking may be bound to everything before it, so it is removed after the first change.
    """
    wire_format, request = FORMATS[session.given.format], session.request
    settings = override(policy_named(request.policy).settings, request.settings)
    known = LIST_CACHE.read(payload, session.given.format).messages
    parsed = messages = with_authors(known, session.proven)
    pairs = zip(payload, session.payload, strict=False)
    shorter = min(len(payload), len(session.payload))
    first = next((index for index, (new, old) in enumerate(pairs) if new != old), shorter)
    if wire_format.rules.thinking_is_bound:
        count = counter_for(request.model, estimator=settings.estimator)
        stripped = strip_invalid_thinking(parsed[:first], parsed, count, settings, request.model)
        messages = stripped.messages
    messages = repair(messages, wire_format.rules).messages
    if messages is parsed:
        return entries, payload
    found: list[tuple[ContextEntry, model.JsonObject]] = []
    for message in messages:
        old = ContextEntry(NO_SEQ, {}) if message.index is None else entries[message.index]
        for raw in wire_format.render_message(message):
            is_same = message.source is not None and not message.edited
            entry = old if is_same else ContextEntry(NO_SEQ, raw, old.original_seq)
            found.append((entry, raw))
    return [entry for entry, _ in found], [raw for _, raw in found]


def _call_ids(message: model.Message) -> set[int | str]:
    """Return the IDs of the calls and results in a message."""
    ids: set[int | str] = {call.call_id for call in model.tool_calls(message)}
    return ids | {result.call_id for result in model.tool_results(message)}
