"""The body of a request as text with the place of each message, so that only the list changes.

An unchanged message keeps the bytes that the host sent, and so does every other field.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from context_compaction import JsonObject, is_list, is_object


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the body contains {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_NOT_SPACE = re.compile(r"[^ \t\n\r]|\Z")


@dataclass(frozen=True, slots=True)
class Body:
    """A request whose message list can be replaced.

    Attributes:
        text: The whole request.
        fields: Its fields by name, without the list.
        messages: The message list.
        spans: Start and end of each message in `text`.
        start: Start of the list in `text`.
        end: End of the list in `text`.
    """

    text: str
    fields: JsonObject
    messages: list[JsonObject]
    spans: list[tuple[int, int]]
    start: int
    end: int

    def with_messages(
        self, messages: Sequence[JsonObject], reword: Callable[[str], str] = str
    ) -> bytes:
        """Return the request with another list. Messages of this list are found by identity.

        `reword` may change the JSON of all other messages.
        """
        spans = {id(message): span for message, span in zip(self.messages, self.spans, strict=True)}
        texts = (
            self.text[slice(*spans[id(message)])]
            if id(message) in spans
            else reword(_as_json(message))
            for message in messages
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
        return _read(text, list_name)
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    except (json.JSONDecodeError, IndexError, RecursionError):
        raise ValueError("the body is not readable JSON") from None


def _read(text: str, list_name: str) -> Body:
    fields: JsonObject = {}
    found: tuple[list[Any], list[tuple[int, int]], int, int] | None = None
    at = _after(text, 0, "{")
    while text[at] != "}":
        if text[at] != '"':
            raise json.JSONDecodeError("Expected a name", text, at)
        name, at = _DECODER.raw_decode(text, at)
        start = _after(text, at, ":")
        if name in fields or (found and name == list_name):
            raise ValueError("the body has a field twice")
        if name == list_name and text[start] == "[":
            items, spans, at = _read_list(text, start)
            found = items, spans, start, at
        else:
            fields[name], at = _DECODER.raw_decode(text, start)
        at = _next_item(text, at, "}")
    if _skip(text, at + 1) != len(text):
        raise ValueError("the body is not readable JSON")
    if found is None or not all(map(is_object, found[0])):
        raise ValueError("the body has no list of messages")
    return Body(text, fields, *found)


def _read_list(text: str, start: int) -> tuple[list[Any], list[tuple[int, int]], int]:
    """Return the items of the list at `start`, the span of each, and the end of the list."""
    items: list[Any] = []
    spans: list[tuple[int, int]] = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        item, end = _DECODER.raw_decode(text, at)
        items.append(item)
        spans.append((at, end))
        at = _next_item(text, end, "]")
    return items, spans, at + 1


def _next_item(text: str, at: int, closing: str) -> int:
    """Return the start of the next item, or the place of `closing`."""
    at = _skip(text, at)
    if text[at] == closing:
        return at
    at = _after(text, at, ",")
    if text[at] == closing:
        raise json.JSONDecodeError("Trailing comma", text, at)
    return at


def _after(text: str, at: int, mark: str) -> int:
    """Return the place after `mark`, with white space around it skipped."""
    at = _skip(text, at)
    if text[at] != mark:
        raise json.JSONDecodeError(f"Expected {mark}", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _NOT_SPACE.search(text, at)
    return len(text) if found is None else found.start()


def _as_json(message: JsonObject) -> str:
    """Return `message` as JSON in UTF-8; with escapes if it has lone surrogates."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":"))
    return text


def names_in(tools: Any) -> str:
    """Return the names of the offered tools, also of tools in groups, in one text."""
    if not is_list(tools):
        return ""
    objects = [tool for tool in tools if is_object(tool)]
    texts = [f"{tool.get('name')} {names_in([tool.get('function')])}" for tool in objects]
    return " ".join([*texts, *(names_in(tool.get("tools")) for tool in objects)])
