"""Fill the room of a summary: every piece has a price, and the cheapest pieces that fit are bought.

The price of a piece is sqrt(tokens * (1 + age)) / weight. The tokens of its item are counted up to
and including the piece, and the weight belongs to the item's kind. So short texts are cheap at any
age, and at one price, a text twice as old may be half as long. The rule works at any target.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from context_compaction.summarizers.extractive.items import LONG_CHARS, Item, Kind
from context_compaction.tokens.counter import MessageCounter

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
    "call": 2,
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
