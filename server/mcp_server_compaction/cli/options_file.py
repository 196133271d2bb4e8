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
from context_compaction.errors import SettingsError
from context_compaction.messages.model import is_list, is_object


def options_of(path: Path, group: click.Group) -> dict[str, Any]:
    """What a file says, as click takes it.

    Raises:
        SettingsError: It is no TOML, or names something that is no option or command.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"The file {path} cannot be read as TOML: {error}.") from error
    return _options(given, group, path, "all commands, nor a command")


def _options(
    given: Mapping[str, Any], command: click.Command, path: Path, where: str
) -> dict[str, Any]:
    """What a table says of `command` and, where it is a group, of its commands."""
    none: Mapping[str, click.Command] = {}
    commands = command.commands if isinstance(command, click.Group) else none
    options: dict[str, Any] = {}
    for name, value in given.items():
        inner = commands.get(name)
        if inner is None:
            option = _option(name, command, path, where)
            options[str(option.name)] = _value(value, option, path)
        elif is_object(value):
            has_more = isinstance(inner, click.Group)
            options[name] = _options(
                value, inner, path, f"{name}, nor a command of it" if has_more else name
            )
        else:
            raise SettingsError(f"The file {path} has no table [{name}]: {name!r} is a command.")
    return options


def _option(flag: str, command: click.Command, path: Path, where: str) -> click.Option:
    """What click calls the option of a flag."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and f"--{flag}" in parameter.opts:
            return parameter
    raise SettingsError(
        f"The file {path} names {flag!r}, which is no option of {where}. Name options as their "
        "flags, without the two dashes."
    )


def _value(value: Any, option: click.Option, path: Path) -> Any:
    """A value as click takes it: of an option that may come again a list, of others one."""
    if option.multiple and not is_object(value):
        return value if is_list(value) else [value]
    if is_object(value) or is_list(value):
        raise SettingsError(
            f"The file {path} gives {option.opts[0].lstrip('-')!r} several values. Give one."
        )
    return value
