"""A list whose beginning was compacted before: what the compaction left replaces it again. Pure.

Some hosts pass in their whole history at every call. Where a list begins with the history of a
stored context, the call goes on from that context and what followed, as if the host had passed in
those: the same bytes are returned, and what is new is compacted on top when they reach the trigger.
Positions in the request and in the result belong to the list as it came in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from context_compaction.archive import AppendResult, StandingContext
from context_compaction.context import CompactionContext, Places
from context_compaction.messages import placeholders
from context_compaction.messages.cache_control import cache_marker_count, without_cache_markers
from context_compaction.messages.model import JsonObject, Messages
from context_compaction.messages.placeholders import summary_of
from context_compaction.messages.tool_results import whole_text
from context_compaction.request import CompactRequest
from context_compaction.result import Boundary, CompactResult, Recognised


@dataclass(frozen=True, slots=True)
class Start:
    """The list that a call goes on from.

    Attributes:
        payload: The list: as it came in, or with what replaces its beginning.
        seqs: For each of its messages the number in the transcript, or -1.
        heads: For each of them the hash of the history that ends there.
        request: The wishes, with positions in this list.
        history: The hash of the list that came in, as far as this call is about it.
        places: The places of its messages in the list that came in; None where it is that list.
        recognised: How many messages replace how many; None where it is that list.
        is_repeated: Whether the last call with these very wishes returned all of it for this list.
        fingerprints: For each of them its fingerprint, where counts are kept ...
        counts: ... and its count, None where the session has none.
    """

    payload: Sequence[JsonObject]
    seqs: tuple[int, ...]
    heads: tuple[str, ...]
    request: CompactRequest
    history: str = ""
    places: Places | None = None
    recognised: Recognised | None = None
    is_repeated: bool = False
    fingerprints: tuple[bytes, ...] = ()
    counts: tuple[Any, ...] = ()


def start_of(
    given: Sequence[JsonObject],
    parsed: Messages,
    appended: AppendResult,
    request: CompactRequest,
    standing: StandingContext,
) -> Start:
    """`given` with its beginning replaced by what a compaction left.

    Args:
        given: The list that came in.
        parsed: The same, parsed.
        appended: Its place in its transcript.
        request: The caller's wishes.
        standing: What replaces its first messages.
    """
    count = standing.message_count
    made = _with_few_markers(standing, given)
    kept = [entry.original_seq for entry in standing.entries]
    places: Places = (
        *places_of(kept, appended.seqs[:count]),
        *range(count, len(given) + 1),  # and where the next one would stand
    )
    return Start(
        [*made, *given[count:]],
        (*kept, *appended.seqs[count:]),
        (*standing.heads, *appended.heads[count:]),
        _placed(request, parsed, places, standing),
        appended.head,
        places,
        Recognised(count, len(made)),
        fingerprints=(*standing.fingerprints, *appended.fingerprints[count:]),
        counts=(*_counts(standing, made), *appended.counts[count:]),
    )


def places_of(numbers: Iterable[int], seqs: Iterable[int]) -> Places:
    """The position of each message among those with `seqs`; None for one of ours.

    A list may have messages of ours as well, which have no number of their own.
    """
    place_of_seq = {seq: at for at, seq in enumerate(seqs) if seq >= 0}
    return tuple(map(place_of_seq.get, numbers))


def asks_anew(request: CompactRequest, left_by: str = "") -> bool:
    """Whether a call acts at once, whatever the budget, on a list that was compacted as a whole.

    A caller that passes in that very list with other wishes for such a call wants them met by it,
    not by what the earlier wishes have left of it. But what was asked for by hand, or after a
    refusal (the mode `left_by`, where it is known), is not undone by the next call of a loop.
    """
    is_at_once = request.target_tokens is not None and request.context_window is None
    if request.mode in ("auto", "plan"):
        return is_at_once and left_by not in ("full", "reactive")
    return request.mode == "full"


def named(result: CompactResult, start: Start) -> CompactResult:
    """`result` with what was recognised, also in its receipt."""
    if start.recognised is None:
        return result
    receipt = {**result.receipt, "recognised": asdict(start.recognised)}
    return replace(result, recognised=start.recognised, receipt=receipt)


def answered(result: CompactResult, start: Start, context: CompactionContext) -> CompactResult:
    """`result` of the list of `start`, with the positions of the list that came in."""
    if start.recognised is None or result.changed or start.request.prepare:
        return result
    made = context.messages[: start.recognised.context_count]
    status = "compacted" if result.status == "unchanged" else result.status
    return replace(
        result,
        status=status,
        messages=list(start.payload),
        changed=True,
        boundary=_boundary_in(made, context),
        summary=summary_of(made),
        receipt={**result.receipt, "status": status},
    )


def _boundary_in(made: Messages, context: CompactionContext) -> Boundary | None:
    """The boundary of the history that the summaries among `made` replace."""
    spans = [
        (at, span)
        for at, m in enumerate(made)
        if (span := placeholders.span_replaced_by(m)) is not None
    ]
    if not spans:
        return None
    whole = placeholders.Span(
        context.session_id,
        min(span.start_seq for _, span in spans),
        max(span.stop_seq for _, span in spans),
    )
    places = (context.place_of(at) for at in range(spans[-1][0] + 1, len(context.seqs) + 1))
    first_kept = next(place for place in places if place is not None)
    is_split = any(placeholders.summary_text(made[at]) is None for at, _ in spans)
    return Boundary(first_kept, whole.start_seq, whole.stop_seq, is_split, whole.pointer)


def _placed(
    request: CompactRequest, parsed: Messages, places: Places, standing: StandingContext
) -> CompactRequest:
    """`request` with positions in the list that replaces it now.

    A usage report describes what was sent: for an answer since then, the present context and what
    followed; for an older one, a context that is replaced. A message that is to be pinned by
    its place, and has left or was edited, is pinned by its text.
    """
    index = request.usage_message_index
    if index is not None and index < standing.message_count:
        request = replace(request, usage=None, usage_message_index=None)
    elif index is not None:
        request = replace(request, usage_message_index=places.index(index))
    edited = {at for at, entry in enumerate(standing.entries) if entry.seq < 0}
    position = {place: at for at, place in enumerate(places) if at not in edited}
    gone = [parsed[place] for place in request.pinned_messages if place not in position]
    here = [position[place] for place in request.pinned_messages if place in position]
    return replace(
        request,
        pinned=(*request.pinned, *map(whole_text, gone)),
        pinned_messages=tuple(here),
        snip_messages=tuple(
            places.index(place) for place in request.snip_messages if place in places
        ),
    )


def _counts(standing: StandingContext, made: Sequence[JsonObject]) -> list[Any]:
    """The counts of the replacing messages, but for those that have lost a cache marker."""
    entries = zip(standing.entries, standing.counts, made, strict=False)
    return [count if entry.raw is raw else None for entry, count, raw in entries]


def _with_few_markers(standing: StandingContext, given: Sequence[JsonObject]) -> list[JsonObject]:
    """The replacing messages, with no more cache markers than came in: a host moves its own."""
    raws = [entry.raw for entry in standing.entries]
    if not any(cache_marker_count(entry.raw) for entry in standing.entries if entry.seq < 0):
        return raws
    before = sum(map(cache_marker_count, given[: standing.message_count]))
    if sum(map(cache_marker_count, raws)) <= before:
        return raws
    return [e.raw if e.seq >= 0 else without_cache_markers(e.raw) for e in standing.entries]
