"""The messages that are known of a session: by history, by number and by what they say.

A session has tens of thousands in the end, and goes on for weeks in one process. As objects in
dictionaries each takes 570 bytes (measured). The newest are asked for all the time and stay that;
the older ones, and the entries of the contexts of old compactions, go into a file without a name
that is this process's own, and 20 bytes of each stay in memory, to find it there. All of it is
learnt from the log: nothing has to be recovered, and nobody else knows of the file.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from itertools import islice
from struct import Struct
from struct import error as StructError  # noqa: N812
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, TypeGuard, cast
from weakref import finalize

from context_compaction.archive.records import LinePlace
from context_compaction.errors import ArchiveError
from context_compaction.messages.history_hash import ROOT

# So many of the newest stay objects: a list of a million tokens. Older ones go so many at a time.
_NEWEST = 3_500
_MOVED = 500
# The hashes of name, parent and content; number of the message and of its record, offset, length,
# time, and the number of its words.
_ROW = Struct("<16s16s16siIQIdI")
_HASH_CHARS = 32
_NO_PARENT = bytes(16)  # of the first of a history
_READ_ROWS = 64  # at once: a history is walked through row by row


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
    """Numbers of rows by the first five bytes of a hash, in 8 bytes each."""

    def __init__(self) -> None:
        # By its first byte, so that putting one among the others moves few.
        self._keys = [array("I") for _ in range(256)]
        self._rows = [array("I") for _ in range(256)]

    def add(self, name: bytes, row: int) -> None:
        key = _key(name)
        keys = self._keys[name[0]]
        at = bisect_right(keys, key)
        keys.insert(at, key)
        self._rows[name[0]].insert(at, row)

    def between(self, first: bytes, last: bytes) -> Sequence[int]:
        """The rows of hashes from `first` to `last`, which begin with the same byte.

        A few others may be among them: who asks compares the whole hash.
        """
        keys = self._keys[first[0]]
        start, key = bisect_left(keys, _key(first)), _key(last)
        if start == len(keys) or keys[start] > key:
            return ()
        return self._rows[first[0]][start : bisect_right(keys, key, start)]


class _RowFile:
    """Rows by number, in a file that is made with the first of them."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._count = 0
        self._read = b""
        self._read_from = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: bytes) -> None:
        """Add all of `rows`, or none.

        Raises:
            OSError: There is no room for them.
        """
        if self._file is None:
            # Unbuffered: what was written is known to be there.
            self._file = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the rows
            finalize(self, self._file.close)
        self._file.seek(self._count * _ROW.size)
        if self._file.write(rows) != len(rows):
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        self._count += len(rows) // _ROW.size
        self._read = b""

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        """The fields of a row.

        Raises:
            ArchiveError: The file cannot be read.
        """
        if self._file is None:
            raise IndexError(row)
        at = (row - self._read_from) * _ROW.size
        if not 0 <= at < len(self._read):
            self._read_from = max(0, row + 1 - _READ_ROWS)  # next is what was said before, mostly
            at = (row - self._read_from) * _ROW.size
            try:
                self._file.seek(self._read_from * _ROW.size)
                self._read = self._file.read(_READ_ROWS * _ROW.size)
                return _ROW.unpack_from(self._read, at)
            except (OSError, StructError) as error:
                self._read = b""
                raise ArchiveError(
                    f"A temporary file of this process cannot be read ({error}), in which it keeps "
                    "where older messages of a session are. The archive holds all of it: look "
                    f"after the disk of {gettempdir()}, and start the process again."
                ) from error
        return _ROW.unpack_from(self._read, at)


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
        self._newer: dict[str, Node] = {}
        self._others: dict[str, Node] = {}  # what cannot be packed
        self._by_content: dict[str, str] = {}
        self._learnt_before: dict[str, str] = {}  # of the newer ones with the same content
        self._older = _RowFile()
        self._moves_at = _NEWEST + _MOVED
        self._rows_by_name = _Rows()
        self._rows_by_content = _Rows()
        # Segment, format and role of messages; of an entry of a context what it stands for.
        self._words: list[tuple[str, ...]] = []
        self._word_numbers: dict[tuple[str, ...], int] = {}

    def __bool__(self) -> bool:
        return bool(self._newer or self._others)

    def __contains__(self, name: str) -> bool:
        if name in self._newer or name in self._others:
            return True
        return self._row_of(name) is not None

    def get(self, name: str) -> Node | None:
        """The node that ends the history `name`."""
        node = self._newer.get(name) or self._others.get(name)
        if node is None:
            row = self._row_of(name)
            node = None if row is None else self.at(row)
        return node

    def find(self, head: str) -> str | None:
        """The name that begins with `head`, the newest of several."""
        for names in (self._newer, self._others):
            if found := next((name for name in reversed(names) if name.startswith(head)), None):
                return found
        return self._packed_name(head)

    def newest_with(self, content: str) -> Iterator[str]:
        """The names of the histories that end with `content`, what was first known last first."""
        name = self._by_content.get(content)
        while name is not None and (name in self._newer or name in self._others):
            if self._row_of(name) is None:  # one that was learnt again is where it was first
                yield name
            name = self._learnt_before.get(name)
        for row in self._rows_of(self._rows_by_content, content, 2):
            yield self._older[row][0].hex()

    def add(self, name: str, node: Node) -> None:
        """Take in a node."""
        if name not in self:
            before = self._by_content.get(node.content)
            if before is not None:
                self._learnt_before[name] = before
            self._by_content[node.content] = name
        if is_message(node):
            self.by_seq[node.seq] = node
            if node.seq < len(self.row_of_seq):
                self.row_of_seq[node.seq] = -1
            self.newest = max(self.newest, (node.number, name))
        self._newer[name] = node
        if len(self._newer) >= self._moves_at:
            # No room, or no folder, for a file, or it cannot be read: it is tried again.
            with suppress(OSError, ArchiveError):
                self._move()
            self._moves_at = len(self._newer) + _MOVED

    def at(self, row: int) -> Node:
        """What is in a row."""
        fields = self._older[row]
        _, parent, content, seq, number, offset, length, seconds = fields[:-1]
        words: int = fields[-1]
        above = ROOT if parent == _NO_PARENT else parent.hex()
        said = self._words[words]
        if len(said) == 1:
            return Node(seq, above, content.hex(), number, *said)
        segment, format, role = said
        return MessageNode(
            seq,
            above,
            content.hex(),
            number,
            segment=segment,
            offset=offset,
            length=length,
            seconds=seconds,
            format=format,
            role=role,
        )

    def _row_of(self, name: str) -> int | None:
        """The newest row of the history `name`."""
        return next(self._rows_of(self._rows_by_name, name, 0), None)

    def _rows_of(self, rows: _Rows, name: str, column: int) -> Iterator[int]:
        """The rows with `name` in a column of which `rows` tell, the newest first."""
        if self._older and (key := _hash_in(name)):
            found = reversed(rows.between(key, key))
            yield from (row for row in found if self._older[row][column] == key)

    def _packed_name(self, head: str) -> str | None:
        first, last = head.ljust(_HASH_CHARS, "0"), head.ljust(_HASH_CHARS, "f")
        if not self._older or not (key := _hash_in(first)):
            return None
        rows = self._rows_by_name.between(key, bytes.fromhex(last))
        names = (self._older[row][0].hex() for row in reversed(rows))
        return next((name for name in names if name.startswith(head)), None)

    def _move(self) -> None:
        """Move those that are not among the newest into the file."""
        older = dict(islice(self._newer.items(), len(self._newer) - _NEWEST))
        hashed = {name: node for name, node in older.items() if _is_packable(name, node)}
        first = len(self._older)
        self._older.add(b"".join(map(self._row, hashed, hashed.values())))
        for row, (name, node) in enumerate(hashed.items(), start=first):
            if self._row_of(name) is None:
                self._rows_by_content.add(bytes.fromhex(node.content), row)
            self._rows_by_name.add(bytes.fromhex(name), row)
            if self.by_seq.get(node.seq) is node:
                del self.by_seq[node.seq]
                missing = node.seq + 1 - len(self.row_of_seq)
                self.row_of_seq.extend([-1] * max(0, missing))
                self.row_of_seq[node.seq] = row
            self._learnt_before.pop(name, None)
            if self._by_content.get(node.content) == name:
                del self._by_content[node.content]
        for name, node in older.items():
            del self._newer[name]
            if name not in hashed:
                self._others[name] = node

    def _row(self, name: str, node: Node) -> bytes:
        parent = bytes.fromhex(node.parent) or _NO_PARENT
        hashes = bytes.fromhex(name), parent, bytes.fromhex(node.content)
        return _ROW.pack(*hashes, *self._rest_of(node))

    def _rest_of(self, node: Node) -> tuple[float, ...]:
        """The fields of a row behind the hashes."""
        if is_message(node):
            words = self._word(node.segment, node.format, node.role)
            return node.seq, node.number, node.offset, node.length, node.seconds, words
        return node.seq, node.number, 0, 0, 0.0, self._word(node.stands_for)

    def _word(self, *words: str) -> int:
        number = self._word_numbers.setdefault(words, len(self._words))
        if number == len(self._words):
            self._words.append(words)
        return number


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
        return cast("MessageNode", self._table.at(self._table.row_of_seq[seq]))

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
    return int.from_bytes(name[1:5], "big")


def _is_packable(name: str, node: Node) -> bool:
    return all(map(_hash_in, (name, node.parent or name, node.content)))


def _hash_in(name: str) -> bytes | None:
    """The hash that `name` is as we write it; None where it is none."""
    if len(name) != _HASH_CHARS:
        return None
    try:
        found = bytes.fromhex(name)
    except ValueError:
        return None
    return found if found.hex() == name else None
