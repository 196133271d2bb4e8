"""The histories of one session as a tree: which are known, what each holds, where a list goes on.

Every message and every entry of a stored context is a node, named by the chain hash of the history
that ends there. What a list repeats of another history (a host that keeps the newest messages only,
or that rewrites its first one at each turn) is a run: it refers to those messages, so that they
are kept once. Nodes and runs may be added in any order.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from context_compaction.archive import NO_SEQ
from context_compaction.archive.records import LinePlace
from context_compaction.errors import ArchiveDamagedError
from context_compaction.messages.history_hash import HEAD_CHARS, ROOT, chain_hash, chain_hashes


@dataclass(frozen=True, slots=True)
class Node:
    """The end of one known history.

    Attributes:
        seq: The message's number; of a context's entry its original's, or -1.
        parent: Chain hash of the history without its last message.
        content: Content hash of the message.
        number: That of its record.
        stands_for: Of a message of ours, the head of the history that it replaced.
    """

    seq: int
    parent: str
    content: str
    number: int
    stands_for: str = ""


@dataclass(frozen=True, slots=True)
class MessageNode(Node):
    """The same of a message's own record, rather than of an entry of a context.

    It is all that is known of a message without reading it.

    Attributes:
        place: Where its record is.
        seconds: The message's time.
        format: Its format.
        role: Who speaks.
    """

    place: LinePlace = field(kw_only=True)
    seconds: float = field(kw_only=True)
    format: str = field(kw_only=True)
    role: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class MessageRun:
    """Several messages after `parent`: the last `count` of the history `source`."""

    parent: str
    source: str
    count: int
    number: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part of a list, from `start` up to before `stop`, that ends the history `source` too."""

    start: int
    stop: int
    source: str


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a list belongs in its session.

    Attributes:
        seqs: For each message its number; None where it is new.
        repeats: The parts that other histories contain, and are to be named as such.
        forks_at: The first new message before which the session continues otherwise; None where the
            list only goes on from where a history ended.
    """

    seqs: tuple[int | None, ...]
    repeats: tuple[Repeat, ...] = ()
    forks_at: int | None = None


class MissingHistoryError(ArchiveDamagedError):
    """What a history builds upon is not known: its record is damaged."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(
            f"What stood before message {seq} is damaged. Hand over the whole message list again, "
            "which stores it anew."
        )
        self.name = name


