"""A compaction that is prepared while the host continues, and applied later. Pure.

Preparing compacts the first N messages and keeps the outcome in the session's state: nothing is
replaced yet, so a slow writer delays no call. Applying takes the list as it has become since. If
its first N messages are still those, exactly they are replaced, and what follows stays unchanged
(except for thinking that was bound to them). Anthropic's documentation calls it background
compaction.
"""

from collections.abc import Sequence
from dataclasses import replace

from context_compaction import formats
from context_compaction.context import (
    CompactionContext,
    EditedMessages,
    EffortLevel,
    Plan,
)
from context_compaction.errors import NotFoundError, SettingsError
from context_compaction.messages.attribution import Ours, attributed
from context_compaction.messages.edits import Edit
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject, Message, Messages, Thinking
from context_compaction.messages.tool_pairs import (
    ProviderRules,
    index_calls,
    runs,
    safe_cuts,
    with_own_ids,
)
from context_compaction.request import CompactRequest
from context_compaction.result import LayerReport
from context_compaction.session.state import PreparedList, SessionState

# A host applies it within minutes; after a day the files that it restores are old.
LIFETIME_SECONDS = 86_400


def check(request: CompactRequest) -> None:
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
    messages = with_own_ids(messages)
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


def find(
    states: Sequence[SessionState],
    prepared_id: str,
    payload: Sequence[JsonObject],
    session_id: str,
    now_seconds: float,
) -> tuple[PreparedList, Ours]:
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
    return kept, Ours(frozenset(made), frozenset(pointers))


def applied_plan(context: CompactionContext, kept: PreparedList, ours: Ours) -> Plan:
    """The messages of `context` with those that `kept` was prepared for replaced."""
    present = {m.index: m for m in context.messages if m.index is not None}
    raws = [entry["raw"] for entry in kept.messages if not isinstance(entry, int)]
    made = iter(attributed(formats.parse(raws, format=context.format), ours))
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


def _begins(payload: Sequence[JsonObject], kept: PreparedList) -> bool:
    return history_hash(payload[: kept.message_count]) == kept.prefix_hash
