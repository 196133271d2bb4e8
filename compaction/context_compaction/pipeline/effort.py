"""How hard to try: the effort levels from clearing alone to keeping next to nothing. Pure.

Each level starts from the same list, so that the result depends on the input alone. The first
whose result fits is taken; where none does, the last one, which is as small as it gets, and which a
second compaction therefore cannot make smaller.
"""

from dataclasses import replace

from context_compaction.activity.digest import Digest
from context_compaction.budget import TokenLimits
from context_compaction.context import EditedMessages, EffortLevel
from context_compaction.layers.base import Layer, LayerContext
from context_compaction.layers.cut_point import (
    FILLED_TURN_SHARE,
    TURN_BOUNDARY_SHARE,
    CutPoint,
    cut_all,
    cut_keeping,
    find_cut,
)
from context_compaction.layers.offload_media import offload_media
from context_compaction.layers.replace_blocks import Place, Replacement, replace_blocks
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step, make_blob
from context_compaction.messages.model import Message, Messages, Text
from context_compaction.messages.pins import restore_pinned
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.speakers import author_of
from context_compaction.policies import Policy
from context_compaction.settings import Settings
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.tokens.counter import MessageCounter

# So many levels leave unread results their whole share.
_GENTLE = 2
# A request that cannot stay in full may take this part of the target.
_REQUEST_FRACTION = 0.4
# For a text that its host hands over in the user's name.
_POSED_TOOL = "text in the user's name"
REQUEST_LAYER = "request"


def first_level(settings: Settings) -> EffortLevel:
    """The level that a policy applies by itself, before any harder one."""
    return EffortLevel(
        settings, settings.keep_recent_fraction, clears_all=settings.clear_every_turn
    )


def reactive_escalation(
    settings: Settings, limit_tokens: int, unread_tokens: int
) -> tuple[EffortLevel, ...]:
    """The levels after a refusal: the policy's own for it, then all but the gentlest."""
    gentle, *harder = escalation(settings, limit_tokens, unread_tokens)
    if not settings.reactive_keep_messages:
        return tuple(harder)
    return (replace(gentle, keep_messages=settings.reactive_keep_messages), *harder)


