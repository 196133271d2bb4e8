"""Read JSON with comments, and change single values without a change of other bytes.

`json-five` also preserves comments, but it needs five seconds for a megabyte, which Claude Code's
own file can have, and it cannot add a member in the style of its neighbours.
"""

import json
import re
from dataclasses import dataclass
from typing import TypeAlias, cast

from mcp_server_compaction.hosts import Json

_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"\A\ufeff|{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)
_SPACE = re.compile(r"\s*")
_LINE_END = re.compile(r"(?:[ \t]|//[^\r\n]*|/\*[^\n]*?\*/)*(\r?\n)")

_Edit: TypeAlias = tuple[int, int, str]


def _object(members: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(members)
    if len(result) < len(members):
        raise ValueError("an object has two members with one name")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    """Return `text` with spaces for all matches except strings, so that positions do not change."""

    def blank(match: re.Match[str]) -> str:
        is_open_comment = match[0].startswith("/*") and not match[0].endswith("*/")
        if match[0].startswith('"') or is_open_comment:
            return match[0]
        return "".join(char if char.isspace() else " " for char in match[0])

    return pattern.sub(blank, text)


def _blanked_copies(text: str) -> tuple[str, str]:
    """Return `text` without comments, and without comments and trailing commas."""
    try:
        _DECODER.decode(text)
    except ValueError:
        commented = _blanked(_COMMENT, text)
        return commented, _blanked(_TRAILING_COMMA, commented)
    return text, text


def parse(text: str) -> Json:
    """Return the value of `text`, or None if it contains only blanks and comments.

    Raises:
        ValueError: The text is not JSON with comments and trailing commas. The error has the line
            and the column.
        RecursionError: The text is nested too deeply.
    """
    strict = _blanked_copies(text)[1]
    return _DECODER.decode(strict) if strict.strip() else None


def rewritten(text: str, value: Json) -> str:
    """Return `text`, changed so that it means `value`.

    Every part that is equal in both keeps its bytes, its comments and its position.

    Raises:
        ValueError: The text is not JSON with comments and trailing commas.
        RecursionError: The text is nested too deeply.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    old = parse(text)
    commented, strict = _blanked_copies(text)
    if not commented.strip():
        head = text if not text or text.endswith("\n") else text + newline
        return head + json.dumps(value, indent=2, ensure_ascii=False) + newline
    indents = (_indent_of(line) for line in strict.splitlines())
    unit = next(filter(None, indents), "  ")
    document = _Document(text, commented, strict, newline, unit)
    edits = document.edits(document.after_space(0), old, value)
    for start, stop, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def _indent_of(line: str) -> str:
    text = line.lstrip(" \t")
    return line[: len(line) - len(text)] if text else ""


def _is_same(first: Json, second: Json) -> bool:
    """Whether two values are the same in JSON, where 1 is not true and 1.0 is not 1."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """A member of an object, or an item of an array.

    Attributes:
        key: Name of the member; empty for an item.
        value: Value of the member or item.
        start: Index of its first character, which is in the key of a member.
        value_start: Index of the first character of its value.
        value_stop: Index after the last character of its value.
        stop: Index after its comma, or `value_stop` if it has no comma.
    """

    key: str
    value: Json
    start: int
    value_start: int
    value_stop: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Document:
    """A text, and two copies of it in which every character keeps its index.

    Attributes:
        text: The original text.
        commented: The text with spaces for comments.
        strict: The text with spaces for comments and trailing commas.
        newline: The line break of the text.
        unit: The indentation of one level.
    """

    text: str
    commented: str
    strict: str
    newline: str
    unit: str

    def after_space(self, index: int) -> int:
        """Return the first index from `index` that is not in a space or a comment."""
        match = _SPACE.match(self.commented, index)
        return match.end() if match else index

    def edits(self, start: int, old: Json, value: Json) -> list[_Edit]:
        """Return the replacements that change the value `old` at `start` into `value`."""
        if _is_same(old, value):
            return []
        if isinstance(old, dict) and isinstance(value, dict):
            members = cast("dict[str, Json]", value)
            parts = self._parts(start)
            remaining = [part for part in parts if part.key in members]
            new = [(key, item) for key, item in members.items() if key not in old]
            edits = self._exchange(start, parts, remaining, new)
            for part in remaining:
                edits += self.edits(part.value_start, part.value, members[part.key])
            return edits
        if isinstance(old, list) and isinstance(value, list):
            # New hooks are before the others, so items are compared from the end.
            items: list[Json] = [*value]
            parts, remaining = self._parts(start), list[_Part]()
            for part in reversed(parts):
                if items and _is_same(part.value, items[-1]):
                    items.pop()
                    remaining.insert(0, part)
            return self._exchange(start, parts, remaining, [("", item) for item in items])
        stop = _DECODER.raw_decode(self.strict, start)[1]
        return [(start, stop, self._dumped(value, self._indent_at(start)))]

    def _parts(self, start: int) -> list[_Part]:
        """Return the members of the object, or the items of the array, that begins at `start`."""
        parts: list[_Part] = []
        index = self.after_space(start + 1)
        while self.commented[index] not in "}],":
            part_start, key = index, ""
            if self.strict[start] == "{":
                key, key_stop = _DECODER.raw_decode(self.strict, index)
                index = self.after_space(self.after_space(key_stop) + 1)
            value, value_stop = _DECODER.raw_decode(self.strict, index)
            comma = self.after_space(value_stop)
            stop = comma + 1 if self.commented[comma] == "," else value_stop
            parts.append(_Part(key, value, part_start, index, value_stop, stop))
            index = self.after_space(stop)
        return parts

    def _exchange(
        self, start: int, parts: list[_Part], remaining: list[_Part], new: list[tuple[str, Json]]
    ) -> list[_Edit]:
        """Remove the parts that do not remain, and insert the new parts before all others."""
        edits = [self._removal(part) for part in parts if part not in remaining]
        if remaining and parts[-1] not in remaining and parts[-1].stop == parts[-1].value_stop:
            edits.append((remaining[-1].stop - 1, remaining[-1].stop, ""))
        if new:
            edits.append(self._insertion(start, parts, bool(remaining), new))
        return edits

    def _insertion(
        self, start: int, parts: list[_Part], has_next: bool, new: list[tuple[str, Json]]
    ) -> _Edit:
        """Add parts after the bracket at `start`: on its line if all parts are on one line."""
        index, outer = start + 1, self._indent_at(start)
        stop = parts[-1].stop if parts else index
        is_inline = bool(parts) and "\n" not in self.text[index:stop]
        indent = None if is_inline else outer + self.unit
        separator = ", " if is_inline else f",{self.newline}{indent}"
        body = separator.join(
            (f"{json.dumps(key, ensure_ascii=False)}: " if self.text[start] == "{" else "")
            + self._dumped(item, indent)
            for key, item in new
        )
        if is_inline:
            return (index, index, body + (", " if has_next else ""))
        line_end = _LINE_END.match(self.text, index)
        index = line_end.start(1) if line_end else index
        body = f"{self.newline}{indent}{body}{',' if has_next else ''}"
        if "\n" not in self.text[index : self.after_space(max(stop, index))]:
            body += self.newline + outer
        return (index, index, body)

    def _removal(self, part: _Part) -> _Edit:
        """Remove a part with the blanks before it, or its whole line with a comment at the end."""
        start = len(self.text[: part.start].rstrip(" \t"))
        line_end = _LINE_END.match(self.text, part.stop)
        if line_end and self.text[start - 1] == "\n":
            return (start, line_end.end(), "")
        return (start, part.stop, "")

    def _indent_at(self, index: int) -> str:
        return _indent_of(self.text[self.text.rfind("\n", 0, index) + 1 : index] + "x")

    def _dumped(self, value: Json, indent: str | None) -> str:
        """Return `value` as JSON: on one line if `indent` is None, otherwise indented with it."""
        if indent is None:
            return json.dumps(value, ensure_ascii=False)
        text = json.dumps(value, indent=self.unit, ensure_ascii=False)
        return text.replace("\n", self.newline + indent)
