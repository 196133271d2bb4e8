"""Plan a call that summarizes only the messages which the caller names, and keeps all others."""

from dataclasses import replace

from context_compaction.context import CompactionContext, EditedMessages, Plan
from context_compaction.layers.cut_point import CutPoint
from context_compaction.messages import placeholders
from context_compaction.messages.tool_pairs import safe_cuts
from context_compaction.pipeline.assemble import plan_of_cut
from context_compaction.pipeline.clear import gentle_level
from context_compaction.request import DETAIL_SHARES

# A caller's own text may be long, but must be shorter than the messages.
_CALLER_SHARE = 0.9


def plan_of_range(context: CompactionContext) -> Plan:
    """Return the plan that replaces the chosen messages by a summary.

    The range grows to the results of its calls. It shrinks if the list has no such result yet.
    """
    request, messages = context.request, context.messages
    level = gentle_level(context)
    unchanged = Plan(EditedMessages(messages), level)
    first, last = request.range or (0, -1)
    inside = [
        at for at, m in enumerate(messages) if m.index is not None and first <= m.index <= last
    ]
    if not inside:
        return unchanged
    safe = [at for at, is_safe in enumerate(safe_cuts(messages, context.rules)) if is_safe]
    start = max(at for at in safe if at <= inside[0])
    stop = next((at for at in safe if at > inside[-1]), safe[-1])
    requests = [at for at in range(start, stop) if placeholders.is_request(messages[at])]
    is_newest = not any(map(placeholders.is_request, messages[stop:]))
    cut = CutPoint(stop, requests[-1] if requests and is_newest else None, history_start=start)
    plan = plan_of_cut(context, unchanged.edited, level, cut)
    history_tokens, prefix_tokens = map(context.count.total, (plan.history, plan.prefix))
    tokens = history_tokens + prefix_tokens
    if not tokens:
        return unchanged
    share = DETAIL_SHARES[request.detail or "normal"]
    if request.summary is not None and request.detail is None:
        share = _CALLER_SHARE
    text_tokens = request.target_tokens or int(tokens * share)
    checkpoint_tokens = text_tokens * prefix_tokens // tokens
    return replace(
        plan, summary_tokens=text_tokens - checkpoint_tokens, checkpoint_tokens=checkpoint_tokens
    )


def range_warnings(context: CompactionContext, plan: Plan) -> tuple[str, ...]:
    """Return a warning if other messages than the caller's were summarized."""
    asked = context.session.given.request.range
    if asked is None:
        return ()
    done = replaced_range(context, plan)
    if done == asked:
        return ()
    names = f"messages {asked[0]} to {asked[1]}"
    if done is None:
        return (
            f"Nothing of {names} was summarized: an earlier compaction has replaced them, or their "
            "calls have no results yet.",
        )
    return (
        f"Messages {done[0]} to {done[1]} were summarized instead of {names}, so that calls stay "
        "with their results, and the newest request and earlier summaries stay.",
    )


def replaced_range(context: CompactionContext, plan: Plan) -> tuple[int, int] | None:
    """Return the first and last index, in the caller's list, of the summarized messages."""
    indices = (context.session.input_index(message.index) for message in plan.replaced)
    known = [index for index in indices if index is not None]
    return (min(known), max(known)) if plan.cut is not None and known else None
