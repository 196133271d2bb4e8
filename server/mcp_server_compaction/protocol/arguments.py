"""Tool arguments: a strict model in, readable one-line errors out, and a short JSON schema.

The SDK ignores unknown arguments, so that a misspelt one has no effect and nobody is told. Here it
is an error that names the nearest known one.
"""

import difflib
import json
import reprlib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from context_compaction import SettingsError, is_list, is_object
from pydantic import BaseModel, ConfigDict, ValidationError

_MAX_PROBLEMS = 5


class Arguments(BaseModel):
    """Base of every tool's arguments."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, use_attribute_docstrings=True
    )


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


def parse_arguments(model: type[ArgumentsT], given: Mapping[str, Any]) -> ArgumentsT:
    """The arguments of one call.

    Lists and objects may come as JSON text, since some hosts write them so.

    Raises:
        SettingsError: An argument is unknown, missing, or of the wrong type or value.
    """
    known = list(model.model_fields)
    for name in given:
        if name not in known:
            raise SettingsError(unknown_name("argument", name, known))
    try:
        return model.model_validate(_without_json_text(model, given))
    except ValidationError as error:
        raise SettingsError(describe_problems(error)) from error


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence that refuses an unknown name and offers the nearest known ones."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"Unknown {what}: {name!r}. Did you mean {', '.join(near)}?"
    return f"Unknown {what}: {name!r}. Known: {', '.join(names)}."


def describe_problems(error: ValidationError) -> str:
    """What pydantic found, on one line: where, what is wrong, what was given."""
    problems = error.errors(include_url=False, include_context=False)
    shown = [_describe(cast("Mapping[str, Any]", problem)) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        shown.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return "; ".join(shown) + "."


# What an argument may be, and is if it is left out. A model needs neither: a call that goes beyond
# them is refused with a sentence that says so.
DEFAULTS_AND_BOUNDS = frozenset({"default", "exclusiveMinimum", "maximum", "minLength", "minimum"})


def short_schema(
    model: type[BaseModel], *, without: Collection[str] = frozenset()
) -> dict[str, Any]:
    """The JSON schema of `model` without what costs tokens and tells a model nothing.

    Titles go, `null` alternatives and null defaults too: an argument that may be null may as well
    be left out. So do the keywords in `without`.
    """
    schema = cast("dict[str, Any]", _shortened(model.model_json_schema(), without))
    schema.pop("description", None)
    return schema


def _without_json_text(model: type[Arguments], given: Mapping[str, Any]) -> dict[str, Any]:
    structured = _structured_names(model)
    return {name: _parsed(value) if name in structured else value for name, value in given.items()}


@cache
def _structured_names(model: type[Arguments]) -> frozenset[str]:
    """The arguments that are lists or objects."""
    properties = short_schema(model)["properties"]
    types = {"array", "object"}
    return frozenset(name for name, schema in properties.items() if schema.get("type") in types)


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # validation then says what is expected instead of this text


def _describe(problem: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in problem["loc"]) or "arguments"
    if problem["type"] == "missing":
        return f"{place}: this argument is required"
    message = str(problem["msg"]).removeprefix("Value error, ").removesuffix(".")
    if problem["type"] == "value_error":
        return message if not problem["loc"] else f"{place}: {message}"
    shown = reprlib.repr(problem["input"])  # the input may be a whole conversation
    return f"{place}: {message[:1].lower()}{message[1:]}, but {shown} was given"


def _shortened(node: Any, without: Collection[str]) -> Any:
    if is_list(node):
        return [_shortened(item, without) for item in node]
    if not is_object(node):
        return node
    alternatives: list[Any] = node.get("anyOf", [])
    real = [item for item in alternatives if item != {"type": "null"}]
    if len(real) == 1:
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        return _shortened({**real[0], **rest}, without)
    shown: dict[str, Any] = {}
    for key, value in node.items():
        if key in without or _is_noise(key, value):
            continue
        if key == "properties":  # its keys are names of arguments, one of which may be "title"
            value = {name: _shortened(schema, without) for name, schema in value.items()}
        elif key == "description":  # of a docstring, the first paragraph
            value = " ".join(value.partition("\n\n")[0].split())
        else:
            value = _shortened(value, without)
        shown[key] = value
    return shown


def _is_noise(key: str, value: Any) -> bool:
    return key == "title" or (key, value) in (("default", None), ("additionalProperties", True))
