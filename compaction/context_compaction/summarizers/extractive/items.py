"""The items of a conversation, their texts cut into pieces, and which pieces a room buys.

An item is one text, call, result or file. Its text is cut into pieces: whole paragraphs, or groups
of lines. A piece is bought or omitted as a whole. Cutting takes time linear in the text.

The price of a piece is sqrt(tokens * (1 + age)) / weight. The tokens of its item are counted up to
and including the piece, and the weight belongs to the item's kind. So short texts are cheap at any
age, and at one price, a text twice as old may be half as long. The cheapest pieces that fit are
bought. The rule works at any target.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, TypeAlias

from context_compaction.summarizers.instructions.sentences import OMISSION, subject_words, values_in
from context_compaction.tokens.counter import MessageCounter

Kind: TypeAlias = Literal[
    "user", "rule", "preference", "closing", "remark", "plan", "document", "failure", "action",
    "newest", "call", "result", "file", "host", "media", "replaced", "attached",
]  # fmt: skip

# A shorter text is one piece, and a longer paragraph is cut into groups of lines of this size.
GROUP_CHARS = 600
# A longer line is cut, and a text that people type is hardly longer.
LONG_CHARS = 2 * GROUP_CHARS
# A longer line is no heading, and labels are cut to this length.
LABEL_CHARS = 80


WEIGHTS: Mapping[Kind, int] = {
    "user": 64,
    "rule": 64,
    "preference": 24,
    "closing": 64,
    "remark": 40,
    "plan": 16,
    "document": 32,
    "failure": 24,
    "action": 8,
    "newest": 64,
    "call": 1,
    "result": 8,
    "file": 6,
    "host": 1,
    "media": 64,
    "replaced": 0,
    "attached": 64,
}
"""The value of a token of each kind. An item of weight 0 is never bought."""

# Weight of an item that the caller's instructions name, whatever its kind.
_FOCUS_WEIGHT = 2 * WEIGHTS["user"]

HEAD_TOKENS = 8
"""Tokens of an item's label, or of the frame of a message."""

# Skills bind like orders, but get at most this share of the room together.
_ATTACHED_SHARE = 0.25
_AGELESS_KINDS = ("rule", "preference", "plan")


@dataclass(eq=False, slots=True)
class Item:
    """One text, call, result, action or file of a conversation.

    Attributes:
        at: Position of its message among the messages that were walked.
        kind: Its kind, which decides its weight.
        label: Its author or source, as the summary shows it.
        pieces: Its text, cut into pieces.
        order: The indices of the pieces in the order in which they are bought.
        block: Position of its block in the message. -1 if it joins all texts of the message.
        number: The number of its message in the transcript, if known.
        path: The file that it is the text of. "" for other items.
        note: A remark on the text of a file, such as "changed on disk".
        in_file: The file whose item contains the rest of this call or result.
        is_unread: Whether it belongs to the newest calls, whose results the model has not seen.
        in_focus: Whether the caller's instructions name it.
        age: Number of newer items of its kind plus number of newer turns.
        bought: The indices of the pieces that are in the context.
        costs: Tokens of the pieces in the order in which they are bought. It ends before the first
            piece that was not counted.
    """

    at: int
    kind: Kind
    label: str
    pieces: Sequence[str]
    order: Sequence[int]
    block: int = -1
    number: int | None = None
    path: str = ""
    note: str = ""
    in_file: str = ""
    is_unread: bool = False
    in_focus: bool = False
    age: int = 0
    bought: set[int] = field(default_factory=set[int])
    costs: list[int] = field(default_factory=list[int])

    @property
    def is_complete(self) -> bool:
        """Whether all pieces are bought."""
        return len(self.bought) == len(self.pieces)

    @property
    def text(self) -> str:
        """The bought pieces in order, with a mark in each gap."""
        lines: list[str] = []
        previous = -1
        for index in sorted(self.bought):
            if index > previous + 1:
                lines.append(OMISSION)
            lines.append(self.pieces[index])
            previous = index
        if previous + 1 < len(self.pieces):
            lines.append(OMISSION)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class FileItem:
    """Known text of a file that the agent works on.

    Attributes:
        path: Its path.
        text: Its last known text.
        at: Position of the message that used it last.
        focus: Offset of its last edit in `text`, in characters.
        note: A remark on the text, such as "changed on disk".
        is_written: Whether the agent wrote or edited it.
        names: The paths by which calls name this file and no other file.
    """

    path: str
    text: str
    at: int
    focus: int = 0
    note: str = ""
    is_written: bool = False
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """The items of a conversation.

    Attributes:
        items: The items, oldest first.
        positions: For each walked message, its position in the caller's list. None for a message
            from the archive.
        by_position: The items of each message of the caller's list, without files.
    """

    items: Sequence[Item]
    positions: Sequence[int | None] = ()
    by_position: dict[int, list[Item]] = field(init=False, default_factory=dict[int, list[Item]])

    def __post_init__(self) -> None:
        for item in self.items:
            if not item.path and (position := self.position_of(item)) >= 0:
                self.by_position.setdefault(position, []).append(item)

    def position_of(self, item: Item) -> int:
        """Return the position of the item's message in the caller's list. -1 if it has none."""
        position = self.positions[item.at] if item.at < len(self.positions) else None
        return -1 if position is None else position


