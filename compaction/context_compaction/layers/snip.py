"""Layer: drop the middle of a long list by message count, where a policy enables it.

And drop messages that were named: a model that knows what it needs no more (Claude Code's
SnipTool) frees their tokens at any size; a line with a pointer marks each gap. And drop waits: a
call that was made again and again at once, with the same short answer but for numbers, has told all
with the last one. Codex waits for a command in this way, a hundred times where that takes long.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby, pairwise

from context_compaction.layers.cut_point import is_preserved, kept_part, replaced_part
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    make_message,
    text_of,
    tool_calls,
    tool_results,
)
from context_compaction.messages.pins import carried_by
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.tool_pairs import safe_cuts
from context_compaction.messages.tool_results import result_text
from context_compaction.tokens.counter import MessageCounter

# Calls are waits from so many in a row on: what is tried twice may well have been a test.
_LEAST_WAITS = 3
# The longest answer of a wait, and the longest text that the agent says to one.
_ANSWER_CHARS = 400
_SAID_CHARS = 200
_NUMBER = re.compile(r"(?<![0-9a-f])(?=[a-f]*[0-9])[0-9a-f]+")


def snip(
    messages: Messages,
    *,
    count: MessageCounter,
    rules: ProviderRules,
    span_of: placeholders.SpanOf,
    max_messages: int = 50,
    head_messages: int = 3,
    pinned: Collection[int] = (),
) -> Step:
    """Keep the first `head_messages` and the newest ones, `max_messages` in all.

    Both cuts move outward, to where no call is split from its result, so a few more may stay.
    System messages and the provider's own summaries stay too, and what is pinned: the messages that
    contain it, each call with its result.

    Args:
        messages: The list.
        count: The token counter.
        rules: The provider's rules.
        span_of: Finds the archived originals of a part of the list, for the pointer.
        max_messages: Does nothing up to this many messages.
        head_messages: How many stay at the beginning.
        pinned: Indices of messages that contain pinned text.
    """
    if len(messages) <= max_messages:
        return Step(messages)
    safe = safe_cuts(messages, rules)
    max_messages = max(1, max_messages)  # the newest stays, whatever the head would take
    head_messages = min(head_messages, max_messages - 1)
    head = head_messages
    while head < len(messages) and not safe[head]:
        head += 1
    tail = len(messages) - (max_messages - head_messages)
    while tail > head and not safe[tail]:
        tail -= 1
    stays = _pinned_places(messages, head, tail, safe, pinned)
    dropped: list[Message] = []
    kept: list[Message] = []
    for at, message in enumerate(messages[head:tail], head):
        if at in stays:
            kept.append(message)
            continue
        dropped += filter(None, [replaced_part(message)])
        kept += filter(None, [kept_part(message)])
    if not dropped or all(placeholders.is_synthetic(message) for message in dropped):
        return Step(messages)
    note, edits = _gap(tuple(dropped), count, span_of)
    return Step((*messages[:head], note, *kept, *messages[tail:]), edits)


def snip_chosen(
    messages: Messages,
    chosen: Collection[int],
    *,
    count: MessageCounter,
    rules: ProviderRules,
    span_of: placeholders.SpanOf,
    pinned: Collection[int | None],
    layer: str = "snip",
) -> Step:
    """Drop the messages with the indices `chosen`, each call with its result, and the reverse.

    Always kept are the newest request, the newest message, a call without its result yet,
    system messages, the provider's summaries, and what is pinned.
    """
    safe = safe_cuts(messages, rules)
    request = max((at for at, m in enumerate(messages) if placeholders.is_request(m)), default=-1)
    drops = [False] * len(messages)
    for start, stop in pairwise(at for at, is_safe in enumerate(safe) if is_safe):
        run = range(start, stop)
        is_chosen = any(messages[at].index in chosen for at in run)
        is_needed = request in run or stop == len(messages)
        if is_chosen and not is_needed and not any(_stays(messages[at], pinned) for at in run):
            drops[start:stop] = [True] * len(run)
    out: list[Message] = []
    edits: list[Edit] = []
    for goes, group in groupby(enumerate(messages), key=lambda item: drops[item[0]]):
        part = tuple(message for _, message in group)
        note, gone = _gap(part, count, span_of, layer) if goes else (None, ())
        if note is None or count.message(note) >= count.messages(part):
            out += part
        else:
            out.append(note)
            edits += gone
    return Step(tuple(out), tuple(edits)) if edits else Step(messages)


def snip_waits(
    messages: Messages,
    *,
    count: MessageCounter,
    rules: ProviderRules,
    span_of: placeholders.SpanOf,
    pinned: Collection[int | None] = (),
) -> Step:
    """Drop waits but the last of each series, and what the agent said to them."""
    chosen = frozenset(_waits(messages, rules))
    if not chosen:
        return Step(messages)
    return snip_chosen(
        messages,
        chosen,
        count=count,
        rules=rules,
        span_of=span_of,
        pinned=pinned,
        layer="waits",
    )


def _waits(messages: Messages, rules: ProviderRules) -> Iterator[int]:
    """The indices of the messages before the last wait of each series."""
    series: list[int] = []
    known: object = None
    cuts = [at for at, is_safe in enumerate(safe_cuts(messages, rules)) if is_safe]
    for start, stop in (*pairwise(cuts), (len(messages), len(messages))):
        part = messages[start:stop]
        asked = _asked(part) if all(map(_is_brief, part)) and part else None
        if asked is None and part and all(map(_is_said, part)):
            continue
        if asked is None or asked != known:
            if len(series) >= _LEAST_WAITS:
                gone = messages[series[0] : series[-1]]
                yield from (message.index for message in gone if message.index is not None)
            series, known = [], asked
        series.append(start)


def _asked(part: Messages) -> object:
    """What the calls in `part` ask and are answered, but for numbers; None without any."""
    calls = [(call.name, call.arguments) for message in part for call in tool_calls(message)]
    answers = [
        (result.is_error, _NUMBER.sub("#", text) if len(text) <= _ANSWER_CHARS else None)
        for message in part
        for result in tool_results(message)
        for text in [result_text(result)]
    ]
    is_short = all(shape is not None for _, shape in answers)
    return (calls, answers) if calls and is_short else None


def _is_said(message: Message) -> bool:
    """Whether `message` is no more than a short word of the agent's."""
    return message.role == "assistant" and _is_brief(message) and not tool_calls(message)


