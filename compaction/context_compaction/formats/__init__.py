"""Message formats: the only place where a provider's JSON is read or written.

Each format is one module with `parse_message` and `render_message`; this file finds the format and
walks the list. `session_files` reads those of known hosts, `convert` turns one format into another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from context_compaction.errors import InvalidMessageError, UnknownFormatError
from context_compaction.formats.anthropic import FORMAT as ANTHROPIC
from context_compaction.formats.base import (
    MessageFormat,
    list_or_none,
    nests_too_deep,
    object_or_none,
    require_object,
)
from context_compaction.formats.bedrock_converse import FORMAT as BEDROCK_CONVERSE
from context_compaction.formats.detection import conversion_of
from context_compaction.formats.gemini import FORMAT as GEMINI
from context_compaction.formats.openai_chat import FORMAT as OPENAI_CHAT
from context_compaction.formats.openai_responses import FORMAT as OPENAI_RESPONSES
from context_compaction.formats.pi import FORMAT as PI
from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.messages.private import hide_private
from context_compaction.messages.tool_pairs import ProviderRules

__all__ = ["FORMATS", "MessageFormat", "ProviderRules", "detect", "parse", "render"]


FORMATS: Mapping[str, MessageFormat] = {
    found.name: found
    for found in (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, PI, BEDROCK_CONVERSE)
}

# A conversation has some hundred tokens a message, so this is far beyond any window. Without a
# bound a megabyte of gzip, which holds 15 million messages, keeps a core busy for an hour.
MAX_MESSAGES = 200_000

_MESSAGE_REMEDY = 'Give an object such as {"role": "user", "content": "..."}.'


def detect(payload: Sequence[JsonObject]) -> str:
    """The name of the format that fits every message of `payload`; raises what `fitting` does.

    Where several fit alike, the first of `FORMATS`, which is "anthropic".
    """
    return fitting(payload)[0]


def fitting(payload: Sequence[JsonObject]) -> tuple[str, ...]:
    """The formats that fit every message of `payload`, and that most messages speak for.

    They are several where these tie: plain strings by user and assistant are the same in three.

    Raises:
        InvalidMessageError: A message is not a JSON object, or it is malformed in the only
            format that the messages before it leave open.
        UnknownFormatError: No format fits, a message is an agent library's own (the error says how
            to convert it), or the list is empty.
    """
    if not payload:
        raise UnknownFormatError(
            "The list of messages is empty, so its format cannot be found. Give at least one "
            "message, or name the format."
        )
    check_count(len(payload))
    scores = dict.fromkeys(FORMATS, 0)
    for index, raw in enumerate(payload):
        raw = require_object(raw, index, "the message", _MESSAGE_REMEDY)
        if _has_number(raw):
            _complain(
                raw, index, "gemini" if "parts" in raw else max(scores, key=scores.__getitem__)
            )
        conversion = conversion_of(raw)
        if conversion is not None:
            raise UnknownFormatError(
                f"Message {index} is in no provider's format: it is {conversion}."
            )
        fits = {name: FORMATS[name].recognises(raw) for name in scores}
        left = {name: scores[name] + fit for name, fit in fits.items() if fit}
        if not left:
            _complain(raw, index, max(scores, key=scores.__getitem__))
        scores = left
    most = max(scores.values())
    return tuple(name for name, score in scores.items() if score == most)


def _has_number(raw: JsonObject) -> bool:
    """Whether a number is among the blocks of a message, which no format has.

    Of millions of numbers the first is enough; each format would look at all of them.
    """
    blocks = (list_or_none(raw.get(key)) or () for key in ("content", "parts"))
    return any(isinstance(block, int | float) for each in blocks for block in each)


def check_count(count: int) -> None:
    """Refuse a list of more messages than any can have."""
    if count > MAX_MESSAGES:
        raise InvalidMessageError(MAX_MESSAGES, *_TOO_MANY)


def _complain(raw: JsonObject, index: int, likely: str) -> None:
    """Raise the error for a message that fits no format which the ones before it fit.

    What is wrong is best said by the likeliest format; a message that it reads all the same is of
    another format.
    """
    if index or "role" in raw:
        FORMATS[likely].parse_message(raw, index)
    before = f" that the messages before it fit ({likely})" if index else ""
    raise UnknownFormatError(
        f"Message {index} fits no format{before}; its fields are {sorted(map(str, raw))}. Give all "
        f"messages in one of these formats, and name it if in doubt: {', '.join(FORMATS)}."
    )


def goes_on(payload: Sequence[JsonObject], format: str) -> bool:
    """Whether a list of `format` may go on with `payload`: `detect` would not refuse it."""
    recognises = FORMATS[format].recognises
    return all(
        object_or_none(raw) is not None and recognises(raw) and conversion_of(raw) is None
        for raw in payload
    )


def parse(payload: Sequence[JsonObject], *, format: str | None = None) -> Messages:
    """The messages of `payload`, each with its index and its host object as `source`.

    Raises:
        InvalidMessageError: Names the first malformed message, what is wrong, what is right.
        UnknownFormatError: `format` is unknown, or was not given and cannot be found.
    """
    if format is None and not payload:
        return ()
    check_count(len(payload))
    wire_format = format_named(detect(payload) if format is None else format)
    parsed = tuple(parse_one(raw, at, wire_format.name) for at, raw in enumerate(payload))
    return parsed if wire_format.link is None else wire_format.link(parsed)


def parse_one(raw: JsonObject, index: int, format: str) -> Message:
    """The message at `index` of a list, not linked to the others; raises what `parse` raises."""
    raw = require_object(raw, index, "the message", _MESSAGE_REMEDY)
    if nests_too_deep(raw):
        raise InvalidMessageError(index, *_TOO_DEEP)
    parse_message = FORMATS[format].parse_message
    try:
        shown = hide_private(raw)
        message = parse_message(shown, index)
    except RecursionError:
        raise InvalidMessageError(index, *_TOO_DEEP) from None
    # Nobody but the model sees what is private: it goes back with the host's own message.
    return message if shown is raw else replace(message, source=raw)


def render(messages: Messages, *, format: str) -> list[JsonObject]:
    """The list for the provider: untouched messages are the host's own objects.

    Raises:
        InvalidMessageError: An edited message nests too deeply to be written as JSON.
        UnknownFormatError: `format` is unknown.
    """
    wire_format = format_named(format)
    rendered: list[JsonObject] = []
    for index, message in enumerate(messages):
        try:
            rendered.extend(wire_format.render_message(message))
        except RecursionError:
            raise InvalidMessageError(index, *_TOO_DEEP) from None
    return rendered


_TOO_MANY = (
    f"it is one more than the {MAX_MESSAGES} that one list may hold",
    "Give a part of the conversation.",
)
_TOO_DEEP = ("it nests too deeply to be written as JSON", "Give it with less nesting.")


def format_named(name: str) -> MessageFormat:
    """The format of this name; raises `UnknownFormatError`."""
    found = FORMATS.get(name)
    if found is None:
        raise UnknownFormatError(
            f"The format {name!r} is unknown. Name one of: {', '.join(FORMATS)}."
        )
    return found