def paragraphs(text: str) -> list[str]:
    """Cut `text` into paragraphs. Each stays with its heading or introducing line; fences stay."""
    text = text.strip("\n")
    if len(text) < GROUP_CHARS:
        return [text] if text.strip() else []
    found: list[str] = []
    is_fenced = False
    for part in text.split("\n\n"):
        if not (is_fenced or part.strip()):
            continue
        is_joined = is_fenced or (bool(found) and _introduces(found[-1]))
        if is_joined and len(found[-1]) + len(part) < GROUP_CHARS:
            found[-1] += f"\n\n{part}"
        elif part.strip():
            found.append(part)
        is_fenced ^= part.count("```") % 2 == 1
    pieces: list[str] = []
    for paragraph in found:
        pieces += [paragraph] if len(paragraph) < GROUP_CHARS else line_groups(paragraph)
    return pieces


def line_groups(text: str) -> list[str]:
    """Cut `text` into groups of whole lines of about `GROUP_CHARS`. Longer lines are cut."""
    groups: list[list[str]] = []
    size_chars = 0
    for line in text.strip("\n").split("\n"):
        for start in range(0, len(line) or 1, LONG_CHARS):
            part = line[start : start + LONG_CHARS]
            if not groups or size_chars + len(part) > GROUP_CHARS:
                groups.append([])
                size_chars = 0
            groups[-1].append(part)
            size_chars += len(part) + 1
    return [group for group in map("\n".join, groups) if group.strip()]


def _introduces(before: str) -> bool:
    """Whether a text ends with a heading, or with a line that announces a list or text."""
    last = before[before.rfind("\n\n") + 1 :].strip()
    is_heading = len(last) < LABEL_CHARS and "\n" not in last
    return is_heading or last.rstrip(" *_").endswith(":")


