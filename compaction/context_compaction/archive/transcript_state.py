"""What is known of one session without reading a body: built from the heads of its log.

Records may be learnt in any order (several writers, read one after the other), so nothing here
depends on the order of `learn`.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from sys import intern
from threading import Lock
from typing import Any, Generic, TypeVar

from context_compaction.archive import NO_SEQ
from context_compaction.archive.histories import (
    HistoryTree,
    MessageNode,
    MessageRun,
    MissingHistoryError,
    Node,
)
from context_compaction.archive.records import LoggedRecord, Record
from context_compaction.errors import NotFoundError
from context_compaction.messages.history_hash import ROOT, chain_hash, chain_hashes

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound="TranscriptState")

# A list may go on from any of the newest contexts: agents may share a session.
_TRIED_CONTEXTS = 4
# A host adds, takes out or rewrites no more messages of its own than these at once.
_MOST_CHANGES = 3
_HOSTS_ROLES = ("user", "system")
# Kinds of records that no history is made of.
_APART = ("session", "output", "pin")
CACHED_RECORDS = 28_000  # of all of them together: about 1 KB each


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A context that a compaction left.

    Attributes:
        number: Its record's number.
        end: Chain hash after its last entry.
        histories: The names of what it was made of: one, or two where that began with another
            context.
    """

    number: int
    end: str
    histories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """A stored context in the place of the beginning of a list.

    Attributes:
        message_count: How many messages of the list it stands for.
        stored: The context.
        heads: For each of its entries, the history that ends there.
        lead: How many of its first entries are not those that were stored but the first messages
            of the list: a host's own, edited since ...
        stored_lead: ... and how many were stored.
        entry_count: How many of its entries stand: what the host wrote last, and changed since,
            is not among them.
    """

    message_count: int
    stored: StoredContext
    heads: tuple[str, ...]
    lead: int = 0
    stored_lead: int = 0
    entry_count: int | None = None


