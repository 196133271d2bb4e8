"""What is pinned in one call: by the caller, by a mark, by an earlier summary, and what binds.

A message is marked by its place (`pinned_messages`), a passage by `<pin>` and `</pin>` around it in
a user's text. Both are legal for every provider. A mark in a tool's output is only text: what
a tool returns must not make itself unforgettable. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from context_compaction.errors import SettingsError
from context_compaction.formats.session_files.read import system_text
from context_compaction.messages import placeholders
from context_compaction.messages.edits import make_blob
from context_compaction.messages.model import (
    JsonObject,
    Message,
    Messages,
    Text,
    text_of,
)
from context_compaction.messages.pins import Origin, Pin, Pins, carried_by, is_pin_id, pin_id_of
from context_compaction.messages.speakers import user_texts
from context_compaction.messages.tool_results import full_text_of
from context_compaction.request import CompactRequest
from context_compaction.summarizers.instructions.find import find_instructions
from context_compaction.summarizers.instructions.own_words import own_words
from context_compaction.tokens.counter import MessageCounter

PIN_MARK, _MARK_END = "<pin>", "</pin>"
_MARKED = re.compile(f"{PIN_MARK}(.*?){_MARK_END}", re.DOTALL)
# Of one text; nobody marks so many by hand.
_MOST_MARKS = 200
_SHOWN_CHARS = 200
_ORIGINS: tuple[Origin, ...] = ("automatic", "marker", "manual")  # the surer the later


def check_pins(request: CompactRequest, messages: Messages) -> None:
    """Refuse pins that cannot be meant.

    Raises:
        SettingsError: `pinned_messages` names no message, or one without text; or a text is to be
            pinned and taken back at once.
    """
    for index in request.pinned_messages:
        if not 0 <= index < len(messages):
            raise SettingsError(
                f"pinned_messages names message {index}, but the list has {len(messages)}, "
                "counted from 0. Give places in this very list."
            )
        if not full_text_of(messages[index]).strip():
            raise SettingsError(
                f"pinned_messages names message {index}, which has no text. Pin another one, or "
                "give the text as pinned."
            )
    gone = set(_ids(request.unpin))
    both = [text for text in request.pinned if text.strip() and pin_id_of(text) in gone]
    if both:
        raise SettingsError(
            f"pinned and unpin both name {both[0][:80]!r}. Leave it out of one of them."
        )


def gather_pins(
    request: CompactRequest,
    messages: Messages,
    *,
    session_id: str,
    seqs: Sequence[int],
    count: MessageCounter,
    finds_rules: bool,
) -> Pins:
    """The pins of this call, oldest first, each text once.

    `seqs` are the numbers of the messages in the transcript, -1 for one without. Rules of the user
    are pinned unasked where it `finds_rules`.
    """
    places = [f"transcript://{session_id}/messages/{seq}-{seq}" for seq in seqs]
    carried, unpinned = _carried(messages)
    given = [Pin(text.strip(), "manual") for text in request.pinned]
    again = {pin.pin_id for pin in given}  # who pins it once more wants it back
    gone = dict.fromkeys(one for one in (*unpinned, *_ids(request.unpin)) if one not in again)
    found = [*carried, *_marked(request, messages, places), *given]
    if finds_rules:
        # In one message: which of them came in one turn is not known any more, what is marked is.
        listed = "\n".join(["Rules:", *(f"- {pin.shown}" for pin in carried)])
        known = find_instructions(
            (Message("user", (Text(listed),)), *messages), system=_system_of(request, messages)
        )
        numbers = [None, *(seq if seq >= 0 else None for seq in seqs)]
        said = "\n".join(" ".join(pin.text.split()) for pin in found if not pin.is_automatic)
        found += [
            Pin(rule.text, "automatic", index=rule.turn - 1, pointer=places[rule.turn - 1])
            for rule in known.rules
            if rule.turn and rule.text not in said  # else a summary carries it
        ]
        found = [
            replace(pin, mark=known.mark_of(pin.text, numbers))
            for pin in found
            if not (pin.is_automatic and pin.text in known.replaced)
        ]
    merged: dict[str, Pin] = {}
    for pin in found:
        if pin.text and (pin_id := pin.pin_id) not in gone:
            merged[pin_id] = _merged(merged[pin_id], pin) if pin_id in merged else pin
    counted = tuple(_counted(pin, count) for pin in merged.values())
    return Pins(counted, tuple(gone), frozenset(request.pinned_messages))


def pins_json(pins: Pins, messages: Messages) -> JsonObject | None:
    """The receipt's pins: carried by `messages`, left out, unpinned; None where there are none."""
    carried, left_out = _carried_and_left_out(pins, messages)
    if not (carried or left_out or pins.unpinned):
        return None
    return {
        "carried": [_json(pin) for pin in carried],
        "tokens": sum(pin.tokens for pin in carried),
        "left_out": [_json(pin) for pin in left_out],
        "unpinned": list(pins.unpinned),
    }


