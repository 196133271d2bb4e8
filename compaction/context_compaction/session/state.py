"""The record that one call leaves for the session's later ones: typed, in one place. Pure.

The archived receipt contains it under "state", so that it holds across calls, processes and
restarts. The rest of a receipt is a report, which nothing here reads back; a receipt that was
written before there was a state has its parts beside the report, and is read as well.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar, cast

from context_compaction.activity.read_state import FileState
from context_compaction.messages.model import JsonObject
from context_compaction.messages.placeholders import Span
from context_compaction.request import CompactRequest

VERSION = 1
_KEY = "state"


@dataclass(frozen=True, slots=True)
class SavedSummary:
    """A summary written earlier.

    Attributes:
        text: The prose.
        start_seq: First archived message that it replaces ...
        stop_seq: ... and the last one.
        writer: Who wrote it.
        instructions: The instructions for it.
        at_seconds: When, in Unix time.
    """

    text: str
    start_seq: int
    stop_seq: int
    writer: str
    instructions: str
    at_seconds: int


@dataclass(frozen=True, slots=True)
class Filling:
    """A compaction of a context that was above its trigger.

    Attributes:
        streak: How many times in a row it was full again soon, that time included.
        free_tokens: Tokens that the compaction left free below the trigger.
    """

    streak: int
    free_tokens: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """A list that the provider refused as too long.

    Attributes:
        request: Names that list.
        result: Names the list that was given instead; None where none was.
        result_tokens: The estimate for that one.
    """

    request: str
    result: str | None
    result_tokens: int


@dataclass(frozen=True, slots=True)
class ModelCall:
    """That a model was asked for a summary: when, in Unix time, and whether it failed."""

    at_seconds: float
    failed: bool


@dataclass(frozen=True, slots=True)
class PreparedList:
    """The messages that replace the first ones of a list once it is applied.

    Attributes:
        prepared_id: Its name.
        message_count: How many messages it replaces ...
        prefix_hash: ... which this names.
        expires_seconds: Until when it can be applied, in Unix time.
        messages: Of one that stays its position; of any other `index` and `raw`.
        edits: What was done, and ...
        layers: ... by which layers, as a receipt has both; no repair, which is made again.
        boundary: The boundary of the summary, as a receipt has it ...
        writer: ... its writer ...
        digest: ... and the work done in the messages that it replaces.
    """

    prepared_id: str
    message_count: int
    prefix_hash: str
    expires_seconds: int
    messages: Sequence[Any]
    edits: Sequence[JsonObject]
    layers: Sequence[JsonObject]
    boundary: JsonObject | None = None
    writer: str | None = None
    digest: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class CarriedOriginals:
    """The output that holds the shortened originals of a summary of ours.

    Attributes:
        start_seq: The first archived message that the summary replaces ...
        stop_seq: ... and the last one ...
        head: ... in the history that this names.
        output_id: The output that holds it.
    """

    start_seq: int
    stop_seq: int
    head: str
    output_id: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state that one call leaves for later ones.

    Attributes:
        version: Of this record.
        stop_seq: The number of the newest archived message of the call's list.
        files: The states of the files that the conversation used; None where none were read.
        filling: How full the context was; None where it was below its trigger.
        rejection: The list that the provider had refused, if any.
        memory: The summary that a model or the host wrote, if one did.
        model: That a model was asked, if one was.
        made: The hash of each message of ours in the result, so that it is known again.
        repeat_key: Names the result together with what was asked of it; "" for none.
        mode: The mode that was asked for; "" where it is not known.
        prepared: The list prepared to be applied later, if any.
        carried: For each summary in the result, the output that holds its shortened originals.
    """

    version: int = VERSION
    stop_seq: int = -1
    files: tuple[FileState, ...] | None = None
    filling: Filling | None = None
    rejection: Rejection | None = None
    memory: SavedSummary | None = None
    model: ModelCall | None = None
    made: tuple[str, ...] = ()
    repeat_key: str = ""
    mode: str = ""
    prepared: PreparedList | None = None
    carried: tuple[CarriedOriginals, ...] = ()


_DEFAULTS = asdict(SessionState())


def with_state(receipt: JsonObject, state: SessionState) -> JsonObject:
    """`receipt` as the archive keeps it."""
    named = {name: value for name, value in asdict(state).items() if value != _DEFAULTS[name]}
    return {**receipt, _KEY: {**named, "version": state.version}}


def with_prepared(receipt: JsonObject, prepared: PreparedList) -> JsonObject:
    """`receipt`, which has a state, with what is to be applied as it is."""
    return {**receipt, _KEY: {**receipt[_KEY], "prepared": asdict(prepared)}}


def states_of(receipts: Sequence[JsonObject]) -> tuple[SessionState, ...]:
    """The state that each of `receipts` left, in their order."""
    return tuple(map(state_of, receipts))


