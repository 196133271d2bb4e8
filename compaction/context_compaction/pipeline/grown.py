"""A list that continues a known one: where nothing has to be done, only what is new costs.

Nearly every call of an agent is such a one. The beginning is recognised, and what was computed
for it is used again; what is new is read, counted and archived behind it. Where anything is to be
done, or might be, nothing is decided here: the whole line of `compact` does it, with the same
result.
The stages between the archive's are pure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import accumulate, islice, repeat
from typing import Any

from context_compaction import formats
from context_compaction.archive import AppendResult, Store
from context_compaction.budget import TokenBudget, counted_budget_of, reserve_warnings
from context_compaction.context import (
    CompactionContext,
    Copies,
    EditedMessages,
    Originals,
    Plan,
    ReceivedInput,
    SummaryText,
    Validation,
)
from context_compaction.errors import CompactionError, NotFoundError
from context_compaction.formats.tool_call_ids import is_made_up
from context_compaction.messages.attribution import claims_in
from context_compaction.messages.cache_control import cache_marker_count
from context_compaction.messages.history_hash import ROOT, chain_hashes, content_hash
from context_compaction.messages.model import (
    JsonObject,
    Messages,
    Text,
    make_message,
    tool_calls,
)
from context_compaction.messages.pins import Pins
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.server_calls import is_made_by_code
from context_compaction.messages.tool_pairs import problems
from context_compaction.pipeline.collect_pins import PIN_MARK, gather_pins
from context_compaction.pipeline.effort import first_level
from context_compaction.pipeline.plan import plan_of_mode
from context_compaction.pipeline.redaction_gates import redaction_report, with_redaction
from context_compaction.pipeline.report import Outcome, build_result, token_report
from context_compaction.policies import policy_named
from context_compaction.redaction import Gates, RedactionMode
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult, Recognised, TokenReport
from context_compaction.session.earlier_calls import EarlierCalls, with_warnings
from context_compaction.session.known_list import (
    KNOWN_LISTS,
    KnownList,
    NotPlainError,
    StandIn,
    copied,
    copies_of,
    may_go_on,
)
from context_compaction.session.load import Session
from context_compaction.session.recognised import Start, answered, asks_anew, named, places_of
from context_compaction.session.save import Commit
from context_compaction.settings import Settings, override
from context_compaction.tokens.counter import MessageCounter, counter_for
from context_compaction.tokens.request_bytes import json_bytes

# So many newest messages are looked through for the beginning of the run that is going on.
_LOOK_BACK = (4, 64)
# What was taken away again at the end of a list, with its calls, is forgotten up to here.
_MOST_LEFT = 64
# A list has to have come this far before its session is its own; see `append_to_session`.
_SPOKEN = 2
_DECIDES_WITHIN = 64
_USER = make_message("user", "...")


@dataclass(frozen=True, slots=True)
class Grown:
    """A list that goes on from a known one, and has nothing in it to be done.

    Attributes:
        known: The known one.
        payload: The list.
        request: The wishes.
        end: What is new, behind the run that it goes on from; empty where nothing is ...
        end_at: ... and the place where that begins.
        tokens: Of the first n messages of the list as it is sent, for n from 0 ...
        request_bytes: ... and the same in bytes.
        copies: Private copies of the list.
        call_ids: Of all calls.
        counted_by: Names the counter ...
        counts: ... and its counts of `end`, None for what is known.
        report: The figures.
        warnings: The warnings about these wishes.
    """

    known: KnownList
    payload: Sequence[JsonObject]
    request: CompactRequest
    end: Messages
    end_at: int
    tokens: Sequence[int]
    request_bytes: Sequence[int]
    copies: Copies
    call_ids: frozenset[str]
    counted_by: str
    counts: Sequence[Any]
    report: TokenReport
    warnings: tuple[str, ...]


def known_beginning(
    payload: Sequence[JsonObject], request: CompactRequest, archive: Store
) -> tuple[KnownList, int] | None:
    """The known list that `payload` begins like, and how many messages they share."""
    if not payload or not may_go_on(request):
        return None
    return KNOWN_LISTS.beginning_of(archive, payload, request.session_id)


def goes_on(
    known: KnownList, shared: int, payload: Sequence[JsonObject], request: CompactRequest
) -> Grown | None:
    """`payload`, where it goes on from `known` and nothing has to be done in it."""
    try:
        return _grown(known, shared, payload, request)
    except (CompactionError, NotPlainError):
        return None  # the whole line of the call tells what is wrong


def _grown(
    known: KnownList, shared: int, payload: Sequence[JsonObject], request: CompactRequest
) -> Grown | None:
    rules = formats.FORMATS[known.format].rules
    ends = _ends(known, shared, payload) if _is_sure(known, shared, payload, request) else None
    if ends is None:
        return None
    new = ends.end[shared - ends.end_at :]
    ids = _call_ids(known, shared, new, rules)
    if ids is None or not _is_plain(new):
        return None
    if problems((_USER, *ends.run) if ends.run_at else ends.run, rules):
        return None
    if any(is_made_by_code(call) for message in ends.run for call in tool_calls(message)):
        return None  # the code stands before the run
    settings = override(policy_named(request.policy).settings, request.settings)
    count = counter_for(request.model, estimator=settings.estimator).for_one_call()
    if count.method != known.method or settings.tell_changed_files:
        return None
    at = shared + known.shift
    tokens = _extended(known.tokens, at, map(count.message, new))
    counts = [count.count_of(message) for message in new]
    request_bytes = _extended(known.request_bytes, at, (size for size, *_ in counts))
    placed = _placed(request, known)
    budget = counted_budget_of(placed, settings, tokens, request_bytes[-1], count)
    context = _context_of(ends.run, known, placed, settings, budget, count)
    if budget.is_over or context.settings.clear_every_turn or plan_of_mode(context).acts:
        return None
    return Grown(
        known,
        payload,
        request,
        ends.end if new else (),
        ends.end_at if new else shared,
        tokens,
        request_bytes,
        copies_of(payload, known, shared),
        ids,
        count.counted_by,
        [*repeat(None, len(ends.end) - len(new)), *counts],
        token_report(context, budget.before),
        reserve_warnings(request, context.settings),
    )


@dataclass(frozen=True, slots=True)
class _Ends:
    """The end of a list from the newest run on that was known, and what follows it.

    Attributes:
        end: As it came in ...
        end_at: ... and where that begins.
        run: As it is sent: mostly the same ...
        run_at: ... and where that begins.
    """

    end: Messages
    end_at: int
    run: Messages
    run_at: int


def _ends(known: KnownList, shared: int, payload: Sequence[JsonObject]) -> _Ends | None:
    """The end of `payload`; None where it is too long, or has something of ours in it."""
    read = partial(formats.parse, format=known.format)
    end_at = _run_at(payload, shared, read)
    if end_at is None:
        return None
    end = read(payload[end_at:], first_index=end_at)
    run, run_at = end, end_at + known.shift
    if end_at < known.stands_for:
        sent = known.context(payload)
        found = _run_at(sent, shared + known.shift, read)
        if found is None:
            return None
        run, run_at = read(sent[found:], first_index=found), found
    return None if run_at < known.plain_from else _Ends(end, end_at, run, run_at)


def _call_ids(
    known: KnownList, shared: int, new: Messages, rules: ProviderRules
) -> frozenset[str] | None:
    """The ids of all calls; None where one is used again."""
    if not rules.unique_call_ids:
        return frozenset()
    ids, more = known.call_ids, _ids(new)
    if left := known.given[shared:]:
        ids -= _ids(formats.parse(left, format=known.format))
    return ids | more if ids.isdisjoint(more) else None


def _context_of(
    run: Messages,
    known: KnownList,
    request: CompactRequest,
    settings: Settings,
    budget: TokenBudget,
    count: MessageCounter,
) -> CompactionContext:
    """The call, as the layers read it that act on the newest results."""
    return CompactionContext(
        messages=tuple(replace(message, index=at) for at, message in enumerate(run)),
        parsed=run,
        repairs=(),
        format=known.format,
        rules=formats.FORMATS[known.format].rules,
        request=request,
        session_id=known.session_id,
        seqs=(-1,) * len(run),
        heads=("",) * len(run),
        policy=policy_named(request.policy),
        settings=settings.scaled(budget.target_tokens, budget.trigger_tokens),
        count=count,
        budget=budget,
        limits=budget.limits,
        pins=Pins(),
        gates=Gates("off"),
    )


def outcome_of(grown: Grown, appended: AppendResult, redaction: RedactionMode) -> Outcome:
    """The outcome of the call, once what is new is durable."""
    known, report = grown.known, grown.report
    warnings = (*grown.warnings, *known.notes)
    receipt = copied(known.result.receipt)
    result = replace(
        known.result,
        messages=known.context(grown.payload),
        tokens=report,
        warnings=warnings,
        receipt={**receipt, "tokens": asdict(report), "warnings": list(warnings)},
    )
    nobody, nothing = Originals(), SummaryText("", "")
    secrets = redaction_report(redaction, grown.end, appended, nobody, nothing)
    return Outcome(with_redaction(result, secrets))


def still_holds(grown: Grown, appended: AppendResult) -> bool:
    """Whether the session is as the known list was left, and nothing else replaces the list."""
    known, standing = grown.known, appended.standing
    if appended.revision_before != known.revision:
        return False
    if standing is not None:
        return grown.end_at + standing.message_count == known.stands_for
    return appended.is_compacted_before == (known.stand_in is not None)


async def append_new(grown: Grown, archive: Store) -> AppendResult | None:
    """Keep durably what is new of a list; None where its session is no longer there."""
    at = grown.end_at
    try:
        return await archive.append(
            grown.known.session_id,
            grown.end,
            format=grown.known.format,
            parent_session_id=grown.request.parent_session_id,
            after=grown.known.heads[at - 1] if at else ROOT,
            counted_by=grown.counted_by,
            counts=grown.counts if grown.end else (),
        )
    except NotFoundError:
        return None


def remember(grown: Grown, appended: AppendResult, archive: Store) -> None:
    """Keep the list as known, for later calls."""
    known = grown.known
    heads = [*known.heads[: grown.end_at], *appended.heads]
    names: Sequence[str] = heads
    if known.stand_in is not None:
        at = max(grown.end_at, known.stands_for)
        names = _extended_names(known.names[: at + known.shift], grown.copies.given[at:])
    goes_on = heads[: len(known.heads)][-1] == known.heads[-1]
    is_all_new = appended.written == len(heads) - len(known.heads)
    KNOWN_LISTS.keep(
        archive,
        replace(
            known,
            given=grown.copies.given,
            numbered=grown.copies.numbered,
            heads=heads,
            names=names,
            tokens=grown.tokens,
            request_bytes=grown.request_bytes,
            call_ids=grown.call_ids,
            revision=appended.revision,
            is_current=known.is_current and goes_on and is_all_new,
        ),
    )


def _is_sure(
    known: KnownList, shared: int, payload: Sequence[JsonObject], request: CompactRequest
) -> bool:
    """Whether the list is of the known one's format and session, and continues it."""
    if request.format is None:
        is_decided = known.decided_at is not None and shared >= known.decided_at
        if not (is_decided and formats.goes_on(payload[shared:], known.format)):
            return False
    elif request.format != known.format:
        return False
    if request.session_id is None and (known.spoken_at is None or shared < known.spoken_at):
        return False
    if known.stand_in is not None and asks_anew(request):
        return False
    # Where results may stand anywhere, what was taken away may have answered a call.
    left = len(known.given) - shared
    follows = formats.FORMATS[known.format].rules.results_follow_call
    is_near = not left or (follows and left <= _MOST_LEFT)
    return is_near and shared > 0 and shared >= known.stands_for