def escalation(
    settings: Settings, limit_tokens: int, unread_tokens: int
) -> tuple[EffortLevel, ...]:
    """The levels at which history is replaced, from gentle to hard.

    The gentle ones have `unread_tokens` for the newest results, the harder ones half of that,
    before the request and what binds have to be cut; only the last lets them go.
    """
    tight = replace(
        settings,
        keep_recent_results=1,
        keep_recent_result_tokens=0,
        keep_recent_turns=0,
        min_result_tokens=min(settings.min_result_tokens, max(50, limit_tokens // 100)),
        persist_result_tokens=min(settings.persist_result_tokens, max(100, limit_tokens // 4)),
        preview_chars=min(settings.preview_chars, max(200, limit_tokens // 4)),
    )
    tighter = replace(
        tight,
        summary_fraction=min(settings.summary_fraction, 0.125),
        restore_files=0,
    )
    last = replace(
        tighter,
        keep_recent_results=0,
        min_result_tokens=0,
        persist_result_tokens=max(50, limit_tokens // 10),
        preview_chars=200,
        clip_argument_chars=100,
        summary_fraction=0.0,
        automatic_pin_tokens=0,
    )
    levels = (
        first_level(settings),
        EffortLevel(tight, settings.keep_recent_fraction / 2, needs_minimum=False),
        EffortLevel(tighter, 0.0, needs_minimum=False),
        EffortLevel(tighter, 0.0, needs_minimum=False, request_fraction=_REQUEST_FRACTION),
        EffortLevel(
            replace(last, keep_recent_results=1),
            0.0,
            needs_minimum=False,
            clears_all=True,
            request_fraction=_REQUEST_FRACTION,
        ),
        EffortLevel(
            last,
            0.0,
            may_keep_nothing=True,
            needs_minimum=False,
            clears_all=True,
            request_fraction=_REQUEST_FRACTION,
        ),
    )
    return tuple(
        replace(level, unread_tokens=unread_tokens if at < _GENTLE else unread_tokens // 2)
        for at, level in enumerate(levels)
    )


def summary_reserve_tokens(level: EffortLevel, limit_tokens: int) -> int:
    """Tokens that a cut at this level leaves free for the summary that replaces history."""
    settings = level.settings
    return min(settings.summary_tokens, int(max(0, limit_tokens) * settings.summary_fraction))


def clear(
    edited: EditedMessages, policy: Policy, context: LayerContext, *, limit_bytes: int
) -> EditedMessages:
    """The layers that replace no history, in the policy's order; what is pinned stays whole."""
    for name, layer in policy.at_stage("clear"):
        edited = _cleared_by(layer, name, edited, context)
    offloaded = offload_media(edited.messages, count=context.count, limit_bytes=limit_bytes)
    return edited.then("offload", offloaded, context.count)


def clear_below_trigger(
    edited: EditedMessages, policy: Policy, context: LayerContext
) -> EditedMessages:
    """Those of them that act where nothing has to be made smaller, on what is not cached yet."""
    context = replace(context, is_below_trigger=True)
    for name, layer in policy.at_stage("clear"):
        if layer.acts_below_trigger:
            edited = _cleared_by(layer, name, edited, context)
    return edited


def _cleared_by(
    layer: Layer, name: str, edited: EditedMessages, context: LayerContext
) -> EditedMessages:
    step = layer.apply(edited.messages, context)
    return edited.then(
        name, restore_pinned(edited.messages, step, context.pins.marked), context.count
    )


def cut(
    edited: EditedMessages,
    level: EffortLevel,
    *,
    count: MessageCounter,
    rules: ProviderRules,
    limits: TokenLimits,
    keep_tokens: int | None = None,
) -> CutPoint | None:
    """Where this level cuts; None where there is nothing left to replace.

    `keep_tokens` may stay, instead of the level's own share of the limit.
    """
    settings = level.settings
    if level.keep_messages:
        return cut_keeping(edited.messages, rules, keep_messages=level.keep_messages)
    if settings.replace_all:
        return cut_all(edited.messages, rules)
    room_tokens = limits.tokens - summary_reserve_tokens(level, limits.tokens)
    base_tokens = room_tokens if settings.keep_recent_of == "target" else limits.window_tokens
    if keep_tokens is None:
        keep_tokens = min(int(base_tokens * level.keep_fraction), room_tokens)
        turn_share = TURN_BOUNDARY_SHARE
    else:
        room_tokens, turn_share = keep_tokens, FILLED_TURN_SHARE
    found = find_cut(
        edited.messages,
        count=count,
        rules=rules,
        keep_tokens=keep_tokens,
        keep_turns=settings.keep_recent_turns,
        max_tokens=room_tokens,
        turn_share=turn_share,
        may_keep_nothing=level.may_keep_nothing,
    )
    if found is None or found.request_at is None or settings.split_turn == "checkpoint":
        return found
    return replace(found, folds_request=True)


def shorten_request(messages: Messages, *, count: MessageCounter, max_tokens: int) -> Step:
    """Replace the longest text of the newest request by an extract, so that it counts `max_tokens`.

    People paste: a log, a file, the output of a tool that their host has no other way to hand over.
    Where the newest request alone leaves no room, it is archived like a large output. What
    stays of it is what a summary would keep: its beginning and end, the sentences that bind, and
    the lines that carry its names. A request that is not above it, or would not get smaller, stays
    as it is.
    """
    places = [at for at, message in enumerate(messages) if placeholders.is_request(message)]
    if not places or count.message(messages[places[-1]]) <= max_tokens:
        return Step(messages)
    request = messages[places[-1]]
    texts = [(at, block) for at, block in enumerate(request.blocks) if isinstance(block, Text)]
    at, block = max(texts, key=lambda item: count.block(item[1]), default=(0, Text("")))
    if not block.text or placeholders.is_long_request(block.text):
        return Step(messages)
    is_typed = author_of(request, block) == "user"
    tool_name = placeholders.REQUEST_TOOL if is_typed else _POSED_TOOL
    blob = make_blob(block.text, tool_name=tool_name)
    frame = placeholders.persisted((blob,), "", tool_name, len(block.text))
    room_tokens = max_tokens - (count.message(request) - count.block(block)) - count.text(frame)
    said = Message("user", (block,))
    extract = writer.write(SummaryInput((said,), Digest(), max(0, room_tokens)), count)
    text = placeholders.persisted((blob,), extract, tool_name, len(block.text))
    marker = Text(text, author="user" if is_typed else "compaction")
    saved_tokens = count.block(block) - count.block(marker)
    if saved_tokens <= 0:
        return Step(messages)
    done = Replacement(marker, (blob,), saved_tokens, "persisted", note="the newest request")
    return replace_blocks(messages, {Place(places[-1], at): done}, count, layer=REQUEST_LAYER)


def is_of_request(edit: Edit) -> bool:
    """Whether `edit` replaced the newest request by an extract."""
    return edit.layer == REQUEST_LAYER
