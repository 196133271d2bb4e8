"""The messages that are known of a session: by history, by number and by what they say.

A session has tens of thousands in the end, and goes on for weeks in one process. As objects in
dictionaries each takes 570 bytes, packed 110 (measured). The newest are asked for all the time and
stay objects; the older ones are packed.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import Any, TypeGuard

from context_compaction.archive.records import LinePlace

# So many of the newest stay objects, and up to twice as many: a list of a million tokens.
_NEWEST = 2_000
# The hashes of name, parent and content; number of the message and of its record, offset, length,
# time; segment, format and role as numbers of words.
_ROW = Struct("<16s16s16sIIQIdHHH")
_HASH_CHARS = 32


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
        segment: The file that the record is in (see `LinePlace`) ...
        offset: ... where in it ...
        length: ... and how long.
        seconds: The message's time.
        format: Its format ...
        role: ... and who speaks.
    """

    segment: str = field(kw_only=True)
    offset: int = field(kw_only=True)
    length: int = field(kw_only=True)
    seconds: float = field(kw_only=True)
    format: str = field(kw_only=True)
    role: str = field(kw_only=True)

    @property
    def place(self) -> LinePlace:
        """Where the record is."""
        return LinePlace(self.segment, self.offset, self.length)


def is_message(node: Node | None) -> TypeGuard[MessageNode]:
    """Whether it is that of a message's own record."""
    return isinstance(node, MessageNode)


class _Rows:
    """Numbers of rows by the first half of a hash, in 12 bytes each."""

    def __init__(self) -> None:
        # By its first byte, so that putting one among the others moves few.
        self._keys = [array("Q") for _ in range(256)]
        self._rows = [array("I") for _ in range(256)]

    def add(self, name: bytes, row: int) -> None:
        key = _key(name)
        keys = self._keys[name[0]]
        at = bisect_right(keys, key)
        keys.insert(at, key)
        self._rows[name[0]].insert(at, row)

    def between(self, first: bytes, last: bytes) -> Sequence[int]:
        """The rows of hashes from `first` to `last`, which begin with the same byte."""
        keys = self._keys[first[0]]
        start, key = bisect_left(keys, _key(first)), _key(last)
        if start == len(keys) or keys[start] > key:
            return ()
        return self._rows[first[0]][start : bisect_right(keys, key, start)]


