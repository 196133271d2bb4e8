"""The text of a summary: the items that were bought, in order, each with number and author."""

import re
from collections.abc import Iterable, Iterator, Sequence

from context_compaction.messages.model import Messages
from context_compaction.summarizers.extractive.collect import Item, collect
from context_compaction.summarizers.extractive.fill import HEAD_TOKENS, fill
from context_compaction.tokens.counter import MessageCounter

# How an entry begins. Nothing in a text may look like the beginning of another one.
_BEGINS_ENTRY = re.compile(
    r"^(?=(?:\[\d{1,9}\] |- )?(?:user|agent|host|tool|called|result of|done in)\b[^\n:]{0,99}:)",
    re.MULTILINE,
)
_ENTRY = re.compile(r"^(?:\[(\d{1,9})\]|-) (\w+)\b[^\n:]{0,99}: ?", re.MULTILINE)


def render(items: Iterable[Item], pinned: Iterable[str] = ()) -> str:
    """The bought pieces of `items`, one entry for each item; `pinned` texts are shown elsewhere."""
    shown = [item for item in items if item.bought and not item.path]
    shown.sort(key=lambda item: (item.at, item.kind == "deed", item.block))
    said = {item.at: " ".join(item.text.split()) for item in shown if item.kind == "user"}
    known = set(pinned)
    entries: list[str] = []
    for item in shown:
        text = item.text
        if item.kind in ("rule", "wish") and (text in known or text in said.get(item.at, "")):
            continue
        mark = f"{_mark(item)}{item.label}: "
        if item.kind in ("rule", "wish") and entries and entries[-1].startswith(mark):
            entries[-1] += f"\n{unforged(text)}"
        else:
            entries.append(f"{mark}{unforged(text)}")
    return "\n".join(entries)


def user_entries(text: str) -> Iterator[tuple[int | None, str]]:
    """What the user said by the text of a summary: each with its number, where it has one."""
    starts = [*_ENTRY.finditer(text)]
    stops = [*(start.start() for start in starts[1:]), len(text)]
    for start, stop in zip(starts, stops, strict=True):
        if start[2] == "user":
            yield int(start[1]) if start[1] else None, text[start.end() : stop].strip()


def unforged(text: str) -> str:
    """`text` with two spaces before each line that looks like the beginning of an entry."""
    return _BEGINS_ENTRY.sub("  ", text)


def _mark(item: Item) -> str:
    return "- " if item.number is None else f"[{item.number}] "


def extract(
    messages: Messages,
    numbers: Sequence[int | None],
    max_tokens: int,
    count: MessageCounter,
    *,
    lost: str = "",
) -> str:
    """The text of a summary of `messages` within `max_tokens`."""
    items = collect(messages, numbers, lost=lost)
    room_tokens = max_tokens
    while room_tokens > HEAD_TOKENS:
        fill(items, room_tokens, count)
        text = render(items)
        excess_tokens = count.text(text) - max_tokens
        if excess_tokens <= 0:
            return text
        room_tokens -= excess_tokens + HEAD_TOKENS
    return ""
