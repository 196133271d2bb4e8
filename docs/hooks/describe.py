"""Tables of what a thing takes or gives, from its types, its docstring and its schema."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import cleandoc, get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

import context_compaction

Json: TypeAlias = dict[str, Any]

_PLAIN = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    bytes: "bytes",
    Any: "any JSON",
    NoneType: "null",
}
_JSON_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "array": "list",
    "null": "null",
}
# What a name ends with says in what its number counts.
_UNITS = {
    "tokens": "tokens",
    "chars": "characters",
    "bytes": "bytes",
    "seconds": "seconds",
    "messages": "messages",
    "results": "results",
    "turns": "turns",
    "times": "times",
    "files": "files",
    "retries": "times",
    "failures": "failures",
    "fraction": "a part, over 0 and at most 1",
}


class UndescribedError(Exception):
    """What a user touches has no description, or a description has nothing that it describes."""


def attributes_of(kind: type) -> dict[str, str]:
    """The text of each attribute in a docstring."""
    # Python 3.13 takes the indentation from docstrings, earlier ones leave it.
    attributes = cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8,}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def first_line(docstring: str | None) -> str:
    """The summary line of a docstring."""
    return (docstring or "").strip().partition("\n")[0]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; nothing in a cell can end it."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def code(text: object) -> str:
    """`text` as code."""
    return f"`{text}`" if str(text) else ""


def value_text(value: Any) -> str:
    """A default as one would write it."""
    if isinstance(value, bool) or value is None:
        return code({True: "true", False: "false", None: "null"}[value])
    if isinstance(value, int) and value >= 1_000_000_000:
        return "never"
    if isinstance(value, int | float):
        return code(f"{value:_}" if isinstance(value, int) else f"{value:g}")
    if isinstance(value, str):
        return code(f'"{value}"')
    if isinstance(value, Mapping):
        return code(json.dumps(value))
    return code(f"[{', '.join(map(str, value))}]")


def type_text(annotation: Any) -> str:
    """A type in words."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(code(f'"{value}"') for value in arguments)
    if origin in {Union, UnionType}:
        return " or ".join(type_text(part) for part in arguments if part is not NoneType)
    if origin is not None and issubclass(origin, Mapping):
        return "object"
    if origin is not None:  # tuples and lists
        return f"list of {type_text(arguments[0])}"
    name: str = annotation.__name__
    if name not in context_compaction.__all__:
        return code(name)
    return f"[`{name}`](library.md#context_compaction.{name})"


def unit_of(name: str, annotation: Any) -> str:
    """In what a setting counts, or what it may say.

    Raises:
        UndescribedError: It is a number whose name does not end with its unit.
    """
    if annotation not in {int, float}:
        return type_text(annotation)
    ending = name.rpartition("_")[2]
    if ending not in _UNITS:
        raise UndescribedError(
            f"The setting {name} is a number, and its name does not end with a unit. Name it with "
            f"one of: {', '.join(_UNITS)}."
        )
    return _UNITS[ending]


def field_rows(
    kind: type, *, with_unit: bool = False, has_defaults: bool = True
) -> list[list[str]]:
    """A row for each field of a dataclass, inherited ones left out.

    A row has name, type or unit, default, description.

    Raises:
        UndescribedError: A field has no entry under "Attributes" in the docstring.
    """
    types, texts = get_type_hints(kind), attributes_of(kind)
    rows: list[list[str]] = []
    own = [item for item in fields(cast("Any", kind)) if item.name in get_annotations(kind)]
    for item in own:
        if item.name not in texts:
            raise UndescribedError(
                f"{kind.__name__}.{item.name} has no description. Write one under 'Attributes' in "
                f"the docstring of {kind.__name__}."
            )
        annotation = types[item.name]
        shown = unit_of(item.name, annotation) if with_unit else type_text(annotation)
        row = [code(item.name), shown]
        if has_defaults:
            row.append(_default_text(item))
        rows.append([*row, texts[item.name]])
    return rows


def _default_text(item: Any) -> str:
    if item.default is not MISSING:
        return value_text(item.default)
    if item.default_factory is not MISSING:
        return value_text(item.default_factory())
    return "required"


def schema_rows(
    schema: Json, texts: Mapping[str, str], where: str, *, is_answer: bool = False
) -> list[list[str]]:
    """A row for each property of a JSON schema: name, type, default, description.

    `texts` say more than the schema does, whose words a model pays for.

    Raises:
        UndescribedError: A property has a description in neither, or `texts` describe another.
    """
    properties: dict[str, Json] = schema["properties"]
    check_names(texts, properties, where, needs_all=False)
    required = schema.get("required", ())
    rows: list[list[str]] = []
    for name, value in properties.items():
        text = texts.get(name) or value.get("description")
        if not text:
            raise UndescribedError(
                f"{where}.{name} has no description. Write one in its schema, or in texts.toml."
            )
        presence = "always" if is_answer else "required"
        default = value_text(value["default"]) if "default" in value and not is_answer else ""
        rows.append([
            code(name),
            _schema_type(value),
            presence if name in required else default,
            text,
        ])
    return rows


def _schema_type(value: Json) -> str:
    if "enum" in value:
        return ", ".join(code(f'"{item}"') for item in value["enum"])
    if "$ref" in value:
        return code(value["$ref"].rpartition("/")[2])
    if "anyOf" in value:
        return " or ".join(_schema_type(part) for part in value["anyOf"] if _is_something(part))
    if value["type"] == "array" and "type" in value.get("items", {}):
        return f"list of {_schema_type(value['items'])}"
    if value["type"] == "array" and "$ref" in value.get("items", {}):
        return f"list of {_schema_type(value['items'])}"
    return f"{_JSON_TYPES[value['type']]}{_bounds(value)}"


def _is_something(part: Json) -> bool:
    return part.get("type") != "null"


def _bounds(value: Json) -> str:
    bounds = [
        (value.get("exclusiveMinimum"), "over"),
        (value.get("minimum"), "from"),
        (value.get("maximum"), "to"),
    ]
    said = " ".join(f"{word} {bound:_}" for bound, word in bounds if bound is not None)
    return f", {said}" if said else ""


def check_names(
    described: Iterable[str],
    existing: Iterable[str],
    where: str,
    *,
    needs_all: bool = True,
    may_have_more: bool = False,
) -> None:
    """See that everything has a description, and every description something to describe.

    Args:
        described: What has a description.
        existing: What is there.
        where: What they are, for the error.
        needs_all: Whether everything must be described.
        may_have_more: Whether there may be descriptions of what was not seen this time.

    Raises:
        UndescribedError: Names what has not.
    """
    described, existing = set(described), set(existing)
    if not may_have_more and (stale := sorted(described - existing)):
        raise UndescribedError(f"texts.toml describes {where} that are not there: {stale}.")
    if needs_all and (missing := sorted(existing - described)):
        raise UndescribedError(f"texts.toml does not describe these {where}: {missing}.")
