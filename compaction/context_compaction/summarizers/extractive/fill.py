"""Fill the room of a summary: every piece has a price, and the cheapest pieces that fit are bought.

The price of a piece is sqrt(tokens * (1 + age)) / weight. The tokens of its item are counted up to
and including the piece, and the weight belongs to the item's kind. So short texts are cheap at any
age, and at one price, a text twice as old may be half as long. The rule works at any target.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from context_compaction.summarizers.extractive.items import Item, Kind, typed_pieces
from context_compaction.summarizers.instructions.find import BINDING_RANK
from context_compaction.tokens.counter import MessageCounter

WEIGHTS: Mapping[Kind, int] = {
    "user": 64,
    "rule": 64,
    "preference": 24,
    "closing": 64,
    "remark": 40,
    "plan": 16,
    "document": 32,
    "failure": 8,
    "action": 8,
    "newest": 64,
    "call": 2,
    "result": 8,
    "file": 3,
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

# Up to this share of the room, the head of an unread result or of the newest failure is free.
# Skills bind like orders, but get at most twice this share of the room together.
_FIRST_SHARE = 0.125
# Up to this share of the room, the file that was used last in the running turn is free.
_SMALL_FILE_SHARE = 0.02
# The user's surest rules and preferences weigh as much as orders: this many tokens of them, and at
# most this share of the room.
_RULES_TOKENS = 600
_RULES_SHARE = 0.3
_AGELESS_KINDS = ("rule", "preference", "plan")


# The price of a piece, what decides between equal prices (newer messages and earlier pieces first),
# its tokens, its item and its index.
_Offer: TypeAlias = tuple[float, int, int, int, int, Item, int]


def fill(items: Sequence[Item], room_tokens: int, count: MessageCounter) -> int:
    """Buy the pieces of `items` that fit in `room_tokens`. Return the tokens that are left."""
    return Market(items, count).fill(room_tokens)


class Market:
    """The pieces of `items` with their prices. Most prices are the same in every fill."""

    def __init__(self, items: Sequence[Item], count: MessageCounter) -> None:
        self._items, self._count = items, count
        _set_ages(items)
        orders = orders_of(items)
        for item in items:
            item.age = 0 if item in orders or item.in_focus else item.age
        failures = [item for item in items if item.kind == "failure"]
        self._newest_failure = max(failures, key=lambda item: item.at, default=None)
        self._special: list[tuple[int, Item]] = []
        self._others: list[tuple[int, Item]] = []
        for numbered in enumerate(items):
            if WEIGHTS[numbered[1].kind]:
                is_special = self._depends_on_room(numbered[1])
                (self._special if is_special else self._others).append(numbered)
        self._offers: list[_Offer] = []
        self._most_tokens = 0

    def fill(self, room_tokens: int) -> int:
        """Buy the pieces that fit in `room_tokens`. Return the tokens that are left."""
        for item in self._items:
            if item.bought:
                item.bought = set()
        if room_tokens > self._most_tokens:
            self._most_tokens = 2 * room_tokens  # later fills have about as much room
            self._offers = sorted(self._offers_of(self._others, self._most_tokens))
        offers = sorted([*self._offers, *self._offers_of(self._special, room_tokens)])
        attached_tokens = int(room_tokens * 2 * _FIRST_SHARE)
        closed: set[int] = set()
        for *_, tokens, item, piece in offers:
            is_attached = item.kind == "attached"
            limit_tokens = min(room_tokens, attached_tokens) if is_attached else room_tokens
            if tokens > limit_tokens or id(item) in closed:
                closed.add(id(item))
                continue
            item.bought.add(piece)
            room_tokens -= tokens
            attached_tokens -= tokens if is_attached else 0
        return room_tokens

    def _depends_on_room(self, item: Item) -> bool:
        return self._free_share(item) > 0 or item.rank > BINDING_RANK

    def _free_share(self, item: Item) -> float:
        """Return the share of the room up to which the item's first piece is free."""
        if item.is_unread or item is self._newest_failure:
            return _FIRST_SHARE
        return _SMALL_FILE_SHARE if item.kind == "file" and not item.age else 0.0

    def _offers_of(self, items: Sequence[tuple[int, Item]], room_tokens: int) -> Iterator[_Offer]:
        """Yield the offers of the numbered `items` up to the first piece that cannot fit."""
        rules_tokens = min(_RULES_TOKENS, int(room_tokens * _RULES_SHARE))
        surest = _surest_rules([item for _, item in items], rules_tokens, self._count)
        for number, item in items:
            free_tokens = int(room_tokens * self._free_share(item))
            weight = WEIGHTS["rule"] if id(item) in surest else WEIGHTS[item.kind]
            weight = max(weight, _FOCUS_WEIGHT * item.in_focus)
            prices = _prices(item, weight, self._count, free_tokens)
            total_tokens = 0
            for step, price in enumerate(prices):
                tokens = item.costs[step]
                yield price, -item.at, step, number, tokens, item, item.order[step]
                total_tokens += tokens
                if total_tokens + HEAD_TOKENS > room_tokens:
                    break


