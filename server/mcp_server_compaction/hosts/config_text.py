"""The text of a host's configuration: its value, and the same text changed to hold another value.

Whatever the format, what does not change keeps its comments and its form, and what was written is
read again before anybody gets it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, cast

from context_compaction.errors import SettingsError

from mcp_server_compaction.hosts import Json, jsonc


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How to read a format, and how to change a text of it.

    Attributes:
        name: For people.
        parse: The value of a text, None of an empty one; ValueError says where it is broken.
        rewrite: The text changed to hold a value.
    """

    name: str
    parse: Callable[[str], Json]
    rewrite: Callable[[str, Json], str]


def value_of(format: TextFormat, text: str, path: object) -> dict[str, Json]:
    """What the configuration in `text` holds; nothing where it is empty.

    Raises:
        SettingsError: It cannot be parsed, or is no table of settings.
    """
    try:
        value = format.parse(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{path} is not {format.name} that can be read: {_one_line(error)}. Nothing was "
            "written: correct the file, then run this again."
        ) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(
            f"{path} holds no settings by name at its top. Nothing was written: correct the file, "
            "then run this again."
        )
    return cast("dict[str, Json]", value)


def changed_text(format: TextFormat, text: str, value: Json, path: object) -> str:
    """`text` with as little changed as makes it hold `value`.

    Raises:
        SettingsError: That cannot be written so that it reads back the same.
    """
    try:
        new = format.rewrite(text, value)
    except (ValueError, KeyError, TypeError):  # what its writer has no form for
        new = ""
    if value_of(format, new, path) != value:
        raise SettingsError(
            f"{path} is written in a way that cannot be changed safely. Nothing was written: add "
            "what --print shows by hand."
        )
    return new


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".")


def _parse_toml(text: str) -> Json:
    import tomllib

    return tomllib.loads(text.removeprefix("\ufeff")) or None


def _rewrite_toml(text: str, value: Json) -> str:
    import tomlkit

    plain = text.removeprefix("\ufeff")
    document = tomlkit.parse(plain)
    _fill_toml(document, value)
    new: str = tomlkit.dumps(document)  # pyright: ignore[reportUnknownMemberType] - partly typed
    return text.removesuffix(plain) + new


def _fill_toml(table: Any, value: Mapping[str, Json]) -> None:
    """Make a table of tomlkit hold `value`."""
    import tomlkit
    from tomlkit.items import InlineTable

    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        old = table.get(key)
        if isinstance(item, Mapping) and isinstance(old, Mapping):
            _fill_toml(old, cast("Mapping[str, Json]", item))
        elif key in table and old == item:
            continue
        elif isinstance(item, Mapping):
            members = cast("Mapping[str, Json]", item)
            nested = bool(members) and all(isinstance(each, Mapping) for each in members.values())
            is_inline = isinstance(table, InlineTable)  # which holds no other tables
            new = tomlkit.inline_table() if is_inline else tomlkit.table(is_super_table=nested)
            table[key] = new
            _fill_toml(table[key], members)
        else:
            table[key] = item


def _parse_yaml(text: str) -> Json:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        reader: Any = YAML(typ="safe", pure=True)
        return reader.load(text)
    except YAMLError as error:
        raise ValueError(_one_line(error)) from error


def _rewrite_yaml(text: str, value: Json) -> str:
    """The lines of one member put in or taken out; else the document written anew, with comments.

    Writing anew keeps comments but not every blank and quotation mark.
    """
    spliced = _spliced_yaml(text, value)
    if spliced is not None and _is_yaml_of(spliced, value):
        return spliced
    yaml = _yaml_writer()
    document = yaml.load(text)
    if document is None:
        document = {}
    _fill_yaml(document, value)
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _yaml_writer() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    return yaml


def _fill_yaml(table: Any, value: Mapping[str, Json]) -> None:
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        old = table.get(key)
        if isinstance(item, Mapping) and isinstance(old, Mapping):
            _fill_yaml(old, cast("Mapping[str, Json]", item))
        elif old != item:
            table[key] = item


def _is_yaml_of(text: str, value: Json) -> bool:
    try:
        return bool(_parse_yaml(text) == value)
    except ValueError:
        return False


def _spliced_yaml(text: str, value: Mapping[str, Json]) -> str | None:
    """The text with one member of one top-level block added or removed; None for other changes."""
    old: Json = _parse_yaml(text) or {}
    sections = [key for key in {**old, **value} if old.get(key) != value.get(key)]
    if len(sections) != 1:
        return None
    section = sections[0]
    if not isinstance(value.get(section), dict):
        return None
    before: dict[str, Json] = old.get(section) or {}
    after: dict[str, Json] = value[section]
    new = {key: item for key, item in after.items() if key not in before}
    gone = [key for key in before if key not in after]
    if any(before[key] != after[key] for key in before if key in after):
        return None
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if "\r\n" in text else "\n"
    if section not in old and not gone:
        gap = newline if text and not text.endswith("\n") else ""
        return text + gap + _yaml_block({section: new}, "", newline)
    head = re.compile(rf"(['\"]?){re.escape(section)}\1:\s*(?:#.*)?$")
    start = next((n for n, line in enumerate(lines) if head.match(line.rstrip("\r\n"))), None)
    if start is None:
        return None
    body = [line for line in lines[start + 1 :] if line.strip() and line[0] in " \t"]
    indent = body[0][: len(body[0]) - len(body[0].lstrip())] if body else "  "
    for key in gone:
        lines = _without_block(lines, start, indent, key)
    if new:
        lines[start] = lines[start] if lines[start].endswith("\n") else lines[start] + newline
        lines.insert(start + 1, _yaml_block(new, indent, newline))
    return "".join(lines)


def _yaml_block(value: Json, indent: str, newline: str) -> str:
    out = StringIO()
    yaml = _yaml_writer()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(value, out)
    return "".join(f"{indent}{line}{newline}" for line in out.getvalue().splitlines())


def _without_block(lines: list[str], start: int, indent: str, key: str) -> list[str]:
    head = re.compile(rf"{indent}(['\"]?){re.escape(key)}\1:")
    for first in range(start + 1, len(lines)):
        if head.match(lines[first]):
            last = first + 1
            while last < len(lines) and lines[last].startswith((f"{indent} ", f"{indent}\t")):
                last += 1
            return lines[:first] + lines[last:]
    return lines


JSON = TextFormat("JSON", jsonc.parse, jsonc.rewritten)
TOML = TextFormat("TOML", _parse_toml, _rewrite_toml)
YAML_FORMAT = TextFormat("YAML", _parse_yaml, _rewrite_yaml)