def _run_at(
    raws: Sequence[JsonObject], stop: int, read: Callable[[Sequence[JsonObject]], Messages]
) -> int | None:
    """Where the newest run of the assistant before `stop` begins, behind the user's message.

    What precedes it is settled. None where that is too far away.
    """
    for count in _LOOK_BACK:
        start = max(0, stop - count)
        near = read(raws[start:stop])
        for at in range(len(near) - 1, 0, -1):
            if near[at].role == "assistant" and near[at - 1].role == "user":
                return start + at
        if start == 0:
            return 0
    return None


def _is_plain(messages: Messages) -> bool:
    """Whether nothing in `messages` is from us, or to be pinned."""
    return not (claims_in(messages).any or _has_pin(messages))


def _has_pin(messages: Messages) -> bool:
    return any(
        isinstance(block, Text) and PIN_MARK in block.text
        for message in messages
        if message.role == "user"
        for block in message.blocks
    )


def _ids(messages: Messages) -> frozenset[str]:
    """The ids that the host gave to calls."""
    ids = (call.call_id for message in messages for call in tool_calls(message))
    return frozenset(call_id for call_id in ids if not is_made_up(call_id))


def _extended(known: Sequence[int], count: int, more: Iterable[int]) -> Sequence[int]:
    """The sums of the first `count` of a list and of those that follow them now."""
    return [*known[:count], *accumulate(more, initial=known[count])]


