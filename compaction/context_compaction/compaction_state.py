"""The state that one call saves for later calls of its session.

The archived receipt contains the state, so it survives processes and restarts. The rest of a
receipt is a report that no code reads back.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from context_compaction.activity.known_file import FileState
from context_compaction.errors import ArchiveError
from context_compaction.messages.model import JsonObject
from context_compaction.messages.raw import history_hash
from context_compaction.request import CompactRequest

_KEY = "state"
# A host applies a prepared list within minutes. After a day its restored files are out of date.
LIFETIME_SECONDS = 86_400
# As in Claude Code, a model that fails this often in a row is not called for a while.
MAX_FAILURES = 3
_COOL_DOWN_SECONDS = 900


@dataclass(frozen=True, slots=True)
class SavedSummary:
    """A summary that a model or the host wrote.

    Attributes:
        text: The text.
        start_seq: Number of the first archived message that it describes.
        stop_seq: Number of the last archived message that it describes.
        writer: Name of the writer.
        instructions: The instructions that it was written with.
        at_seconds: Unix time of writing.
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
        request: Hash of the rejected list.
        result: Hash of the list that was returned instead; None if none was.
        result_tokens: Estimate of the returned list.
    """

    request: str
    result: str | None
    result_tokens: int


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request for a summary to a model.

    Attributes:
        at_seconds: Unix time of the request.
        failed: Whether the request failed.
    """

    at_seconds: float
    failed: bool


@dataclass(frozen=True, slots=True)
class PreparedList:
    """Messages that replace the first messages of a list when they are applied.

    Attributes:
        prepared_id: ID for `CompactRequest.apply`.
        message_count: Number of messages that they replace.
        prefix_hash: Hash of the messages that they replace.
        expires_seconds: Unix time at which they expire.
        messages: For an unchanged message its index. For another message an object with `index`
            and `raw`.
        report: The receipt's `edits`, `layers`, `boundary`, `writer` and `digest`, without
            repairs, because these are made again.
    """

    prepared_id: str
    message_count: int
    prefix_hash: str
    expires_seconds: int
    messages: Sequence[Any]
    report: JsonObject


@dataclass(frozen=True, slots=True)
class CompactionState:
    """The state that one call saves for later calls.

    Attributes:
        stop_seq: Number of the newest archived message of the call's list.
        files: States of the files that the conversation used; None if none were read.
        rejection: The list that the provider rejected, if any.
        memory: The summary that a model or the host wrote, if any.
        model: The request to a model, if any.
        own_hashes: Hashes of the messages in the result that this library wrote. Later calls
            recognize these messages by them.
        repeat_key: Key of the result together with the request; "" if the result is not final.
        mode: The mode of the call.
        prepared: The list that a later call may apply, if any.
    """

    stop_seq: int = -1
    files: tuple[FileState, ...] | None = None
    rejection: Rejection | None = None
    memory: SavedSummary | None = None
    model: ModelCall | None = None
    own_hashes: tuple[str, ...] = ()
    repeat_key: str = ""
    mode: str = ""
    prepared: PreparedList | None = None


_DEFAULTS = asdict(CompactionState())
_PARTS = {
    "rejection": Rejection,
    "memory": SavedSummary,
    "model": ModelCall,
    "prepared": PreparedList,
}


def with_state(receipt: JsonObject, state: CompactionState) -> JsonObject:
    """Return `receipt` with `state` in it, as the archive stores it."""
    values = {name: value for name, value in asdict(state).items() if value != _DEFAULTS[name]}
    return {**receipt, _KEY: values}


def with_prepared(receipt: JsonObject, prepared: PreparedList) -> JsonObject:
    """Return `receipt`, which has a state already, with `prepared` in that state, unredacted."""
    return {**receipt, _KEY: {**receipt[_KEY], "prepared": asdict(prepared)}}


def states_of(receipts: Sequence[JsonObject]) -> tuple[CompactionState, ...]:
    """Return the states in archived receipts, in their order.

    Raises:
        ArchiveError: A receipt has a state of another version of this program.
    """
    try:
        return tuple(map(_state_of, receipts))
    except TypeError as error:
        raise ArchiveError(
            "Another version of mcp-server-compaction compacted this session, and this version "
            "cannot continue it. Use that version, or pass another session_id. Reading and search "
            "still work."
        ) from error


