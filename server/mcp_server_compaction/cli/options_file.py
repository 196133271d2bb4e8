"""Options of the command line from a file of TOML, by the names of their flags.

archive = "/srv/compaction"

[serve]
http = true
public-url = "https://compaction.example.org"
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from context_compaction import SettingsError, is_list, is_object


def options_of(path: Path, context: click.Context) -> dict[str, Any]:
    """The options of a file, as click's `default_map`.

    Raises:
        SettingsError: It is no TOML, or names something that is no option or command.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"The file {path} cannot be read as TOML: {error}.") from error
    return _options(given, context.command, context, path)


def _options(
    given: Mapping[str, Any], command: click.Command, context: click.Context, path: Path
) -> dict[str, Any]:
    """The options of `command` in a table, and those of its commands where it is a group."""
    options: dict[str, Any] = {}
    for name, value in given.items():
        is_group = isinstance(command, click.Group)
        inner = command.get_command(context, name) if isinstance(command, click.Group) else None
        if inner is None:
            option = next((one for one in command.params if f"--{name}" in one.opts), None)
            if option is None:
                where = f"{command.name}, nor a command of it" if is_group else command.name
                raise SettingsError(
                    f"The file {path} names {name!r}, which is no option of {where}. Name options "
                    "as their flags, without the two dashes."
                )
            is_repeated = isinstance(option, click.Option) and option.multiple
            if is_object(value) or (is_list(value) and not is_repeated):
                raise SettingsError(f"The file {path} gives {name!r} several values. Give one.")
            options[str(option.name)] = [value] if is_repeated and not is_list(value) else value
        elif is_object(value):
            options[name] = _options(value, inner, context, path)
        else:
            raise SettingsError(f"The file {path} has no table [{name}]: {name!r} is a command.")
    return options
