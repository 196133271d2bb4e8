"""What a call leaves to its session beside the messages: outputs, context, receipt and state.

Later calls read the state; the receipt is a report.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from context_compaction import formats
from context_compaction.archive import Archive, ContextEntry
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    ReceivedInput,
    SummaryText,
    Validation,
)
from context_compaction.messages import placeholders
from context_compaction.messages.cache_control import without_cache_markers
from context_compaction.messages.edits import Blob, Edit
from context_compaction.messages.history_hash import chain_hashes, content_hash, history_hash
from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.messages.pins import pin_blobs
from context_compaction.messages.speakers import ProvenTexts, receipt_hashes_in, with_authors
from context_compaction.result import CompactResult, LayerReport, Prepared
from context_compaction.session.earlier_calls import Decision
from context_compaction.session.resume import LIFETIME_SECONDS, Session
from context_compaction.session.state import (
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

# For each summary in a result, by its pointer, the output with its shortened originals; and those
# that are new.
CarriedOn: TypeAlias = tuple[Mapping[str, str], Sequence[Blob]]


@dataclass(frozen=True, slots=True)
class Finished:
    """A call whose messages are final.

    Attributes:
        given: The list that came in.
        session: Its session before the call.
        context: The call.
        decision: The decision, its plan with the room that the text left filled.
        words: The text of the summary.
        validation: The messages that go out.
        now_seconds: The time.
    """

    given: ReceivedInput
    session: Session
    context: CompactionContext
    decision: Decision
    words: SummaryText
    validation: Validation
    now_seconds: float

    @property
    def messages(self) -> Messages:
        """The messages that go out."""
        return self.validation.edited.messages


@dataclass(frozen=True, slots=True)
class ToSave:
    """What one call leaves to its session.

    Attributes:
        receipt: The receipt with the state; None if only the messages are kept ...
        head: ... and what else `Archive.commit` takes.
    """

    receipt: JsonObject | None = None
    head: str = ""
    blobs: Sequence[Blob] = ()
    context: Sequence[ContextEntry] = ()
    listed: str = ""


async def save(archive: Archive, session_id: str, made: ToSave | None) -> None:
    """Make durable what a result rests on; its context replaces the list from now on."""
    if made is not None and made.receipt is not None:
        await archive.commit(
            session_id,
            blobs=made.blobs,
            receipt=made.receipt,
            context=made.context,
            head=made.head,
            listed=made.listed,
        )


def to_save(
    done: Finished,
    result: CompactResult,
    rendered: Sequence[Sequence[JsonObject]],
    prepared: PreparedList | None,
    carried: CarriedOn,
) -> ToSave:
    """What the call leaves; mostly no receipt, and only the messages are kept.

    Args:
        done: The call.
        result: The outcome.
        rendered: The messages that go out, in the provider's form.
        prepared: The prepared list, to be applied later.
        carried: The outputs with the shortened originals of its summaries, and the new ones.
    """
    context, session, words = done.context, done.session, done.words
    saved = ToSave(head=session.history)
    is_reported = result.changed or prepared is not None or bool(session.rejections.key)
    has_baseline = done.decision.files.has_baseline
    if not (is_reported or words.model is not None or words.told or has_baseline):
        return saved
    receipt = result.receipt
    entries = context_entries(done.messages, rendered, context.seqs) if result.changed else []
    # Every call of a model is recorded, and what it or the host wrote is used until it is applied.
    state = SessionState(memory=_summary(done), model=_model_call(words), carried=carried[0])
    if prepared is not None:
        state = replace(state, made=receipt_hashes_in(done.messages))
    elif is_reported or words.model is not None:
        wishes = done.given.request
        # To find nothing again costs little, and says again why; a model is not asked twice.
        is_final = result.status != "no_progress" or words.model is not None
        state = replace(
            state,
            stop_seq=stop_seq_of(context.seqs),
            files=tuple(done.decision.files.states.values()),
            rejection=_rejection(result, session),
            made=receipt_hashes_in(done.messages),
            repeat_key=repeat_key(_name(result, entries), wishes) if is_final else "",
            mode=wishes.mode,
        )
    else:  # a summary for later is no compaction, nor is the state of files
        if has_baseline:
            files = tuple(done.decision.files.states.values())
            state = replace(state, stop_seq=stop_seq_of(context.seqs), files=files)
        receipt = {name: receipt[name] for name in ("session_id", "format", "status", "tokens")}
    receipt = context.gates.json(with_state(receipt, state))
    if prepared is not None:
        receipt = with_prepared(receipt, prepared)
    elif not result.changed:
        return replace(saved, receipt=receipt)
    is_behind = result.changed and session.recognised is not None
    return replace(
        saved,
        receipt=receipt,
        blobs=(*_dated(done), *pin_blobs(context.pins.candidates), *carried[1]),
        context=entries,
        listed=history_hash(session.payload) if is_behind else "",
    )


def _summary(done: Finished) -> SavedSummary | None:
    """The summary to save for later compactions; None where none was written."""
    words, told = done.words, done.words.told
    if told is None:
        return None
    instructions, at_seconds = done.given.request.instructions, int(done.now_seconds)
    return SavedSummary(
        words.prose, told.start_seq, told.stop_seq, words.writer, instructions, at_seconds
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
        span = placeholders.removed_span(message) if message.index is None or seq == -1 else None
        head = span.head if span is not None else ""
        entries.extend(
            ContextEntry(seq if untouched else -1, raw, seq, head, content_hash(raw))
            for raw in rendered
        )
    return entries


def _dated(done: Finished) -> list[Blob]:
    """The result's blobs, each with the archived message that held it."""
    edited = done.validation.edited
    seqs = {
        pointer: done.context.seqs[edit.index]
        for edit in edited.edits
        if edit.index is not None
        for pointer in edit.pointers
    }
    return [replace(blob, seq=seqs.get(blob.output_id)) for blob in edited.blobs]


