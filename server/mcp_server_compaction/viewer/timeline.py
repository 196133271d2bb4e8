"""The size of a session's context over its messages, with its compactions as steps.

A long session is counted in pieces: each request counts for a moment and reports its progress, so
that no page waits for it.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from anyio import to_thread
from context_compaction import (
    ArchivedMessage,
    JsonObject,
    MessageCounter,
    SessionInfo,
    StoredReceipt,
    counter_for,
)
from markupsafe import Markup

from mcp_server_compaction.viewer.sizes import KINDS, by_kind, counted_model, pieces_of
from mcp_server_compaction.viewer.web import Page, Visit
from mcp_server_compaction.viewer.words import is_compaction
from mcp_server_compaction.viewer.words import tokens as short

_CHUNK = 100
_REQUEST_SECONDS = 0.25
_CACHED = 8
_BINS = 240
_WIDTH, _HEIGHT, _BARS = 1000.0, 130.0, 56.0
# A trigger that lies so much higher than the context would leave no line of it to see.
_MOST_ROOM = 2.5


@dataclass(slots=True)
class Counted:
    """The tokens of a session's messages, as far as they were counted.

    Attributes:
        next_seq: The number to go on with.
        sizes: For each message so far its tokens by kind.
    """

    next_seq: int = 0
    sizes: list[dict[str, int]] = field(default_factory=list[dict[str, int]])


# By tenant, session with its beginning (a name may be used again), and the model counted for.
_counted: OrderedDict[tuple[str, str, float, str], Counted] = OrderedDict()


async def timeline(visit: Visit) -> Page:
    """`/sessions/ID/timeline`: the chart, or the progress of the counting."""
    info = await visit.archive.session_info(visit.path("session_id"))
    stored = await visit.archive.stored_receipts(info.session_id)
    model = counted_model([one.receipt for one in stored]) or visit.config.model
    key = (visit.archive.tenant, info.session_id, info.first_seconds, model or "")
    counted = _counted.setdefault(key, Counted())
    _counted.move_to_end(key)
    if len(_counted) > _CACHED:
        _counted.popitem(last=False)
    await _go_on(visit, info, counted, model)
    is_done = counted.next_seq >= info.message_count
    steps = steps_of(stored)
    contexts = context_sizes([sum(size.values()) for size in counted.sizes], steps)
    totals: Counter[str] = Counter()
    for size in counted.sizes:
        totals.update(size)
    document: JsonObject = {
        "session_id": info.session_id,
        "counted_share": 1.0 if is_done else len(counted.sizes) / info.message_count,
        "tokens_by_kind": {kind: totals[kind] for kind in KINDS},
        "largest_context_tokens": max(contexts, default=0),
        "compactions": steps,
    }
    svg = await to_thread.run_sync(chart, info.session_id, counted.sizes, contexts, steps)
    shown = {"info": info, "svg": svg, "is_done": is_done, "names": KINDS, "total": totals.total()}
    return Page("timeline.html", document, shown)


async def _go_on(visit: Visit, info: SessionInfo, counted: Counted, model: str | None) -> None:
    """Count some more messages, for about `_REQUEST_SECONDS`."""
    count = await to_thread.run_sync(counter_for, model)
    until = time.monotonic() + _REQUEST_SECONDS
    while counted.next_seq < info.message_count and time.monotonic() < until:
        if await visit.request.is_disconnected():  # whoever has left needs no picture
            return
        start = counted.next_seq
        found = await visit.archive.read_messages(info.session_id, start, start + _CHUNK - 1)
        sizes = await to_thread.run_sync(_sizes, found, count)
        if counted.next_seq == start:  # another request may have counted them meanwhile
            counted.sizes += sizes
            counted.next_seq = found[-1].seq + 1 if found else start + _CHUNK


def _sizes(found: Sequence[ArchivedMessage], count: MessageCounter) -> list[dict[str, int]]:
    return [by_kind(pieces_of([message.raw], message.format, count)) for message in found]


def steps_of(stored: Sequence[StoredReceipt]) -> list[JsonObject]:
    """The compactions that changed something, oldest first."""
    steps: list[JsonObject] = []
    for number, one in enumerate(stored):
        receipt = one.receipt
        tokens = receipt.get("tokens")
        if is_compaction(receipt) and tokens:
            layers = ", ".join(layer["name"] for layer in receipt.get("layers") or ())
            state: JsonObject = receipt.get("state") or {}
            step = {"number": number, "message": int(state.get("stop_seq", -1)), "layers": layers}
            steps.append(step | {k: tokens[k] for k in ("before", "after", "trigger", "target")})
    return steps


def context_sizes(sizes: Sequence[int], steps: Sequence[JsonObject]) -> list[int]:
    """The context after each message, in tokens: it grows, and a compaction brings it down."""
    left = {step["message"]: step["after"] for step in steps}
    found: list[int] = []
    total = 0
    for seq, size in enumerate(sizes):
        total += size
        found.append(total)
        total = left.get(seq, total)
    return found


def chart(
    session_id: str,
    sizes: Sequence[dict[str, int]],
    contexts: Sequence[int],
    steps: Sequence[JsonObject],
) -> Markup:
    """The picture: above the context, below what each piece of the transcript adds."""
    if not sizes:
        return Markup("")
    wide = _WIDTH / len(sizes)  # of a message
    highest = max(contexts)
    levels: list[tuple[str, int]] = []
    if steps and steps[-1]["trigger"] <= highest * _MOST_ROOM:
        levels = [(name, steps[-1][name]) for name in ("trigger", "target")]
    top = max(highest, 1, *(tokens for _, tokens in levels))

    def y(tokens: int) -> str:
        return f"{_HEIGHT * (1 - tokens / top):.2f}"

    width = -(-len(sizes) // _BINS)  # messages of a bin
    parts = [_area(contexts, width, y)]
    for name, tokens in levels:
        line = Markup('<line class="l-{}" x1="0" x2="1000" y1="{}" y2="{}"/>')
        parts.append(line.format(name, y(tokens), y(tokens)))
    parts += _bars(session_id, sizes, width)
    for step in steps:
        if 0 <= step["message"] < len(sizes):
            x = f"{wide * (step['message'] + 1):.2f}"
            line = Markup('<line class="l-step" x1="{}" x2="{}" y1="0" y2="{}"/>')
            parts.append(line.format(x, x, f"{_HEIGHT:.0f}"))
    return Markup(
        '<svg class="chart" viewBox="0 0 1000 {}" preserveAspectRatio="none" aria-hidden="true">'
        "{}</svg>"
    ).format(f"{_HEIGHT + _BARS:.0f}", Markup("").join(parts))


def _area(contexts: Sequence[int], width: int, y: Callable[[int], str]) -> Markup:
    """The context as an area; of each bin its largest and its last size, so no step is lost."""
    wide = _WIDTH / len(contexts)
    points = [f"0,{_HEIGHT}"]
    for start in range(0, len(contexts), width):
        part = contexts[start : start + width]
        points.append(f"{wide * start:.2f},{y(max(part))}")
        points.append(f"{wide * (start + len(part)):.2f},{y(part[-1])}")
    points.append(f"{_WIDTH},{_HEIGHT}")
    return Markup('<polygon class="area" points="{}"/>').format(" ".join(points))


def _bars(session_id: str, sizes: Sequence[dict[str, int]], width: int) -> Iterator[Markup]:
    """What each bin adds, by kind, each a link to its first message."""
    starts = range(0, len(sizes), width)
    bins = [
        {kind: sum(size.get(kind, 0) for size in sizes[start : start + width]) for kind in KINDS}
        for start in starts
    ]
    most = max(sum(found.values()) for found in bins) or 1
    wide = _WIDTH * width / len(sizes)
    rect = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
    for number, (start, found) in enumerate(zip(starts, bins, strict=True)):
        left, bottom = f"{number * wide:.2f}", _HEIGHT + _BARS
        rects = [rect.format("hit", left, 0, f"{wide:.2f}", f"{bottom:.0f}")]
        for kind, amount in found.items():
            high = (_BARS - 6) * amount / most
            bottom -= high
            if amount:
                size = f"{wide * 0.86:.2f}", f"{high:.2f}"
                rects.append(rect.format(f"c-{kind}", left, f"{bottom:.2f}", *size))
        stop = min(start + width, len(sizes)) - 1
        yield Markup(
            '<a href="/sessions/{}?at={}#m{}" tabindex="-1"><title>{} to {}: {} tokens</title>'
        ).format(session_id, start, start, start, stop, short(sum(found.values())))
        yield Markup("").join([*rects, Markup("</a>")])
