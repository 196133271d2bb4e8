"""The text of a summary: the items that were bought, in order, each with number and author."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from context_compaction.messages.model import Message, Messages, Text
from context_compaction.summarizers.extractive.collect import Item, collect
from context_compaction.summarizers.extractive.fill import HEAD_TOKENS, fill
from context_compaction.tokens.counter import MessageCounter

# Between a text that a model or the host wrote and the entries.
RECORD_TITLE = "# From the record, word for word"
# How an entry begins. Nothing in a text may look like the beginning of another one, or of a section
# of the pins.
_LABEL = (
    r"(?:user|agent|assistant|host|tool|called|result of|done in this|from the summary)\b"
    r"[^\n:]{0,99}:"
)
_TITLE = r"## (?:Pinned|User rules|Unpinned)\b"
_BEGINS_ENTRY = re.compile(rf"^(?=(?:\[\d{{1,9}}\] |- )?{_LABEL}|{_TITLE})", re.MULTILINE)
_ENTRY = re.compile(rf"^(?:\[(\d{{1,9}})\]|-) ({_LABEL}) ?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EarlierEntries:
    """The entries of an earlier summary as messages.

    Attributes:
        messages: A message for each entry.
        numbers: Its number in the transcript, where it has one.
        labels: By position the label of each entry that the user did not say.
    """

    messages: Messages
    numbers: Sequence[int | None]
    labels: Mapping[int, str]


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


def earlier_entries(text: str) -> EarlierEntries:
    """The entries of the text of an earlier summary; what precedes them is one entry, too."""
    entries = [entry for entry in _entries(text) if entry[2]]
    messages: list[Message] = []
    labels: dict[int, str] = {}
    for at, (_, label, said) in enumerate(entries):
        is_user = label.startswith("user")
        messages.append(Message("user", (Text(said, author="user" if is_user else "compaction"),)))
        if not is_user:
            labels[at] = label
    return EarlierEntries(tuple(messages), [number for number, _, _ in entries], labels)


def _entries(text: str) -> Iterator[tuple[int | None, str, str]]:
    """The number, the label and the text of each entry."""
    starts = [*_ENTRY.finditer(text)]
    stops = [*(start.start() for start in starts), len(text)]
    head = text[: stops[0]].strip().removesuffix(RECORD_TITLE)
    yield None, "from the summary before", head.strip()
    for start, stop in zip(starts, stops[1:], strict=True):
        number = int(start[1]) if start[1] else None
        yield number, start[2].removesuffix(":"), text[start.end() : stop].strip()


def unforged(text: str) -> str:
    """`text` with two spaces before each line that looks like the beginning of another."""
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
    earlier = earlier_entries(lost)
    items = collect(
        (*earlier.messages, *messages), [*earlier.numbers, *numbers], earlier=earlier.labels
    )
    room_tokens = max_tokens
    while room_tokens > HEAD_TOKENS:
        fill(items, room_tokens, count)
        text = render(items)
        excess_tokens = count.text(text) - max_tokens
        if excess_tokens <= 0:
            return text
        room_tokens -= excess_tokens + HEAD_TOKENS
    return ""