def _placed(request: CompactRequest, known: KnownList) -> CompactRequest:
    """`request` with positions in the list as it is sent; see `recognised.start_of`."""
    index = request.usage_message_index
    if index is None or known.stand_in is None:
        return request
    if index < known.stands_for:
        return replace(request, usage=None, usage_message_index=None)
    return replace(request, usage_message_index=index + known.shift)


def known_of(
    given: ReceivedInput, session: Session, context: CompactionContext, outcome: Outcome
) -> KnownList | None:
    """The list as the call has left it, where the next one may find nothing to do; else None."""
    appended = session.stored.appended
    if (
        given.copies is None
        or not given.messages
        or appended.revision < 0
        or context.settings.tell_changed_files
        or "redaction" in outcome.result.receipt
    ):
        return None
    if outcome.commit is not None:
        return _known_after(given, session, context, outcome, outcome.commit)
    start, result = session.start, outcome.result
    is_answered = start.recognised is not None
    if (
        outcome.stats is not None
        or context.budget.is_over
        or context.repairs
        or not result.fits
        or result.edits
        or result.changed != is_answered
        or (appended.standing is not None) != is_answered
    ):
        return None
    sizes = [context.count.bytes_of(message) for message in context.messages]
    is_plain = not (is_answered or given.claims.any)
    stand_in, names = _stand_in(start, given), _names_of(appended, given)
    return _known(
        given, appended, context, result, sizes, stand_in, names, appended.revision, is_plain
    )


