"""Save the outcome of a call: outputs, the new context, the receipt and the state.

With `prepare`, the outcome for the settled messages of a list is stored in the session's state. It
replaces nothing yet, so a slow writer delays no call. Anthropic's documentation calls this
background compaction.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Required, TypedDict

from context_compaction import compaction_state
from context_compaction.archive.archive import Archive
from context_compaction.archive.values import ContextEntry
from context_compaction.context import Finished, Session, SummaryText
from context_compaction.messages import placeholders
from context_compaction.messages.model import Blob, JsonObject, Messages
from context_compaction.messages.pins import pin_blobs
from context_compaction.messages.raw import (
    chain_hashes,
    content_hash,
    history_hash,
    without_cache_markers,
)
from context_compaction.messages.speakers import receipt_hashes_in
from context_compaction.result import CompactResult, Prepared

# Parts of a receipt that are archived if the call compacted nothing.
_SHORT_RECEIPT = ("session_id", "format", "status", "tokens")


class Commit(TypedDict, total=False):
    """The arguments of `Archive.commit`; see there.

    Attributes:
        receipt: The receipt with the state.
        head: Hash of the caller's list.
        blobs: New outputs.
        context: The messages of the new context.
        listed: Hash of the list that the call continued from, if that is another one.
    """

    receipt: Required[JsonObject]
    head: Required[str]
    blobs: Sequence[Blob]
    context: Sequence[ContextEntry]
    listed: str


async def save(archive: Archive, session_id: str, commit: Commit | None) -> None:
    """Make the outputs of the result durable; the new context replaces the list from now on."""
    if commit is not None:
        await archive.commit(session_id, **commit)


def make_commit(
    done: Finished,
    result: CompactResult,
    rendered: Sequence[Sequence[JsonObject]],
    prepared: compaction_state.PreparedList | None,
) -> Commit | None:
    """Return the commit of a call; None, in most calls, if only messages are saved.

    Args:
        done: The call.
        result: The outcome.
        rendered: For each message to return its JSON objects.
        prepared: The prepared list, to be applied later.
    """
    context, session, words = done.context, done.context.session, done.words
    is_reported = result.changed or prepared is not None or bool(session.rejections.key)
    has_baseline = done.plan.files.has_baseline
    if not (is_reported or words.model is not None or words.covered_span or has_baseline):
        return None
    receipt = result.receipt
    entries = _context_entries(done.messages, rendered, session.seqs) if result.changed else []
    state = compaction_state.CompactionState(memory=_summary(done), model=_model_call(words))
    if prepared is not None:
        state = replace(state, own_hashes=receipt_hashes_in(done.messages))
    elif is_reported or words.model is not None:
        request = session.given.request
        # Another try without progress costs little and repeats the reasons. A model is not asked
        # twice for the same list.
        is_final = result.status != "no_progress" or words.model is not None
        state = replace(
            state,
            stop_seq=max(session.seqs, default=-1),
            files=tuple(done.plan.files.states.values()),
            rejection=rejection_of(result, session) if session.rejections.key else None,
            own_hashes=receipt_hashes_in(done.messages),
            repeat_key=compaction_state.repeat_key(_hash_of(result, entries), request)
            if is_final
            else "",
            # A repair of a list that was undone is no compaction.
            mode="undo" if session.is_undone and result.status == "repaired" else request.mode,
        )
    else:
        # A summary for later and a baseline of files are no compaction.
        if has_baseline:
            files = tuple(done.plan.files.states.values())
            state = replace(state, stop_seq=max(session.seqs, default=-1), files=files)
        receipt = {name: receipt[name] for name in _SHORT_RECEIPT}
    receipt = context.gates.json(compaction_state.with_state(receipt, state))
    if prepared is not None:
        receipt = compaction_state.with_prepared(receipt, prepared)
    elif not result.changed:
        return Commit(receipt=receipt, head=session.history)
    is_other_list = result.changed and session.recognised is not None
    return Commit(
        receipt=receipt,
        head=session.history,
        blobs=(*_dated_blobs(done), *pin_blobs(context.pins.candidates)),
        context=entries,
        listed=history_hash(session.payload) if is_other_list else "",
    )


def _summary(done: Finished) -> compaction_state.SavedSummary | None:
    """Return the summary to save for later compactions; None if none was written."""
    words, span = done.words, done.words.covered_span
    if span is None:
        return None
    instructions, at_seconds = done.context.request.instructions, int(done.now_seconds)
    return compaction_state.SavedSummary(
        words.prose, span.start_seq, span.stop_seq, words.writer, instructions, at_seconds
    )


def _hash_of(result: CompactResult, entries: Sequence[ContextEntry]) -> str:
    """Return the hash of the returned list."""
    if entries:
        return chain_hashes([entry.content for entry in entries])[-1]
    return history_hash(result.messages)


def rejection_of(result: CompactResult, session: Session) -> compaction_state.Rejection:
    """Return the record of the rejected list and of the result instead of it."""
    is_smaller = result.changed and result.status != "no_progress"
    result_hash = history_hash(result.messages) if is_smaller else None
    return compaction_state.Rejection(session.rejections.key, result_hash, result.tokens.after)


def _context_entries(
    messages: Messages, rendered: Sequence[Sequence[JsonObject]], seqs: Sequence[int]
) -> list[ContextEntry]:
    """Return the result as archived: unchanged messages by number, all others in full."""
    entries: list[ContextEntry] = []
    for message, raws in zip(messages, rendered, strict=True):
        seq = seqs[message.index] if message.index is not None else -1
        unchanged = message.source is not None and not message.edited and seq >= 0
        span = placeholders.removed_span(message) if message.index is None or seq == -1 else None
        head = span.head if span is not None else ""
        entries.extend(
            ContextEntry(seq if unchanged else -1, raw, seq, head, content_hash(raw))
            for raw in raws
        )
    return entries


def _dated_blobs(done: Finished) -> list[Blob]:
    """Return the result's outputs, each with the number of the message that contained it."""
    edited = done.validation.edited
    seqs = {
        pointer: done.context.session.seqs[edit.index]
        for edit in edited.edits
        if edit.index is not None
        for pointer in edit.pointers
    }
    return [replace(blob, seq=seqs.get(blob.output_id)) for blob in edited.blobs]


