"""Read a host's configuration, and change its text so that it contains another value.

Comments are preserved in every format, and the layout in JSON and TOML. Every new text is parsed
again before it is used.
"""

import re
from collections.abc import Callable, Mapping
from io import StringIO
from typing import Any, TypeAlias, cast

from context_compaction import SettingsError

from mcp_server_compaction.hosts import Json, jsonc

_Table: TypeAlias = dict[str, Json]


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
        rewritten = {"json": jsonc.rewritten, "toml": _rewrite_toml, "yaml": _rewrite_yaml}
        new = rewritten[format](text, value)
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
        return jsonc.parse(text)
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
