"""The record that one call leaves for the session's later ones. Pure.

The archived receipt contains it as "state", so it holds across calls, processes and restarts. The
rest of a receipt is a report, which nothing here reads back.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from context_compaction.activity.read_state import FileState
from context_compaction.messages.history_hash import history_hash
from context_compaction.messages.model import JsonObject
from context_compaction.messages.placeholders import Span
from context_compaction.request import CompactRequest

_KEY = "state"


@dataclass(frozen=True, slots=True)
class SavedSummary:
    """A summary that a model or the host wrote earlier.

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
class Rejection:
    """A list that the provider rejected as too long.

    Attributes:
        request: Names that list.
        result: Names the list that was given instead; None if none was.
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
        messages: For one that stays, its position; for any other, `index` and `raw`.
        report: The part of the receipt that tells what was done: `edits` and `layers` without
            repairs, which are made again, `boundary`, `writer` and `digest`.
    """

    prepared_id: str
    message_count: int
    prefix_hash: str
    expires_seconds: int
    messages: Sequence[Any]
    report: JsonObject


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state that one call leaves for later ones.

    Attributes:
        stop_seq: The number of the newest archived message of the call's list.
        files: The states of the files that the conversation used; None if none were read.
        rejection: The list that the provider rejected, if any.
        memory: The summary that a model or the host wrote, if one did.
        model: That a model was asked, if one was.
        made: The hash of each message of ours in the result, so that it is recognised later.
        repeat_key: Names the result together with what was asked of it; "" for none.
        mode: The mode that was asked for.
        prepared: The list prepared to be applied later, if any.
        carried: For each summary in the result, by the pointer to what it replaces, the output
            that holds its shortened originals.
    """

    stop_seq: int = -1
    files: tuple[FileState, ...] | None = None
    rejection: Rejection | None = None
    memory: SavedSummary | None = None
    model: ModelCall | None = None
    made: tuple[str, ...] = ()
    repeat_key: str = ""
    mode: str = ""
    prepared: PreparedList | None = None
    carried: Mapping[str, str] = field(default_factory=dict[str, str])


_DEFAULTS = asdict(SessionState())
_PARTS = {
    "rejection": Rejection,
    "memory": SavedSummary,
    "model": ModelCall,
    "prepared": PreparedList,
}


def with_state(receipt: JsonObject, state: SessionState) -> JsonObject:
    """`receipt` as the archive keeps it."""
    named = {name: value for name, value in asdict(state).items() if value != _DEFAULTS[name]}
    return {**receipt, _KEY: named}


def with_prepared(receipt: JsonObject, prepared: PreparedList) -> JsonObject:
    """`receipt`, which has a state, with what is to be applied unchanged."""
    return {**receipt, _KEY: {**receipt[_KEY], "prepared": asdict(prepared)}}


def states_of(receipts: Sequence[JsonObject]) -> tuple[SessionState, ...]:
    """The state that each of `receipts` left, in their order."""
    return tuple(map(state_of, receipts))


def state_of(receipt: JsonObject) -> SessionState:
    """The state that an archived receipt left."""
    kept: JsonObject = dict(receipt.get(_KEY, {}))
    kept |= {name: kind(**kept[name]) for name, kind in _PARTS.items() if name in kept}
    if "files" in kept:
        kept["files"] = tuple(FileState(**item) for item in kept["files"])
    kept["made"] = tuple(kept.get("made", ()))
    return SessionState(**kept)


def carried_for(span: Span, states: Sequence[SessionState]) -> str | None:
    """The output with the shortened originals of `span`, by the newest of `states` naming one."""
    known = (state.carried.get(span.pointer) for state in reversed(states))
    return next(filter(None, known), None)


def made_by(states: Sequence[SessionState]) -> frozenset[str]:
    """The hashes of the messages of ours that `states` list."""
    return frozenset(name for state in states for name in state.made)


def before(states: Sequence[SessionState], stop_seq: int) -> tuple[SessionState, ...]:
    """Those of `states` that were left when the conversation was shorter than up to `stop_seq`.

    A call that is repeated with the same list thus reads the same past, and returns the same bytes.
    """
    return tuple(state for state in states if state.stop_seq < stop_seq)


def stop_seq_of(seqs: Sequence[int]) -> int:
    """The number of the newest archived message of a list; -1 if there is none."""
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
    """How long a model that kept failing in the session is left alone; 0 if it may be asked.

    Every process reads the same, and it survives a restart. (Claude Code found 1,279 sessions with
    50 or more failures in a row, which cost 250,000 calls a day.)

    Args:
        states: The states of the session's calls, oldest first.
        now_seconds: The time, as Unix time.
        max_failures: So many failures in a row open the breaker; 0 is never.
        cool_down_seconds: After this one call is let through; if that fails too, the wait begins
            again.
    """
    calls = [state.model for state in states if state.model is not None]
    newest = calls[-max_failures:] if max_failures else []
    if len(newest) < max(1, max_failures) or not all(call.failed for call in newest):
        return 0.0
    return max(0.0, newest[-1].at_seconds + cool_down_seconds - now_seconds)


@dataclass(frozen=True, slots=True)
class PromptTooLongRejections:
    """What a provider rejected of one request: the state behind the mode "reactive".

    Every reactive call reports that its list was rejected, and its receipt keeps that, with the
    list that it returned instead. So no process returns a rejected list again, and each rejection
    of a request is answered one effort level harder and with half of what was rejected last.

    Attributes:
        key: Names the list that was rejected now; "" if none was.
        rejected: Names of all lists of the session that were rejected, this one included.
        versions: How many lists were rejected for this request: this one, and those that it was
            made from or that were made from it.
        smallest_tokens: The smallest of those, by the estimate at the time; None if this is the
            only one.
        max_retries: So many times a rejected request is compacted; 0 is as long as it gets smaller.
    """

    key: str = ""
    rejected: frozenset[str] = frozenset()
    versions: int = 1
    smallest_tokens: int | None = None
    max_retries: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether it has been compacted as often as it may be, and rejected all the same."""
        return 0 < self.max_retries < self.versions

    @property
    def harder_levels(self) -> int:
        """How many effort levels have been tried in vain."""
        return self.versions - 1

    def harder(self, request: CompactRequest) -> CompactRequest:
        """`request` with a target that no rejected version met."""
        if self.smallest_tokens is None:
            return request
        most = self.smallest_tokens // 2
        return replace(request, target_tokens=max(1, min(request.target_tokens or most, most)))


NO_REJECTIONS = PromptTooLongRejections()


def rejections_of(
    payload: Sequence[JsonObject], states: Sequence[SessionState], max_retries: int = 0
) -> PromptTooLongRejections:
    """The rejections of `payload`, which a provider has just rejected.

    Args:
        payload: The list.
        states: The states of all calls of the session, in any order.
        max_retries: See `PromptTooLongRejections`.
    """
    told = [state.rejection for state in states if state.rejection is not None]
    key = history_hash(payload)
    rejected = frozenset({key, *(item.request for item in told)})
    # Lists of which one was made from the other, both of them rejected.
    links = [item for item in told if item.result in rejected]
    versions: set[str | None] = {key}
    for item in (*reversed(links), *links):  # back to the first version, and on from there
        if not versions.isdisjoint((item.request, item.result)):
            versions |= {item.request, item.result}
    sizes = [item.result_tokens for item in links if item.result in versions]
    return PromptTooLongRejections(
        key, rejected, len(versions), min(sizes, default=None), max_retries
    )