@dataclass(slots=True)
class TranscriptState:
    """The heads of one session, kept up to date by `refresh`. Not safe for several threads.

    Attributes:
        tree: Known histories.
        outputs: Output records by id.
        receipts: Receipt records by record number.
        context_records: Records of stored contexts, by record number.
        newest_context: The last stored context.
        contexts: The newest stored context of each history.
        context_ends: The stored contexts by the histories that they are themselves.
        parent_session_id: The session that this one was started from.
        is_retained: Whether retention must leave it.
        next_seq: Number of the next message.
        next_number: Number of the next record.
        revision: How many records there are of what makes histories; see `AppendResult`.
        first_seconds: Time of the earliest record; infinite where there is none.
        last_seconds: Time of the latest record.
        archived_seconds: When the latest record was written, by our own clock.
        contents: Content hashes of messages that were archived unchanged, by `json_key`.
    """

    session_id: str = ""
    parent_session_id: str | None = None
    tree: HistoryTree = field(default_factory=HistoryTree)
    outputs: dict[str, LoggedRecord] = field(default_factory=dict[str, LoggedRecord])
    receipts: dict[int, LoggedRecord] = field(default_factory=dict[int, LoggedRecord])
    # Of each history the receipts of compactions that it went through, or that left it.
    _receipts_at: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _older_receipts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    context_records: dict[int, LoggedRecord] = field(default_factory=dict[int, LoggedRecord])
    _newest: str = ROOT  # the history that the message learnt last ends
    newest_context: StoredContext | None = None
    contexts: dict[str, StoredContext] = field(default_factory=dict[str, StoredContext])
    context_ends: dict[str, StoredContext] = field(default_factory=dict[str, StoredContext])
    is_retained: bool = False
    retained_at: int = -1  # number of the newest record that says so
    next_seq: int = 0
    next_number: int = 0
    revision: int = 0
    first_seconds: float = inf
    last_seconds: float = 0.0
    archived_seconds: float = 0.0
    contents: dict[bytes, str] = field(default_factory=dict[bytes, str])

    @property
    def messages(self) -> Mapping[int, MessageNode]:
        """Messages by number."""
        return self.tree.messages

    @property
    def exists(self) -> bool:
        """Whether the archive holds anything of this session."""
        return self.next_number > 0

    @property
    def format(self) -> str:
        """The format of the newest message; "" where there is none."""
        newest = self.messages.get(self.next_seq - 1)
        return newest.format if newest else ""

    def learn(self, record: LoggedRecord) -> None:
        """Take in one record."""
        head = record.head
        number: int = head["n"]
        self.next_number = max(self.next_number, number + 1)
        seconds: float = head["ts"]
        self.first_seconds = min(self.first_seconds, seconds)
        self.last_seconds = max(self.last_seconds, seconds)
        archived: float = head.get("at", seconds)
        self.archived_seconds = max(self.archived_seconds, archived)
        if head["kind"] not in _APART:
            self.revision += 1
        match head["kind"]:
            case "session":
                self.session_id = head["session"]
                self.parent_session_id = self.parent_session_id or head["parent"]
            case "message":
                self._learn_message(record)
            case "output":
                self.outputs.setdefault(head["id"], record)
            case "receipt":
                self._learn_receipt(record, number)
            case "run":
                run = MessageRun(head["parent"], head["source"], head["count"], number)
                self.tree.add_run(head["head"], run)
            case "pin" if number > self.retained_at:
                self.retained_at, self.is_retained = number, head["pinned"]
            case "pin":
                pass  # an older record
            case _:
                self._learn_context(record, number)

    def _learn_receipt(self, record: LoggedRecord, number: int) -> None:
        if number < max(self.receipts, default=number):
            self._older_receipts.clear()  # one of them may be this
        self.receipts[number] = record
        for name in {record.head["of"], record.head["left"]} - {ROOT}:
            self._receipts_at[name].append(number)

    def _learn_message(self, record: LoggedRecord) -> None:
        head = record.head
        seq: int = head["seq"]
        content: str = head["hash"]
        # Mostly it goes on from there: the name is kept once then.
        parent: str = self._newest if head["parent"] == self._newest else head["parent"]
        node = MessageNode(
            seq,
            parent,
            content,
            head["n"],
            place=record.place,
            seconds=head["ts"],
            format=intern(head["format"]),
            role=intern(head["role"]),
        )
        self._newest = chain_hash(parent, content)
        self.tree.add_message(self._newest, node)
        self.next_seq = max(self.next_seq, seq + 1)

    def forget_other_contents(self, keys: Collection[bytes]) -> None:
        """Forget the content hashes of messages that a whole list does not contain.

        So memory grows with the list and not with the session. A thousand other hashes stay,
        because several agents may use one session.
        """
        if len(self.contents) > len(keys) + 1_000:
            self.contents = {key: self.contents[key] for key in keys if key in self.contents}

    def _learn_context(self, record: LoggedRecord, number: int) -> None:
        head = record.head
        end = self.tree.add_context(head["entries"], number, head["of"])
        of = (str(head["of"]), str(head["listed"]))
        stored = StoredContext(number, end, tuple(name for name in of if name != ROOT))
        self.context_records[number] = record
        if self.newest_context is None or self.newest_context.number < number:
            self.newest_context = stored
        self.context_ends[end] = stored
        for name in stored.histories:
            if name not in self.contexts or self.contexts[name].number < number:
                self.contexts[name] = stored

    def standing(self, contents: Sequence[str], chain: Sequence[str]) -> Standing | None:
        """The stored context that replaces the longest beginning of a list that one was made of.

        None where the list contains that already. What a context stands for may itself be compacted
        further in a list that went on from that context.

        Args:
            contents: The content hashes of the list.
            chain: Its chain hashes.
        """
        standing: Standing | None = None
        while found := self._context_of(chain):
            count, stored = found
            if standing is not None and stored.number <= standing.stored.number:
                break
            kept = 0 if standing is None else standing.message_count - len(standing.heads)
            made = [str(content) for content, *_ in self.entries_of(stored)]
            contents = [*made, *contents[count:]]
            chain = chain_hashes(contents)
            standing = Standing(kept + count, stored, tuple(chain[: len(made)]))
        return standing

    def standing_beside_changes(
        self, contents: Sequence[str], chain: Sequence[str], roles: Sequence[str]
    ) -> Standing | None:
        """The same for a list in which the host has changed messages of its own since.

        Hosts add a reminder or the time for one call only, and rewrite their system messages or
        the first one. Such a list goes on from what replaced its beginning all the same, as far as
        what was kept behind that is unchanged.
        """
        newest = {stored.number: stored for stored in self.contexts.values()}
        for number in sorted(newest, reverse=True)[:_TRIED_CONTEXTS]:
            for history in newest[number].histories:
                found = self._beside_changes(newest[number], history, contents, chain, roles)
                if found is not None:
                    return found
        return None

    def _beside_changes(
        self,
        stored: StoredContext,
        history: str,
        contents: Sequence[str],
        chain: Sequence[str],
        roles: Sequence[str],
    ) -> Standing | None:
        entries = self.entries_of(stored)
        names = chain_hashes([str(content) for content, *_ in entries])
        made = {name for name, entry in zip(names, entries, strict=True) if entry[1] == NO_SEQ}
        if not made.isdisjoint(chain):
            return None  # the list has what the compaction made itself
        originals = self._originals(history)
        kept = _kept_at(entries, originals)
        replaced_count = len(originals) - len(kept)
        places = self._places_beside_changes(originals, replaced_count, contents, roles)
        stored_lead = 0
        for (_, seq, *_), node in zip(entries, originals[:replaced_count], strict=False):
            if seq != node.seq:
                break
            stored_lead += 1
        if not places or places[stored_lead] is None:
            return None
        lead, count = places[stored_lead] or 0, places[-1] or 0
        same = 0
        for node, content in zip(originals[replaced_count:], contents[count:], strict=False):
            if node.content != content:
                break
            same += 1
        entry_count = len(entries) if same == len(kept) else kept[same]
        is_plain = all(seq != NO_SEQ for _, seq, *_ in entries[:entry_count])
        if not count + same or (is_plain and entry_count == replaced_count + same):
            return None  # nothing of the list is in it, or nothing was changed
        # What follows is named as it was stored: no list that begins otherwise was.
        heads = (*chain[:lead], *names[stored_lead:entry_count])
        return Standing(count + same, stored, heads, lead, stored_lead, entry_count)

    def _places_beside_changes(
        self, originals: Sequence[Node], count: int, contents: Sequence[str], roles: Sequence[str]
    ) -> list[int | None]:
        """Where a list has the first `count` originals, and where it goes on.

        None for one that it lacks. Shorter where anything else than the host's own was changed.
        """
        places: list[int | None] = []
        said = self._roles_of(originals)
        first = next((at for at, role in enumerate(said) if role != "system"), 0)
        at = changes = 0
        while len(places) < count and changes <= _MOST_CHANGES:
            now = len(places)
            after = originals[now + 1].content if now + 1 < len(originals) else None
            here, there = (*contents[at : at + 2], "", "")[:2]
            if originals[now].content == here:
                places.append(at)
                at += 1
                continue
            changes += 1
            if after == here and said[now] in _HOSTS_ROLES:
                places.append(None)  # it stood there for one call
            elif originals[now].content == there and roles[at] in _HOSTS_ROLES:
                at += 1  # it stands here for one call
            elif after == there and (said[now] == "system" or now == first):
                places.append(at)  # it was rewritten
                at += 1
            else:
                return []
        # A few messages that two lists have in common are no sign that one goes on from the other.
        return [*places, at] if len(places) == count and 2 * changes <= count else []

    def _originals(self, history: str) -> list[Node]:
        try:
            return [node for _, node in self.tree.walk(history)][::-1]
        except MissingHistoryError:
            return []

    def entries_of(self, stored: StoredContext) -> list[Any]:
        """The entries of a context, as its record has them."""
        entries: list[Any] = self.context_records[stored.number].head["entries"]
        return entries

    def _context_of(self, chain: Sequence[str]) -> tuple[int, StoredContext] | None:
        for count in range(len(chain), 0, -1):
            stored = self.contexts.get(chain[count - 1])
            if stored is not None and stored.end != chain[count - 1]:
                return count, stored
            if chain[count - 1] in self.context_ends:
                break
        return None

    def is_compacted_before(self, head: str) -> bool:
        """Whether a stored context stands for a part of the history `head`."""
        for name in self.tree.names(head) if self.contexts else ():
            stored = self.contexts.get(name)
            if stored is not None and stored.end != name:
                return True
            if name in self.context_ends:
                break
        return False

    def newest_nodes(self, *starts: str) -> list[Node]:
        """The messages after the histories `starts`, along their newest branch.

        What a compaction wrote, and a host repeats, has no number.

        Raises:
            ArchiveDamagedError: A message or context between them cannot be read.
        """
        found = (
            name
            for name in self.tree.ends()
            if not starts or not {*starts}.isdisjoint(self.tree.names(name))
        )
        newest = next(found, starts[0] if starts else ROOT)
        path: list[Node] = []
        for name, node in self.tree.walk(newest):
            if name in starts:
                break
            path.append(node)
        return path[::-1]

    def current_places(self) -> list[tuple[str, int]]:
        """Of what the session goes on from, each message's content hash and number.

        Raises what `newest_nodes` raises.
        """
        stored = self._current_context()
        if stored is None:
            return self._places_beside_context(self.newest_nodes())
        nodes = self.newest_nodes(stored.end, *stored.histories)
        while True:
            made = [(str(content), int(seq)) for content, seq, *_ in self.entries_of(stored)]
            contents = [content for content, _ in made] + [node.content for node in nodes]
            found = self._context_of(chain_hashes(contents))
            if found is None or found[1].number <= stored.number:
                return made + self._places(nodes)
            # A list that went on from that context was compacted again.
            count, stored = found
            nodes = nodes[count - len(made) :]

    def _places_beside_context(self, nodes: Sequence[Node]) -> list[tuple[str, int]]:
        """The same for a list that may go on from a context beside changes of the host's."""
        contents = [node.content for node in nodes]
        chain, roles = chain_hashes(contents), self._roles_of(nodes)
        found = self.standing_beside_changes(contents, chain, roles)
        if found is None:
            return self._places(nodes)
        entries = self.entries_of(found.stored)[found.stored_lead : found.entry_count]
        made = [(str(content), int(seq)) for content, seq, *_ in entries]
        ends = self._places(nodes[: found.lead]), self._places(nodes[found.message_count :])
        return [*ends[0], *made, *ends[1]]

    def _roles_of(self, nodes: Sequence[Node]) -> list[str]:
        known = self.messages
        return [known[node.seq].role if node.seq in known else "" for node in nodes]

    def _places(self, nodes: Sequence[Node]) -> list[tuple[str, int]]:
        """The content hash and the number of each; a number stands for the message as it came."""
        places: list[tuple[str, int]] = []
        for node in nodes:
            said = self.messages.get(node.seq)
            is_ours = said is not None and said.content != node.content
            places.append((node.content, NO_SEQ if is_ours else node.seq))
        return places

    def _current_context(self) -> StoredContext | None:
        """The stored context that the session goes on from; None where that is a plain list.

        It is the newest, but where a list came later that does not go on from it: a host went back
        to before that compaction, or began anew under the same name.
        """
        newest = self.newest_context
        if newest is None:
            return None
        number, last = self.tree.newest
        if number < newest.number:
            return newest
        names = (n for n in self.tree.names(last) if n in self.context_ends or n in self.contexts)
        name = next(names, None)
        return None if name is None else self.context_ends.get(name) or self.contexts[name]

    def history(self, head: str) -> list[int]:
        """Numbers of the messages of history `head`, oldest first; see `Archive.history`.

        Raises:
            NotFoundError: The session holds no such history.
            ArchiveDamagedError: A part of it cannot be read.
        """
        name = self.tree.find(head)
        if name is None:
            raise NotFoundError(
                f"Session {self.session_id} holds no history {head!r}. Give the pointer as it was "
                "told, with the 12 characters after its @, or leave them out for all branches."
            )
        return self.tree.numbers(name)

    def receipts_of(self, heads: Collection[str]) -> list[int]:
        """The numbers of the receipts of the compactions that a list went through, oldest first.

        These are the ones of a list that it begins with, or whose outcome it begins with, and what
        went before them.

        Args:
            heads: The names of all histories that the list begins with.
        """
        waiting, found = self._receipts_among(heads), set[int]()
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self._receipts_before(number)
        return sorted(found)

    def _receipts_before(self, number: int) -> list[int]:
        """The numbers of the older receipts of the list that the one at `number` tells of."""
        if number not in self._older_receipts:
            names = self.tree.names(self.receipts[number].head["of"])
            older = [other for other in self._receipts_among(names) if other < number]
            self._older_receipts[number] = older
        return self._older_receipts[number]

    def _receipts_among(self, names: Iterable[str]) -> list[int]:
        """The numbers of the receipts of a list among `names`, or that left one."""
        return [number for name in names for number in self._receipts_at.get(name, ())]


