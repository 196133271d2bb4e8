"""The histories of one session as a tree: which are known, what each holds, where a list goes on.

Every message and every entry of a stored context is a node, named by the chain hash of the history
that ends there. What a list repeats of another history (a host that keeps the newest messages only,
or that rewrites its first one at each turn) is a run: it refers to those messages, so that they
are kept once. Nodes and runs may be added in any order.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from context_compaction.archive import NO_SEQ
from context_compaction.archive.node_table import MessageNode, Node, NodeTable, is_message
from context_compaction.messages.history_hash import HEAD_CHARS, ROOT, chain_hash, chain_hashes

# A session may contain a text often; so many of its newest places are tried as the end of a run.
_CANDIDATES = 4
# Fewer messages than these that are elsewhere as well may be so by chance ("go on", "done").
_SURE_RUN = 3


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


class MissingHistoryError(LookupError):
    """What a history builds upon is not known: its record is damaged."""

    def __init__(self, name: str, seq: int) -> None:
        super().__init__(name)
        self.name = name
        self.seq = seq


@dataclass(slots=True)
class HistoryTree:
    """The histories of one session. Not safe for several threads.

    Attributes:
        nodes: By chain hash, and of a content the newest that ends with such a message.
        runs: By the chain hash after their last message.
        leaves: Of the histories that a message or a run ends those that none continues.
        contexts_of: For a history, the contexts that compactions made of it.
    """

    nodes: NodeTable = field(default_factory=NodeTable)
    runs: dict[str, MessageRun] = field(default_factory=dict[str, MessageRun])
    leaves: set[str] = field(default_factory=set[str])
    contexts_of: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _awaited: set[str] = field(default_factory=set[str])  # continued, and not known themselves
    # Entries of contexts that are continued: of each context at most a few, mostly its last.
    _continued: set[str] = field(default_factory=set[str])
    _within: dict[str, MessageRun] = field(
        default_factory=dict[str, MessageRun]
    )  # parts of runs asked for
    _found: dict[str, str] = field(default_factory=dict[str, str])  # whole names, by what was asked
    _covered: dict[str, Sequence[range]] = field(
        default_factory=dict[str, Sequence[range]]
    )  # numbers of histories, by their names

    def add_message(self, name: str, node: MessageNode) -> None:
        """Take in a message."""
        self._meet(name)
        self.nodes.add(name, node)
        self._continue(node.parent)

    def add_run(self, name: str, run: MessageRun) -> None:
        """Take in a run; the history that it repeats goes on here."""
        self._meet(name)
        self.runs[name] = run
        self._continue(run.parent)
        self._continue(run.source)

    def add_context(self, entries: Sequence[Sequence[str | int]], number: int, of: str) -> str:
        """Take in a context that was made of the history `of`; the name of its own end."""
        parent = ROOT
        for content, seq, source_seq, *stands_for in entries:
            name = chain_hash(parent, str(content))
            known = self.nodes.get(name)
            if known is None or known.seq == NO_SEQ:
                original = int(seq) if seq != NO_SEQ else int(source_seq)
                head = str(stands_for[0]) if stands_for else ""
                self.nodes.add(name, Node(original, parent, str(content), number, head))
                if name in self._awaited:
                    self._awaited.remove(name)
                    self._continued.add(name)
            parent = name
        if of:
            self.contexts_of.setdefault(of, []).append(parent)
        return parent

    def is_continued(self, name: str) -> bool:
        """Whether a message or a run continues the history `name`."""
        if name == ROOT or name in self._awaited or name in self._continued:
            return True
        return self._is_said(name) and name not in self.leaves

    def _is_said(self, name: str) -> bool:
        """Whether a message or a run ends the history `name`, rather than an entry of a context."""
        return name in self.runs or is_message(self.nodes.get(name))

    def _continue(self, name: str) -> None:
        if name in self.leaves:
            self.leaves.remove(name)
        elif not self.holds(name):
            self._awaited.add(name)
        elif not self._is_said(name):
            self._continued.add(name)

    def _meet(self, name: str) -> None:
        """Note that a message or run ends `name`; what continues it may be known already."""
        if name in self._awaited or name in self._continued:
            self._awaited.discard(name)
            self._continued.discard(name)
        elif not self._is_said(name):
            self.leaves.add(name)

    def holds(self, name: str) -> bool:
        """Whether the history `name` is known, or is that of no message."""
        return name == ROOT or name in self.nodes or name in self.runs

    def find(self, head: str) -> str | None:
        """The whole name of the history that `head`, its first `HEAD_CHARS` or more, names."""
        if head not in self._found and len(head) >= HEAD_CHARS:
            runs = (name for name in reversed(self.runs) if name.startswith(head))
            name = self.nodes.find(head) or next(runs, None) or self._find_within_runs(head)
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
        stood_for = self._stood_for(contents) if len(known) < len(chain) else ()

        def is_used(seq: int) -> bool:
            return seq in used or any(seq in part for part in stood_for)

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
        is_system: Callable[[int], bool],
    ) -> Placed:
        """The same for the end of a list, behind the history `after`.

        `is_system` returns whether a number is that of a host's own message.
        """
        new = (at for at, name in enumerate(chain) if not self.holds(name))
        said = contents[next(new, len(chain)) :]
        if not any(any(self.nodes.newest_with(content)) for content in said):
            return self.place(contents, chain)
        # What is said again may stand in the list before: only all of it tells.
        try:
            before = [node for _, node in self.walk(after)][::-1]
        except MissingHistoryError:
            return self.place(contents, chain)
        said = [node.content for node in before]
        lead = next((at for at, node in enumerate(before) if not is_system(node.seq)), 0)
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

    def _stood_for(self, contents: Sequence[str]) -> list[range]:
        """The messages that summaries among `contents` stand for: what is said again is new."""
        found: list[range] = []
        for content in contents:
            name = next(self.nodes.newest_with(content), None)
            node = None if name is None else self.nodes.get(name)
            before = self.find(node.stands_for) if node is not None and node.stands_for else None
            if before is not None:
                with suppress(MissingHistoryError):
                    found += self._ranges(before)
        return found

    def _ranges(self, head: str) -> Sequence[range]:
        """The numbers of history `head` and of what summaries in it stand for, as `numbers` does.

        They are remembered, one range for most of a session: a history goes on from those before.

        Raises:
            MissingHistoryError: A part of it is damaged.
        """
        waiting, begun = [head], set[str]()
        while waiting:
            name = waiting[-1]
            nodes = [] if name in self._covered else [node for _, node in self.walk(name)]
            inner = [self.find(node.stands_for) for node in nodes if node.stands_for]
            begun.add(name)
            left = [n for n in inner if n and n not in begun and n not in self._covered]
            if left:
                waiting += left
                continue
            waiting.pop()
            if nodes:
                seqs = {node.seq for node in nodes} - {NO_SEQ}
                known = (self._covered.get(n, ()) for n in inner if n is not None)
                self._covered[name] = _joined([*known], seqs)
        return self._covered.get(head, ())

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
        for source in islice(self.nodes.newest_with(contents[at]), _CANDIDATES):
            seqs = self._common(contents, start, at, source, is_used)
            first = at + 1 - len(seqs)
            is_newest = not self.is_continued(source)
            is_meant = (
                len(seqs) >= _SURE_RUN
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

    def newest(self) -> tuple[str, int]:
        """The history that the newest message or run ends, and the number of that record.

        `ROOT` and -1 where there is none.
        """
        ends = [(run.number, name) for name, run in self.runs.items()]
        number, name = max([self.nodes.newest, *ends])
        return name, number

    def ends(self) -> list[str]:
        """The histories that nothing continues, by their records, the newest first.

        Those that a context ends are not among them.
        """
        numbers: dict[str, int] = {}
        for name in self.leaves:
            end = self.runs.get(name) or self.nodes.get(name)
            if isinstance(end, MessageRun) or is_message(end):
                numbers[name] = end.number
        return sorted(numbers, key=numbers.__getitem__, reverse=True)

    def branches(self) -> list[str]:
        """The histories that nothing continues, the newest first."""
        return [name for name in self.ends() if not self._goes_on(name)]

    def _goes_on(self, name: str) -> bool:
        contexts = self.contexts_of.get(name, ())
        return self.is_continued(name) or any(map(self.is_continued, contexts))


def _joined(known: Sequence[Sequence[range]], seqs: Collection[int]) -> tuple[range, ...]:
    """The numbers in `known` and in `seqs`, as ranges in order that do not touch."""
    parts = [(part.start, part.stop) for ranges in known for part in ranges]
    parts += [(seq, seq + 1) for seq in seqs]
    found: list[list[int]] = []
    for start, stop in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], stop)
        else:
            found.append([start, stop])
    return tuple(range(start, stop) for start, stop in found)
