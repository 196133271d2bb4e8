"""Lists in which a call found nothing to do, kept so that the next call costs only what is new.

An agent hands in nearly the same list at every call. What a call has computed about it stays in
memory, for each message once: private copies by which the beginning of the next list is recognised,
the hashes of the histories, the counts, and the answer. `pipeline/grown.py` uses that.

The lists of all archives of the process share one limit in bytes; the longest unused are dropped
first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count, repeat
from operator import eq
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from context_compaction.archive import AppendResult, Store
from context_compaction.context import Copies
from context_compaction.messages.history_hash import ROOT
from context_compaction.messages.model import JsonObject
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult

MAX_BYTES = 128 * 1024 * 1024
# What a message costs beside its text: its private copy, its name and its counts.
_FRAME_BYTES = 1_000
# Calls that are under way at once.
_MOST_EXPECTED = 1_000


@dataclass(frozen=True, slots=True)
class StandIn:
    """The messages that replace the first ones of a list that was compacted before.

    Attributes:
        message_count: How many messages it replaces.
        entries: Each the place of a message that stayed, or a message of its own.
    """

    message_count: int
    entries: tuple[int | JsonObject, ...]

    def raws(self, given: Sequence[JsonObject]) -> list[JsonObject]:
        """The replacing messages; those that stayed are the objects of `given`."""
        return [given[e] if isinstance(e, int) else copied(e) for e in self.entries]


@dataclass(frozen=True, slots=True)
class KnownList:
    """A list, valid and below its trigger, as a call has left it.

    `context` is the list itself, or what replaces its beginning, and the rest.

    Attributes:
        session_id: Where it is archived.
        is_named: Whether the caller named that session.
        format: Its format.
        decided_at: How many first messages decide the format; None where they do not ...
        spoken_at: ... and how many contain two answers of the assistant, which decide the session.
        given: Private copies of its messages. Nobody may write into them.
        numbered: Whether each of them has numbers or truth values in it.
        heads: For each of them the hash of the history that ends with it.
        stand_in: What replaces its beginning; None where nothing does.
        names: For each message of `context` the hash of the list that ends with it.
        method: By which its tokens were counted.
        tokens: Of the first n messages of `context`, for n from 0.
        request_bytes: The same in bytes of a request.
        call_ids: Of all calls in `context`.
        plain_from: From this place on no message of `context` is, or names, anything of ours.
        result: The answer, without messages.
        notes: Those of its warnings that concern the list.
        revision: Of the session when the call ended; see `AppendResult`.
        is_current: Whether the session's own context was this list then.
    """

    session_id: str
    is_named: bool
    format: str
    decided_at: int | None
    spoken_at: int | None
    given: Sequence[JsonObject]
    numbered: Sequence[bool]
    heads: Sequence[str]
    stand_in: StandIn | None
    names: Sequence[str]
    method: str
    tokens: Sequence[int]
    request_bytes: Sequence[int]
    call_ids: frozenset[str]
    plain_from: int
    result: CompactResult
    notes: tuple[str, ...]
    revision: int
    is_current: bool = False

    @property
    def stands_for(self) -> int:
        """How many of the first messages are replaced."""
        return self.stand_in.message_count if self.stand_in else 0

    @property
    def shift(self) -> int:
        """What to add to a place in the list for that in `context`, behind what was replaced."""
        return len(self.stand_in.entries) - self.stand_in.message_count if self.stand_in else 0

    def context(self, given: Sequence[JsonObject]) -> list[JsonObject]:
        """What `given`, which begins with this list, is sent as."""
        if self.stand_in is None:
            return list(given)
        return [*self.stand_in.raws(given), *given[self.stands_for :]]


_Key: TypeAlias = tuple[int, str]


class KnownLists:
    """The newest known list of each session, bounded by bytes. Threads may share it."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lists: OrderedDict[_Key, KnownList] = OrderedDict()
        self._expected: OrderedDict[_Key, tuple[int, str]] = OrderedDict()
        self._archives: WeakKeyDictionary[Store, int] = WeakKeyDictionary()
        self._numbers = count()
        self._lock = Lock()

    def keep(self, archive: Store, known: KnownList, appended: AppendResult | None = None) -> None:
        """Remember `known` instead of what was known of its session.

        Args:
            archive: Where it is archived.
            known: The list.
            appended: Its place there; None where `known` holds whether it is current.
        """
        with self._lock:
            key = (self._number(archive), known.session_id)
            self._drop(key)
            expected = self._expected.pop(key, (0, ROOT))
            if appended is not None and known.stand_in is None:
                before = (ROOT, *known.heads)[-1 - appended.written]
                known = replace(known, is_current=expected == (appended.revision_before, before))
            self._lists[key] = known
            self._bytes += _cost_bytes(known)
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._lists)))

    def expect(self, archive: Store, session_id: str, revision: int, name: str) -> None:
        """Record which history the session's own context is, before a list that continues it."""
        with self._lock:
            self._expected[self._number(archive), session_id] = (revision, name)
            while len(self._expected) > _MOST_EXPECTED:
                self._expected.popitem(last=False)

    def confirm(self, archive: Store, session_id: str, revision: int, name: str) -> None:
        """Record that the session's own context is the list of this name; see `expect`."""
        with self._lock:
            known = self._lists.get((self._number(archive), session_id))
            if known is not None and (known.revision, known.names[-1]) == (revision, name):
                self._lists[self._number(archive), session_id] = replace(known, is_current=True)

    def of_session(self, archive: Store, session_id: str) -> KnownList | None:
        """The newest known list of a session."""
        with self._lock:
            key = (self._number(archive), session_id)
            if key in self._lists:
                self._lists.move_to_end(key)
            return self._lists.get(key)

    def beginning_of(
        self, archive: Store, payload: Sequence[JsonObject], session_id: str | None
    ) -> tuple[KnownList, int] | None:
        """The known list that `payload` shares most first messages with, and how many.

        Without a session it is one that no caller has named either.
        """
        if session_id is not None:
            known = self.of_session(archive, session_id)
            found = [known] if known is not None else []
        else:
            with self._lock:
                number = self._number(archive)
                of_archive = [k for (n, _), k in self._lists.items() if n == number]
            first = list(payload[:1])
            found = [k for k in of_archive if not k.is_named and list(k.given[:1]) == first]
        shared = [(known, shared_count(known.given, payload, known.numbered)) for known in found]
        return max(shared, key=lambda item: item[1], default=None)

    def _number(self, archive: Store) -> int:
        number = self._archives.get(archive)
        if number is None:
            number = self._archives[archive] = next(self._numbers)
        return number

    def _drop(self, key: _Key) -> None:
        known = self._lists.pop(key, None)
        if known is not None:
            self._bytes -= _cost_bytes(known)


