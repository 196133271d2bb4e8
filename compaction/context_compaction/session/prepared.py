"""A compaction that is prepared while the host goes on, and applied later. Pure.

Preparing compacts the first N messages, and the outcome goes into the archive as a receipt: nothing
is replaced yet, so a slow writer holds nobody up. Applying takes the list as it has become since.
Where its first N messages are still those, exactly they are replaced, and what follows stands as it
is (but for thinking that was bound to them). Anthropic's documentation calls it background
compaction.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from context_compaction import formats
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
    Validation,
)
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.attribution import Ours, attributed
from context_compaction.messages.cache_control import without_cache_markers
from context_compaction.messages.edits import Edit
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Message, Messages, Thinking
from context_compaction.messages.placeholders import summary_of
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.tool_pairs import index_calls, runs, safe_cuts
from context_compaction.request import CompactRequest, Mode
from context_compaction.result import Boundary, CompactResult, LayerReport, Prepared
from context_compaction.session.recognised import Start
from context_compaction.session.state import state_of

# A host applies it within minutes; after a day the files that it puts back are old.
LIFETIME_SECONDS = 86_400
_MODES: tuple[Mode, ...] = ("auto", "micro", "full")


def check(request: CompactRequest) -> None:
    """Refuse wishes that contradict each other.

    Raises:
        SettingsError: The mode cannot be prepared, or what was prepared is to be compacted anew.
    """
    if request.prepare and request.apply is not None:
        raise SettingsError(
            "prepare and apply were given together. Prepare first, and apply in a later call."
        )
    if request.snip_messages and (request.prepare or request.apply is not None):
        raise SettingsError(
            "snip_messages was given with prepare or apply, which keep the list as it is. Leave it "
            "out, or snip in a call of its own."
        )
    if request.prepare and request.mode not in _MODES:
        known = ", ".join(_MODES)
        raise SettingsError(
            f"prepare was given with mode {request.mode!r}, which has no outcome to keep. Use one "
            f"of: {known}."
        )
    if request.apply is not None and request.mode != "auto":
        raise SettingsError(
            f"apply was given with mode {request.mode!r}. Leave the mode out: what is applied was "
            "decided when it was prepared."
        )


def settled_message_count(messages: Messages, rules: ProviderRules) -> int:
    """How many leading messages can be replaced while the rest is still being written.

    The newest turn of the assistant is not settled, nor what stands after it, while one of its
    calls has no answer, or while it ends with reasoning that belongs to what comes next.
    """
    stop = len(messages)
    newest = max((start for start, _ in runs(messages, rules)), default=stop)
    index = index_calls(messages)
    is_open = any(at >= newest and key not in index.result_at for key, at in index.call_at.items())
    if is_open or (messages and _ends_thinking(messages[-1])):
        stop = newest
    safe = safe_cuts(messages, rules)
    return max(at for at in range(stop + 1) if safe[at])


def settled_request(request: CompactRequest, count: int, format: str) -> CompactRequest:
    """`request` for the first `count` messages: a usage report for a later one says nothing."""
    request = replace(request, format=format)
    if (request.usage_message_index or 0) < count:
        return request
    return replace(request, usage=None, usage_message_index=None)


def prepared_result(
    result: CompactResult,
    given: Sequence[JsonObject],
    start: Start,
    repair_count: int,
    validation: Validation,
    rendered: Sequence[Sequence[JsonObject]],
    now_seconds: float,
) -> CompactResult:
    """What the caller gets instead of `result`: its own list, and the name of what is prepared.

    Args:
        result: The outcome for the settled messages.
        given: The whole list that came in.
        start: What was compacted: the first messages, which nothing will change.
        repair_count: How many edits repaired those.
        validation: The draft that the outcome was made from.
        rendered: Its messages in the provider's form.
        now_seconds: The time.
    """
    if not result.changed:
        why = "Nothing is prepared: nothing had to be done. Use mode='full', or a target_tokens."
        warnings = (*result.warnings, why) if result.status == "unchanged" else result.warnings
        return replace(result, messages=list(given), warnings=warnings)
    prefix = history_hash(start.payload)
    entries = _entries(validation.edited.messages, rendered)
    name = _hash([result.session_id, prefix, entries])
    kept_as = Prepared(f"p_{name}", len(start.payload), prefix, int(now_seconds) + LIFETIME_SECONDS)
    prepared = kept_as
    if start.recognised is not None:
        earlier = start.recognised
        since = max(0, len(start.payload) - earlier.context_count)
        count = earlier.message_count + since
        prepared = replace(kept_as, message_count=count, prefix_hash=history_hash(given[:count]))
    kept = {
        **asdict(kept_as),
        "messages": entries,
        # A repair is made again when it is applied, so its edits are not told twice.
        "repair_edits": repair_count,
    }
    return replace(
        result,
        status="prepared",
        messages=list(given),
        changed=False,
        prepared=prepared,
        receipt={**result.receipt, "status": "prepared", "prepared": kept},
    )


def is_prepared_for(
    receipts: Sequence[JsonObject], prepared_id: str, payload: Sequence[JsonObject]
) -> bool:
    """Whether `payload` begins with what something under `prepared_id` was prepared for."""
    kept = (receipt["prepared"] for receipt in receipts if _id_of(receipt) == prepared_id)
    return any(_begins(payload, item) for item in kept)


def find(
    receipts: Sequence[JsonObject],
    prepared_id: str,
    payload: Sequence[JsonObject],
    session_id: str,
    now_seconds: float,
) -> JsonObject:
    """The receipt of what was prepared under `prepared_id`, if it belongs to `payload`.

    Raises:
        NotFoundError: The session holds no such thing.
        SettingsError: It has expired, or `payload` does not begin with what it was prepared for.
    """
    receipt = next((r for r in reversed(receipts) if _id_of(r) == prepared_id), None)
    if receipt is None:
        raise NotFoundError(
            f"Session {session_id} holds nothing prepared under {prepared_id!r}. Give the "
            "prepared_id as it was answered, with the session_id that it was prepared for, or "
            "prepare anew."
        )
    kept = receipt["prepared"]
    if now_seconds > kept["expires_seconds"]:
        raise SettingsError(
            f"What was prepared under {prepared_id} has expired: it holds for "
            f"{LIFETIME_SECONDS // 3_600} hours. Prepare anew."
        )
    if not _begins(payload, kept):
        count = kept["message_count"]
        found = f"the list has {len(payload)}" if len(payload) < count else "they differ now"
        raise SettingsError(
            f"{prepared_id} was prepared for {count} messages that the list must begin with, but "
            f"{found}. Apply it to a list that only grew since, or prepare anew."
        )
    return receipt


def applied_plan(context: CompactionContext, receipt: JsonObject) -> Plan:
    """The messages of `context` with those that `receipt` was prepared for replaced."""
    kept = receipt["prepared"]
    present = {m.index: m for m in context.messages if m.index is not None}
    raws = [entry["raw"] for entry in kept["messages"] if not isinstance(entry, int)]
    made = iter(attributed(formats.parse(raws, format=context.format), _ours_by(receipt)))
    first: list[Message] = []
    for entry in kept["messages"]:
        if isinstance(entry, int):
            first += [present[entry]] if entry in present else []
        else:
            index = entry["index"]
            first.append(replace(next(made), index=index, edited=index is not None))
    later_at = next(
        (at for at, m in enumerate(context.messages) if (m.index or 0) >= kept["message_count"]),
        len(context.messages),
    )
    is_repaired = bool(kept["repair_edits"])
    layers = [LayerReport(**layer) for layer in receipt["layers"]][int(is_repaired) :]
    edits = receipt["edits"][kept["repair_edits"] :]
    edited = EditedMessages(
        (*first, *context.messages[later_at:]),
        tuple(map(_edit, edits)),
        layers=tuple(layers),
    )
    return Plan(edited, EffortLevel(context.settings, 0.0))


def applied_result(
    result: CompactResult, validation: Validation, receipt: JsonObject
) -> CompactResult:
    """`result` of the swap, with what was known of it since it was prepared."""
    if result.status != "compacted":
        return result
    prepared_id = receipt["prepared"]["prepared_id"]
    warnings = result.warnings
    if not result.fits:
        said = (
            "What came since leaves the list above its target. Compact it once more without apply."
        )
        warnings = (*(w for w in warnings if w not in validation.warnings), said)
    boundary = receipt["boundary"]
    told = {name: receipt.get(name) for name in ("boundary", "writer", "digest")}
    return replace(
        result,
        boundary=Boundary(**boundary) if boundary else None,
        summary=summary_of(validation.edited.messages) if boundary else None,
        irreducible=(),
        warnings=warnings,
        receipt={
            **result.receipt,
            **told,
            "irreducible": [],
            "warnings": list(warnings),
            "applied": prepared_id,
        },
    )


def _begins(payload: Sequence[JsonObject], kept: JsonObject) -> bool:
    prefix: str = kept["prefix_hash"]
    return history_hash(payload[: kept["message_count"]]) == prefix


def _ends_thinking(message: Message) -> bool:
    return bool(message.blocks) and isinstance(message.blocks[-1], Thinking)


def _id_of(receipt: JsonObject) -> str | None:
    return receipt["prepared"]["prepared_id"] if "prepared" in receipt else None


def _ours_by(receipt: JsonObject) -> Ours:
    """What one receipt vouches for."""
    pointers = (pointer for edit in receipt["edits"] for pointer in edit["pointers"])
    return Ours(frozenset(state_of(receipt).made), frozenset(pointers))


def _edit(told: JsonObject) -> Edit:
    return replace(Edit(**told), pointers=tuple(told["pointers"]))


def _entries(messages: Messages, rendered: Sequence[Sequence[JsonObject]]) -> list[Any]:
    """The result: positions of messages that stay, and in full those that do not."""
    entries: list[Any] = []
    for message, raws in zip(messages, rendered, strict=True):
        if message.index is not None and message.source is not None and not message.edited:
            entries.append(message.index)
        else:
            # Without the host's cache markers, which will stand elsewhere by then.
            entries += [{"index": message.index, "raw": without_cache_markers(raw)} for raw in raws]
    return entries


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode("ascii"), digest_size=12).hexdigest()
