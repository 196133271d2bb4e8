"""Options of the command line from a file of TOML, by the names of their flags.

archive = "/srv/compaction"

[serve]
http = true
public-url = "https://compaction.example.org"
"""

import tomllib
from pathlib import Path
from typing import Any

import click
from context_compaction.errors import SettingsError
from context_compaction.messages.model import is_object


def options_of(path: Path, group: click.Group) -> dict[str, Any]:
    """What a file says, as click takes it.

    Raises:
        SettingsError: It is no TOML, or names something that is no option or command.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"The file {path} cannot be read as TOML: {error}.") from error
    options: dict[str, Any] = {}
    for name, value in given.items():
        command = group.commands.get(name)
        if command is None:
            options[_parameter(name, group, path)] = value
        elif is_object(value):
            options[name] = {_parameter(one, command, path): value[one] for one in value}
        else:
            raise SettingsError(f"The file {path} has no table [{name}]: {name!r} is a command.")
    return options


def _parameter(flag: str, command: click.Command, path: Path) -> str:
    """What click calls the parameter of a flag."""
    for parameter in command.params:
        if f"--{flag}" in parameter.opts:
            return str(parameter.name)
    is_group = isinstance(command, click.Group)
    where = "all commands, nor a command" if is_group else str(command.name)
    raise SettingsError(
        f"The file {path} names {flag!r}, which is no option of {where}. Name options as their "
        "flags, without the two dashes."
    )