def pin_warnings(
    request: CompactRequest, pins: Pins, before: Messages, after: Messages, *, was_cut: bool
) -> Iterator[str]:
    """Warnings about texts that were not unpinned and pins that are not carried."""
    known = _standing_in(before) if request.unpin else frozenset[str]()
    for text, pin_id in zip(request.unpin, _ids(request.unpin), strict=True):
        if pin_id in known and not was_cut:
            yield (
                f"{pin_id} still stands in the summary, because no history was replaced now. Give "
                "unpin again with the next call."
            )
        elif pin_id not in known:
            yield f"unpin names {text[:80]!r}, which is not pinned in this list."
    for pin in _carried_and_left_out(pins, after)[1]:
        # What the caller gave is not in the list before the first summary that carries it.
        if not pin.is_automatic and (was_cut or pin.index is not None):
            why = "there is no room for it within pinned_tokens" if was_cut else "no summary stands"
            yield (
                f"Pinned text of {pin.tokens} tokens is not carried, because {why}: "
                f"{pin.text[:80]!r}. It can be read at {pin.pointer}."
            )


def _merged(one: Pin, other: Pin) -> Pin:
    """Two findings of one text: the surer origin, and no message where either has none."""
    origin = max(one.origin, other.origin, key=_ORIGINS.index)
    index = None if one.index is None else other.index
    # The message itself is a better place to read than a summary's whole range.
    return replace(other, origin=origin, index=index, pointer=other.pointer or one.pointer)


def _counted(pin: Pin, count: MessageCounter) -> Pin:
    # A text that the caller gave stands in no message.
    pointer = make_blob(pin.text).output_id if pin.origin == "manual" else pin.pointer
    pin = replace(pin, pointer=pointer, mark=pin.mark if pin.is_automatic else "")
    return replace(pin, tokens=count.text(pin.shown) + 1)


def _carried(messages: Messages) -> tuple[list[Pin], list[str]]:
    pins: list[Pin] = []
    unpinned: list[str] = []
    blocks = (block for message in messages for block in message.blocks)
    ours = (one for one in blocks if isinstance(one, Text) and one.author == "compaction")
    # Each alone: a host may have joined a summary and the next request to one message.
    for summary in (Message("user", (block,)) for block in ours):
        found, span = carried_by(summary), placeholders.span_replaced_by(summary)
        if found is not None and span is not None:
            pins += [replace(pin, pointer=span.pointer) for pin in found.pins]
            unpinned += found.unpinned
    return pins, unpinned


def _marked(request: CompactRequest, messages: Messages, places: Sequence[str]) -> Iterator[Pin]:
    whole = set(request.pinned_messages)
    for index, message in enumerate(messages):
        marked = (found for said in user_texts(message) for found in _marked_in(own_words(said)))
        for text in [full_text_of(message)] if index in whole else marked:
            yield Pin(text.strip(), "marker", index=index, pointer=places[index])


def _marked_in(text: str) -> Iterator[str]:
    """The passages between `<pin>` and `</pin>`, at most `_MOST_MARKS`."""
    # Up to the last end, so that no mark without one is looked behind: linear in the text.
    marked = _MARKED.finditer(text, 0, text.rfind(_MARK_END) + len(_MARK_END))
    return (found[1] for found in islice(marked, _MOST_MARKS))


def _system_of(request: CompactRequest, messages: Messages) -> str:
    """The system prompt of the request, and the texts of system messages in the list."""
    inside = [text_of(message.blocks) for message in messages if message.role == "system"]
    return "\n\n".join(filter(None, (system_text(request.system), *inside)))


def _standing_in(messages: Messages) -> frozenset[str]:
    """The id of every pin that a summary among `messages` carries."""
    return frozenset(pin.pin_id for pin in _carried(messages)[0])


def _carried_and_left_out(pins: Pins, messages: Messages) -> tuple[list[Pin], list[Pin]]:
    """The pins that a summary carries, and those that neither it nor their own message does."""
    if not pins.candidates:
        return [], []
    standing = _standing_in(messages)
    present = {message.index for message in messages if message.index is not None}
    carried = [pin for pin in pins.candidates if pin.pin_id in standing]
    others = [pin for pin in pins.candidates if pin.pin_id not in standing]
    return carried, [pin for pin in others if pin.index not in present]


def _json(pin: Pin) -> JsonObject:
    shown = pin.text if len(pin.text) <= _SHOWN_CHARS else f"{pin.text[: _SHOWN_CHARS - 1]}…"
    return {
        "id": pin.pin_id,
        "origin": pin.origin,
        "text": shown,
        "tokens": pin.tokens,
        "pointer": pin.pointer,
    }


def _ids(unpin: Iterable[str]) -> list[str]:
    return [text if is_pin_id(text) else pin_id_of(text) for text in unpin]
