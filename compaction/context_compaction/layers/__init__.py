"""The layers that a policy can name. A new one is its own file and a line in `LAYERS`."""

from collections.abc import Mapping
from types import MappingProxyType

from context_compaction.layers.base import Layer, LayerContext
from context_compaction.layers.collapse import collapse
from context_compaction.layers.dedupe import dedupe, unchanged_reads
from context_compaction.layers.microcompact import microcompact
from context_compaction.layers.persist import persist
from context_compaction.layers.restore_files import restore_files
from context_compaction.layers.snip import snip, snip_waits
from context_compaction.layers.summary_message import summarize
from context_compaction.messages.edits import Step
from context_compaction.messages.model import Messages


def _unchanged(messages: Messages, context: LayerContext) -> Step:
    return unchanged_reads(messages, count=context.count, settings=context.settings)


def _persist(messages: Messages, context: LayerContext) -> Step:
    settings = context.settings
    return persist(
        messages,
        count=context.count,
        result_tokens=settings.persist_result_tokens,
        newest_chars=settings.persist_newest_chars,
        preview_chars=settings.preview_chars,
        only_newest=context.is_below_trigger,
        fresh_tokens=context.fresh_tokens,
        unread_tokens=context.unread_tokens,
        spares_recalled=not context.is_last,
    )


def _is_limited(context: LayerContext) -> bool:
    # What is worthless goes, but where the caller named what is to be filled.
    return context.is_filled and not context.clears_all


def _dedupe(messages: Messages, context: LayerContext) -> Step:
    return dedupe(
        messages,
        count=context.count,
        settings=context.settings,
        limit_tokens=context.limit_tokens if _is_limited(context) else 0,
    )


def _snip(messages: Messages, context: LayerContext) -> Step:
    return snip(
        messages,
        count=context.count,
        rules=context.rules,
        span_of=context.span_of,
        max_messages=context.settings.snip_max_messages,
        head_messages=context.settings.snip_head_messages,
        pinned=context.pins.pinned_indices,
    )


def _microcompact(messages: Messages, context: LayerContext) -> Step:
    return microcompact(
        messages,
        count=context.count,
        settings=context.settings,
        limit_tokens=0 if context.clears_all else context.limit_tokens,
        needs_minimum=context.needs_minimum,
        spares_unread=context.unread_tokens > 0,
        find=context.find_candidates,
    )


def _collapse(messages: Messages, context: LayerContext) -> Step:
    return collapse(
        messages,
        count=context.count,
        rules=context.rules,
        span_of=context.span_of,
        limit_tokens=context.limit_tokens,
        settings=context.settings,
        pinned=context.pins.pinned_indices,
    )


def _summarize(messages: Messages, context: LayerContext) -> Step:
    if context.cut is None:
        return Step(messages)
    return summarize(
        messages,
        context.cut,
        count=context.count,
        summary=context.summary,
        checkpoint=context.checkpoint,
    )


def _restore(messages: Messages, context: LayerContext) -> Step:
    if not context.files:
        return Step(messages)
    return restore_files(
        messages,
        count=context.count,
        settings=context.settings,
        files=context.files,
        at=context.files_at,
        limit_tokens=context.limit_tokens,
        is_filled=context.is_filled,
    )


def _waits(messages: Messages, context: LayerContext) -> Step:
    return snip_waits(
        messages,
        count=context.count,
        rules=context.rules,
        span_of=context.span_of,
        pinned=context.pins.pinned_indices,
    )


LAYERS: Mapping[str, Layer] = MappingProxyType({
    "unchanged": Layer(_unchanged),
    "persist": Layer(_persist, acts_below_trigger=True),
    "waits": Layer(_waits),
    "dedupe": Layer(_dedupe, weighs=_is_limited),
    "snip": Layer(_snip),
    "microcompact": Layer(_microcompact, weighs=lambda context: not context.clears_all),
    "collapse": Layer(_collapse, stage="fold"),
    "summarize": Layer(_summarize, stage="replace"),
    "restore": Layer(_restore, stage="restore"),
})
