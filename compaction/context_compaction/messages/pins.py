"""Pinned texts, which every summary carries verbatim, and how they are read back from a summary.

A block at the start of a summary lists the pins in sections by origin, and the IDs of unpinned
texts. Lines about work that runs in the background are pins as well, until the work ends. This
block is the only memory that pins need. The next compaction reads it, so pins survive any number of
compactions, with or without an archive. All functions are pure.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from context_compaction.messages import placeholders
from context_compaction.messages.model import Blob, Message, Messages, Step, make_blob

Origin: TypeAlias = Literal["manual", "marker", "automatic", "running"]

_TITLES: dict[Origin, str] = {
    "manual": "## Pinned (verbatim, still in force)",
    "marker": "## Pinned in a message (verbatim, still in force)",
    # Only sentences that are certainly rules. Other words of the user bind as well.
    "automatic": "## User rules (verbatim; more may follow below)",
    "running": "## Running in the background (ID: purpose)",
}
_ORIGINS: dict[str, Origin] = {title: origin for origin, title in _TITLES.items()}
_UNPINNED_TITLE = "## Unpinned"
_OPEN, _CLOSE = "<pinned>\n", "</pinned>"
_BLOB_NAME = "pinned"
_ID_PREFIX = "p_"
_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned text.

    Attributes:
        text: The text, without surrounding white space.
        origin: "manual" if the caller passed it, "marker" if the user marked it in a message,
            "automatic" if it is a rule of the user that was found, "running" if it names work in
            the background that has not ended.
        tokens: Size of the text with its mark; 0 if it is not counted yet.
        index: Index of the message that contains it; None if the caller passed it or a summary
            carried it.
        pointer: Address at which it can be read.
        mark: Words before it in a summary, for example that it conflicts with the system prompt.
    """

    text: str
    origin: Origin
    tokens: int = 0
    index: int | None = None
    pointer: str = ""
    mark: str = ""

    @property
    def pin_id(self) -> str:
        """The ID of the text."""
        return pin_id_of(self.text)

    @property
    def is_automatic(self) -> bool:
        """Whether nobody asked for this pin."""
        return self.origin == "automatic"

    @property
    def marked_text(self) -> str:
        """The text with its mark."""
        return f"{self.mark}{self.text}"


