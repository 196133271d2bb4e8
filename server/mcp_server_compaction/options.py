"""Options of commands, from the keyword arguments of a function or dataclass and its docstring.

    @click.command()
    @own_options
    def search(*, limit: Annotated[int, click.IntRange(1, 50)] = 10) -> None:
        '''Search the archive.

        Options:
            limit (N): Print at most N matches.
        '''

The type gives the kind of the option: a flag, a choice, or one that may be repeated. The word in
parentheses is the name of its value in the help. In brackets, the value may be omitted.
"""

import inspect
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import click

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

Positive: TypeAlias = Annotated[int, click.IntRange(1)]
Port: TypeAlias = Annotated[int, click.IntRange(0, 65_535)]
NewFile: TypeAlias = Annotated[Path, click.Path(dir_okay=False, path_type=Path)]


def own_options(function: AnyFunction) -> AnyFunction:
    """Make the described keyword arguments of a command's function options of the command."""
    return options_of(function)(function)


def options_of(
    source: Callable[..., Any], variables: str = ""
) -> Callable[[AnyFunction], AnyFunction]:
    """Return a decorator that gives a command the described keyword arguments of `source`.

    They are described in a section `Options` in the docstring of the command or of `source`.

    Args:
        source: Function or dataclass.
        variables: Start of the names of environment variables that set the options; "" for none.
    """
    hints = get_type_hints(source, include_extras=True)
    parameters = inspect.signature(source).parameters

    def add(function: AnyFunction) -> AnyFunction:
        described = entries(function, "Options") or entries(source, "Options")
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").partition("\n\nOptions:")[0]
        for name, value_name, text in reversed(described):
            kind, is_multiple = _kind_of(hints[name])
            flag = name.removeprefix("as_").removesuffix("s" if is_multiple else "_id").rstrip("_")
            is_required = parameters[name].default is inspect.Parameter.empty
            omitted: dict[str, Any] = {"flag_value": ""} if value_name.startswith("[") else {}
            function = click.option(
                f"--{flag.replace('_', '-')}",
                name,
                type=kind,
                default=None if is_required else parameters[name].default,
                required=is_required,
                is_flag=kind is bool,
                multiple=is_multiple,
                metavar=value_name or None,
                help=text,
                envvar=f"{variables}{name.upper()}" if variables else None,
                show_envvar=bool(variables),
                **omitted,
            )(function)
        return function

    return add


def _kind_of(hint: Any) -> tuple[Any, bool]:
    """Return the type of an option's value, and whether the option may be repeated."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):  # Python before 3.14 has two types for these.
        [hint] = [part for part in parts if part is not types.NoneType]
        return _kind_of(hint)
    if origin is tuple:
        return _kind_of(parts[0])[0], True
    if origin is Literal:
        return click.Choice(parts), False
    if origin is Annotated:
        return parts[1], False
    return (click.Path(path_type=Path) if hint is Path else hint), False


def entries(item: object, section: str) -> list[tuple[str, str, str]]:
    """Return the entries of a section of a docstring: name, text in parentheses, description."""
    # `cleandoc`, because Python before 3.13 keeps the indentation of docstrings.
    _, _, text = inspect.cleandoc(item.__doc__ or "").partition(f"{section}:\n")
    # A section ends at the next line without indentation.
    text = re.split(r"^\S", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^    (\w+)(?: \((.+?)\))?: (.+(?:\n {8,}.+)*)", text, re.MULTILINE)
    return [(name, value, " ".join(words.split())) for name, value, words in found]