KNOWN_LISTS = KnownLists()


def _cost_bytes(known: KnownList) -> int:
    return known.request_bytes[-1] + _FRAME_BYTES * len(known.given)


def may_go_on(request: CompactRequest) -> bool:
    """Whether a call may be one that finds nothing to do: all it asks for is that the list fits."""
    asks = (
        request.prepare,
        request.apply,
        request.summary,
        request.continuation,
        request.pinned,
        request.pinned_messages,
        request.snip_messages,
        request.unpin,
        request.idle_seconds,
        request.summarizer == "host",
    )
    return request.mode == "auto" and not any(asks)


def copies_for(
    payload: Sequence[JsonObject], request: CompactRequest, found: tuple[KnownList, int] | None
) -> Copies | None:
    """Those of a list that may be remembered after the call; None for any other.

    `found` are a known list and how many first messages it shares.
    """
    if not may_go_on(request):
        return None
    try:
        return copies_of(payload, *found) if found else copies_of(payload)
    except NotPlainError:
        return None


def copies_of(
    payload: Sequence[JsonObject], known: KnownList | None = None, shared: int = 0
) -> Copies:
    """Private copies of a list that shares `shared` first messages with `known`.

    Raises:
        NotPlainError: It contains a type that is not JSON's own.
    """
    given, numbered = (known.given[:shared], known.numbered[:shared]) if known else ((), ())
    numbers: list[list[Any]] = [[] for _ in payload[shared:]]
    new = map(copied, payload[shared:], numbers)
    return Copies([*given, *new], [*numbered, *map(bool, numbers)])


class NotPlainError(TypeError):
    """A value is no plain JSON: a subclass, say, of unknown behaviour."""


_LEAVES = frozenset({str, int, float, bool, type(None)})


def copied(value: Any, numbers: list[Any] | None = None) -> Any:
    """A copy of a JSON value that shares no mutable part; its numbers and truth values are added.

    Raises:
        NotPlainError: It contains a type that is not JSON's own.
    """
    kind: Any = value.__class__
    if kind is dict:
        return {
            key: item if type(item) is str else copied(item, numbers) for key, item in value.items()
        }
    if kind is list:
        return [item if type(item) is str else copied(item, numbers) for item in value]
    if kind not in _LEAVES:
        raise NotPlainError(f"{kind.__name__} is no JSON")
    if numbers is not None and kind is not str and value is not None:
        numbers.append(value)
    return value


def shared_count(
    known: Sequence[JsonObject],
    payload: Sequence[JsonObject],
    numbered: Iterable[bool] = repeat(True),
) -> int:
    """How many first messages of `payload` are those of `known`, whatever the order of their keys.

    `numbered` tells of each of `known` whether it has numbers, where the caller knows that.
    """
    # In C, and nothing is written to compare it: a third of what its bytes cost to be made.
    alike = list(map(eq, known, payload))
    first = alike.index(False) if False in alike else len(alike)
    doubtful = compress(range(first), numbered)
    return next((at for at in doubtful if not _is_spelt_alike(known[at], payload[at])), first)


def _is_spelt_alike(one: Any, other: Any) -> bool:
    """Whether equal values are the same JSON: `==` takes 1 for true and for 1.0."""
    if one is other:
        return True
    kind: Any = one.__class__
    if kind is not other.__class__:
        return False
    if kind is dict:
        return all(_is_spelt_alike(item, other[key]) for key, item in one.items())
    if kind is list:
        return all(map(_is_spelt_alike, one, other))
    return kind is not float or repr(one) == repr(other)  # -0.0
