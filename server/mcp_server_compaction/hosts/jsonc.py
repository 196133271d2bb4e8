"""JSON with comments: read, and changed member by member, so that all else stays byte for byte.

`json-five` keeps comments too, but takes five seconds for a megabyte, which Claude Code's own file
can have, and has no way to add a member in the style of its neighbours. `jsonc-edit` needs Node.
"""

import json
import re
from dataclasses import dataclass
from typing import TypeAlias, cast

from mcp_server_compaction.hosts import Json

# Blanks and comments; a byte order mark may stand first.
_GAP = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
# Blanks and comments up to the end of a line, if nothing else is on it.
_REST_OF_LINE = re.compile(r"(?:[ \t]|//[^\n\r]*|/\*[^\n]*?\*/)*(?=[\r\n])")
_BLANK_REST = re.compile(r"[ \t]*\r?\n")


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_Edit: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class _Node:
    """A value and its place.

    Attributes:
        start: Its first character.
        stop: After its last character.
        value: The value itself.
        parts: The members of an object, or the items of an array, in order.
    """

    start: int
    stop: int
    value: Json
    parts: "tuple[_Part, ...]" = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an object, or an item of an array, whose key is empty.

    Attributes:
        start: Its first character, that of the key in an object.
        stop: After its comma, if it has one, else after its value.
    """

    key: str
    start: int
    stop: int
    node: _Node

    @property
    def has_comma(self) -> bool:
        """Whether a comma follows."""
        return self.stop > self.node.stop


def parse(text: str) -> Json:
    """The value of `text`; None where it has nothing but blanks and comments.

    Raises:
        ValueError: It is no JSON, comments and trailing commas allowed. The text says where.
    """
    root = _parse(text)
    return root.value if root else None


def rewritten(text: str, value: Json) -> str:
    """`text` changed to mean `value`: what is equal in both keeps its bytes, comments and place.

    Raises:
        ValueError: `text` is no JSON.
    """
    root = _parse(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if root is None:
        gap = text if not text or text.endswith("\n") else text + newline
        return gap + json.dumps(value, indent=2, ensure_ascii=False) + newline
    is_one_line = bool(root.parts) and "\n" not in text[root.start : root.stop]
    indent = _indent_at(text, root.parts[0].start) if root.parts else ""
    style = _Style(text, newline, None if is_one_line else indent or "  ")
    for start, stop, new in sorted(style.edits(root, value), reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _parse(text: str) -> _Node | None:
    start = _after_gap(text, 0)
    if start == len(text):
        return None
    try:
        root = _value(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    end = _after_gap(text, root.stop)
    if end != len(text):
        raise _fault(text, end, "there is something after the value")
    return root


def _after_gap(text: str, start: int) -> int:
    found = _GAP.match(text, start)
    return found.end() if found else start


def _value(text: str, start: int) -> _Node:
    opening = text[start : start + 1]
    if not opening or opening not in "{[":
        try:
            value, stop = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _fault(text, error.pos, error.msg) from None
        return _Node(start, stop, value)
    is_object = opening == "{"
    close = "}" if is_object else "]"
    parts: list[_Part] = []
    at = _after_gap(text, start + 1)
    while text[at : at + 1] != close:
        if parts and not parts[-1].has_comma:
            raise _fault(text, at, f"a comma or {close} is missing")
        parts.append(_part(text, at, is_object=is_object))
        at = _after_gap(text, parts[-1].stop)
    nodes = [part.node.value for part in parts]
    value = dict(zip([part.key for part in parts], nodes, strict=True)) if is_object else nodes
    if len(value) != len(parts):
        raise _fault(text, start, "a name is in one object twice")
    return _Node(start, at + 1, value, tuple(parts))


def _part(text: str, start: int, *, is_object: bool) -> _Part:
    key, at = "", start
    if is_object:
        if text[start : start + 1] != '"':
            raise _fault(text, start, 'a name in "quotes" is missing')
        name = _value(text, start)
        key = str(name.value)
        at = _after_gap(text, name.stop)
        if text[at : at + 1] != ":":
            raise _fault(text, at, "a colon is missing")
        at = _after_gap(text, at + 1)
    node = _value(text, at)
    comma = _after_gap(text, node.stop)
    return _Part(key, start, comma + 1 if text[comma : comma + 1] == "," else node.stop, node)


def _fault(text: str, at: int, problem: str) -> ValueError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return ValueError(f"line {line}, column {column}: {problem}")


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _same(one: Json, other: Json) -> bool:
    """Whether two values are the same in JSON, where 1 is not true and 1.0 is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@dataclass(frozen=True, slots=True)