def _kept_at(entries: Sequence[Any], originals: Sequence[Node]) -> list[int]:
    """Where a context has the last messages of a list, edited or not, which it keeps."""
    kept: list[int] = []
    for at in range(len(entries) - 1, -1, -1):
        _, seq, source_seq, *stands_for = entries[at]
        original = source_seq if seq == NO_SEQ else seq
        if original == NO_SEQ and not stands_for:
            continue  # a note of ours between them
        if len(kept) == len(originals) or originals[-1 - len(kept)].seq != original:
            break
        kept.append(at)
    return kept[::-1]


def numbered(
    state: TranscriptState,
    session_id: str,
    parent_session_id: str | None,
    records: Sequence[Record],
    *,
    opens: bool,
) -> list[Record]:
    """`records` with their numbers, after one that names the session where needed.

    Args:
        state: What is known of the session so far.
        session_id: The session.
        parent_session_id: The session that started it, unless another is known already.
        records: Those that follow, of one call.
        opens: Whether to name it in any case, since what follows may be read by itself.
    """
    parent = state.parent_session_id or parent_session_id
    if opens or parent != state.parent_session_id:
        head = {
            "kind": "session",
            # Not now: an old transcript that is imported stays an old session.
            "ts": min(record.head["ts"] for record in records),
            "session": session_id,
            "parent": parent,
        }
        records = [Record(head), *records]
    return [
        Record({"n": state.next_number + count} | record.head, record.body)
        for count, record in enumerate(records)
    ]


class StateCache(Generic[S]):
    """What a process knows of sessions between calls; safe for several threads.

    A state is taken out while it is worked with. The newest used are kept, bounded in number and in
    their records.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[Hashable, S] = OrderedDict()
        self._lock = Lock()

    def take(self, key: Hashable) -> S | None:
        """The state of a session, if it is known and nobody works with it."""
        with self._lock:
            return self._states.pop(key, None)

    def put(self, key: Hashable, state: S) -> None:
        """Keep a state for the next call."""
        with self._lock:
            self._states[key] = state
            self._states.move_to_end(key)  # others may have put it there as well
            records = sum(known.next_number for known in self._states.values())
            while len(self._states) > 1 and (len(self._states) > 256 or records > CACHED_RECORDS):
                _, oldest = self._states.popitem(last=False)
                records -= oldest.next_number

    def states(self) -> list[S]:
        """All states that nobody works with."""
        with self._lock:
            return [*self._states.values()]
