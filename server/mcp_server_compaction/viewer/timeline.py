"""The size of a session's context over its messages, with its compactions as steps.

A long session is counted in pieces: each request counts for a moment and reports its progress, so
that no page waits for it.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from anyio import to_thread
from context_compaction.archive import ArchivedMessage, SessionInfo, StoredReceipt
from context_compaction.messages.model import JsonObject
from context_compaction.tokens.counter import MessageCounter, counter_for
from markupsafe import Markup

from mcp_server_compaction.viewer.sessions import is_compaction
from mcp_server_compaction.viewer.sizes import KINDS, by_kind, counted_model, pieces_of
from mcp_server_compaction.viewer.web import Page, Visit
from mcp_server_compaction.viewer.words import tokens as short

_CHUNK = 100
_REQUEST_SECONDS = 0.25
_CACHED = 8
_BINS = 240
_WIDTH, _HEIGHT, _BARS = 1000.0, 130.0, 50.0
# A trigger that lies so much higher than the context would leave no line of it to see.
_MOST_ROOM = 2.5
_KINDS = tuple(KINDS)


@dataclass(slots=True)
class Counted:
    """The tokens of a session's messages, as far as they were counted.

    Attributes:
        next_seq: The number to go on with.
        sizes: For each message so far its tokens by kind, in the order of `KINDS`.
    """

    next_seq: int = 0
    sizes: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


@dataclass(frozen=True, slots=True)
class Step:
    """One compaction.

    Attributes:
        number: Its receipt's.
        seq: The newest message that it saw.
        before: Tokens of the context before ...
        after: ... and after it.
        trigger: The trigger, in tokens.
        target: The target, in tokens.
        words: Its description, for a person.
    """

    number: int
    seq: int
    before: int
    after: int
    trigger: int
    target: int
    words: str


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
    done = min(1.0, len(counted.sizes) / max(1, info.message_count))
    is_done = counted.next_seq >= info.message_count
    steps = steps_of(stored)
    sizes = context_sizes(counted.sizes, steps)
    document: JsonObject = {
        "session_id": info.session_id,
        "counted_share": 1.0 if is_done else done,
        "tokens_by_kind": {
            kind: sum(size[at] for size in counted.sizes) for at, kind in enumerate(_KINDS)
        },
        "largest_context_tokens": max(sizes, default=0),
        "compactions": [
            {"number": s.number, "message": s.seq, "before": s.before, "after": s.after}
            for s in steps
        ],
    }
    svg = await to_thread.run_sync(chart, info.session_id, counted.sizes, sizes, steps)
    present = [kind for kind in _KINDS if document["tokens_by_kind"][kind]]
    shown = {"info": info, "svg": svg, "steps": steps, "is_done": is_done, "kinds": present,
             "names": KINDS, "total": sum(map(sum, counted.sizes))}  # fmt: skip
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
            counted.next_seq = (
                max(start + len(found), found[-1].seq + 1) if found else start + _CHUNK
            )


def _sizes(found: Sequence[ArchivedMessage], count: MessageCounter) -> list[tuple[int, ...]]:
    sizes: list[tuple[int, ...]] = []
    for message in found:
        kinds = by_kind(pieces_of([message.raw], message.format, count))
        sizes.append(tuple(kinds.get(kind, 0) for kind in _KINDS))
    return sizes


def steps_of(stored: Sequence[StoredReceipt]) -> list[Step]:
    """The compactions that changed something, oldest first."""
    steps: list[Step] = []
    for number, one in enumerate(stored):
        receipt = one.receipt
        tokens = receipt.get("tokens")
        if not (is_compaction(receipt) and tokens):
            continue
        layers = ", ".join(layer["name"] for layer in receipt.get("layers") or ())
        writer = f"; summary by {receipt['writer']}" if receipt.get("writer") else ""
        cache: JsonObject = receipt.get("cache") or {}
        anew = f"; {short(cache['rebilled_tokens'])} to the cache anew" if cache else ""
        words = f"{short(tokens['before'])} → {short(tokens['after'])}: {layers}{writer}{anew}"
        state: JsonObject = receipt.get("state") or {}
        steps.append(
            Step(
                number,
                int(state.get("stop_seq", -1)),
                tokens["before"],
                tokens["after"],
                tokens["trigger"],
                tokens["target"],
                words,
            )
        )
    return steps


def context_sizes(sizes: Sequence[tuple[int, ...]], steps: Sequence[Step]) -> list[int]:
    """The context after each message, in tokens: it grows, and a compaction brings it down."""
    left = {step.seq: step.after for step in steps}
    found: list[int] = []
    total = 0
    for seq, size in enumerate(sizes):
        total += sum(size)
        found.append(total)
        total = left.get(seq, total)
    return found


def chart(
    session_id: str,
    sizes: Sequence[tuple[int, ...]],
    contexts: Sequence[int],
    steps: Sequence[Step],
) -> Markup:
    """The picture: above the context, below what each piece of the transcript adds."""
    count = len(sizes)
    if not count:
        return Markup("")
    width = -(-count // _BINS)  # messages of a bin
    starts = range(0, count, width)
    highest = max(contexts)
    room = steps[-1].trigger if steps and steps[-1].trigger <= highest * _MOST_ROOM else 0
    top = max(highest, room, 1)

    scale = _Scale(count, top)
    parts = [_area(starts, width, contexts, scale)]
    if room:
        for name, tokens in (("trigger", steps[-1].trigger), ("target", steps[-1].target)):
            parts.append(
                Markup('<line class="l-{}" x1="0" x2="1000" y1="{}" y2="{}"/>').format(
                    name, scale.y(tokens), scale.y(tokens)
                )
            )
    parts += _bars(session_id, starts, width, sizes)
    for step in steps:
        if 0 <= step.seq < count:
            at = scale.x(step.seq + 1)
            parts.append(
                Markup('<line class="l-step" x1="{}" x2="{}" y1="0" y2="{}"/>').format(
                    at, at, f"{_HEIGHT:.0f}"
                )
            )
    return Markup(
        '<svg class="chart" viewBox="0 0 1000 {}" preserveAspectRatio="none" aria-hidden="true">'
        "{}</svg>"
    ).format(f"{_HEIGHT + _BARS + 6:.0f}", Markup("").join(parts))


@dataclass(frozen=True, slots=True)
class _Scale:
    """From messages and tokens to places of the picture."""

    count: int
    top: int

    def x(self, seq: int) -> str:
        return f"{_WIDTH * seq / self.count:.2f}"

    def y(self, tokens: int) -> str:
        return f"{_HEIGHT * (1 - tokens / self.top):.2f}"


def _area(starts: range, width: int, contexts: Sequence[int], scale: _Scale) -> Markup:
    """The context as an area; of each bin its largest and its last size, so no step is lost."""
    points: list[str] = [f"0,{_HEIGHT}"]
    for start in starts:
        part = contexts[start : start + width]
        points += [f"{scale.x(start)},{scale.y(max(part))}"]
        points += [f"{scale.x(start + len(part))},{scale.y(part[-1])}"]
    points.append(f"{_WIDTH},{_HEIGHT}")
    return Markup('<polygon class="area" points="{}"/>').format(" ".join(points))


def _bars(
    session_id: str, starts: range, width: int, sizes: Sequence[tuple[int, ...]]
) -> list[Markup]:
    """What each bin adds, by kind, each a link to its first message."""
    bins = [
        [sum(size[at] for size in sizes[start : start + width]) for at in range(len(_KINDS))]
        for start in starts
    ]
    most = max(map(sum, bins), default=0) or 1
    wide = _WIDTH * width / len(sizes)
    parts: list[Markup] = []
    for number, (start, found) in enumerate(zip(starts, bins, strict=True)):
        left, bottom = f"{number * wide:.2f}", _HEIGHT + _BARS + 6
        rects: list[Markup] = []
        for kind, amount in zip(_KINDS, found, strict=True):
            if amount:
                high = _BARS * amount / most
                bottom -= high
                rects.append(
                    Markup('<rect class="c-{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                        kind, left, f"{bottom:.2f}", f"{wide * 0.86:.2f}", f"{high:.2f}"
                    )
                )
        stop = min(start + width, len(sizes)) - 1
        parts.append(
            Markup(
                '<a href="/sessions/{}?at={}#m{}" tabindex="-1"><title>{} to {}: {} tokens</title>'
                '<rect class="hit" x="{}" y="0" width="{}" height="{}"/>{}</a>'
            ).format(
                session_id, start, start, start, stop, short(sum(found)), left, f"{wide:.2f}",
                f"{_HEIGHT + _BARS + 6:.0f}", Markup("").join(rects),
            )
        )  # fmt: skip
    return parts