def _known_after(
    given: ReceivedInput,
    session: Session,
    context: CompactionContext,
    outcome: Outcome,
    commit: Commit,
) -> KnownList | None:
    """The same of a call that compacted: its list will come again whole, or grown."""
    appended, result, messages = session.stored.appended, outcome.result, outcome.messages
    if not (messages and commit.context and result.fits and context.gates.mode != "on"):
        return None
    raws, entries = result.messages, commit.context
    if context.repairs or any(cache_marker_count(e.raw) for e in entries if e.seq < 0):
        return None
    numbers = [entry.original_seq for entry in entries]
    count = len(given.messages)
    ours = [message for message, number in zip(messages, numbers, strict=True) if number < 0]
    pins = gather_pins(
        context.request,
        tuple(ours),
        session_id=context.session_id,
        seqs=numbers,
        count=context.count,
        finds_rules=False,
    )
    made = replace(
        context,
        messages=messages,
        parsed=messages,
        seqs=tuple(numbers),
        places=(*places_of(numbers, appended.seqs), count),
        pins=pins,
    )
    start = replace(session.start, payload=raws, recognised=Recognised(count, len(raws)))
    plan = Plan(EditedMessages(messages), first_level(context.settings))
    unchanged = Validation(plan.edited, "unchanged", fits=True, warnings=())
    again = build_result(raws, raws, made, plan, unchanged, SummaryText("", ""))
    again = answered(named(with_warnings(again, EarlierCalls(), made), start), start, made)
    sizes = [
        made.count.bytes_of(m) if m.source is raw else json_bytes(raw)
        for m, raw in zip(messages, raws, strict=True)
    ]
    stand_in = _stand_in(start, given)
    names = chain_hashes([entry.content for entry in entries])
    revision = appended.revision + commit.revisions
    return _known(given, appended, made, again, sizes, stand_in, names, revision, is_plain=False)


