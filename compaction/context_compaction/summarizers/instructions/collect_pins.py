"""What is pinned in one call: by the caller, by a mark, by an earlier summary, and what binds.

A message is marked by its place (`pinned_messages`), a passage by `<pin>` and `</pin>` around it in
a user's text. Both are legal for every provider. A mark in a tool's output is only text: what
a tool returns must not make itself unforgettable. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.errors import SettingsError
from context_compaction.formats.session_files.message_lists import system_text
from context_compaction.messages import placeholders
from context_compaction.messages.edits import Blob, make_blob
from context_compaction.messages.model import (
    JsonObject,
    Message,
    Messages,
    Text,
    ToolResult,
    text_of,
)
from context_compaction.messages.pins import Origin, Pin, Pins, carried_by, is_pin_id, pin_id_of
from context_compaction.messages.speakers import user_text, user_texts
from context_compaction.request import CompactRequest
from context_compaction.summarizers.instructions.find import UserInstructions, find_instructions
from context_compaction.tokens.counter import MessageCounter

PIN_MARK, _MARK_END = "<pin>", "</pin>"
# Of one text; nobody marks so many by hand.
_MOST_MARKS = 200
_BLOB_NAME = "pinned"
_SHOWN_CHARS = 200
_WEIGHT: Mapping[Origin, int] = {"manual": 2, "marker": 1, "automatic": 0}


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
        if not whole_text(messages[index]).strip():
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

    Args:
        request: The caller's request.
        messages: The messages of the request.
        session_id: For pointers.
        seqs: For each message its number in the transcript, or -1.
        count: The token counter.
        finds_rules: Whether rules of the user are pinned unasked.
    """

    def pointer_to(index: int) -> str:
        return f"transcript://{session_id}/messages/{seqs[index]}-{seqs[index]}"

    carried, unpinned = _carried(messages)
    given = tuple(_Found(text.strip(), "manual") for text in request.pinned)
    again = {pin_id_of(item.text) for item in given}  # who pins it once more wants it back
    gone = dict.fromkeys(
        pin_id for pin_id in (*unpinned, *_ids(request.unpin)) if pin_id not in again
    )
    found = [*carried, *_marked(request, messages, pointer_to), *given]
    replaced_texts: frozenset[str] = frozenset()
    if finds_rules:
        system = _system_of(request, messages)
        rules, bindings, numbers = _rules(carried, messages, seqs, pointer_to, system)
        replaced_texts = frozenset(bindings.replaced)
        said = "\n".join(_one_line(item.text) for item in found if item.origin != "automatic")
        found = [
            *(replace(item, mark=bindings.mark_of(item.text, numbers)) for item in found),
            *(rule for rule in rules if rule.text not in said),
        ]
    merged: dict[str, _Found] = {}
    for item in found:
        pin_id = pin_id_of(item.text)
        is_gone = pin_id in gone or (item.origin == "automatic" and item.text in replaced_texts)
        if item.text and not is_gone:
            merged[pin_id] = _merged(merged[pin_id], item) if pin_id in merged else item
    marked = frozenset(request.pinned_messages)
    return Pins(tuple(_pin(item, count) for item in merged.values()), tuple(gone), marked)


def pin_blobs(pins: Iterable[Pin]) -> tuple[Blob, ...]:
    """The blobs that the archive must keep so that the pointers of manual pins can be read."""
    return tuple(
        make_blob(pin.text, tool_name=_BLOB_NAME) for pin in pins if pin.origin == "manual"
    )


def standing_in(messages: Messages) -> dict[str, Origin]:
    """By id the origin of every pin that a summary among `messages` carries."""
    return {pin_id_of(item.text): item.origin for item in _carried(messages)[0]}


def pins_json(pins: Pins, messages: Messages) -> JsonObject | None:
    """The receipt's pins: carried by `messages`, left out, unpinned; None where there are none."""
    if not (pins.candidates or pins.unpinned):
        return None
    standing = standing_in(messages)
    carried = [pin for pin in pins.candidates if pin.pin_id in standing]
    left_out = _left_out(pins, messages)
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
) -> tuple[str, ...]:
    """Warnings about texts that were not unpinned and pins that are not carried."""
    known = standing_in(before) if request.unpin else {}
    warnings: list[str] = []
    for text in request.unpin:
        pin_id = text if is_pin_id(text) else pin_id_of(text)
        if pin_id in known and not was_cut:
            warnings.append(
                f"{pin_id} still stands in the summary, because no history was replaced now. Give "
                "unpin again with the next call."
            )
        elif pin_id not in known:
            warnings.append(f"unpin names {text[:80]!r}, which is not pinned in this list.")
    for pin in _left_out(pins, after):
        # What the caller gave is not in the list before the first summary that carries it.
        if not pin.is_automatic and (was_cut or pin.index is not None):
            why = "there is no room for it within pinned_tokens" if was_cut else "no summary stands"
            warnings.append(
                f"Pinned text of {pin.tokens} tokens is not carried, because {why}: "
                f"{pin.text[:80]!r}. It can be read at {pin.pointer}."
            )
    return tuple(warnings)