def ends_first(pieces: Collection[str]) -> list[int]:
    """Return the indices of `pieces` as first, last, second, last but one, and so on."""
    size = len(pieces)
    return [n // 2 if n % 2 == 0 else size - 1 - n // 2 for n in range(size)]


def mark_focus(items: Sequence[Item], instructions: str) -> None:
    """Set `in_focus` on each item with a topic of `instructions`; put its matching pieces first."""
    named = subject_words(instructions) | values_in(instructions)
    words = [[named & (subject_words(p) | values_in(p)) for p in item.pieces] for item in items]
    item_counts = Counter(word for pieces in words for word in set(chain.from_iterable(pieces)))
    # A word in more items says nothing about a topic. In a short conversation rare words count.
    most_items = max(2, len(items) // 4)
    topics = {word for word, count in item_counts.items() if count <= most_items}
    for item, pieces in zip(items, words, strict=True):
        matching = {number for number, piece_words in enumerate(pieces) if piece_words & topics}
        item.in_focus = bool(matching)
        item.order = sorted(item.order, key=lambda number: number not in matching)


# The price of a piece, what decides between equal prices (newer messages and earlier pieces first),
# its tokens, its item and its index.
_Offer: TypeAlias = tuple[float, int, int, int, int, Item, int]


def fill(items: Sequence[Item], room_tokens: int, count: MessageCounter) -> int:
    """Buy the pieces of `items` that fit in `room_tokens`. Return the tokens that are left."""
    return Market(items, count).fill(room_tokens)


class Market:
    """The pieces of `items` with their prices, which are the same in every fill."""

    def __init__(self, items: Sequence[Item], count: MessageCounter) -> None:
        self._items, self._count = items, count
        _set_ages(items)
        orders = orders_of(items)
        for item in items:
            item.age = 0 if item in orders or item.in_focus else item.age
        self._offers: list[_Offer] = []
        self._most_tokens = 0

    def fill(self, room_tokens: int) -> int:
        """Buy the pieces that fit in `room_tokens`. Return the tokens that are left."""
        for item in self._items:
            if item.bought:
                item.bought = set()
        if room_tokens > self._most_tokens:
            self._most_tokens = 2 * room_tokens  # later fills have about as much room
            self._offers = sorted(self._offers_of(self._most_tokens))
        attached_tokens = int(room_tokens * _ATTACHED_SHARE)
        closed: set[int] = set()
        for *_, tokens, item, piece in self._offers:
            is_attached = item.kind == "attached"
            limit_tokens = min(room_tokens, attached_tokens) if is_attached else room_tokens
            if tokens > limit_tokens or id(item) in closed:
                closed.add(id(item))
                continue
            item.bought.add(piece)
            room_tokens -= tokens
            attached_tokens -= tokens if is_attached else 0
        return room_tokens

    def _offers_of(self, room_tokens: int) -> Iterator[_Offer]:
        """Yield the offers of each item up to the first piece that cannot fit."""
        for number, item in enumerate(self._items):
            weight = WEIGHTS[item.kind] and max(WEIGHTS[item.kind], _FOCUS_WEIGHT * item.in_focus)
            total_tokens, total_chars = HEAD_TOKENS, 0
            for step, piece in enumerate(item.order if weight else ()):
                if step == len(item.costs):
                    head_tokens = 0 if step else HEAD_TOKENS
                    item.costs.append(self._count.text(item.pieces[piece]) + 1 + head_tokens)
                if item.kind == "user" and total_chars > LONG_CHARS:
                    weight = WEIGHTS["result"]  # people hardly type more, so the rest was pasted
                total_tokens += item.costs[step]
                total_chars += len(item.pieces[piece])
                price = (total_tokens * (1 + item.age)) ** 0.5 / weight
                yield price, -item.at, step, number, item.costs[step], item, piece
                if total_tokens > room_tokens:
                    break


def _set_ages(items: Sequence[Item]) -> None:
    """Set the age of each item: the number of newer items of its kind and of newer turns."""
    newer_items: Counter[Kind] = Counter()
    last_positions: dict[Kind, int] = {}
    newer_turns, last_turn = 0, -1
    for item in sorted(items, key=lambda item: -item.at):
        if last_positions.setdefault(item.kind, item.at) != item.at:
            newer_items[item.kind] += 1
            last_positions[item.kind] = item.at
        item.age = newer_items[item.kind] + newer_turns
        if item.kind in _AGELESS_KINDS:
            item.age = 0
        if item.kind == "user" and item.at != last_turn:
            newer_turns, last_turn = newer_turns + 1, item.at


def orders_of(items: Sequence[Item]) -> list[Item]:
    """Return the user's order that started the work, and the newest one."""
    orders = [item for item in items if item.kind == "user" and item.label == "user"]
    return [*orders[:1], *orders[-1:]]
