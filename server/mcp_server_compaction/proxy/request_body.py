"""The body of a request as text with the place of each message, so that only the list changes.

An unchanged message keeps the bytes that the host sent, and so does every other field.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from context_compaction import JsonObject, is_list, is_object


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the body contains {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Body:
    """A request whose message list can be replaced.

    Attributes:
        text: The whole request.
        fields: Its fields by name.
        messages: The message list.
        spans: Start and end of each message in `text`, by the identity of the message.
        start: Start of the list in `text`.
        end: End of the list in `text`.
    """

    text: str
    fields: JsonObject
    messages: list[JsonObject]
    spans: dict[int, slice]
    start: int
    end: int

    def with_messages(self, messages: Sequence[JsonObject], reword: Callable[[str], str]) -> bytes:
        """Return the request with another list. `reword` may change the JSON of new messages."""
        spans = self.spans
        texts = (
            self.text[spans[id(m)]] if id(m) in spans else reword(_as_json(m)) for m in messages
        )
        text = f"{self.text[: self.start]}[{','.join(texts)}]{self.text[self.end :]}"
        return text.encode("utf-8")


def read_body(data: bytes, list_name: str) -> Body:
    """Return the request in `data`, whose message list is in the field `list_name`.

    Raises:
        ValueError: The request is no UTF-8 or JSON, a field is repeated, or it has no such list.
            The text gives the reason without any content of the request.
    """
    try:
        text = data.decode("utf-8")
        *parts, (_, whole) = _items(text, _skip(text, 0), "{:,}")
        names, values = parts[::2], parts[1::2]
    except (ValueError, IndexError, RecursionError):
        raise ValueError("the body is not readable JSON") from None
    is_whole = _skip(text, whole.stop) == len(text) and len(names) == len(values)
    if not (is_whole and all(isinstance(name, str) for name, _ in names)):
        raise ValueError("the body is not readable JSON")
    fields = {name: value for (name, _), (value, _) in zip(names, values, strict=True)}
    if len(fields) < len(names):
        raise ValueError("the body has a field twice")
    if not (is_list(fields.get(list_name)) and all(map(is_object, fields[list_name]))):
        raise ValueError("the body has no list of messages")
    place = values[[name for name, _ in names].index(list_name)][1]
    *found, _ = _items(text, place.start, "[,]")
    messages = [message for message, _ in found]
    return Body(text, fields, messages, {id(m): span for m, span in found}, place.start, place.stop)


def _items(text: str, at: int, marks: str) -> Iterator[tuple[Any, slice]]:
    """Yield the values in an object or list with their places, and last its own place.

    `marks` are the opening mark, the marks between values in turn, and the closing mark.

    Raises:
        ValueError: The text is not JSON.
        IndexError: The text ends too early.
    """
    opening, *between, closing = tuple(marks)
    start = at
    for mark in itertools.chain(opening, itertools.cycle(between)):
        if text[at] != mark:
            raise ValueError("another mark is expected")
        at = _skip(text, at + 1)
        if mark == opening and text[at] == closing:
            break
        value, end = _DECODER.raw_decode(text, at)
        yield value, slice(at, end)
        at = _skip(text, end)
        if text[at] == closing:
            break
    yield None, slice(start, at + 1)


def _skip(text: str, at: int) -> int:
    """Return the end of the white space at `at`."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _as_json(message: JsonObject) -> str:
    """Return `message` as JSON in UTF-8; with escapes if it has lone surrogates."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":"))
    return text
