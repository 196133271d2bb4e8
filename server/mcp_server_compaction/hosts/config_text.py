"""The text of a host's configuration: its value, and the same text changed to hold another value.

Comments stay in every format, and JSON and TOML keep their form too. Each new text is parsed again
before it is used.
"""

from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any, TypeAlias, cast

from context_compaction import SettingsError

from mcp_server_compaction.hosts import Json, jsonc

_Table: TypeAlias = dict[str, Json]


def value_of(format: str, text: str, path: object) -> _Table:
    """The value of the configuration in `text`; an empty one where it is empty.

    Args:
        format: json, toml or yaml.
        text: The configuration.
        path: Its file, for the error.

    Raises:
        SettingsError: It cannot be parsed, or is no table of settings.
    """
    try:
        value = _PARSERS[format](text)
    except (ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())[:300].rstrip(".")
        raise SettingsError(
            f"{path} is not {format.upper()} that can be read: {problem}. Nothing was written: "
            "correct the file, then run this again."
        ) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SettingsError(
            f"{path} holds no settings by name at its top. Nothing was written: correct the file, "
            "then run this again."
        )
    return cast("_Table", value)


def changed_text(format: str, text: str, value: _Table, path: object) -> str:
    """`text` with as little changed as makes it hold `value`.

    Raises:
        SettingsError: That cannot be written so that it reads back the same.
    """
    try:
        new = _WRITERS[format](text, value)
    except (ValueError, KeyError, TypeError):  # what its writer has no form for
        new = ""
    if value_of(format, new, path) != value:
        raise SettingsError(
            f"{path} is written in a way that cannot be changed safely. Nothing was written: add "
            "what --print shows by hand."
        )
    return new


def _parse_toml(text: str) -> Json:
    import tomllib

    return tomllib.loads(text.removeprefix("\ufeff")) or None


def _parse_yaml(text: str) -> Json:
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

    def table_in(parent: Any, members: Mapping[str, Json]) -> Any:
        if isinstance(parent, InlineTable):  # which holds no other tables
            return tomlkit.inline_table()
        has_tables_only = bool(members) and all(isinstance(one, dict) for one in members.values())
        return tomlkit.table(is_super_table=has_tables_only)

    plain = text.removeprefix("\ufeff")
    document = tomlkit.parse(plain)
    _fill(document, value, table_in)
    new: str = tomlkit.dumps(document)  # pyright: ignore[reportUnknownMemberType] - partly typed
    return text.removesuffix(plain) + new


def _rewrite_yaml(text: str, value: _Table) -> str:
    from ruamel.yaml import YAML

    yaml: Any = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    document: Any = yaml.load(text) or {}
    _fill(document, value, lambda _parent, _members: {})
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _fill(table: Any, value: _Table, table_in: Callable[[Any, _Table], Any]) -> None:
    """Make a table of tomlkit or ruamel hold `value`; `table_in` makes an empty one."""
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        old = table.get(key)
        if key in table and old == item:
            continue
        if isinstance(item, dict):
            members = cast("_Table", item)
            if not isinstance(old, Mapping):
                table[key] = table_in(table, members)
            _fill(table[key], members, table_in)
        else:
            table[key] = item


_PARSERS: Mapping[str, Callable[[str], Json]] = {
    "json": jsonc.parse,
    "toml": _parse_toml,
    "yaml": _parse_yaml,
}
_WRITERS: Mapping[str, Callable[[str, _Table], str]] = {
    "json": jsonc.rewritten,
    "toml": _rewrite_toml,
    "yaml": _rewrite_yaml,
}
