"""JSON with comments: read, and changed member by member, so that all else stays byte for byte.

`json-five` keeps comments too, but takes five seconds for a megabyte, which Claude Code's own file
can have, and has no way to add a member in the style of its neighbours.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from mcp_server_compaction.hosts import Json

# Blanks and comments; a byte order mark may stand first.
_GAP = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DECODER = json.JSONDecoder()
_SCALAR = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
# What stands on the line behind a member: its comment.
_REST_OF_LINE = re.compile(r"(?:[ \t]|//[^\n\r]*|/\*[^\n]*?\*/)*")


@dataclass(frozen=True, slots=True)
class _Node:
    """A value and where it stands.

    Attributes:
        start: Its first character.
        stop: After its last one.
        value: What it means.
        parts: Of an object or array, what it holds, in order.
        has_last_comma: Whether a comma follows the last of them.
    """

    start: int
    stop: int
    value: Json
    parts: "tuple[_Part, ...]" = ()
    has_last_comma: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an object, or an item of an array, whose key is empty.

    Attributes:
        start: Where it begins, with its key.
        stop: After it, with its comma if it has one.
    """

    key: str
    start: int
    stop: int
    node: _Node


_Edit: TypeAlias = tuple[int, int, str]


def parse(text: str) -> Json:
    """The value that `text` holds; None where it holds nothing but blanks and comments.

    Raises:
        ValueError: It is no JSON, comments and trailing commas allowed, and says where.
    """
    root = _parse(text)
    return root.value if root else None