def _state_of(receipt: JsonObject) -> CompactionState:
    values: JsonObject = dict(receipt.get(_KEY, {}))
    values |= {name: kind(**values[name]) for name, kind in _PARTS.items() if name in values}
    if "files" in values:
        values["files"] = tuple(FileState(**item) for item in values["files"])
    values["own_hashes"] = tuple(values.get("own_hashes", ()))
    return CompactionState(**values)


def hashes_made_by(states: Sequence[CompactionState]) -> frozenset[str]:
    """Return the hashes of all messages by this library that `states` record."""
    return frozenset(name for state in states for name in state.own_hashes)


def repeat_key(history: str, request: CompactRequest) -> str:
    """Return the key of a list, given by its hash `history`, together with the request for it.

    A call with the list and request that produced the newest result has nothing to do, even if a
    borderline count would decide otherwise the second time.
    """
    request = replace(
        request,
        session_id=None,
        usage=None,
        usage_message_index=None,
        summary=None,
        continuation=None,
    )
    digest = hashlib.blake2b(repr(request).encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(history.encode("ascii"))
    return digest.hexdigest()


def wait_seconds(states: Sequence[CompactionState], now_seconds: float) -> float:
    """Return how long the model must not be called after repeated failures; 0 if it may be called.

    After the wait one call is tried. If it fails, the wait restarts. The state is in the archive,
    so all processes agree and a restart changes nothing. (Claude Code found 1,279 sessions with 50
    or more failures in a row, which cost 250,000 calls a day.)

    Args:
        states: States of the session's calls, oldest first.
        now_seconds: The current Unix time.
    """
    calls = [state.model for state in states if state.model is not None][-MAX_FAILURES:]
    if len(calls) < MAX_FAILURES or not all(call.failed for call in calls):
        return 0.0
    return max(0.0, calls[-1].at_seconds + _COOL_DOWN_SECONDS - now_seconds)


@dataclass(frozen=True, slots=True)
class PromptTooLongRejections:
    """The lists of a session that the provider rejected as too long, for the mode "reactive".

    Each reactive call records the rejected list and the list that it returned instead. So no
    process returns a rejected list again, and each further rejection is answered one effort level
    harder, with half of the tokens that were rejected last.

    Attributes:
        key: Hash of the list that was rejected now; "" if none was.
        rejected: Hashes of all rejected lists of the session.
        versions: Number of rejected lists that were made from the same request.
        smallest_tokens: Estimate of the smallest of those lists; None if there is only one.
        max_retries: Number of times that a rejected request is compacted; 0 sets no limit.
    """

    key: str = ""
    rejected: frozenset[str] = frozenset()
    versions: int = 1
    smallest_tokens: int | None = None
    max_retries: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether the request was compacted `max_retries` times, and rejected again."""
        return 0 < self.max_retries < self.versions

    def limit_target(self, request: CompactRequest) -> CompactRequest:
        """Return `request` with a target of half the smallest rejected list."""
        if self.smallest_tokens is None:
            return request
        max_tokens = self.smallest_tokens // 2
        target_tokens = min(request.target_tokens or max_tokens, max_tokens)
        return replace(request, target_tokens=max(1, target_tokens))


NO_REJECTIONS = PromptTooLongRejections()


def rejections_of(
    payload: Sequence[JsonObject], states: Sequence[CompactionState], max_retries: int = 0
) -> PromptTooLongRejections:
    """Return the rejections of `payload`, which the provider has just rejected.

    Args:
        payload: The rejected list.
        states: States of all calls of the session, in any order.
        max_retries: See `PromptTooLongRejections`.
    """
    records = [state.rejection for state in states if state.rejection is not None]
    key = history_hash(payload)
    rejected = frozenset({key, *(record.request for record in records)})
    # Pairs of rejected lists of which one was made from the other.
    links = [record for record in records if record.result in rejected]
    versions: set[str | None] = {key}
    # The first pass goes back to the first version, the second one from there to the newest.
    for record in (*reversed(links), *links):
        if not versions.isdisjoint((record.request, record.result)):
            versions |= {record.request, record.result}
    sizes = [record.result_tokens for record in links if record.result in versions]
    return PromptTooLongRejections(
        key, rejected, len(versions), min(sizes, default=None), max_retries
    )