class NodeTable:
    """Nodes by the names of the histories that they end. Not safe for several threads.

    Attributes:
        messages: Those of messages' own records by number; of several the one learnt last.
        newest: The greatest number of such a record, and the name of its history.
    """

    def __init__(self) -> None:
        self.messages: Mapping[int, MessageNode] = _Messages(self)
        self.newest: tuple[int, str] = (-1, "")
        self.by_seq: dict[int, MessageNode] = {}
        self.row_of_seq: array[int] = array("i")  # -1 for none
        self._newer: dict[str, MessageNode] = {}
        self._others: dict[str, Node] = {}  # what is never packed
        self._by_content: dict[str, str] = {}
        self._packed = bytearray()
        self._rows_by_name = _Rows()
        self._rows_by_content = _Rows()
        self._words: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._newer or self._others or self._packed)

    def __contains__(self, name: str) -> bool:
        if name in self._newer or name in self._others:
            return True
        return self._row_of(self._rows_by_name, name, 0) is not None

    def get(self, name: str) -> Node | None:
        """The node that ends the history `name`."""
        node = self._newer.get(name) or self._others.get(name)
        if node is None:
            row = self._row_of(self._rows_by_name, name, 0)
            node = None if row is None else self.at(row)
        return node

    def find(self, head: str) -> str | None:
        """The name that begins with `head`, the newest of several."""
        for names in (self._newer, self._others):
            if found := next((name for name in reversed(names) if name.startswith(head)), None):
                return found
        return self._packed_name(head)

    def newest_with(self, content: str) -> str | None:
        """The name of the history that was first known last of those that end with `content`."""
        name = self._by_content.get(content)
        if name is None:
            row = self._row_of(self._rows_by_content, content, 2)
            name = None if row is None else self._fields(row)[0].hex()
        return name

    def add(self, name: str, node: Node) -> str | None:
        """Take in a node; the name that `newest_with` gave until now, where this one is new."""
        before = None
        if name not in self:
            before = self.newest_with(node.content)
            self._by_content[node.content] = name
        if is_message(node):
            self._others.pop(name, None)
            self._newer[name] = self.by_seq[node.seq] = node
            if node.seq < len(self.row_of_seq):
                self.row_of_seq[node.seq] = -1
            self.newest = max(self.newest, (node.number, name))
            if len(self._newer) >= 2 * _NEWEST:
                self._pack()
        else:
            self._others[name] = node
        return before

    def at(self, row: int) -> MessageNode:
        """The message in a row."""
        fields = self._fields(row)
        _, parent, content, seq, number, offset, length, seconds = fields[:-3]
        words: tuple[int, ...] = fields[-3:]
        segment, format, role = (self._words[word] for word in words)
        return MessageNode(
            seq,
            parent.hex(),
            content.hex(),
            number,
            segment=segment,
            offset=offset,
            length=length,
            seconds=seconds,
            format=format,
            role=role,
        )

    def _fields(self, row: int) -> tuple[Any, ...]:
        return _ROW.unpack_from(self._packed, row * _ROW.size)

    def _row_of(self, rows: _Rows, name: str, column: int) -> int | None:
        """The newest row with `name` in a column of which `rows` tell."""
        if not self._packed or not _is_hash(name):
            return None
        key = bytes.fromhex(name)
        found = reversed(rows.between(key, key))
        return next((row for row in found if self._fields(row)[column] == key), None)

    def _packed_name(self, head: str) -> str | None:
        first, last = head.ljust(_HASH_CHARS, "0"), head.ljust(_HASH_CHARS, "f")
        if not self._packed or not _is_hash(first):
            return None
        rows = self._rows_by_name.between(bytes.fromhex(first), bytes.fromhex(last))
        names = (self._fields(row)[0].hex() for row in reversed(rows))
        return next((name for name in names if name.startswith(head)), None)

    def _pack(self) -> None:
        """Pack the messages that are not among the newest."""
        for name, node in [*islice(self._newer.items(), len(self._newer) - _NEWEST)]:
            del self._newer[name]
            if not all(map(_is_hash, (name, node.parent, node.content))):
                self._others[name] = node  # the first of a history has no parent
                continue
            row = len(self._packed) // _ROW.size
            hashes = [*map(bytes.fromhex, (name, node.parent, node.content))]
            self._packed += _ROW.pack(
                *hashes,
                *(node.seq, node.number, node.offset, node.length, node.seconds),
                *map(self._word, (node.segment, node.format, node.role)),
            )
            self._rows_by_name.add(hashes[0], row)
            if self._by_content.get(node.content) == name:
                del self._by_content[node.content]
                self._rows_by_content.add(hashes[2], row)
            if self.by_seq.get(node.seq) is node:
                del self.by_seq[node.seq]
                missing = node.seq + 1 - len(self.row_of_seq)
                self.row_of_seq.extend([-1] * max(0, missing))
                self.row_of_seq[node.seq] = row

    def _word(self, word: str) -> int:
        if word not in self._words:
            self._words.append(word)
        return self._words.index(word)


class _Messages(Mapping[int, MessageNode]):
    """The messages of a table by number."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def __getitem__(self, seq: int) -> MessageNode:
        node = self._table.by_seq.get(seq)
        if node is not None:
            return node
        if seq not in self:
            raise KeyError(seq)
        return self._table.at(self._table.row_of_seq[seq])

    def __contains__(self, seq: object) -> bool:
        table = self._table
        if seq in table.by_seq:
            return True
        rows = table.row_of_seq
        return isinstance(seq, int) and 0 <= seq < len(rows) and rows[seq] >= 0

    def __iter__(self) -> Iterator[int]:
        packed = (seq for seq, row in enumerate(self._table.row_of_seq) if row >= 0)
        yield from packed
        yield from self._table.by_seq

    def __len__(self) -> int:
        rows = self._table.row_of_seq
        return len(self._table.by_seq) + len(rows) - rows.count(-1)


def _key(name: bytes) -> int:
    return int.from_bytes(name[:8], "big")


def _is_hash(name: str) -> bool:
    """Whether `name` is a hash as we write it."""
    if len(name) != _HASH_CHARS:
        return False
    try:
        return bytes.fromhex(name).hex() == name
    except ValueError:
        return False