@dataclass(slots=True)
class HistoryTree:
    """The histories of one session. Not safe for several threads.

    Attributes:
        nodes: By the names of the histories that they end.
        messages: The messages by number.
        runs: By the chain hash after their last message.
        leaves: Of the histories that a message or a run ends those that none continues.
        contexts_of: For a history, the contexts that compactions made of it.
        newest: The greatest record number of a message or run, and the name of its history.
    """

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    messages: dict[int, MessageNode] = field(default_factory=dict[int, MessageNode])
    runs: dict[str, MessageRun] = field(default_factory=dict[str, MessageRun])
    leaves: set[str] = field(default_factory=set[str])
    contexts_of: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    newest: tuple[int, str] = (-1, ROOT)
    _continued: set[str] = field(default_factory=set[str])  # by a message or a run
    # Of each content the history learnt last that ends with it, and of that the one before.
    _last_with: dict[str, str] = field(default_factory=dict[str, str])
    _one_before: dict[str, str] = field(default_factory=dict[str, str])
    # Parts of runs, and whole names, that were asked for.
    _within: dict[str, MessageRun] = field(default_factory=dict[str, MessageRun])
    _found: dict[str, str] = field(default_factory=dict[str, str])

    def add_message(self, name: str, node: MessageNode) -> None:
        """Take in a message."""
        self._add(name, node)
        self.messages[node.seq] = node
        self._continue(name, node.number, node.parent)

    def add_run(self, name: str, run: MessageRun) -> None:
        """Take in a run; the history that it repeats goes on here."""
        self.runs[name] = run
        self._continue(name, run.number, run.parent, run.source)

    def add_context(self, entries: Sequence[Sequence[str | int]], number: int, of: str) -> str:
        """Take in a context that was made of the history `of`; the name of its own end."""
        parent = ROOT
        for content, seq, source_seq, *stands_for in entries:
            name = chain_hash(parent, str(content))
            known = self.nodes.get(name)
            if known is None or known.seq == NO_SEQ:
                original = int(seq) if seq != NO_SEQ else int(source_seq)
                head = str(stands_for[0]) if stands_for else ""
                self._add(name, Node(original, parent, str(content), number, head))
            parent = name
        if of:
            self.contexts_of.setdefault(of, []).append(parent)
        return parent

    def _add(self, name: str, node: Node) -> None:
        if name not in self.nodes:
            if node.content in self._last_with:
                self._one_before[name] = self._last_with[node.content]
            self._last_with[node.content] = name
        self.nodes[name] = node

    def _continue(self, name: str, number: int, *before: str) -> None:
        self.newest = max(self.newest, (number, name))
        if name not in self._continued:  # what continues it may have been learnt first
            self.leaves.add(name)
        self._continued.update(before)
        self.leaves.difference_update(before)

    def is_continued(self, name: str) -> bool:
        """Whether a message or a run continues the history `name`."""
        return name == ROOT or name in self._continued

    def newest_with(self, content: str) -> Iterator[str]:
        """The names of the histories that end with `content`, the one learnt last first."""
        name = self._last_with.get(content)
        while name is not None:
            yield name
            name = self._one_before.get(name)

    def holds(self, name: str) -> bool:
        """Whether the history `name` is known, or is that of no message."""
        return name == ROOT or name in self.nodes or name in self.runs

    def find(self, head: str) -> str | None:
        """The whole name of the history that `head`, its first `HEAD_CHARS` or more, names."""
        if head not in self._found and len(head) >= HEAD_CHARS:
            names = (name for known in (self.nodes, self.runs) for name in reversed(known))
            name = next((name for name in names if name.startswith(head)), None)
            name = name or self._find_within_runs(head)
            if name is not None:
                self._found[head] = name
        return self._found.get(head)

    def _find_within_runs(self, head: str) -> str | None:
        for run in sorted(self.runs.values(), key=lambda run: -run.number):
            try:
                steps = [*islice(self.walk(run.source), run.count)]
            except MissingHistoryError:
                continue
            name = run.parent
            for count, (source, node) in enumerate(reversed(steps), start=1):
                name = chain_hash(name, node.content)
                if name.startswith(head):
                    self._within[name] = MessageRun(run.parent, source, count, run.number)
                    return name
        return None

    def walk(self, head: str) -> Iterator[tuple[str, Node]]:
        """The messages of history `head`, newest first, each with the name under which it is kept.

        Raises:
            MissingHistoryError: A part of it is damaged.
        """
        seq = NO_SEQ
        rest: list[tuple[str, float]] = [(head, inf)]
        while rest:
            name, left = rest.pop()
            while left and name != ROOT:
                node = self.nodes.get(name)
                if node is not None:
                    yield name, node
                    seq, name, left = node.seq, node.parent, left - 1
                    continue
                run = self.runs.get(name) or self._within.get(name)
                if run is None:
                    raise MissingHistoryError(name, seq)
                part = min(run.count, left)
                rest.append((run.parent, left - part))
                name, left = run.source, part

    def names(self, head: str) -> Iterator[str]:
        """The names of the histories that `head` goes on from, itself included, as far as kept."""
        while head != ROOT:
            yield head
            before = self.nodes.get(head) or self.runs.get(head) or self._within.get(head)
            head = ROOT if before is None else before.parent

    def numbers(self, head: str) -> list[int]:
        """The messages of history `head`, oldest first, with those that summaries in it stand for.

        Raises:
            MissingHistoryError: A part of it is damaged.
        """
        found: dict[int, None] = {}  # newest first
        walks = [self.walk(head)]
        seen = {head}
        while walks:
            step = next(walks[-1], None)
            if step is None:
                walks.pop()
                continue
            _, node = step
            if node.seq != NO_SEQ:
                found.setdefault(node.seq)
            before = self.find(node.stands_for) if node.stands_for else None
            if before is not None and before not in seen:
                seen.add(before)
                walks.append(self.walk(before))
        return [*reversed(found)]

    def place(self, contents: Sequence[str], chain: Sequence[str], lead: int = 0) -> Placed:
        """Where a list belongs: what of it is known, what repeats another history, what is new.

        Args:
            contents: Its content hashes.
            chain: Its chain hashes.
            lead: How many of its first messages are a host's own (system messages).
        """
        seqs: list[int | None] = [None] * len(chain)
        known = self._known_prefix(chain)
        seqs[: len(known)] = [node.seq for node in known]
        used = {node.seq for node in known}
        stood_for: set[int] | None = None

        def is_used(seq: int) -> bool:
            nonlocal stood_for
            if seq not in used and stood_for is None:
                stood_for = self._stood_for(contents)
            return seq in used or seq in (stood_for or ())

        repeats: list[Repeat] = []
        at = len(chain) - 1
        while at >= len(known):
            node = self.nodes.get(chain[at])
            if node is not None:  # what stood before it was damaged, and comes anew
                seqs[at] = node.seq
                at -= 1
                continue
            repeat, found = self._longest_repeat(contents, len(known), at, is_used, lead)
            if repeat is None:
                at -= 1
                continue
            repeats.insert(0, repeat)
            seqs[repeat.start : repeat.stop] = found
            used |= {*found}
            at = repeat.start - 1
        ends = {repeat.stop: repeat.source for repeat in repeats}
        forks_at = next(
            (
                at
                for at, seq in enumerate(seqs)
                if seq is None
                and (at and seqs[at - 1] is not None)
                and self.is_continued(ends.get(at, chain[at - 1]))
            ),
            None,
        )
        if self.nodes and chain and all(seq is None for seq in seqs):
            forks_at = 0
        return Placed(tuple(seqs), tuple(repeats), forks_at)

    def place_after(
        self,
        contents: Sequence[str],
        chain: Sequence[str],
        after: str,
    ) -> Placed:
        """The same for the end of a list, behind the history `after`."""
        new = (at for at, name in enumerate(chain) if not self.holds(name))
        said = contents[next(new, len(chain)) :]
        if self._last_with.keys().isdisjoint(said):
            return self.place(contents, chain)
        # What is said again may stand in the list before: only all of it tells.
        try:
            before = [node for _, node in self.walk(after)][::-1]
        except MissingHistoryError:
            return self.place(contents, chain)
        said = [node.content for node in before]
        roles = [self.messages[n.seq].role if n.seq in self.messages else "" for n in before]
        lead = next((at for at, role in enumerate(roles) if role != "system"), 0)
        placed = self.place([*said, *contents], [*chain_hashes(said), *chain], lead)
        start = len(before)
        return Placed(
            placed.seqs[start:],
            tuple(
                Repeat(repeat.start - start, repeat.stop - start, repeat.source)
                for repeat in placed.repeats
            ),
            None if placed.forks_at is None else placed.forks_at - start,
        )

    def _stood_for(self, contents: Sequence[str]) -> set[int]:
        """The messages that summaries among `contents` stand for: what is said again is new."""
        found: set[int] = set()
        for content in contents:
            for name in islice(self.newest_with(content), 1):
                head = self.nodes[name].stands_for
                before = self.find(head) if head else None
                if before is not None:
                    with suppress(MissingHistoryError):
                        found.update(self.numbers(before))
        return found

    def _known_prefix(self, chain: Sequence[str]) -> list[Node]:
        """The messages of the longest known history that a list begins with."""
        count = len(chain)
        while count:
            name = chain[count - 1]
            if not self.holds(name):
                count -= 1
                continue
            try:
                found = [node for _, node in islice(self.walk(name), count)]
            except MissingHistoryError as error:
                count = chain.index(error.name) if error.name in chain[:count] else count - 1
                continue
            return found[::-1]
        return []

    def _longest_repeat(
        self,
        contents: Sequence[str],
        start: int,
        at: int,
        is_used: Callable[[int], bool],
        lead: int,
    ) -> tuple[Repeat | None, list[int]]:
        """The longest part of a list that ends with the message `at` and ends a known history."""
        best: tuple[Repeat | None, list[int]] = None, []
        # A session may contain a text often: its newest places are tried as the end of a run.
        for source in islice(self.newest_with(contents[at]), 4):
            seqs = self._common(contents, start, at, source, is_used)
            first = at + 1 - len(seqs)
            is_newest = not self.is_continued(source)
            is_meant = (
                len(seqs) >= 3  # fewer may be elsewhere by chance ("go on", "done")
                or NO_SEQ in seqs
                or (is_newest and (len(seqs) > 1 or (seqs and first <= lead)))
            )
            if is_meant and len(seqs) > len(best[1]):
                best = Repeat(first, at + 1, source), seqs[::-1]
        return best

    def _common(
        self,
        contents: Sequence[str],
        start: int,
        at: int,
        source: str,
        is_used: Callable[[int], bool],
    ) -> list[int]:
        """The numbers of the messages that `source` and a list share, newest first."""
        seqs: list[int] = []
        with suppress(MissingHistoryError):  # what can be read of it is shared
            for _, node in self.walk(source):
                here = at - len(seqs)
                if here < start or node.content != contents[here]:
                    break
                if node.seq != NO_SEQ and is_used(node.seq):
                    break
                seqs.append(node.seq)
        return seqs

    def ends(self) -> list[str]:
        """The histories that nothing continues, by their records, the newest first.

        Those that a context ends are not among them.
        """
        ends = {name: self.runs.get(name) or self.nodes[name] for name in self.leaves}
        return sorted(ends, key=lambda name: ends[name].number, reverse=True)

    def branches(self) -> list[str]:
        """The histories that nothing continues, the newest first."""
        return [name for name in self.ends() if not self._goes_on(name)]

    def _goes_on(self, name: str) -> bool:
        contexts = self.contexts_of.get(name, ())
        return self.is_continued(name) or any(map(self.is_continued, contexts))