def _prices(item: Item, weight: int, count: MessageCounter, free_tokens: int) -> Iterator[float]:
    """Yield the prices of the item's pieces in their order, and count their tokens.

    Args:
        item: The item.
        weight: The value of one of its tokens.
        count: Counts tokens.
        free_tokens: Up to this size, the first piece is free.
    """
    typed = set(typed_pieces(item.pieces)) if item.kind == "user" else None
    total_tokens = HEAD_TOKENS
    for step, piece in enumerate(item.order):
        if step == len(item.costs):
            head_tokens = 0 if step else HEAD_TOKENS
            item.costs.append(count.text(item.pieces[piece]) + 1 + head_tokens)
        total_tokens += item.costs[step]
        is_pasted = typed is not None and piece not in typed
        is_free = total_tokens <= free_tokens and not step
        price = (total_tokens * (1 + item.age)) ** 0.5
        yield 0.0 if is_free else price / (WEIGHTS["result"] if is_pasted else weight)


def _surest_rules(items: Sequence[Item], room_tokens: int, count: MessageCounter) -> set[int]:
    """Return the `id` of the surest rules and preferences that fit, of equal ones the newest.

    A sentence with no more than `BINDING_RANK` has no sign of a rule, so it is not among them.
    """
    surest: set[int] = set()
    rules = [item for item in items if item.rank > BINDING_RANK]
    for item in sorted(rules, key=lambda item: (-item.rank, -item.at)):
        if not item.costs:
            item.costs.append(count.text(item.pieces[0]) + 1 + HEAD_TOKENS)
        room_tokens -= item.costs[0]
        if room_tokens < 0:
            break
        surest.add(id(item))
    return surest


def _set_ages(items: Sequence[Item]) -> None:
    """Set the age of each item: the number of newer items of its kind and of newer turns."""
    newer_items: Counter[Kind] = Counter()
    last_positions: dict[Kind, int] = {}
    newer_turns, last_turn = 0, -1
    for item in sorted(items, key=lambda item: -item.at):
        # The newest open failure stays young. Older ones age like results.
        is_old_failure = item.kind == "failure" and "failure" in last_positions
        kind = "result" if is_old_failure else item.kind
        if last_positions.setdefault(kind, item.at) != item.at:
            newer_items[kind] += 1
            last_positions[kind] = item.at
        item.age = newer_items[kind] + newer_turns
        if item.kind in _AGELESS_KINDS:
            item.age = 0
        if item.kind == "user" and item.at != last_turn:
            newer_turns, last_turn = newer_turns + 1, item.at


def orders_of(items: Sequence[Item]) -> list[Item]:
    """Return the user's order that started the work, and the newest one."""
    orders = [item for item in items if item.kind == "user" and item.label == "user"]
    return [*orders[:1], *orders[-1:]]