@dataclass(frozen=True, slots=True)
class CarriedPins:
    """The content of a summary.

    Attributes:
        pins: The pins, with text, origin and mark.
        unpinned: IDs of unpinned texts.
        body: The summary without the block of pins.
    """

    pins: tuple[Pin, ...]
    unpinned: tuple[str, ...]
    body: str


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of one call.

    Attributes:
        candidates: All pins, oldest first. A summary carries those whose message it replaces.
        unpinned: IDs of texts that must not be pinned again automatically.
        marked: Indices of the messages that are pinned as a whole.
    """

    candidates: tuple[Pin, ...] = ()
    unpinned: tuple[str, ...] = ()
    marked: frozenset[int] = frozenset()

    @property
    def pinned_indices(self) -> frozenset[int]:
        """Indices of the messages that the caller or the user pinned, or that name running work."""
        asked = (pin.index for pin in self.candidates if not pin.is_automatic)
        return self.marked.union(index for index in asked if index is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """All pinned texts."""
        return tuple(pin.text for pin in self.candidates)


def pin_id_of(text: str) -> str:
    """Return the ID of a pinned text, which depends on the text alone."""
    data = text.strip().encode("utf-8", "surrogatepass")
    return _ID_PREFIX + hashlib.blake2b(data, digest_size=_ID_BYTES).hexdigest()


def is_pin_id(text: str) -> bool:
    """Whether `text` has the form of a pin ID."""
    digits = text.removeprefix(_ID_PREFIX)
    has_form = text.startswith(_ID_PREFIX) and len(digits) == 2 * _ID_BYTES
    return has_form and set(digits) <= set("0123456789abcdef")


def fit_to_budget(
    pins: Sequence[Pin], *, limit_tokens: int, automatic_tokens: int, running_tokens: int
) -> tuple[Pin, ...]:
    """Return the pins that fit, in the same order (oldest first).

    Args:
        pins: The pins, oldest first.
        limit_tokens: Limit for all pins except running work. Above it the oldest automatic pins are
            dropped first, then the oldest explicit pins.
        automatic_tokens: Limit for automatic pins.
        running_tokens: Limit for work in the background.
    """
    running = [pin for pin in pins if pin.origin == "running"]
    automatic = [pin for pin in pins if pin.is_automatic]
    explicit = [pin for pin in pins if pin.origin in ("manual", "marker")]
    free_tokens = limit_tokens - sum(pin.tokens for pin in explicit)
    fitting = (
        *_newest_within(explicit, limit_tokens),
        *_newest_within(automatic, min(automatic_tokens, free_tokens)),
        *_newest_within(running, running_tokens),
    )
    fitting_objects = set(map(id, fitting))
    return tuple(pin for pin in pins if id(pin) in fitting_objects)


def restore_pinned(before: Messages, step: Step, marked: Collection[int]) -> Step:
    """Return `step` without its edits of messages that are pinned as a whole.

    Layers that drop whole messages keep pinned messages themselves.
    """
    if step.messages is before or len(step.messages) != len(before):
        return step
    edits = tuple(edit for edit in step.edits if edit.index not in marked)
    if not edits:
        return Step(before)
    messages = tuple(
        old if old.index in marked else new for old, new in zip(before, step.messages, strict=True)
    )
    used_ids = {pointer for edit in edits for pointer in edit.pointers}
    return Step(messages, edits, tuple(b for b in step.blobs if b.output_id in used_ids))


def pin_block(pins: Sequence[Pin], unpinned: Sequence[str]) -> str:
    """Return the block at the start of a summary; empty without pins and unpinned texts."""
    lines: list[str] = []
    for origin, title in _TITLES.items():
        texts = [pin.marked_text for pin in pins if pin.origin == origin]
        if texts:
            lines += [title, *map(_list_item, texts)]
    if unpinned:
        lines += [_UNPINNED_TITLE, f"- {' '.join(unpinned)}"]
    return _OPEN + "\n".join([*lines, _CLOSE]) if lines else ""


def with_pin_block(block: str, text: str) -> str:
    """Return the body of a summary. The text is escaped, so that it cannot imitate the block."""
    return "\n".join(filter(None, (block, placeholders.quoted(text))))


def carried_by(message: Message) -> CarriedPins | None:
    """Return the pins and the body of a summary; None for other messages."""
    body = placeholders.body_of(message)
    if body is None or body.startswith(_OPEN):
        return None if body is None else _parse(body)
    return CarriedPins((), (), body)


def _newest_within(pins: Sequence[Pin], tokens: int) -> list[Pin]:
    newest = list(pins)
    total = sum(pin.tokens for pin in newest)
    while newest and total > tokens:
        total -= newest.pop(0).tokens
    return newest


def _list_item(text: str) -> str:
    """Return a text as a list item, or as a fenced block if it has several lines."""
    if "\n" not in text:
        return f"- {text}"
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _parse(body: str) -> CarriedPins:
    """Return the content of the body of a summary that starts with a block of pins."""
    pins: list[Pin] = []
    unpinned: list[str] = []
    origin: Origin | None = "manual"
    lines = body.removeprefix(_OPEN).split("\n")
    number = 0
    while number < len(lines) and lines[number] != _CLOSE:
        line = lines[number]
        if line in _ORIGINS or line == _UNPINNED_TITLE:
            origin = _ORIGINS.get(line)
        elif origin is None:
            unpinned += filter(is_pin_id, line.split())
        elif line.startswith("```") and not line.strip("`") and line in lines[number + 1 :]:
            end = lines.index(line, number + 1)
            pins.append(Pin("\n".join(lines[number + 1 : end]), origin))
            number = end
        else:
            text = line.removeprefix("- ")
            mark, rule = placeholders.split_mark(text) if origin == "automatic" else ("", text)
            pins.append(Pin(rule, origin, mark=mark))
        number += 1
    return CarriedPins(tuple(pins), tuple(unpinned), "\n".join(lines[number + 1 :]))


def pin_blobs(pins: Iterable[Pin]) -> tuple[Blob, ...]:
    """Return the blobs of manual pins, to which their pointers refer."""
    return tuple(
        make_blob(pin.text, tool_name=_BLOB_NAME) for pin in pins if pin.origin == "manual"
    )
