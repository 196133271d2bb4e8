"""What a call leaves to its session beside the messages: outputs, context, receipt and state.

Later calls read the state; the receipt is a report.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from context_compaction.archive import Archive, ContextEntry
from context_compaction.context import CompactionContext, ReceivedInput, SummaryText, Validation
from context_compaction.errors import ArchiveError
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import made_in
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import chain_hashes, content_hash, history_hash
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.pins import pin_blobs
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.earlier_calls import EarlierCalls
from context_compaction.session.resume import RECENT_LISTS, Session
from context_compaction.session.state import (
    CarriedOriginals,
    ModelCall,
    PreparedList,
    Rejection,
    SavedSummary,
    SessionState,
    repeat_key,
    stop_seq_of,
    with_prepared,
    with_state,
)

# To keep counts of fewer tokens takes as long as to make them again: some 4 ms, most of it the
# device's.
KEPT_FROM_TOKENS = 20_000
_logger = logging.getLogger(__name__)
# For each summary in a result, where its shortened originals are; and those that are new.
CarriedOn: TypeAlias = tuple[Sequence[CarriedOriginals], Sequence[Blob]]


@dataclass(frozen=True, slots=True)
class Commit:
    """The parts of a call that the archive keeps in one step; see `Archive.commit`."""

    receipt: JsonObject
    head: str
    blobs: Sequence[Blob] = ()
    context: Sequence[ContextEntry] = ()
    listed: str = ""


@dataclass(frozen=True, slots=True)
class ToSave:
    """What one call leaves to its session.

    Attributes:
        commit: What the archive keeps in one step; None if only the messages are kept.
        counts: Token counts that the archive lacks, by fingerprint.
        messages: The list that the session continues from ...
        size_bytes: ... and its size.
    """

    commit: Commit | None = None
    counts: Mapping[bytes, Any] = field(default_factory=dict[bytes, Any])
    messages: Sequence[JsonObject] = ()
    size_bytes: int = 0


async def save(
    archive: Archive, session_id: str, given: ReceivedInput, made: ToSave | None
) -> None:
    """Make durable what a result rests on; its context replaces the list from now on."""
    if made is None:
        return
    if (commit := made.commit) is not None:
        await archive.commit(
            session_id,
            blobs=commit.blobs,
            receipt=commit.receipt,
            context=commit.context,
            head=commit.head,
            listed=commit.listed,
        )
    if made.counts:
        try:
            await archive.keep_counts(
                session_id, format=given.format, counted_by=given.counted_by, counts=made.counts
            )
        except ArchiveError as error:  # counts are made again; the rest is durable by now
            _logger.warning("The counts of session %s could not be kept: %s", session_id, error)
    RECENT_LISTS.keep(archive, session_id, given.format, made.messages, made.size_bytes)


def new_counts(context: CompactionContext, session: Session) -> Mapping[bytes, Any]:
    """The counts of the list that the archive lacks; empty if they are soon made again."""
    keys, count = session.fingerprints, context.count
    missing = [(keys[at], context.parsed[at]) for at in context.uncounted if keys[at]]
    if sum(count.message(message) for _, message in missing) < KEPT_FROM_TOKENS:
        return {}
    return {key: count.count_of(message) for key, message in missing}


def commit_of(
    result: CompactResult,
    context: CompactionContext,
    session: Session,
    earlier_calls: EarlierCalls,
    words: SummaryText,
    validation: Validation,
    rendered: Sequence[Sequence[JsonObject]],
    prepared: PreparedList | None,
    carried: CarriedOn,
    *,
    wishes: CompactRequest,
    now_seconds: float,
) -> Commit | None:
    """The commit for `result`; mostly None: only the messages are kept.

    Args:
        result: The outcome.
        context: The call.
        session: The session before the call.
        earlier_calls: The files that earlier calls recorded, and how the context was refilled.
        words: The summary's text.
        validation: The messages that go out ...
        rendered: ... in the provider's form.
        prepared: The prepared list, to be applied later.
        carried: The outputs with the shortened originals of its summaries, and the new ones.
        wishes: The request as it came in.
        now_seconds: The time.
    """
    is_reported = result.changed or prepared is not None or bool(session.rejections.key)
    if not (is_reported or words.model is not None or words.told):
        return None
    messages, receipt = validation.edited.messages, result.receipt
    entries = context_entries(messages, rendered, context.seqs) if result.changed else []
    # Every call of a model is recorded, and what it or the host wrote is used until it is applied.
    state = SessionState(
        memory=_summary(words, wishes, now_seconds),
        model=_model_call(words),
        carried=tuple(carried[0]),
    )
    if prepared is not None:
        state = replace(state, made=made_in(messages))
    elif is_reported or words.model is not None:
        # To find nothing again costs little, and says again why; a model is not asked twice.
        is_final = result.status != "no_progress" or words.model is not None
        state = replace(
            state,
            stop_seq=stop_seq_of(context.seqs),
            files=tuple(earlier_calls.states.values()),
            rejection=_rejection(result, session),
            made=made_in(messages),
            repeat_key=repeat_key(_name(result, entries), wishes) if is_final else "",
            mode=wishes.mode,
        )
    else:  # a summary for later is no compaction
        receipt = {name: receipt[name] for name in ("session_id", "format", "status", "tokens")}
    receipt = context.gates.json(with_state(receipt, state))
    if prepared is not None:
        receipt = with_prepared(receipt, prepared)
    elif not result.changed:
        return Commit(receipt, session.history)
    blobs = (*_dated(validation, context), *pin_blobs(context.pins.candidates), *carried[1])
    is_behind = result.changed and session.recognised is not None
    listed = history_hash(session.payload) if is_behind else ""
    return Commit(receipt, session.history, blobs, entries, listed)


def _summary(
    words: SummaryText, request: CompactRequest, now_seconds: float
) -> SavedSummary | None:
    """The summary to save for later compactions; None where none was written."""
    if words.told is None:
        return None
    return SavedSummary(
        words.prose,
        words.told.start_seq,
        words.told.stop_seq,
        words.writer,
        request.instructions,
        int(now_seconds),
    )


def _name(result: CompactResult, entries: Sequence[ContextEntry]) -> str:
    """The hash of the list that goes out."""
    if entries:
        return chain_hashes([entry.content for entry in entries])[-1]
    return history_hash(result.messages)


def _rejection(result: CompactResult, session: Session) -> Rejection | None:
    """The record of the list that was rejected, and of `result` instead of it."""
    if not session.rejections.key:
        return None
    gives = history_hash(result.messages) if result.changed else None
    return Rejection(session.rejections.key, gives, result.tokens.after)


def context_entries(
    messages: Messages, raws: Sequence[Sequence[JsonObject]], seqs: Sequence[int]
) -> list[ContextEntry]:
    """The result as the archive keeps it: by number if untouched, else in its own words."""
    entries: list[ContextEntry] = []
    for message, rendered in zip(messages, raws, strict=True):
        seq = seqs[message.index] if message.index is not None else -1
        untouched = message.source is not None and not message.edited and seq >= 0
        span = placeholders.left_by(message) if message.index is None or seq == -1 else None
        head = span.head if span is not None else ""
        entries.extend(
            ContextEntry(seq if untouched else -1, raw, seq, head, content_hash(raw))
            for raw in rendered
        )
    return entries


def _dated(validation: Validation, context: CompactionContext) -> list[Blob]:
    """The result's blobs, each with the archived message that held it."""
    seqs = {
        pointer: context.seqs[edit.index]
        for edit in validation.edited.edits
        if edit.index is not None
        for pointer in edit.pointers
    }
    return [replace(blob, seq=seqs.get(blob.output_id)) for blob in validation.edited.blobs]


def _model_call(words: SummaryText) -> ModelCall | None:
    report = words.model or {}
    if not report.get("requested"):
        return None
    return ModelCall(float(report.get("at_seconds", 0)), failed=bool(report.get("failure")))
