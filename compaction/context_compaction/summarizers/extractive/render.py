"""Write the text of a summary: one entry for each item that `fill` bought, in message order.

An entry has the number of the message, its author or source, and the text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from context_compaction.messages.model import Author, Message, Messages, Text
from context_compaction.summarizers.extractive.collect import collect
from context_compaction.summarizers.extractive.items import HEAD_TOKENS, Item, fill
from context_compaction.tokens.counter import MessageCounter

EXTRACTS_TITLE = "# Verbatim extracts"
"""The heading between a text that a model or the host wrote and the entries."""

# The beginning of an entry, or of a section of pinned texts. `escape_entries` indents lines of a
# text that look like one.
_LABEL = (
    r"(?:user|agent|assistant|host|tool|called|result of|done in this|from the previous)\b"
    r"[^\n:]{0,99}:"
)
_PINS_TITLE = r"## (?:Pinned|User rules|Running in the background|Unpinned)\b"
_STARTS_ENTRY = re.compile(rf"^(?=(?:\[\d{{1,9}}\] |- )?{_LABEL}|{_PINS_TITLE})", re.MULTILINE)
_ENTRY = re.compile(rf"^(?:\[(\d{{1,9}})\]|-) ({_LABEL}) ?", re.MULTILINE)

RULE_KINDS = ("rule", "preference")


@dataclass(frozen=True, slots=True)
class EarlierEntries:
    """The entries of an earlier summary as messages.

    Attributes:
        messages: One message for each entry.
        numbers: The number of each entry's message in the transcript, if known.
        labels: The labels of entries that are not the user's, by position.
    """

    messages: Messages
    numbers: Sequence[int | None]
    labels: Mapping[int, str]


def extract(
    messages: Messages,
    numbers: Sequence[int | None],
    max_tokens: int,
    count: MessageCounter,
    *,
    lost: str = "",
) -> str:
    """Return a summary of `messages` within `max_tokens`; see `bought_items`."""
    return render(bought_items(messages, numbers, max_tokens, count, lost=lost))


def bought_items(
    messages: Messages,
    numbers: Sequence[int | None],
    max_tokens: int,
    count: MessageCounter,
    *,
    lost: str = "",
) -> Sequence[Item]:
    """Return the items of `messages` with pieces bought whose text is within `max_tokens`.

    Args:
        messages: The conversation.
        numbers: The number of each message in the transcript.
        max_tokens: Token limit of the text.
        count: Counts tokens.
        lost: Text of earlier summaries whose original messages are missing.
    """
    earlier = earlier_entries(lost)
    items = collect(
        (*earlier.messages, *messages), [*earlier.numbers, *numbers], earlier=earlier.labels
    )
    room_tokens = max_tokens
    while room_tokens > HEAD_TOKENS:
        fill(items, room_tokens, count)
        excess_tokens = count.text(render(items)) - max_tokens
        if excess_tokens <= 0:
            return items
        room_tokens -= excess_tokens + HEAD_TOKENS
    return ()


def render(items: Iterable[Item], pinned: Iterable[str] = ()) -> str:
    """Return one entry for each bought item. Rules among the `pinned` texts are omitted."""
    bought = [item for item in items if item.bought and not item.path]
    bought.sort(key=lambda item: (item.at, item.kind == "action", item.block))
    user_texts = {item.at: " ".join(item.text.split()) for item in bought if item.kind == "user"}
    pinned_texts = set(pinned)
    entries: list[str] = []
    for item in bought:
        text, is_rule = item.text, item.kind in RULE_KINDS
        if is_rule and (text in pinned_texts or text in user_texts.get(item.at, "")):
            continue
        number = "-" if item.number is None else f"[{item.number}]"
        start = f"{number} {item.label}: "
        if is_rule and entries and entries[-1].startswith(start):
            entries[-1] += f"\n{escape_entries(text)}"
        else:
            entries.append(f"{start}{escape_entries(text)}")
    return "\n".join(entries)


def entries_before(text: str, number: int) -> str:
    """Return the part of an earlier summary that precedes its entries from message `number` on."""
    starts = (start for start in _ENTRY.finditer(text) if start[1] and int(start[1]) >= number)
    first = next(starts, None)
    return text[: first.start()] if first else text


def earlier_entries(text: str) -> EarlierEntries:
    """Return the entries of an earlier summary. Text before the first entry becomes an entry."""
    messages: list[Message] = []
    numbers: list[int | None] = []
    labels: dict[int, str] = {}
    for number, label, content in _entries(text):
        if not content:
            continue
        author: Author = "user" if label.startswith("user") else "compaction"
        if author != "user":
            labels[len(messages)] = label
        messages.append(Message("user", (Text(content, author=author),)))
        numbers.append(number)
    return EarlierEntries(tuple(messages), numbers, labels)


def _entries(text: str) -> Iterator[tuple[int | None, str, str]]:
    """Yield the number, label and text of each entry; first the text before all entries."""
    starts = [*_ENTRY.finditer(text)]
    stops = [*(start.start() for start in starts), len(text)]
    head = text[: stops[0]].strip().removesuffix(EXTRACTS_TITLE)
    yield None, "from the previous summary", head.strip()
    for start, stop in zip(starts, stops[1:], strict=True):
        number = int(start[1]) if start[1] else None
        yield number, start[2].removesuffix(":"), text[start.end() : stop].strip()


def escape_entries(text: str) -> str:
    """Indent each line of `text` that looks like the beginning of an entry."""
    return _STARTS_ENTRY.sub("  ", text)
