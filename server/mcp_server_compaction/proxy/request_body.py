"""The body of a request as text with the place of each message, so that only the list changes.

An unchanged message keeps the bytes that the host sent, and so does every other field.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from context_compaction import JsonObject, is_object

# NaN and Infinity are not JSON; int refuses them.
_READ = json.JSONDecoder(parse_constant=int).raw_decode
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Body:
    """A request whose message list can be replaced.

    Attributes:
        text: The whole request.
        fields: Its other fields by name.
        messages: The message list.
        spans: The place of each message in `text`.
        place: The place of the list in `text`.
    """

    text: str
    fields: JsonObject
    messages: list[JsonObject]
    spans: list[slice]
    place: slice

    def with_messages(self, messages: Sequence[JsonObject], reword: Callable[[str], str]) -> bytes:
        """Return the request with another list. `reword` may change the JSON of new messages."""
        spans = dict(zip(map(id, self.messages), self.spans, strict=True))
        # JSON in ASCII also carries lone surrogates.
        texts = (
            self.text[spans[id(m)]] if id(m) in spans else reword(json.dumps(m)) for m in messages
        )
        head, tail = self.text[: self.place.start], self.text[self.place.stop :]
        return f"{head}[{','.join(texts)}]{tail}".encode()


def read_body(data: bytes, list_name: str) -> Body:
    """Return the request in `data`, whose message list is in the field `list_name`.

    Each value is decoded once, because this is most of the work of a large request.

    Raises:
        ValueError: The request is no UTF-8 or JSON, a field is repeated, or it has no such list.
            The text gives the reason without any content of the request.
    """
    fields: JsonObject = {}
    messages: list[JsonObject] = []
    spans: list[slice] = []
    place: slice | None = None
    is_repeated = False
    try:
        text = data.decode("utf-8")
        at, mark = _after(text, 0, "{"), ","
        while mark == ",":
            name, at = _READ(text, at)
            at = _after(text, at, ":")
            is_repeated |= name in fields or (place is not None and name == list_name)
            if name == list_name and text[at] == "[" and text[_space_end(text, at + 1)] != "]":
                start = at
                while not spans or text[at] == ",":
                    begin = _space_end(text, at + 1)
                    message, at = _READ(text, begin)
                    messages.append(message)
                    spans.append(slice(begin, at))
                    at = _space_end(text, at)
                place = slice(start, at + 1)
                at = _after(text, at, "]")
            else:
                fields[name], at = _READ(text, at)
                at = _space_end(text, at)
            mark = text[at]
            at = _after(text, at, "," if mark == "," else "}")
    except (ValueError, TypeError, IndexError, RecursionError):
        raise ValueError("the body is not readable JSON") from None
    if at < len(text):
        raise ValueError("the body is not readable JSON")
    if is_repeated:
        raise ValueError("the body has a field twice")
    if place is None or not all(map(is_object, messages)):
        raise ValueError("the body has no list of messages")
    return Body(text, fields, messages, spans, place)


def _after(text: str, at: int, mark: str) -> int:
    """Return the place after white space, `mark` and more white space."""
    at = _space_end(text, at)
    if text[at] != mark:
        raise ValueError("another mark is expected")
    return _space_end(text, at + 1)


def _space_end(text: str, at: int) -> int:
    return next(_SPACE.finditer(text, at)).end()