def _is_brief(message: Message) -> bool:
    """Whether `message` holds calls, answers, and no more than a short word of the agent's."""
    if message.role == "system" or (message.role == "user" and text_of(message.blocks)):
        return False
    kinds = (ToolCall, ToolResult, Text, Thinking)
    is_short = len(text_of(message.blocks)) <= _SAID_CHARS
    return is_short and all(isinstance(block, kinds) for block in message.blocks)


def _stays(message: Message, pinned: Collection[int | None]) -> bool:
    is_pinned = message.index is not None and message.index in pinned
    return is_pinned or is_preserved(message) or _carries_pins(message)


def _gap(
    dropped: Messages, count: MessageCounter, span_of: placeholders.SpanOf, layer: str = "snip"
) -> tuple[Message, tuple[Edit, ...]]:
    """The line that replaces `dropped`, and an edit for each dropped message."""
    pointer = span_of(dropped).pointer
    note = make_message("user", placeholders.snipped(len(dropped), pointer))
    edits = [
        Edit(layer, "dropped", message.index, count.message(message), 0, (pointer,))
        for message in dropped
    ]
    edits[0] = replace(edits[0], tokens_after=count.message(note))
    return note, tuple(edits)


def _pinned_places(
    messages: Messages, head: int, tail: int, safe: list[bool], pinned: Collection[int]
) -> frozenset[int]:
    """Places between `head` and `tail` that stay: what is pinned, with the rest of its run."""

    def places() -> Iterator[int]:
        for at in range(head, tail):
            if messages[at].index in pinned or _carries_pins(messages[at]):
                start = next(cut for cut in range(at, -1, -1) if safe[cut])
                stop = next(cut for cut in range(at + 1, len(safe)) if safe[cut])
                yield from range(start, stop)

    return frozenset(places())


def _carries_pins(message: Message) -> bool:
    carried = carried_by(message)
    return carried is not None and bool(carried.pins)