class _Style:
    """A text and its form; `unit` indents one level, and is None for a text of one line."""

    text: str
    newline: str
    unit: str | None

    def edits(self, node: _Node, value: Json) -> list[_Edit]:
        """What to replace so that `node` means `value`. New parts come first."""
        if _same(node.value, value):
            return []
        if isinstance(value, dict) and self.text[node.start] == "{":
            members = cast("dict[str, Json]", value)
            old = {part.key for part in node.parts}
            new = [(key, item) for key, item in members.items() if key not in old]
            left = [part for part in node.parts if part.key in members]
            inner = [edit for part in left for edit in self.edits(part.node, members[part.key])]
            return [*inner, *self._exchanges(node, left, new)]
        if isinstance(value, list) and self.text[node.start] == "[":
            items: list[Json] = [*value]
            found: list[_Part] = []  # that remain, from the last on
            for part in reversed(node.parts):
                if items and _same(part.node.value, items[-1]):
                    items.pop()
                    found.append(part)
            return self._exchanges(node, found[::-1], [("", item) for item in items])
        return [(node.start, node.stop, self._dumped(value, _indent_at(self.text, node.start)))]

    def _exchanges(
        self, node: _Node, left: list[_Part], new: list[tuple[str, Json]]
    ) -> list[_Edit]:
        """Remove the parts that are not in `left`, and put `new` before those that are."""
        edits = [self._removal(part) for part in node.parts if part not in left]
        is_last_removed = bool(left) and left[-1] is not node.parts[-1]
        if is_last_removed and not node.parts[-1].has_comma:
            edits.append((left[-1].stop - 1, left[-1].stop, ""))
        if not new:
            return edits
        at = node.start + 1
        is_inline = self.unit is None
        if node.parts:
            is_inline = "\n" not in self.text[node.start : node.parts[0].start]
        outer = _indent_at(self.text, node.start)
        indent = outer + (self.unit or "")
        if node.parts and not is_inline:
            indent = _indent_at(self.text, node.parts[0].start)
        separator = ", " if is_inline else f",{self.newline}{indent}"
        is_object = isinstance(node.value, dict)
        body = separator.join(
            (f"{json.dumps(key, ensure_ascii=False)}: " if is_object else "")
            + self._dumped(item, None if is_inline else indent)
            for key, item in new
        )
        if is_inline:
            return [*edits, (at, at, body + (", " if left else ""))]
        if comment := _REST_OF_LINE.match(self.text, at):
            at = comment.end()  # of the brace
        body = self.newline + indent + body + ("," if left else "")
        if "\n" not in self.text[at : node.stop]:
            body += self.newline + outer
        return [*edits, (at, at, body)]

    def _removal(self, part: _Part) -> _Edit:
        """Remove a part with the blanks before it, and the whole line if it had one alone."""
        start = len(self.text[: part.start].rstrip(" \t"))
        rest = _BLANK_REST.match(self.text, part.stop)
        if rest and self.text[start - 1] == "\n":
            return (start, rest.end(), "")
        return (start, part.stop, "")

    def _dumped(self, value: Json, indent: str | None) -> str:
        if self.unit is None or indent is None:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, indent=self.unit, ensure_ascii=False)
        return text.replace("\n", self.newline + indent)
