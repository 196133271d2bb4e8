"""The parts of a call that are kept beside its messages: outputs, context, receipt, state. Pure.

The state is what later calls read; the receipt is a report.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from context_compaction.activity.read_state import refreshed
from context_compaction.archive import ContextEntry, Store
from context_compaction.context import (
    CompactionContext,
    ReceivedInput,
    SummaryText,
    Validation,
)
from context_compaction.errors import ArchiveError
from context_compaction.messages import placeholders
from context_compaction.messages.attribution import made_in
from context_compaction.messages.edits import Blob
from context_compaction.messages.history_hash import (
    HEAD_CHARS,
    chain_hashes,
    content_hash,
    history_hash,
)
from context_compaction.messages.model import JsonObject, Messages, text_of
from context_compaction.messages.pins import pin_blobs
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from context_compaction.session.current_context import RECENT_LISTS
from context_compaction.session.earlier_calls import Decision, EarlierCalls
from context_compaction.session.load import Session
from context_compaction.session.rejections import rejection_of
from context_compaction.session.saved_summary import summary_to_save
from context_compaction.session.state import (
    CarriedOriginals,
    Filling,
    ModelCall,
    PreparedList,
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
# For each summary in a result where its originals stand made short, and what is new of that.
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
        commit: What the archive keeps in one step; None where only the messages are kept.
        counts: Token counts that the archive lacks, by fingerprint.
        messages: The list that the session continues from ...
        size_bytes: ... and its size.
    """

    commit: Commit | None = None
    counts: Mapping[bytes, Any] = field(default_factory=dict[bytes, Any])
    messages: Sequence[JsonObject] = ()
    size_bytes: int = 0


async def save(archive: Store, session_id: str, given: ReceivedInput, made: ToSave | None) -> None:
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
    """The counts of the list that the archive lacks; empty where they are soon made again."""
    keys, count = session.start.fingerprints, context.count
    missing = [(keys[at], context.parsed[at]) for at in context.uncounted if keys[at]]
    if sum(count.message(message) for _, message in missing) < KEPT_FROM_TOKENS:
        return {}
    return {key: count.count_of(message) for key, message in missing}


def placed(result: CompactResult, session: Session) -> CompactResult:
    """`result` with its place in the receipt: the branch, and the session that started its own."""
    if not result.changed and result.prepared is None:
        return result
    head = session.start.history[:HEAD_CHARS]
    parent = session.stored.appended.parent_session_id
    return replace(result, receipt={**result.receipt, "head": head, "parent_session_id": parent})


def commit_of(
    result: CompactResult,
    context: CompactionContext,
    session: Session,
    decision: Decision,
    words: SummaryText,
    validation: Validation,
    rendered: Sequence[Sequence[JsonObject]],
    prepared: PreparedList | None,
    carried: CarriedOn,
    *,
    wishes: CompactRequest,
    now_seconds: float,
) -> Commit | None:
    """The commit for `result`; mostly None, where only the messages are kept.

    Args:
        result: The outcome.
        context: The call.
        session: The session before the call.
        decision: The decision.
        words: The summary's text.
        validation: The messages that go out ...
        rendered: ... in the provider's form.
        prepared: The prepared list, to be applied later.
        carried: The outputs with the shortened originals of its summaries, and the new ones.
        wishes: The request as it came in.
        now_seconds: The time.
    """
    is_told = result.changed or prepared is not None or bool(session.rejections.key)
    if not (is_told or words.model is not None or words.told):
        return None
    start, messages, model = session.start, validation.edited.messages, _model_call(words)
    entries = context_entries(messages, rendered, context.seqs) if result.changed else []
    memory = summary_to_save(words, wishes, now_seconds)
    if prepared is not None:
        # The context stays as it is until this is applied; what was written serves before.
        made = made_in(messages)
        state = SessionState(memory=memory, model=model, made=made, carried=tuple(carried[0]))
    elif is_told or model is not None:
        earlier_calls = decision.earlier_calls
        state = _whole_state(result, context, earlier_calls, messages, entries, wishes)
        # To find nothing again costs little, and says again why; a model is not asked twice.
        is_final = result.status != "no_progress" or model is not None
        state = replace(
            state,
            rejection=rejection_of(result, session.rejections),
            memory=memory,
            model=model,
            carried=tuple(carried[0]),
            repeat_key=state.repeat_key if is_final else "",
        )
    else:
        # A summary for later; it is no compaction, so nothing else of this call is remembered.
        state = SessionState(memory=memory)
    receipt = context.gates.json(with_state(result.receipt, state))
    pinned = pin_blobs(context.pins.candidates)
    blobs = (*_dated(validation, context), *pinned, *carried[1])
    if prepared is not None:
        return Commit(with_prepared(receipt, prepared), start.history, blobs)
    if result.changed:
        listed = history_hash(start.payload) if start.recognised is not None else ""
        return Commit(receipt, start.history, blobs, entries, listed)
    if not is_told and words.model is None:
        names = ("session_id", "format", "status", "tokens", "state")
        receipt = {name: receipt[name] for name in names}
    # What a model took is told even where nothing came of it, and the same list is not sent to it
    # again; a refusal is a fact whatever came of it.
    return Commit(receipt, start.history)


def _whole_state(
    result: CompactResult,
    context: CompactionContext,
    earlier_calls: EarlierCalls,
    messages: Messages,
    entries: Sequence[ContextEntry],
    wishes: CompactRequest,
) -> SessionState:
    """The state after `result`."""
    put_back = "\n".join(text_of(m.blocks) for m in messages if placeholders.is_synthetic(m))
    shown = [
        path
        for path, file in earlier_calls.on_disk.items()
        if f"\n{placeholders.restored_text(path, file.text)}" in put_back
    ]
    free_tokens = result.tokens.trigger - result.tokens.after
    contents = [entry.content for entry in entries]
    history = chain_hashes(contents)[-1] if contents else history_hash(result.messages)
    return SessionState(
        stop_seq=stop_seq_of(context.seqs),
        files=refreshed(earlier_calls.states, shown, earlier_calls.on_disk),
        filling=Filling(earlier_calls.refill.streak, free_tokens) if earlier_calls.refill else None,
        made=made_in(messages),
        repeat_key=repeat_key(history, wishes),
        mode=wishes.mode,
    )


def context_entries(
    messages: Messages, raws: Sequence[Sequence[JsonObject]], seqs: Sequence[int]
) -> list[ContextEntry]:
    """The result as the archive keeps it: by number where untouched, else in its own words."""
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