def state_of(receipt: JsonObject) -> SessionState:
    """The state that an archived receipt left, by whichever version it was written."""
    kept = cast("JsonObject", receipt[_KEY]) if _KEY in receipt else _unversioned(receipt)
    files = kept.get("files")
    return SessionState(
        kept.get("version", 0),
        kept.get("stop_seq", -1),
        None if files is None else tuple(_read(FileState, file) for file in files),
        _read_if(Filling, kept.get("filling")),
        _read_if(Rejection, kept.get("rejection")),
        _read_if(SavedSummary, kept.get("memory")),
        _read_if(ModelCall, kept.get("model")),
        tuple(kept.get("made", ())),
        kept.get("repeat_key", ""),
        kept.get("mode", ""),
        _read_if(PreparedList, kept.get("prepared")),
        tuple(_read(CarriedOriginals, item) for item in kept.get("carried", ())),
    )


def carried_for(span: Span, states: Sequence[SessionState]) -> CarriedOriginals | None:
    """The output with the shortened originals of `span`, by the newest of `states` naming one."""
    names = span.start_seq, span.stop_seq, span.head
    known = (item for state in reversed(states) for item in state.carried)
    return next((c for c in known if (c.start_seq, c.stop_seq, c.head) == names), None)


def made_by(states: Sequence[SessionState]) -> frozenset[str]:
    """The hashes of the messages of ours that `states` list."""
    return frozenset(name for state in states for name in state.made)


def before(states: Sequence[SessionState], stop_seq: int) -> tuple[SessionState, ...]:
    """Those of `states` that were left when the conversation was shorter than up to `stop_seq`.

    A call that is repeated with the same list thus reads the same past, and returns the same bytes.
    """
    return tuple(state for state in states if state.stop_seq < stop_seq)


def stop_seq_of(seqs: Sequence[int]) -> int:
    """The number of the newest archived message of a list; -1 where there is none."""
    return max(seqs, default=-1)


def repeat_key(history: str, request: CompactRequest) -> str:
    """Names a list, whose own name is `history`, together with what was asked of it.

    A call whose list and wishes are those that the newest receipt of the session ended with finds
    nothing to do, whatever a borderline count would be the second time.
    """
    asked = replace(request, session_id=None, usage=None, usage_message_index=None)
    asked = replace(asked, summary=None, continuation=None)
    digest = hashlib.blake2b(repr(asked).encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(history.encode("ascii"))
    return digest.hexdigest()


def wait_seconds(
    states: Sequence[SessionState],
    now_seconds: float,
    *,
    max_failures: int,
    cool_down_seconds: float,
) -> float:
    """How long a model that kept failing in the session is left alone; 0 where it may be asked.

    Every process reads the same, and it survives a restart. (Claude Code found 1,279 sessions with
    50 or more failures in a row, which cost 250,000 calls a day.)

    Args:
        states: The states of the session's calls, oldest first.
        now_seconds: The time, as Unix time.
        max_failures: So many failures in a row open the breaker; 0 is never.
        cool_down_seconds: After this one call is let through; if that fails too, the wait begins
            anew.
    """
    failures = 0
    last_seconds = 0.0
    for call in (state.model for state in reversed(states)):
        if call is None:
            continue  # nobody asked a model
        if not call.failed:
            break
        last_seconds = last_seconds or call.at_seconds
        failures += 1
        if failures == max_failures:
            return max(0.0, last_seconds + cool_down_seconds - now_seconds)
    return 0.0


def _unversioned(receipt: JsonObject) -> JsonObject:
    """The parts of a state as receipts had them beside the report."""
    refill: JsonObject = receipt.get("refill") or {}
    model: JsonObject = receipt.get("model") or {}
    tokens: JsonObject = receipt.get("tokens") or {}
    filling = {
        "streak": refill.get("streak", 0),
        "free_tokens": tokens.get("trigger", 0) - tokens.get("after", 0),
    }
    call = {"at_seconds": model.get("at_seconds", 0), "failed": bool(model.get("failure"))}
    return {
        "stop_seq": receipt.get("stop_seq", -1),
        "files": receipt.get("read_state"),
        "filling": filling if refill else None,
        "rejection": receipt.get("reactive"),
        "memory": receipt.get("memory"),
        "model": call if model.get("requested") else None,
        "made": receipt.get("made", ()),
        "repeat_key": receipt.get("repeat_key", ""),
    }


_Part = TypeVar("_Part")


def _read_if(kind: type[_Part], kept: JsonObject | None) -> _Part | None:
    return _read(kind, kept) if kept else None


def _read(kind: type[_Part], kept: JsonObject) -> _Part:
    """A part of the state; what a later version wrote into it beside that is passed over."""
    known = {field.name for field in fields(cast("Any", kind))}
    return kind(**{name: value for name, value in kept.items() if name in known})
