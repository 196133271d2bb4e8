"""The branches of one session as a tree, and where a message list belongs in the tree.

Each message, and each entry of a stored context, is a node with the chain hash of the history that
ends there as its name. If a list repeats messages of another branch, the repetition is a run that
refers to these messages, so that each message is stored once. Lists repeat messages when a host
keeps only the newest ones, or rewrites the first one at each turn. Nodes and runs may be added in
any order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from math import inf

from context_compaction.archive.records import LinePlace
from context_compaction.archive.values import NO_SEQ, ContextEntry
from context_compaction.errors import ArchiveDamagedError
from context_compaction.messages.raw import HEAD_CHARS, ROOT, chain_hash, chain_hashes


@dataclass(frozen=True, slots=True)
class Node:
    """The last message of a history.

    Attributes:
        seq: Number of the message; for an entry of a context the number of its original, or -1.
        parent: Chain hash of the history without this message.
        content: Content hash of the message.
        number: Number of its record.
        replaced_head: Head of the history that this message, written by a compaction, replaced.
    """

    seq: int
    parent: str
    content: str
    number: int
    replaced_head: str = ""


@dataclass(frozen=True, slots=True)
class MessageNode(Node):
    """A node with a record of its own, unlike an entry of a context.

    Attributes:
        place: Position of the record.
        seconds: Time of the message in Unix seconds.
        format: Format of the message.
        role: Role of the message.
    """

    place: LinePlace = field(kw_only=True)
    seconds: float = field(kw_only=True)
    format: str = field(kw_only=True)
    role: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class MessageRun:
    """The last `count` messages of the history `source`, repeated after `parent`.

    Attributes:
        parent: Chain hash of the history before the run.
        source: Chain hash of the repeated history.
        count: Number of repeated messages.
        number: Number of the run's record.
    """

    parent: str
    source: str
    count: int
    number: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part of a list that is also the end of the history `source`.

    Attributes:
        start: Index of the first message of the part.
        stop: Index after the last message of the part.
        source: Chain hash of the repeated history.
    """

    start: int
    stop: int
    source: str


@dataclass(frozen=True, slots=True)
class Placed:
    """Position of a message list in its session.

    Attributes:
        seqs: Number of each message; None for a new message.
        repeats: Parts that are also the end of another history.
        forks_at: Index of the first new message at which the session already continues
            differently. None if the list only extends the end of a branch.
        copies_stop: New messages before this index were stored before, but their records are
            damaged.
    """

    seqs: tuple[int | None, ...]
    repeats: tuple[Repeat, ...] = ()
    forks_at: int | None = None
    copies_stop: int = 0


