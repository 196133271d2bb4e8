"""Read a host's configuration, and change its text so that it contains another value.

Comments are preserved in every format, and the layout in JSON and TOML. Every new text is parsed
again before it is used.

JSON may have comments. `json-five` also preserves them, but it needs five seconds for a megabyte,
which Claude Code's own file can have, and it cannot add a member in the style of its neighbours.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeAlias, cast

from context_compaction import SettingsError

from mcp_server_compaction.hosts import Json

_Table: TypeAlias = dict[str, Json]
_STRING = r'"(?:\\.|[^"\\])*"'
_COMMENT = re.compile(rf"\A\ufeff|{_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[\]}}])", re.DOTALL)
_SPACE = re.compile(r"\s*")
_LINE_END = re.compile(r"(?:[ \t]|//[^\r\n]*|/\*[^\n]*?\*/)*(\r?\n)")


def value_of(format: str, text: str, path: object) -> _Table:
    """Return the value of a configuration; an empty table if the text is empty.

    Args:
        format: "json", "toml" or "yaml".
        text: The configuration.
        path: Path of its file, for error messages.

    Raises:
        SettingsError: The text cannot be parsed, or its value is not a table.
    """
    try:
        value = _parsed(format, text)
    except (ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())[:300].rstrip(".")
        raise SettingsError(
            f"Cannot read {path} as {format.upper()}: {problem}. Nothing was written. "
            "Correct the file, then run this command again."
        ) from error
    if not isinstance(value, dict | None):
        raise SettingsError(
            f"{path} does not contain a table of settings. Nothing was written. "
            "Correct the file, then run this command again."
        )
    return cast("_Table", value or {})


def changed_text(format: str, text: str, value: _Table, path: object) -> str:
    """Return `text` with the smallest change after which its value is `value`.

    Raises:
        SettingsError: The changed text does not have this value when it is read again.
    """
    try:
        rewriters = {"json": rewrite_json, "toml": _rewrite_toml, "yaml": _rewrite_yaml}
        new = rewriters[format](text, value)
    except (ValueError, KeyError, TypeError):  # the writer has no form for this change
        new = ""
    if value_of(format, new, path) != value:
        raise SettingsError(
            f"Cannot change {path} safely. Nothing was written. "
            "Add the output of `install HOST --print` by hand."
        )
    return new


def _parsed(format: str, text: str) -> Json:
    if format == "json":
        return parse_json(text)
    if format == "toml":
        import tomllib

        return tomllib.loads(text)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    reader: Any = YAML(typ="safe", pure=True)
    try:
        return reader.load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error


def _rewrite_toml(text: str, value: _Table) -> str:
    import tomlkit
    from tomlkit.items import InlineTable

    def new_table(parent: Any, members: Mapping[str, Json]) -> Any:
        if isinstance(parent, InlineTable):  # an inline table contains only inline tables
            return tomlkit.inline_table()
        has_only_tables = bool(members) and all(isinstance(item, dict) for item in members.values())
        return tomlkit.table(is_super_table=has_only_tables)

    document = tomlkit.parse(text)
    _fill(document, value, new_table)
    new: str = tomlkit.dumps(document)  # pyright: ignore[reportUnknownMemberType] - partly typed
    return new


def _rewrite_yaml(text: str, value: _Table) -> str:
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    if indent := re.search(r"^( +)[^ #-]", text, re.MULTILINE):
        yaml.map_indent = len(indent[1])
    document: Any = yaml.load(text) or {}
    _fill(document, value, lambda _parent, _members: {})
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _fill(table: Any, value: _Table, new_table: Callable[[Any, _Table], Any]) -> None:
    """Change a table of tomlkit or ruamel so that it contains `value`."""
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        old = table.get(key)
        if key in table and old == item:
            continue
        if isinstance(item, dict):
            members = cast("_Table", item)
            if not isinstance(old, Mapping):
                table[key] = new_table(table, members)
            _fill(table[key], members, new_table)
        else:
            table[key] = item


def _object(members: list[tuple[str, Json]]) -> dict[str, Json]:
    result = dict(members)
    if len(result) < len(members):
        raise ValueError("an object has two members with one name")
    return result


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def _spaces(match: re.Match[str]) -> str:
    """Return spaces instead of a comment or comma, so that positions do not change."""
    is_open_comment = match[0].startswith("/*") and not match[0].endswith("*/")
    is_kept = match[0].startswith('"') or is_open_comment
    return match[0] if is_kept else re.sub(r"\S", " ", match[0])


def _blanked_copies(text: str) -> tuple[str, str]:
    """Return `text` without comments, and without comments and trailing commas."""
    commented = _COMMENT.sub(_spaces, text)
    return commented, _TRAILING_COMMA.sub(_spaces, commented)


def parse_json(text: str) -> Json:
    """Return the value of `text`, or None if it contains only blanks and comments.

    Raises:
        ValueError: The text is not JSON with comments and trailing commas. The error has the line
            and the column.
        RecursionError: The text is nested too deeply.
    """
    strict = _blanked_copies(text)[1]
    return _DECODER.decode(strict) if strict.strip() else None


def rewrite_json(text: str, value: Json) -> str:
    """Return `text`, changed so that it means `value`.

    Every part that is equal in both keeps its bytes, its comments and its position.

    Raises:
        ValueError: The text is not JSON with comments and trailing commas.
        RecursionError: The text is nested too deeply.
    """
    document = _Document(text)
    if not document.commented.strip():
        head = text if not text or text.endswith("\n") else text + document.newline
        return head + json.dumps(value, indent=2, ensure_ascii=False) + document.newline
    document.change(document.after_space(0), parse_json(text), value)
    for start, stop, new in sorted(document.edits, reverse=True):
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


class _Document:
    """A text, and two copies of it in which every character keeps its index.

    Attributes:
        text: The original text.
        commented: The text with spaces for comments.
        strict: The text with spaces for comments and trailing commas.
        newline: The line break of the text.
        unit: The indentation of one level.
        edits: Replacements that change the text: start, stop and new characters.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.commented, self.strict = _blanked_copies(text)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        indents = (_indent_of(line) for line in self.strict.splitlines())
        self.unit = next(filter(None, indents), "  ")
        self.edits: list[tuple[int, int, str]] = []

    def after_space(self, index: int) -> int:
        """Return the first index from `index` that is not in a space or a comment."""
        match = _SPACE.match(self.commented, index)
        return match.end() if match else index

    def change(self, start: int, old: Json, value: Json) -> None:
        """Add the edits that change the value `old` at `start` into `value`."""
        if _is_same(old, value):
            return
        new: list[tuple[str, Json]]
        if isinstance(old, dict) and isinstance(value, dict):
            members = cast("dict[str, Json]", value)
            parts = self._parts(start)
            remaining = [part for part in parts if part.key in members]
            new = [(key, item) for key, item in members.items() if key not in old]
            for part in remaining:
                self.change(part.value_start, part.value, members[part.key])
        elif isinstance(old, list) and isinstance(value, list):
            # New hooks are before the others, so items are compared from the end.
            items: list[Json] = [*value]
            new = [("", item) for item in items]
            parts, remaining = self._parts(start), list[_Part]()
            for part in reversed(parts):
                if new and _is_same(part.value, new[-1][1]):
                    new.pop()
                    remaining.insert(0, part)
        else:
            stop = _DECODER.raw_decode(self.strict, start)[1]
            self.edits.append((start, stop, self._dumped(value, self._indent_at(start))))
            return
        self.edits += [self._removal(part) for part in parts if part not in remaining]
        if remaining and parts[-1] not in remaining and parts[-1].stop == parts[-1].value_stop:
            self.edits.append((remaining[-1].stop - 1, remaining[-1].stop, ""))
        if new:
            self.edits.append(self._insertion(start, parts, bool(remaining), new))

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

    def _insertion(
        self, start: int, parts: list[_Part], has_next: bool, new: list[tuple[str, Json]]
    ) -> tuple[int, int, str]:
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

    def _removal(self, part: _Part) -> tuple[int, int, str]:
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