def _model_call(words: SummaryText) -> ModelCall | None:
    report = words.model or {}
    if not report.get("requested"):
        return None
    return ModelCall(float(report.get("at_seconds", 0)), failed=bool(report.get("failure")))


def prepared_result(
    done: Finished, result: CompactResult, rendered: Sequence[Sequence[JsonObject]]
) -> tuple[CompactResult, PreparedList | None]:
    """`result` with the caller's own list instead; and the list that is kept to be applied.

    Args:
        done: The call, for the settled messages.
        result: Its outcome.
        rendered: The messages of that in the provider's form.
    """
    given, session = done.given.payload, done.session
    if not result.changed:
        why = "Nothing is prepared: nothing had to be done. Use mode='full', or a target_tokens."
        warnings = (*result.warnings, why) if result.status == "unchanged" else result.warnings
        return replace(result, messages=list(given), warnings=warnings), None
    count, prefix, receipt = len(session.payload), history_hash(session.payload), result.receipt
    entries = _entries(done.messages, rendered)
    # A repair is made again when it is applied, so it is not reported twice.
    repair_count = len(done.context.repairs)
    kept = PreparedList(
        f"p_{_hash([result.session_id, prefix, entries])}",
        count,
        prefix,
        int(done.now_seconds) + LIFETIME_SECONDS,
        messages=entries,
        report={
            "edits": receipt["edits"][repair_count:],
            "layers": receipt["layers"][1 if repair_count else 0 :],
            "boundary": receipt["boundary"],
            "writer": receipt["writer"],
            "digest": receipt.get("digest"),
        },
    )
    if session.recognised is not None:
        recognised = session.recognised
        count = recognised.message_count + max(0, count - recognised.context_count)
        prefix = history_hash(given[:count])
    prepared = Prepared(kept.prepared_id, count, prefix, kept.expires_seconds)
    receipt = {**receipt, "status": "prepared", "prepared": asdict(prepared)}
    result = replace(
        result,
        status="prepared",
        messages=list(given),
        changed=False,
        prepared=prepared,
        receipt=receipt,
    )
    return result, kept


def applied_plan(context: CompactionContext, kept: PreparedList, ours: ProvenTexts) -> Plan:
    """The messages of `context` with those that `kept` was prepared for replaced."""
    present = {m.index: m for m in context.messages if m.index is not None}
    raws = [entry["raw"] for entry in kept.messages if not isinstance(entry, int)]
    made = iter(with_authors(formats.parse(raws, format=context.format), ours))
    first: list[Message] = []
    for entry in kept.messages:
        if isinstance(entry, int):
            first += [present[entry]] if entry in present else []
        else:
            index = entry["index"]
            first.append(replace(next(made), index=index, edited=index is not None))
    later_at = next(
        (at for at, m in enumerate(context.messages) if (m.index or 0) >= kept.message_count),
        len(context.messages),
    )
    edited = EditedMessages(
        (*first, *context.messages[later_at:]),
        tuple(replace(Edit(**e), pointers=tuple(e["pointers"])) for e in kept.report["edits"]),
        layers=tuple(LayerReport(**layer) for layer in kept.report["layers"]),
    )
    return Plan(edited, EffortLevel(context.settings, 0.0))


def _entries(messages: Messages, rendered: Sequence[Sequence[JsonObject]]) -> list[Any]:
    """The result: positions of messages that stay, and the others in full."""
    entries: list[Any] = []
    for message, raws in zip(messages, rendered, strict=True):
        if message.index is not None and message.source is not None and not message.edited:
            entries.append(message.index)
        else:
            # Without the host's cache markers, which will be elsewhere by then.
            entries += [{"index": message.index, "raw": without_cache_markers(raw)} for raw in raws]
    return entries


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=12).hexdigest()
