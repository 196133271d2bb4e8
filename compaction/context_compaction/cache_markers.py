"""Cache markers of the host survive a compaction: one that left with history moves to the summary.

Hosts mark blocks with `cache_control`, at most four in a request. A marker whose block was replaced
would leave the new prefix unmarked until the host sets it anew, and so unread from the cache. Only
what was there is moved, so the number of markers never grows.
"""

from dataclasses import replace
from typing import Any

from context_compaction import markers
from context_compaction.marker_free import CACHE_MARKER
from context_compaction.messages import Message, Messages, Text


def keep_cache_markers(before: Messages, after: Messages) -> Messages:
    """`after`, its last summary marked where a marker of `before` is missing in it."""
    lost = _markers(before)
    if not lost or len(_markers(after)) >= len(lost):
        return after
    made = [at for at, message in enumerate(after) if markers.span_of(message) is not None]
    # A summary of ours that came in as the host's own object is not touched.
    if not made or after[made[-1]].source is not None:
        return after
    at = made[-1]
    return (*after[:at], _marked(after[at], lost[0]), *after[at + 1 :])


def _markers(messages: Messages) -> list[Any]:
    return [
        block.source[CACHE_MARKER]
        for message in messages
        for block in message.blocks
        if block.source is not None and block.source.get(CACHE_MARKER) is not None
    ]


def _marked(message: Message, marker: Any) -> Message:
    (block,) = message.blocks
    if not isinstance(block, Text):
        return message
    source = {"type": "text", "text": block.text, CACHE_MARKER: marker}
    return replace(message, blocks=(replace(block, source=source),))
