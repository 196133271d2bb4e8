"""Background compaction: prepare a compaction now, apply it in a later call.

Preparing compacts the settled messages of a list and stores the outcome in the session's state. It
replaces nothing yet, so a slow writer delays no call. Applying takes the list as it has become. If
it starts with the same messages, exactly those are replaced, and later messages stay unchanged
(except for thinking that was bound to replaced messages). Anthropic's documentation calls this
background compaction.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from context_compaction import formats
from context_compaction.compaction_state import CompactionState, PreparedList
from context_compaction.context import CompactionContext, EditedMessages, Plan
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.cache_control import without_cache_markers
from context_compaction.messages.edits import Edit
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Message, Messages, Thinking
from context_compaction.messages.speakers import ProvenTexts, with_authors
from context_compaction.messages.tool_pairs import (
    ProviderRules,
    index_calls,
    runs,
    safe_cuts,
    with_unique_call_ids,
)
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult, LayerReport, Prepared

# A host applies a prepared list within minutes. After a day its restored files are out of date.
LIFETIME_SECONDS = 86_400


def check_prepared(request: CompactRequest) -> None:
    """Refuse options that contradict `prepare` or `apply`.

    Raises:
        SettingsError: The options contradict each other.
    """
    applies = request.apply is not None
    if request.prepare and applies:
        problem = "prepare and apply were given together. Prepare first, and apply in a later call."
    elif request.snip_messages or request.range is not None:
        name = "snip_messages" if request.snip_messages else "range"
        problem = (
            f"{name} was given with prepare or apply, which keep the list as it is. Remove {name}, "
            "or snip in a separate call."
        )
    elif request.prepare and request.mode not in ("auto", "micro", "full"):
        problem = (
            f"prepare was given with mode {request.mode!r}, which has no outcome to store. Use one "
            "of: auto, micro, full."
        )
    elif applies and request.mode != "auto":
        problem = (
            f"apply was given with mode {request.mode!r}. Remove the mode: preparing has decided "
            "what is applied."
        )
    else:
        return
    raise SettingsError(problem)


def settled_message_count(messages: Messages, rules: ProviderRules) -> int:
    """Return how many leading messages can be replaced while the rest is still being written.

    The assistant's newest turn and later messages are not settled while one of its calls has no
    result, or while it ends with reasoning that belongs to the next message.
    """
    stop = len(messages)
    newest = max((start for start, _ in runs(messages, rules)), default=stop)
    messages = with_unique_call_ids(messages)
    calls = index_calls(messages)
    is_open = any(
        index >= newest and key not in calls.result_at for key, index in calls.call_at.items()
    )
    last = messages[-1].blocks[-1:] if messages else ()
    if is_open or (last and isinstance(last[0], Thinking)):
        stop = newest
    safe = safe_cuts(messages, rules)
    return max(index for index in range(stop + 1) if safe[index])


def is_prepared_for(
    states: Sequence[CompactionState], prepared_id: str, payload: Sequence[JsonObject]
) -> bool:
    """Whether `payload` starts with the messages that `prepared_id` was prepared for."""
    prepared_lists = (state.prepared for state in states if state.prepared is not None)
    return any(
        prepared.prepared_id == prepared_id and _starts_with(payload, prepared)
        for prepared in prepared_lists
    )


def find_prepared(
    states: Sequence[CompactionState],
    prepared_id: str,
    payload: Sequence[JsonObject],
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


def _starts_with(payload: Sequence[JsonObject], prepared: PreparedList) -> bool:
    return history_hash(payload[: prepared.message_count]) == prepared.prefix_hash


def applied_plan(context: CompactionContext, prepared: PreparedList, proven: ProvenTexts) -> Plan:
    """Return the plan that replaces the first messages of `context` by `prepared`."""
    present = {m.index: m for m in context.messages if m.index is not None}
    raws = [entry["raw"] for entry in prepared.messages if not isinstance(entry, int)]
    written = iter(with_authors(formats.parse(raws, format=context.format), proven))
    first: list[Message] = []
    for entry in prepared.messages:
        if isinstance(entry, int):
            first += [present[entry]] if entry in present else []
        else:
            index = entry["index"]
            first.append(replace(next(written), index=index, edited=index is not None))
    count, messages = prepared.message_count, context.messages
    later = (at for at, message in enumerate(messages) if (message.index or 0) >= count)
    report = prepared.report
    edited = EditedMessages(
        (*first, *messages[next(later, len(messages)) :]),
        tuple(replace(Edit(**edit), pointers=tuple(edit["pointers"])) for edit in report["edits"]),
        layers=tuple(LayerReport(**layer) for layer in report["layers"]),
    )
    return Plan(edited)


def prepared_result(
    context: CompactionContext,
    messages: Messages,
    result: CompactResult,
    rendered: Sequence[Sequence[JsonObject]],
    now_seconds: float,
) -> tuple[CompactResult, PreparedList | None]:
    """Return `result` with the caller's own list, and the list to store; None if nothing changed.

    Args:
        context: The call, with the settled messages.
        messages: The compacted messages.
        result: The outcome for those messages.
        rendered: For each of `messages` its JSON objects.
        now_seconds: The current Unix time.
    """
    session = context.session
    given, receipt = session.given.payload, result.receipt
    if not result.changed:
        warning = "Nothing was prepared, because nothing has to be done. Use mode='full'."
        warnings = (*result.warnings, warning) if result.status == "unchanged" else result.warnings
        return replace(result, messages=list(given), warnings=warnings), None
    count, prefix_hash = len(session.payload), history_hash(session.payload)
    entries = _entries(messages, rendered)
    # Repairs are made again when the list is applied, so the stored report omits them.
    prepared = PreparedList(
        f"p_{_hash([result.session_id, prefix_hash, entries])}",
        count,
        prefix_hash,
        int(now_seconds) + LIFETIME_SECONDS,
        messages=entries,
        report={
            "edits": receipt["edits"][len(context.start.edits) :],
            "layers": receipt["layers"][len(context.start.layers) :],
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
    result = replace(
        result,
        status="prepared",
        messages=list(given),
        changed=False,
        prepared=reply,
        receipt={**receipt, "status": "prepared", "prepared": asdict(reply)},
    )
    return result, prepared


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


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=12).hexdigest()
