"""Collect the texts that every summary carries verbatim.

They come from the caller, marks in messages, earlier summaries, and rules of the user.

Lines about work that still runs in the background are such texts as well. A message is pinned by
its index (`pinned_messages`), a passage by `<pin>` and `</pin>` in the user's text. Every provider
accepts both. A mark in a tool's output is only text, because a tool must not make its own output
permanent.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from context_compaction.activity.background import running_jobs
from context_compaction.context import Session
from context_compaction.errors import SettingsError
from context_compaction.formats.base import system_text
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    JsonObject,
    Message,
    Messages,
    Text,
    full_text_of,
    make_blob,
    text_of,
)
from context_compaction.messages.pins import Origin, Pin, Pins, carried_by, is_pin_id, pin_id_of
from context_compaction.messages.speakers import user_texts
from context_compaction.request import CompactRequest
from context_compaction.summarizers.instructions.find import find_instructions
from context_compaction.summarizers.instructions.sentences import own_words
from context_compaction.tokens.counter import MessageCounter

_MARK_END = "</pin>"
_MARKED = re.compile(f"<pin>(.*?){_MARK_END}", re.DOTALL)
# Limit of marks in one text, far above the number that a person sets.
_MAX_MARKS = 200
_SHOWN_CHARS = 200
# The more certain origins come later.
_ORIGINS: tuple[Origin, ...] = ("running", "automatic", "marker", "manual")


def check_indices(name: str, indices: Sequence[int], messages: Messages) -> None:
    """Refuse indices outside `messages`.

    Raises:
        SettingsError: An index of the option `name` is out of range.
    """
    for index in indices:
        if not 0 <= index < len(messages):
            raise SettingsError(
                f"{name} contains index {index}, but the list has {len(messages)} messages, "
                "counted from 0. Pass indices of this list."
            )


def check_pins(request: CompactRequest, messages: Messages) -> None:
    """Refuse invalid pins.

    Raises:
        SettingsError: `pinned_messages` names no message or one without text, or a text is both
            pinned and unpinned.
    """
    check_indices("pinned_messages", request.pinned_messages, messages)
    for index in request.pinned_messages:
        if not full_text_of(messages[index]).strip():
            raise SettingsError(
                f"pinned_messages contains index {index}, but that message has no text. Pin "
                "another message, or pass the text as pinned."
            )
    unpinned = set(_ids(request.unpin))
    both = [text for text in request.pinned if text.strip() and pin_id_of(text) in unpinned]
    if both:
        raise SettingsError(
            f"pinned and unpin both contain {both[0][:80]!r}. Remove it from one of them."
        )


def gather_pins(
    session: Session, messages: Messages, count: MessageCounter, *, finds_rules: bool
) -> Pins:
    """Return the pins of this call, oldest first, each text once.

    With `finds_rules`, the user's rules are pinned as well.
    """
    request, seqs = session.request, session.seqs
    pointers = [f"transcript://{session.session_id}/messages/{seq}-{seq}" for seq in seqs]
    listed, unpinned = _carried(messages)
    carried = [pin for pin in listed if pin.origin != "running"]
    given = [Pin(text.strip(), "manual") for text in request.pinned]
    pinned_again = {pin.pin_id for pin in given}
    unpinned_ids = dict.fromkeys(
        pin_id for pin_id in (*unpinned, *_ids(request.unpin)) if pin_id not in pinned_again
    )
    pins = [*carried, *_marked(request, messages, pointers), *given]
    if finds_rules:
        pins = _with_rules(session, messages, pointers, carried, pins)
    pins += _running(messages, pointers, [pin for pin in listed if pin.origin == "running"])
    merged: dict[str, Pin] = {}
    for pin in pins:
        if pin.text and (pin_id := pin.pin_id) not in unpinned_ids:
            merged[pin_id] = _merged(merged[pin_id], pin) if pin_id in merged else pin
    counted = tuple(_counted(pin, count) for pin in merged.values())
    return Pins(counted, tuple(unpinned_ids), frozenset(request.pinned_messages))


def _with_rules(
    session: Session,
    messages: Messages,
    pointers: Sequence[str],
    carried: Sequence[Pin],
    pins: Sequence[Pin],
) -> list[Pin]:
    """Return `pins` with the user's rules, without rules that later rules replace."""
    # Carried rules precede the list as one message, because their turns are unknown.
    listed = "\n".join(["Rules:", *(f"- {pin.marked_text}" for pin in carried)])
    rules = find_instructions(
        (Message("user", (Text(listed),)), *messages), system=_system_of(session.request, messages)
    )
    numbers = [None, *(seq if seq >= 0 else None for seq in session.seqs)]
    pinned = "\n".join(" ".join(pin.text.split()) for pin in pins if not pin.is_automatic)
    automatic = [
        Pin(rule.text, "automatic", index=rule.turn - 1, pointer=pointers[rule.turn - 1])
        for rule in rules.rules
        if rule.turn and rule.text not in pinned  # turn 0 has the carried rules
    ]
    return [
        replace(pin, mark=rules.mark_of(pin.text, numbers))
        for pin in (*pins, *automatic)
        if not (pin.is_automatic and pin.text in rules.replaced)
    ]