class MissingHistoryError(ArchiveDamagedError):
    """The record of an earlier message is damaged, so the branch is incomplete."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(
            f"The record before message {seq} is damaged. Pass the whole message list again, which "
            "stores the missing messages."
        )
        self.name = name


@dataclass(slots=True)
class HistoryTree:
    """The branches of one session. Not safe for several threads.

    Attributes:
        nodes: Nodes by the chain hash of the history that they end.
        messages: Nodes of messages by message number.
        runs: Runs by the chain hash after their last message.
        leaves: Chain hashes of histories that end with a message or run and are not continued.
        contexts_of: For a history, the ends of the contexts that were made from it.
        newest: Greatest record number of a message or run.
    """

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    messages: dict[int, MessageNode] = field(default_factory=dict[int, MessageNode])
    runs: dict[str, MessageRun] = field(default_factory=dict[str, MessageRun])
    leaves: set[str] = field(default_factory=set[str])
    contexts_of: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    newest: int = -1
    _continued: set[str] = field(default_factory=set[str])  # by a message or a run
    # For each content the newest history that ends with it, and for that history the previous
    # history with the same end.
    _last_with: dict[str, str] = field(default_factory=dict[str, str])
    _previous_with: dict[str, str] = field(default_factory=dict[str, str])
    # Results of `find`: histories that end within a run, and full hashes by their start.
    _within_runs: dict[str, MessageRun] = field(default_factory=dict[str, MessageRun])
    _full_names: dict[str, str] = field(default_factory=dict[str, str])
    _numbers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])  # newest results

    def add_message(self, name: str, node: MessageNode) -> None:
        """Add a message."""
        self._add(name, node)
        self.messages[node.seq] = node
        self._continue(name, node.number, node.parent)

    def add_run(self, name: str, run: MessageRun) -> None:
        """Add a run, which also continues the history that it repeats."""
        self.runs[name] = run
        self._continue(name, run.number, run.parent, run.source)

    def add_context(self, entries: Sequence[ContextEntry], number: int, of: str) -> list[str]:
        """Add a context that was made from the history `of`; return its chain hashes."""
        names = chain_hashes([entry.content for entry in entries])
        for name, parent, entry in zip(names, (ROOT, *names), entries, strict=False):
            known = self.nodes.get(name)
            if known is None or known.seq == NO_SEQ:
                node = Node(entry.original_seq, parent, entry.content, number, entry.replaced_head)
                self._add(name, node)
        if of:
            self.contexts_of.setdefault(of, []).append(names[-1])
        return names

    def _add(self, name: str, node: Node) -> None:
        if name not in self.nodes:
            if node.content in self._last_with:
                self._previous_with[name] = self._last_with[node.content]
            self._last_with[node.content] = name
        elif self.nodes[name].seq != node.seq:
            self._numbers.clear()
        self.nodes[name] = node

    def _continue(self, name: str, number: int, *before: str) -> None:
        self.newest = max(self.newest, number)
        if name not in self._continued:  # a message that continues it may have been added first
            self.leaves.add(name)
        self._continued.update(before)
        self.leaves.difference_update(before)

    def is_continued(self, name: str) -> bool:
        """Whether a message or a run continues the history `name`."""
        return name == ROOT or name in self._continued

    def newest_with(self, content: str) -> Iterator[str]:
        """Yield the chain hashes of the histories that end with `content`, newest first."""
        name = self._last_with.get(content)
        while name is not None:
            yield name
            name = self._previous_with.get(name)

    def holds(self, name: str) -> bool:
        """Whether the history `name` is known or empty."""
        return name == ROOT or name in self.nodes or name in self.runs

    def find(self, head: str) -> str | None:
        """Return the chain hash that starts with `head`, of at least `HEAD_CHARS` characters."""
        if head not in self._full_names and len(head) >= HEAD_CHARS:
            names = (name for known in (self.nodes, self.runs) for name in reversed(known))
            name = next((name for name in names if name.startswith(head)), None)
            name = name or self._find_within_runs(head)
            if name is not None:
                self._full_names[head] = name
        return self._full_names.get(head)

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
                    self._within_runs[name] = MessageRun(run.parent, source, count, run.number)
                    return name
        return None

    def walk(self, head: str) -> Iterator[tuple[str, Node]]:
        """Yield the nodes of a history with their names, newest first.

        Raises:
            MissingHistoryError: A part of the history is damaged.
        """
        seq = NO_SEQ
        rest: list[tuple[str, float]] = [(head, inf)]
        while rest:
            name, count = rest.pop()
            while count and name != ROOT:
                node = self.nodes.get(name)
                if node is not None:
                    yield name, node
                    seq, name, count = node.seq, node.parent, count - 1
                    continue
                run = self.runs.get(name) or self._within_runs.get(name)
                if run is None:
                    raise MissingHistoryError(name, seq)
                part = min(run.count, count)
                rest.append((run.parent, count - part))
                name, count = run.source, part

    def path(self, head: str) -> list[tuple[str, Node]]:
        """Return the nodes of a history with their names, oldest first; see `walk`."""
        return [*self.walk(head)][::-1]

    def roles_of(self, nodes: Sequence[Node]) -> list[str]:
        """Return the role of each message; "" for a message that this library wrote."""
        return [self.messages[n.seq].role if n.seq in self.messages else "" for n in nodes]

    def names(self, head: str) -> Iterator[str]:
        """Yield `head` and the chain hashes of the known histories before it."""
        while head != ROOT:
            yield head
            before = self.nodes.get(head) or self.runs.get(head) or self._within_runs.get(head)
            head = ROOT if before is None else before.parent

    def numbers(self, head: str) -> list[int]:
        """Return the numbers of the messages of a history, oldest first.

        A summary in the history counts as the messages that it replaced.

        Raises:
            MissingHistoryError: A part of the history is damaged.
        """
        if (known := self._numbers.get(head)) is not None:
            return known
        numbers: dict[int, None] = {}  # newest first
        walks = [self.walk(head)]
        seen = {head}
        while walks:
            step = next(walks[-1], None)
            if step is None:
                walks.pop()
                continue
            _, node = step
            if node.seq != NO_SEQ:
                numbers.setdefault(node.seq)
            replaced = self.find(node.replaced_head) if node.replaced_head else None
            if replaced is None or replaced in seen:
                continue
            seen.add(replaced)
            if (known := self._numbers.get(replaced)) is not None:
                numbers |= dict.fromkeys(reversed(known))
            else:
                walks.append(self.walk(replaced))
        # The next compaction replaces this history and asks for a longer one.
        newest = [*self._numbers.items()][-4:]
        self._numbers = {**dict(newest), head: [*reversed(numbers)]}
        return self._numbers[head]

    def place(self, contents: Sequence[str], chain: Sequence[str], lead: int = 0) -> Placed:
        """Find which messages of a list are known, repeat another history, or are new.

        Args:
            contents: Content hashes of the messages.
            chain: Chain hashes of the messages.
            lead: Number of system messages at the start.
        """
        seqs: list[int | None] = [None] * len(chain)
        known = self._known_prefix(chain)
        seqs[: len(known)] = [node.seq for node in known]
        used = {node.seq for node in known}
        replaced = cache(partial(self._replaced_by_summaries, contents))  # often not needed

        def is_used(seq: int) -> bool:
            return seq in used or seq in replaced()

        repeats: list[Repeat] = []
        copies_stop, index = 0, len(chain) - 1
        while index >= len(known):
            node = self.nodes.get(chain[index])
            if node is not None:  # an earlier record is damaged, and its message is added again
                seqs[index] = node.seq
                copies_stop = max(copies_stop, index)
                index -= 1
                continue
            repeat, numbers = self._longest_repeat(contents, len(known), index, is_used, lead)
            if repeat is None:
                index -= 1
                continue
            repeats.insert(0, repeat)
            seqs[repeat.start : repeat.stop] = numbers
            used.update(numbers)
            index = repeat.start - 1
        fork = self._fork_of(chain, seqs, repeats)
        return Placed(tuple(seqs), tuple(repeats), fork, copies_stop)

    def _fork_of(
        self, chain: Sequence[str], seqs: Sequence[int | None], repeats: Sequence[Repeat]
    ) -> int | None:
        """Return the index of the first new message that starts a new branch, or None."""
        if self.nodes and chain and all(seq is None for seq in seqs):
            return 0
        ends = {repeat.stop: repeat.source for repeat in repeats}
        for index in range(1, len(seqs)):
            is_first_new = seqs[index] is None and seqs[index - 1] is not None
            if is_first_new and self.is_continued(ends.get(index, chain[index - 1])):
                return index
        return None

    def place_after(self, contents: Sequence[str], chain: Sequence[str], after: str) -> Placed:
        """Place messages as `place` does, if they follow the history `after`."""
        new = (index for index, name in enumerate(chain) if not self.holds(name))
        if self._last_with.keys().isdisjoint(contents[next(new, len(chain)) :]):
            return self.place(contents, chain)
        # A known message may repeat one of the history, so the whole list is needed.
        try:
            before = [node for _, node in self.path(after)]
        except MissingHistoryError:
            return self.place(contents, chain)
        known = [node.content for node in before]
        roles = enumerate(self.roles_of(before))
        lead = next((index for index, role in roles if role != "system"), 0)
        placed = self.place([*known, *contents], [*chain_hashes(known), *chain], lead)
        start = len(before)
        return Placed(
            placed.seqs[start:],
            tuple(Repeat(r.start - start, r.stop - start, r.source) for r in placed.repeats),
            None if placed.forks_at is None else placed.forks_at - start,
            placed.copies_stop - start,
        )

    def _replaced_by_summaries(self, contents: Sequence[str]) -> set[int]:
        """Return the numbers of the messages that summaries among `contents` replaced.

        A message of the list with the same content is a new message.
        """
        numbers: set[int] = set()
        for content in contents:
            name = next(self.newest_with(content), None)
            head = self.nodes[name].replaced_head if name else ""
            replaced = self.find(head) if head else None
            if replaced is not None:
                with suppress(MissingHistoryError):
                    numbers.update(self.numbers(replaced))
        return numbers

    def _known_prefix(self, chain: Sequence[str]) -> list[Node]:
        """Return the nodes of the longest known history with which a list starts."""
        count = len(chain)
        while count:
            name = chain[count - 1]
            if not self.holds(name):
                count -= 1
                continue
            try:
                return [node for _, node in islice(self.walk(name), count)][::-1]
            except MissingHistoryError as error:
                count = chain.index(error.name) if error.name in chain[:count] else count - 1
        return []

    def _longest_repeat(
        self,
        contents: Sequence[str],
        start: int,
        index: int,
        is_used: Callable[[int], bool],
        lead: int,
    ) -> tuple[Repeat | None, list[int]]:
        """Return the longest part of a list up to `index` that ends a known history.

        Args:
            contents: Content hashes of the list.
            start: Index from which the list is not known.
            index: Index of the last message of the part.
            is_used: Whether the list already has the message with a number.
            lead: Number of system messages at the start.
        """
        best: tuple[Repeat | None, list[int]] = None, []
        # A session may contain a text many times, so only its newest places are tried.
        for source in islice(self.newest_with(contents[index]), 4):
            recent = (contents[number] for number in range(index, start - 1, -1))
            seqs = self._common(recent, source, is_used)
            first = index + 1 - len(seqs)
            is_newest = not self.is_continued(source)
            is_repeat = (
                len(seqs) >= 3  # fewer may be equal by chance ("go on", "done")
                or NO_SEQ in seqs
                or (is_newest and (len(seqs) > 1 or (seqs and first <= lead)))
            )
            if is_repeat and len(seqs) > len(best[1]):
                best = Repeat(first, index + 1, source), seqs[::-1]
        return best

    def _common(
        self, recent: Iterable[str], source: str, is_used: Callable[[int], bool]
    ) -> list[int]:
        """Return the numbers of the messages that end both `source` and a list, newest first."""
        seqs: list[int] = []
        with suppress(MissingHistoryError):  # the part before the damage is common
            for content, (_, node) in zip(recent, self.walk(source), strict=False):
                if node.content != content:
                    break
                if node.seq != NO_SEQ and is_used(node.seq):
                    break
                seqs.append(node.seq)
        return seqs

    def ends(self) -> list[str]:
        """Return the histories that are not continued, newest first, without ends of contexts."""
        ends = {name: self.runs.get(name) or self.nodes[name] for name in self.leaves}
        return sorted(ends, key=lambda name: ends[name].number, reverse=True)

    def branches(self) -> list[str]:
        """Return the histories that are not continued, even after a compaction, newest first."""
        return [
            name
            for name in self.ends()
            if not any(map(self.is_continued, (name, *self.contexts_of.get(name, ()))))
        ]
