"""One greedy fill: every piece has a price, and the cheapest are bought while they fit.

The price of a piece is the square root of the tokens of its item up to it times its age, by the
weight of its kind. So short texts are cheap at any age, and a text twice as old may be half as long
for the same price. The same rule works at any target.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from context_compaction.summarizers.extractive.collect import Item, Kind, typed_pieces
from context_compaction.tokens.counter import MessageCounter

# What a token of each kind is worth.
WEIGHTS: Mapping[Kind, int] = {
    "user": 64,
    "rule": 64,
    "wish": 16,
    "closing": 48,
    "remark": 16,
    "plan": 16,
    "note": 16,
    "document": 48,
    "earlier": 16,
    "failure": 8,
    "deed": 8,
    "newest": 64,
    "call": 2,
    "result": 2,
    "record": 20,
    "report": 2,
    "rules": 2,
    "file": 3,
    "host": 1,
    "media": 64,  # a picture is only named
    "replaced": 0,
    "attached": 32,
}
# Weight of an item that the caller's instructions name, whatever its kind.
_FOCUS_WEIGHT = 64
# Tokens of an item's label, or of the frame of a message.
HEAD_TOKENS = 8
# An order has at most this part of the room before what follows its typed words.
_ORDER_SHARE = 0.25
# Skills and running work have at most this part of the room together.
_ATTACHED_SHARE = 0.25


def fill(items: Sequence[Item], room_tokens: int, count: MessageCounter) -> int:
    """Buy pieces of `items` within `room_tokens`; what is left of them."""
    _set_ages(items)
    offers: list[tuple[float, int, int, int, Item, int]] = []
    orders = {id(item) for item in orders_of(items)}
    failures = [item for item in items if item.kind == "failure"]
    newest_failure = max(failures, key=lambda item: item.at, default=None)
    for item in items:
        item.age = 0 if id(item) in orders or item.in_focus else item.age
    for item in items:
        item.bought = set()
        weight = WEIGHTS[item.kind]
        if not weight:
            continue
        weight = max(weight, _FOCUS_WEIGHT * item.in_focus)
        typed = set(typed_pieces(item.pieces)) if item.kind == "user" else set[int]()
        total_tokens = HEAD_TOKENS
        for step, piece in enumerate(item.order):
            if step == len(item.costs):
                head_tokens = 0 if step else HEAD_TOKENS
                item.costs.append(count.text(item.pieces[piece]) + 1 + head_tokens)
            tokens = item.costs[step]
            total_tokens += tokens
            is_order = id(item) in orders and total_tokens <= room_tokens * _ORDER_SHARE
            is_pasted = item.kind == "user" and piece not in typed and not is_order
            worth = WEIGHTS["result"] if is_pasted else weight
            price = (total_tokens * (1 + item.age)) ** 0.5 / worth
            # The newest failure keeps its assertion, and each unread result its head.
            is_due = not step and (item.is_unread or item is newest_failure)
            if is_due and total_tokens <= room_tokens * _ORDER_SHARE:
                price = 0.0
            offers.append((price, -item.at, step, tokens, item, piece))
            if total_tokens > room_tokens:
                break
    attached_tokens = int(room_tokens * _ATTACHED_SHARE)
    closed: set[int] = set()
    for _, _, _, tokens, item, piece in sorted(offers, key=lambda offer: offer[:3]):
        is_attached = item.kind == "attached"
        most_tokens = min(room_tokens, attached_tokens) if is_attached else room_tokens
        if id(item) in closed or tokens > most_tokens:
            closed.add(id(item))
            continue
        item.bought.add(piece)
        room_tokens -= tokens
        attached_tokens -= tokens if is_attached else 0
    return room_tokens


def _set_ages(items: Sequence[Item]) -> None:
    """The age of an item: how many newer ones of its kind, and newer turns, there are."""
    ages: Counter[Kind] = Counter()
    last_at: dict[Kind, int] = {}
    turns, last_turn = 0, -1
    for item in sorted(items, key=lambda item: -item.at):
        # The newest open failure stays young; older ones grow old as the results do.
        is_old_failure = item.kind == "failure" and "failure" in last_at
        kind = "result" if is_old_failure else item.kind
        if last_at.setdefault(kind, item.at) != item.at:
            ages[kind] += 1
            last_at[kind] = item.at
        is_ageless = item.kind in ("rule", "wish", "rules")
        item.age = 0 if is_ageless else ages[kind] + (turns if kind != "attached" else 0)
        if item.kind == "user" and item.at != last_turn:
            turns, last_turn = turns + 1, item.at


def orders_of(items: Sequence[Item]) -> list[Item]:
    """The order that started the work, and the newest one."""
    said = [item for item in items if item.kind == "user" and item.label == "user"]
    return [*said[:1], *said[-1:]]
