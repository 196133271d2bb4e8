"""Pinned text: what every summary carries word for word, and how it comes back out of a summary.

Pins are in a block at the head of a summary, in sections by their origin, with the ids of those
that were taken back. That block is all the memory that pins need: the next compaction reads it, so
they outlive any number of rounds, with an archive or without. Pure.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, Step, make_blob
from context_compaction.messages.model import Message, Messages

Origin: TypeAlias = Literal["manual", "marker", "automatic"]

_TITLES: dict[Origin, str] = {
    "manual": "## Pinned (verbatim, still in force)",
    "marker": "## Pinned in a message (verbatim, still in force)",
    # Only what is surely a rule stands apart; the user's other words bind as well.
    "automatic": "## User rules (verbatim; more may follow below)",
}
_ORIGINS: dict[str, Origin] = {title: origin for origin, title in _TITLES.items()}
_UNPINNED_TITLE = "## Unpinned"
_OPEN, _CLOSE = "<pinned>\n", "</pinned>"
_BLOB_NAME = "pinned"
_PIN_ID = re.compile(r"p_[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Pin:
    """One text that is carried.

    Attributes:
        text: The text, without white space around it.
        origin: "manual" where the caller gave it, "marker" where a message is marked, "automatic"
            where the user stated a rule.
        tokens: What it counts; 0 before it is known to be carried.
        index: Position of the message that it is in, in the list that came in; None for one
            that the caller gave or a summary carried.
        pointer: Where it can be read.
        mark: What precedes it in a summary: that it differs from the system prompt; mostly
            nothing.
    """

    text: str
    origin: Origin
    tokens: int = 0
    index: int | None = None
    pointer: str = ""
    mark: str = ""

    @property
    def pin_id(self) -> str:
        """The name of its text."""
        return pin_id_of(self.text)

    @property
    def is_automatic(self) -> bool:
        """Whether nobody asked for it."""
        return self.origin == "automatic"

    @property
    def shown(self) -> str:
        """Its text with its mark."""
        return f"{self.mark}{self.text}"


@dataclass(frozen=True, slots=True)
class CarriedPins:
    """What the block of a summary says.

    Attributes:
        pins: Each pin, with its text, origin and mark.
        unpinned: The ids of those that were taken back.
        body: The summary's own text, without the block.
    """

    pins: tuple[Pin, ...]
    unpinned: tuple[str, ...]
    body: str


@dataclass(frozen=True, slots=True)
class Pins:
    """What is pinned in one call.

    Attributes:
        candidates: Every pin, oldest first; those of messages that stay are not carried.
        unpinned: The ids of texts that must not come back by themselves.
        marked: Positions of the messages that are pinned as a whole.
    """

    candidates: tuple[Pin, ...] = ()
    unpinned: tuple[str, ...] = ()
    marked: frozenset[int] = frozenset()

    @property
    def pinned_indices(self) -> frozenset[int]:
        """Positions of the messages that hold a text which somebody asked to pin."""
        asked = (pin.index for pin in self.candidates if not pin.is_automatic)
        return self.marked.union(at for at in asked if at is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text that is pinned."""
        return tuple(pin.text for pin in self.candidates)


def pin_id_of(text: str) -> str:
    """The id of a pinned text: the same wherever the text stands."""
    digest = hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=4)
    return f"p_{digest.hexdigest()}"


def is_pin_id(text: str) -> bool:
    """Whether `text` has the form of an id."""
    return _PIN_ID.fullmatch(text) is not None


def fit_to_budget(
    pins: Sequence[Pin], *, limit_tokens: int, automatic_tokens: int
) -> tuple[Pin, ...]:
    """Of `pins`, oldest first, those that may be carried, in the same order.

    Automatic ones have `automatic_tokens`. All together have `limit_tokens`: above that the
    oldest of the automatic ones go first, then the oldest of the others.
    """
    automatic = [pin for pin in pins if pin.is_automatic]
    others = [pin for pin in pins if not pin.is_automatic]
    left = limit_tokens - sum(pin.tokens for pin in others)
    kept = {
        id(pin)
        for pin in (
            *_newest_within(others, limit_tokens),
            *_newest_within(automatic, min(automatic_tokens, left)),
        )
    }
    return tuple(pin for pin in pins if id(pin) in kept)


def restore_pinned(before: Messages, step: Step, marked: Collection[int]) -> Step:
    """`step` of a clearing layer, without what it did to messages that are pinned as a whole.

    A layer that takes whole messages out leaves these standing by itself.
    """
    if step.messages is before or not marked or len(step.messages) != len(before):
        return step
    edits = tuple(edit for edit in step.edits if edit.index not in marked)
    if not edits:
        return Step(before)
    messages = tuple(
        old if old.index in marked else new for old, new in zip(before, step.messages, strict=True)
    )
    wanted = {pointer for edit in edits for pointer in edit.pointers}
    return Step(messages, edits, tuple(b for b in step.blobs if b.output_id in wanted))


def pin_block(pins: Sequence[Pin], unpinned: Sequence[str]) -> str:
    """The block that is at the head of a summary; empty where there is nothing to say."""
    lines: list[str] = []
    for origin, title in _TITLES.items():
        mine = [pin.shown for pin in pins if pin.origin == origin]
        if mine:
            lines += [title, *map(_shown, mine)]
    if unpinned:
        lines += [_UNPINNED_TITLE, f"- {' '.join(unpinned)}"]
    return _OPEN + "\n".join([*lines, _CLOSE]) if lines else ""


def with_pin_block(block: str, text: str) -> str:
    """The body of a summary. Nothing in the text can be taken for a block, or for its end."""
    text = placeholders.quoted(text)
    return "\n".join(filter(None, (block, text)))


def carried_by(message: Message) -> CarriedPins | None:
    """The pins of a summary of ours, and its text without them; None for any other message."""
    body = placeholders.body_of(message)
    if body is None:
        return None
    if not body.startswith(_OPEN):
        return CarriedPins((), (), body)
    return _read(body)


def _newest_within(pins: Sequence[Pin], tokens: int) -> list[Pin]:
    kept = list(pins)
    total = sum(pin.tokens for pin in kept)
    while kept and total > tokens:
        total -= kept.pop(0).tokens
    return kept


def _shown(text: str) -> str:
    if "\n" not in text:
        return f"- {text}"
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _read(body: str) -> CarriedPins:
    pins: list[Pin] = []
    unpinned: list[str] = []
    origin: Origin | None = "manual"
    lines = body.removeprefix(_OPEN).split("\n")
    at = 0
    while at < len(lines) and lines[at] != _CLOSE:
        line = lines[at]
        if line in _ORIGINS or line == _UNPINNED_TITLE:
            origin = _ORIGINS.get(line)
        elif origin is None:
            unpinned += _PIN_ID.findall(line)
        elif line.startswith("```") and not line.strip("`") and line in lines[at + 1 :]:
            end = lines.index(line, at + 1)
            pins.append(Pin("\n".join(lines[at + 1 : end]), origin))
            at = end
        else:
            shown = line.removeprefix("- ")
            mark, text = placeholders.split_mark(shown) if origin == "automatic" else ("", shown)
            pins.append(Pin(text, origin, mark=mark))
        at += 1
    return CarriedPins(tuple(pins), tuple(unpinned), "\n".join(lines[at + 1 :]))


def pin_blobs(pins: Iterable[Pin]) -> tuple[Blob, ...]:
    """The blobs that the archive must keep so that the pointers of manual pins can be read."""
    return tuple(
        make_blob(pin.text, tool_name=_BLOB_NAME) for pin in pins if pin.origin == "manual"
    )