def rewritten(text: str, value: Json) -> str:
    """`text` changed to hold `value`: what is equal in both keeps its bytes, comments and place.

    Raises:
        ValueError: `text` is no JSON.
    """
    root = _parse(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if root is None:
        gap = text if not text or text.endswith("\n") else text + newline
        return gap + json.dumps(value, indent=2, ensure_ascii=False) + newline
    style = _Style(text, newline, _unit_of(text, root))
    edits = sorted(style.edits(root, value), reverse=True)
    for start, stop, new in edits:
        text = text[:start] + new + text[stop:]
    return text


def _parse(text: str) -> _Node | None:
    start = _gap_end(text, 0)
    if start == len(text):
        return None
    try:
        root = _value(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    end = _gap_end(text, root.stop)
    if end != len(text):
        raise _fault(text, end, "something stands after the value")
    return root


def _gap_end(text: str, start: int) -> int:
    found = _GAP.match(text, start)
    return found.end() if found else start


def _value(text: str, start: int) -> _Node:
    sign = text[start : start + 1]
    if sign == "{":
        return _parts(text, start, "}", _member)
    if sign == "[":
        return _parts(text, start, "]", _item)
    if sign == '"':
        value, stop = _string(text, start)
        return _Node(start, stop, value)
    found = _SCALAR.match(text, start)
    if not found:
        raise _fault(text, start, "a value is missing")
    return _Node(start, found.end(), json.loads(found[0]))


def _parts(text: str, start: int, close: str, part_at: Callable[[str, int], _Part]) -> _Node:
    parts: list[_Part] = []
    at = _gap_end(text, start + 1)
    has_comma = True
    while text[at : at + 1] != close:
        if not has_comma:
            raise _fault(text, at, f"a comma or {close} is missing")
        part = part_at(text, at)
        at = _gap_end(text, part.stop)
        has_comma = text[at : at + 1] == ","
        if has_comma:
            part = _Part(part.key, part.start, at + 1, part.node)
            at = _gap_end(text, at + 1)
        parts.append(part)
    nodes = [part.node.value for part in parts]
    value = nodes if close == "]" else dict(zip([part.key for part in parts], nodes, strict=True))
    if close == "}" and len(value) != len(parts):
        raise _fault(text, start, "a name stands twice in one object")
    return _Node(start, at + 1, value, tuple(parts), bool(parts) and has_comma)


def _member(text: str, start: int) -> _Part:
    if text[start : start + 1] != '"':
        raise _fault(text, start, 'a name in "quotes" is missing')
    key, stop = _string(text, start)
    colon = _gap_end(text, stop)
    if text[colon : colon + 1] != ":":
        raise _fault(text, colon, "a colon is missing")
    node = _value(text, _gap_end(text, colon + 1))
    return _Part(key, start, node.stop, node)


def _item(text: str, start: int) -> _Part:
    node = _value(text, start)
    return _Part("", start, node.stop, node)


def _string(text: str, start: int) -> tuple[str, int]:
    try:
        value, stop = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _fault(text, error.pos, error.msg) from None
    return str(value), stop


def _fault(text: str, at: int, problem: str) -> ValueError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return ValueError(f"line {line}, column {column}: {problem}")


def _unit_of(text: str, root: _Node) -> str | None:
    """What one level is indented by; None where the text stands on one line."""
    if root.parts and "\n" not in text[root.start : root.stop]:
        return None
    own = _indent_at(text, root.parts[0].start) if root.parts else ""
    return own or "  "


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


@dataclass(frozen=True, slots=True)
class _Style:
    """How a text is written."""

    text: str
    newline: str
    unit: str | None

    def edits(self, node: _Node, value: Json) -> list[_Edit]:
        """What to replace so that `node` means `value`."""
        if _same(node.value, value):
            return []
        if isinstance(value, dict) and isinstance(node.value, dict):
            return self._object_edits(node, cast("dict[str, Json]", value))
        if isinstance(value, list) and isinstance(node.value, list):
            return self._array_edits(node, [*value])
        return [(node.start, node.stop, self._dumped(value, _indent_at(self.text, node.start)))]

    def _object_edits(self, node: _Node, value: dict[str, Json]) -> list[_Edit]:
        edits: list[_Edit] = []
        for part in node.parts:
            if part.key in value:
                edits += self.edits(part.node, value[part.key])
        gone = [number for number, part in enumerate(node.parts) if part.key not in value]
        new = [(key, item) for key, item in value.items() if key not in node.value]
        return edits + self._removals(node, gone, bool(new)) + self._additions(node, new, gone)

    def _array_edits(self, node: _Node, value: list[Json]) -> list[_Edit]:
        """Items that both have stay; those of `node` alone go, those of `value` alone come last."""
        rest = list(value)
        gone: list[int] = []
        for number, part in enumerate(node.parts):
            if rest and any(_same(part.node.value, item) for item in rest):
                rest.pop(next(i for i, item in enumerate(rest) if _same(part.node.value, item)))
            else:
                gone.append(number)
        kept = [part.node.value for n, part in enumerate(node.parts) if n not in gone]
        if not _same([*kept, *rest], value):  # another order: written anew
            text = self._dumped(value, _indent_at(self.text, node.start))
            return [(node.start, node.stop, text)]
        new = [("", item) for item in rest]
        return self._removals(node, gone, bool(new)) + self._additions(node, new, gone)

    def _removals(self, node: _Node, gone: list[int], is_filled: bool) -> list[_Edit]:
        if not gone:
            return []
        if len(gone) == len(node.parts) and not is_filled:
            inner = self.text[node.start + 1 : node.stop - 1]
            if not _COMMENT.search(_without(inner, node, gone)):
                return [(node.start + 1, node.stop - 1, "")]
        edits = [self._removal(node.parts[number]) for number in gone]
        left = [number for number in range(len(node.parts)) if number not in gone]
        # The last one that stays loses its comma with its followers.
        if left and left[-1] < gone[-1] and not node.has_last_comma and not is_filled:
            part = node.parts[left[-1]]
            edits.append((part.stop - 1, part.stop, ""))
        return edits

    def _removal(self, part: _Part) -> _Edit:
        """The member with the blanks before it, and with the line that it had alone."""
        before = len(self.text[: part.start].rstrip(" \t"))
        found = _REST_OF_LINE.match(self.text, part.stop)
        after = found.end() if found else part.stop
        if self.text[before - 1 : before] == "\n" and self.text[after : after + 1] in {"\n", "\r"}:
            start = before - 1
            start -= self.text[start - 1 : start] == "\r"
            return (start, after, "")
        return (before, part.stop, "")

    def _additions(self, node: _Node, new: list[tuple[str, Json]], gone: list[int]) -> list[_Edit]:
        if not new:
            return []
        is_object = isinstance(node.value, dict)
        left = [part for number, part in enumerate(node.parts) if number not in gone]
        outer = _indent_at(self.text, node.start)
        is_inline = self.unit is None or (
            bool(left) and "\n" not in self.text[node.start : left[0].start]
        )
        indent = outer + (self.unit or "")
        if left and not is_inline:
            indent = _indent_at(self.text, left[0].start)
        between = ", " if is_inline else f",{self.newline}{indent}"
        texts = [
            (f"{json.dumps(key, ensure_ascii=False)}: " if is_object else "")
            + self._dumped(item, indent, is_inline=is_inline)
            for key, item in new
        ]
        body = between.join(texts)
        if not left:
            if is_inline:
                return [(node.start + 1, node.start + 1, body)]
            inner = self.text[node.start + 1 : node.stop - 1]
            at = node.start + 1 + len(inner.rstrip())
            text = f"{self.newline}{indent}{body}{self.newline}{outer}"
            return [(at, node.stop - 1, text)]
        return self._after(left[-1], node, body, indent, is_inline=is_inline)

    def _after(
        self, last: _Part, node: _Node, body: str, indent: str, *, is_inline: bool
    ) -> list[_Edit]:
        has_comma = last.stop > last.node.stop
        if is_inline:
            return [(last.stop, last.stop, f" {body}" if has_comma else f", {body}")]
        tail = "," if node.has_last_comma else ""
        found = _REST_OF_LINE.match(self.text, last.stop)
        line_end = found.end() if found else last.stop
        if self.text[line_end : line_end + 1] not in {"\n", "\r"}:
            line_end = last.stop  # something else goes on behind it
        text = f"{self.newline}{indent}{body}{tail}"
        if has_comma:
            return [(line_end, line_end, text)]
        return (
            [(last.stop, last.stop, f",{text}")]
            if line_end == last.stop
            else [
                (last.stop, last.stop, ","),
                (line_end, line_end, text),
            ]
        )

    def _dumped(self, value: Json, indent: str, *, is_inline: bool = False) -> str:
        if self.unit is None or is_inline:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, indent=self.unit, ensure_ascii=False)
        return text.replace("\n", self.newline + indent)


def _without(inner: str, node: _Node, gone: list[int]) -> str:
    """What is in `node` beside the members that go."""
    offset = node.start + 1
    for number in reversed(gone):
        part = node.parts[number]
        inner = inner[: part.start - offset] + inner[part.stop - offset :]
    return inner


def _same(one: Json, other: Json) -> bool:
    """Whether two values are one in JSON, where 1 is not true and 1.0 is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