@dataclass(frozen=True, slots=True)
class _Found:
    """A text to be pinned, as it was found once."""

    text: str
    origin: Origin
    index: int | None = None
    pointer: str = ""
    mark: str = ""


def _merged(one: _Found, other: _Found) -> _Found:
    """Two findings of one text: the surer origin, and no message where either has none."""
    surer = max((one, other), key=lambda item: _WEIGHT[item.origin])
    carries = one.index is None or other.index is None
    index = None if carries else max(one.index or 0, other.index or 0)
    # The message itself is a better place to read than a summary's whole range.
    pointer = other.pointer if other.index is not None else one.pointer or other.pointer
    return _Found(one.text, surer.origin, index, pointer, mark=other.mark)


def _pin(item: _Found, count: MessageCounter) -> Pin:
    # A text that the caller gave stands in no message.
    pointer = make_blob(item.text).output_id if item.origin == "manual" else item.pointer
    mark = item.mark if item.origin == "automatic" else ""
    pin = Pin(item.text, item.origin, 0, item.index, pointer, mark)
    return replace(pin, tokens=count.text(pin.shown) + 1)


def _carried(messages: Messages) -> tuple[list[_Found], list[str]]:
    pins: list[_Found] = []
    unpinned: list[str] = []
    for block in (block for message in messages for block in message.blocks):
        if not isinstance(block, Text) or block.author != "compaction":
            continue
        # Alone: a host may have joined a summary and the next request to one message.
        summary = Message("user", (block,))
        found = carried_by(summary)
        span = placeholders.span_replaced_by(summary)
        if found is not None and span is not None:
            pins += [
                _Found(text, origin, None, span.pointer, found.marks.get(text, ""))
                for text, origin in found.pins
            ]
            unpinned += found.unpinned
    return pins, unpinned


def _marked(
    request: CompactRequest, messages: Messages, pointer_to: Callable[[int], str]
) -> Iterator[_Found]:
    whole = set(request.pinned_messages)
    for index, message in enumerate(messages):
        if index in whole:
            yield _Found(whole_text(message).strip(), "marker", index, pointer_to(index))
        else:
            for text in (found for said in user_texts(message) for found in _marked_in(said)):
                yield _Found(text, "marker", index, pointer_to(index))


def _marked_in(text: str) -> Iterator[str]:
    """The passages between `<pin>` and `</pin>`, at most `_MOST_MARKS`; linear in the text."""
    at = 0
    for _ in range(_MOST_MARKS):
        start = text.find(PIN_MARK, at)
        stop = text.find(_MARK_END, start + len(PIN_MARK)) if start >= 0 else -1
        if stop < 0:
            return
        if passage := text[start + len(PIN_MARK) : stop].strip():
            yield passage
        at = stop + len(_MARK_END)


def _rules(
    carried: Sequence[_Found],
    messages: Messages,
    seqs: Sequence[int],
    pointer_to: Callable[[int], str],
    system: str,
) -> tuple[list[_Found], UserInstructions, list[int | None]]:
    """The surest rules of the user, oldest first, all that binds, and its messages' numbers."""
    # In one message: which of them came in one turn is not known any more, what is marked is.
    listed = "\n".join(["Rules:", *(f"- {item.mark}{item.text}" for item in carried)])
    before = (Message("user", (Text(listed),)),)
    requests = [(at, m) for at, m in enumerate(messages) if user_texts(m)]
    bindings = find_instructions(
        (*before, *(message for _, message in requests)),
        system=system,
    )
    numbers = [None, *(seqs[at] if seqs[at] >= 0 else None for at, _ in requests)]
    texts = [(at, _one_line(user_text(message))) for at, message in reversed(requests)]
    found: list[_Found] = []
    for binding in bindings.rules:
        wanted = _one_line(binding.text)
        at = next((at for at, text in texts if wanted in text), None)
        if at is not None:  # else a summary carries it
            mark = bindings.mark_of(binding.text, numbers)
            found.append(_Found(binding.text, "automatic", at, pointer_to(at), mark))
    return found, bindings, numbers


def _system_of(request: CompactRequest, messages: Messages) -> str:
    """The system prompt of the request, and the texts of system messages in the list."""
    inside = [text_of(message.blocks) for message in messages if message.role == "system"]
    return "\n\n".join(filter(None, (system_text(request.system), *inside)))


def _left_out(pins: Pins, messages: Messages) -> list[Pin]:
    """The pins that neither a summary nor their own message carries."""
    if not pins.candidates:
        return []
    standing = standing_in(messages)
    present = {message.index for message in messages if message.index is not None}
    return [
        pin
        for pin in pins.candidates
        if pin.pin_id not in standing and (pin.index is None or pin.index not in present)
    ]


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


def whole_text(message: Message) -> str:
    """The text of a message, its tool results included."""
    texts = [
        text_of(block.content) if isinstance(block, ToolResult) else text_of((block,))
        for block in message.blocks
    ]
    return "\n".join(text for text in texts if text)


def _one_line(text: str) -> str:
    return " ".join(text.split())
