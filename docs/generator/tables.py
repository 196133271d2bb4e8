"""Build Markdown tables from types, docstrings and JSON schemas."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import cleandoc, get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

import context_compaction

Json: TypeAlias = dict[str, Any]

_PLAIN_TYPES = {
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
# The last word of a setting's name is its unit.
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
    "fraction": "fraction, over 0 and at most 1",
}


class UndescribedError(Exception):
    """Error for a public name without a description, or a description without such a name."""


def attributes_of(kind: type) -> dict[str, str]:
    """Return the description of each attribute from the docstring of `kind`."""
    # `cleandoc` is needed because only Python 3.13 strips the indentation of docstrings.
    attributes = cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8,}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def first_line(docstring: str | None) -> str:
    """Return the first line of a docstring."""
    return (docstring or "").strip().partition("\n")[0]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Cells are escaped so that none can end its row."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def code(text: object) -> str:
    """Return `text` as inline code; an empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def value_text(value: Any) -> str:
    """Return a default value as a user would write it."""
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
    """Return a type in words, with a link if it is a public class."""
    if annotation in _PLAIN_TYPES:
        return _PLAIN_TYPES[annotation]
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
    return f"[`{name}`](library.md#{name.lower()})"


def unit_of(name: str, annotation: Any) -> str:
    """Return the unit of a setting, or its type if it is not a number.

    Raises:
        UndescribedError: The setting is a number and its name does not end with a unit.
    """
    if annotation not in {int, float}:
        return type_text(annotation)
    last_word = name.rpartition("_")[2]
    if last_word not in _UNITS:
        raise UndescribedError(
            f"The setting {name} is a number, and its name does not end with a unit. End it with "
            f"one of: {', '.join(_UNITS)}."
        )
    return _UNITS[last_word]


def field_rows(
    kind: type, *, with_unit: bool = False, has_defaults: bool = True
) -> list[list[str]]:
    """Return a table row for each field of a dataclass, without inherited fields.

    A row has the name, the type or unit, the default, and the description.

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
        unit = unit_of(item.name, annotation) if with_unit else type_text(annotation)
        row = [code(item.name), unit]
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
    """Return a table row for each property of a JSON schema.

    A row has the name, the type, the default, and the description. A description in `texts` takes
    precedence over the one in the schema, which is short because models pay for it in tokens.

    Raises:
        UndescribedError: A property has no description, or `texts` describes an unknown property.
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
        return " or ".join(_schema_type(part) for part in value["anyOf"] if not _is_null(part))
    if value["type"] == "array" and "type" in value.get("items", {}):
        return f"list of {_schema_type(value['items'])}"
    if value["type"] == "array" and "$ref" in value.get("items", {}):
        return f"list of {_schema_type(value['items'])}"
    return f"{_JSON_TYPES[value['type']]}{_bounds(value)}"


def _is_null(part: Json) -> bool:
    return part.get("type") == "null"


def _bounds(value: Json) -> str:
    bounds = [
        ("over", value.get("exclusiveMinimum")),
        ("from", value.get("minimum")),
        ("to", value.get("maximum")),
    ]
    text = " ".join(f"{word} {bound:_}" for word, bound in bounds if bound is not None)
    return f", {text}" if text else ""


def check_names(
    described: Iterable[str],
    existing: Iterable[str],
    where: str,
    *,
    needs_all: bool = True,
    may_have_more: bool = False,
) -> None:
    """Check that descriptions and their subjects match.

    Args:
        described: Names that have a description.
        existing: Names that exist.
        where: What the names are, for the error.
        needs_all: Whether every existing name must have a description.
        may_have_more: Whether a description may name something that this run did not produce.

    Raises:
        UndescribedError: A name has no description, or a description has no subject.
    """
    described, existing = set(described), set(existing)
    if not may_have_more and (stale := sorted(described - existing)):
        raise UndescribedError(f"texts.toml describes {where} that do not exist: {stale}.")
    if needs_all and (missing := sorted(existing - described)):
        raise UndescribedError(f"texts.toml does not describe these {where}: {missing}.")