def _model_call(words: SummaryText) -> compaction_state.ModelCall | None:
    report = words.model or {}
    if not report.get("requested"):
        return None
    return compaction_state.ModelCall(
        float(report.get("at_seconds", 0)), failed=bool(report.get("failure"))
    )


def prepared_result(
    done: Finished, result: CompactResult, rendered: Sequence[Sequence[JsonObject]]
) -> tuple[CompactResult, compaction_state.PreparedList | None]:
    """Return `result` with the caller's own list, and the list to store; None if nothing changed.

    Args:
        done: The call, with the settled messages.
        result: The outcome for those messages.
        rendered: For each message to return its JSON objects.
    """
    session, start = done.context.session, done.context.start
    given, receipt = session.given.payload, result.receipt
    if not result.changed:
        warning = "Nothing was prepared, because nothing has to be done. Use mode='full'."
        warnings = (*result.warnings, warning) if result.status == "unchanged" else result.warnings
        return replace(result, messages=list(given), warnings=warnings), None
    count, prefix_hash = len(session.payload), history_hash(session.payload)
    entries = _entries(done.messages, rendered)
    # Repairs are made again when the list is applied, so the stored report omits them.
    prepared = compaction_state.PreparedList(
        f"p_{content_hash([result.session_id, prefix_hash, entries])[:24]}",
        count,
        prefix_hash,
        int(done.now_seconds) + compaction_state.LIFETIME_SECONDS,
        messages=entries,
        report={
            "edits": receipt["edits"][len(start.edits) :],
            "layers": receipt["layers"][len(start.layers) :],
            "boundary": receipt["boundary"],
            "writer": receipt["writer"],
            "digest": receipt.get("digest"),
        },
    )
    recognised = session.recognised
    if recognised is not None:
        count = recognised.message_count + max(0, count - recognised.context_count)
        prefix_hash = history_hash(given[:count])
    reply = Prepared(prepared.prepared_id, count, prefix_hash, prepared.expires_seconds)
    result = replace(result, prepared=reply, receipt={**receipt, "prepared": asdict(reply)})
    return result.with_given_list("prepared", given), prepared


def _entries(messages: Messages, rendered: Sequence[Sequence[JsonObject]]) -> list[Any]:
    """Return the index of each unchanged message, and all other messages in full."""
    entries: list[Any] = []
    for message, raws in zip(messages, rendered, strict=True):
        if message.index is not None and message.source is not None and not message.edited:
            entries.append(message.index)
        else:
            # The host will have moved its cache markers when the list is applied.
            entries += [{"index": message.index, "raw": without_cache_markers(raw)} for raw in raws]
    return entries