def _known(
    given: ReceivedInput,
    appended: AppendResult,
    context: CompactionContext,
    result: CompactResult,
    sizes: Sequence[int],
    stand_in: StandIn | None,
    names: Sequence[str],
    revision: int,
    is_plain: bool,
) -> KnownList | None:
    """The known list of one that is sent as the messages of `context`; see there."""
    count, messages = context.count, context.messages
    reserve = reserve_warnings(context.request, context.settings)
    if result.warnings[: len(reserve)] != reserve or _has_pin(messages) or given.copies is None:
        return None
    return KnownList(
        session_id=context.session_id,
        is_named=given.request.session_id is not None,
        format=given.format,
        decided_at=_decided_at(given),
        spoken_at=_spoken_at(given.messages),
        given=given.copies.given,
        numbered=given.copies.numbered,
        heads=appended.heads,
        stand_in=stand_in,
        names=names,
        method=count.method,
        tokens=_extended((0,), 0, map(count.message, messages)),
        request_bytes=_extended((0,), 0, sizes),
        call_ids=_ids(messages) if context.rules.unique_call_ids else frozenset(),
        plain_from=0 if is_plain else _plain_from(messages),
        result=replace(result, messages=[], receipt=copied(result.receipt)),
        notes=result.warnings[len(reserve) :],
        revision=revision,
    )


def _decided_at(given: ReceivedInput) -> int | None:
    """How many messages decide the format; None where the first ones do not."""
    first = given.payload[:_DECIDES_WITHIN]
    found = (at for at, raw in enumerate(first, 1) if formats.only_fits(raw, given.format))
    return next(found, None)


def _spoken_at(messages: Messages) -> int | None:
    """How many messages contain enough answers to decide the session; None where too few."""
    spoken = (at for at, message in enumerate(messages, 1) if message.role == "assistant")
    return next(islice(spoken, _SPOKEN - 1, None), None)


def _stand_in(start: Start, given: ReceivedInput) -> StandIn | None:
    if start.recognised is None:
        return None
    count = start.recognised.message_count
    place_of = {id(raw): at for at, raw in enumerate(given.payload[:count])}
    made = start.payload[: start.recognised.context_count]
    entries = [place_of[id(raw)] if id(raw) in place_of else copied(raw) for raw in made]
    return StandIn(count, tuple(entries))


def _names_of(appended: AppendResult, given: ReceivedInput) -> Sequence[str]:
    """For each message of the list as it is sent, what names the list up to it."""
    standing = appended.standing
    if standing is None:
        return appended.heads
    return _extended_names(standing.heads, given.payload[standing.message_count :])


def _extended_names(names: Sequence[str], raws: Sequence[JsonObject]) -> list[str]:
    return [
        *names,
        *chain_hashes([content_hash(raw) for raw in raws], names[-1] if names else ROOT),
    ]


def _plain_from(messages: Messages) -> int:
    """The place in the list behind the last message that is from us, or names anything of ours."""
    ours = (at for at in range(len(messages), 0, -1) if not _is_plain(messages[at - 1 : at]))
    return next(ours, 0)
