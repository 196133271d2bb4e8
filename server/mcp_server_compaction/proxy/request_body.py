"""The body of a request as text with the place of each message, so that only the list changes.

An unchanged message keeps the bytes that the host sent, and so does every other field.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from context_compaction import JsonObject, is_list, is_object


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the body contains {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_BETWEEN = re.compile(r"[\s,:]*")


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
        fields: Any = _DECODER.decode(text)
        items = [*_items(text, text.find("{") + 1)] if is_object(fields) else []
    except (ValueError, RecursionError):
        raise ValueError("the body is not readable JSON") from None
    names, values = [value for value, _ in items[::2]], items[1::2]
    if len(set(names)) < len(names):
        raise ValueError("the body has a field twice")
    if not (items and is_list(fields.get(list_name)) and all(map(is_object, fields[list_name]))):
        raise ValueError("the body has no list of messages")
    place = values[names.index(list_name)][1]
    found = [*_items(text, place.start + 1)]
    messages = [message for message, _ in found]
    return Body(text, fields, messages, {id(m): span for m, span in found}, place.start, place.stop)


def _items(text: str, at: int) -> Iterator[tuple[Any, slice]]:
    """Yield the values in an object or list of valid JSON, with their places, from `at` on."""
    while text[at := _BETWEEN.match(text, at).end()] not in "]}":  # type: ignore[union-attr]
        value, end = _DECODER.raw_decode(text, at)
        yield value, slice(at, end)
        at = end


def _as_json(message: JsonObject) -> str:
    """Return `message` as JSON in UTF-8; with escapes if it has lone surrogates."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":"))
    return text