def _running(messages: Messages, pointers: Sequence[str], carried: Sequence[Pin]) -> Iterator[Pin]:
    """Yield a pin for each job that still runs. `carried` are those of earlier summaries."""
    carried_pointers = {pin.text: pin.pointer for pin in carried}
    for line, index in running_jobs(messages, carried_pointers):
        pointer = carried_pointers[line] if index is None else pointers[index]
        yield Pin(line, "running", index=index, pointer=pointer)


def pins_json(pins: Pins, messages: Messages) -> JsonObject | None:
    """Return the pins for the receipt: carried, omitted and unpinned. None if there are none."""
    carried, omitted = _carried_and_omitted(pins, messages)
    if not (carried or omitted or pins.unpinned):
        return None
    return {
        "carried": [_json(pin) for pin in carried],
        "tokens": sum(pin.tokens for pin in carried),
        "omitted": [_json(pin) for pin in omitted],
        "unpinned": list(pins.unpinned),
    }


def pin_warnings(
    request: CompactRequest, pins: Pins, before: Messages, after: Messages, *, was_cut: bool
) -> Iterator[str]:
    """Yield warnings about texts that could not be unpinned and pins that are not carried."""
    known = _carried_ids(before) if request.unpin else frozenset[str]()
    for text, pin_id in zip(request.unpin, _ids(request.unpin), strict=True):
        if pin_id in known and not was_cut:
            yield (
                f"{pin_id} is still in the summary, because this call replaced no history. Pass "
                "unpin again in the next call."
            )
        elif pin_id not in known:
            yield f"unpin contains {text[:80]!r}, which is not pinned in this list."
    for pin in _carried_and_omitted(pins, after)[1]:
        # A text from the caller is in no message before the first summary carries it.
        if not pin.is_automatic and (was_cut or pin.index is not None):
            reason = "there is no room for it" if was_cut else "there is no summary yet"
            yield (
                f"A pinned text of {pin.tokens} tokens is not carried, because {reason}: "
                f"{pin.text[:80]!r}. Read it at {pin.pointer}."
            )


def _merged(first: Pin, second: Pin) -> Pin:
    """Return one pin for two pins of one text, with the more certain origin.

    The pointer of `second` takes precedence.
    """
    origin = max(first.origin, second.origin, key=_ORIGINS.index)
    index = None if first.index is None else second.index
    return replace(second, origin=origin, index=index, pointer=second.pointer or first.pointer)


def _counted(pin: Pin, count: MessageCounter) -> Pin:
    # A text from the caller is in no message, so it becomes a separate output.
    pointer = make_blob(pin.text).output_id if pin.origin == "manual" else pin.pointer
    pin = replace(pin, pointer=pointer, mark=pin.mark if pin.is_automatic else "")
    return replace(pin, tokens=count.text(pin.marked_text) + 1)


def _carried(messages: Messages) -> tuple[list[Pin], list[str]]:
    """Return the pins in the summaries among `messages`, and the IDs of unpinned texts."""
    pins: list[Pin] = []
    unpinned: list[str] = []
    blocks = (block for message in messages for block in message.blocks)
    own = (block for block in blocks if isinstance(block, Text) and block.author == "compaction")
    # Each block is parsed alone, because a host may join a summary and the next request.
    for summary in (Message("user", (block,)) for block in own):
        parsed, span = carried_by(summary), placeholders.span_replaced_by(summary)
        if parsed is not None and span is not None:
            pins += [replace(pin, pointer=span.pointer) for pin in parsed.pins]
            unpinned += parsed.unpinned
    return pins, unpinned


def _marked(request: CompactRequest, messages: Messages, pointers: Sequence[str]) -> Iterator[Pin]:
    """Yield the pins of whole messages and of passages between marks."""
    pinned_indices = set(request.pinned_messages)
    for index, message in enumerate(messages):
        typed = user_texts(message) if _MARK_END in text_of(message.blocks) else ()
        passages = (passage for text in typed for passage in _marked_in(own_words(text)))
        for text in [full_text_of(message)] if index in pinned_indices else passages:
            yield Pin(text.strip(), "marker", index=index, pointer=pointers[index])


def _marked_in(text: str) -> Iterator[str]:
    """Yield the passages between `<pin>` and `</pin>`, at most `_MAX_MARKS`."""
    # Searching only up to the last end mark keeps the time linear in the text.
    marked = _MARKED.finditer(text, 0, text.rfind(_MARK_END) + len(_MARK_END))
    return (match[1] for match in islice(marked, _MAX_MARKS))


def _system_of(request: CompactRequest, messages: Messages) -> str:
    """Return the request's system prompt and the system messages of the list, as one text."""
    inside = [text_of(message.blocks) for message in messages if message.role == "system"]
    return "\n\n".join(filter(None, (system_text(request.system), *inside)))


def _carried_ids(messages: Messages) -> frozenset[str]:
    return frozenset(pin.pin_id for pin in _carried(messages)[0])


def _carried_and_omitted(pins: Pins, messages: Messages) -> tuple[list[Pin], list[Pin]]:
    """Return the carried and the omitted pins.

    A carried pin is in a summary. An omitted pin is neither in a summary nor in its own message.
    """
    if not pins.candidates:
        return [], []
    ids = _carried_ids(messages)
    present = {message.index for message in messages if message.index is not None}
    carried = [pin for pin in pins.candidates if pin.pin_id in ids]
    other_pins = [pin for pin in pins.candidates if pin.pin_id not in ids]
    return carried, [pin for pin in other_pins if pin.index not in present]


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
