"""Tool arguments: validation, errors on one line, and a short JSON schema.

The SDK ignores unknown arguments, so a misspelled argument would have no effect. Here it is an
error that names similar arguments. Types are converted if nothing is lost, as in "5" for 5.
"""

import difflib
import json
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

from context_compaction import SettingsError, is_list, is_object
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

_MAX_PROBLEMS = 5
# Keywords in use that the tool list omits to save tokens. A call outside a bound gets an error that
# names the bound.
BOUNDS = frozenset({"exclusiveMinimum", "maximum", "minLength", "minimum"})
_NOISE = (("default", None), ("additionalProperties", True))


class Arguments(BaseModel):
    """Base of the arguments of every tool."""

    # Built at the first call, because building delays the start of the server.
    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, use_attribute_docstrings=True
    )


def _from_json_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # The validation then reports the expected type.


# A list or object may be passed as JSON text, because some hosts encode it so.
JSON_TEXT = BeforeValidator(_from_json_text)
ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


def parse_arguments(model: type[ArgumentsT], values: Mapping[str, Any]) -> ArgumentsT:
    """Return the validated arguments of a call.

    Raises:
        SettingsError: An argument is unknown, missing, or has a wrong type or value.
    """
    known = list(model.model_fields)
    for name in values:
        if name not in known:
            raise SettingsError(unknown_name("argument", name, known))
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError(describe_problems(error)) from error


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown name, with up to three similar names, else all."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"Unknown {kind}: {name!r}. Did you mean {', '.join(near)}?"
    return f"Unknown {kind}: {name!r}. Known: {', '.join(names)}."


def describe_problems(error: ValidationError) -> str:
    """Return the first problems in a validation error as one line: argument, problem, value."""
    problems = error.errors(include_url=False, include_context=False)
    lines = [_describe(cast("Mapping[str, Any]", problem)) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return "; ".join(lines) + "."


def short_schema(
    model: type[BaseModel], *, without: Collection[str] = frozenset()
) -> dict[str, Any]:
    """Return the JSON schema of a class, without parts that are useless for a language model.

    Omits the description of the class, titles, the alternative and the default null,
    "additionalProperties": true, and the keywords in `without`. A field that may be null may also
    be omitted, so the schema does not need to allow null.
    """
    schema = cast("dict[str, Any]", _shortened(model.model_json_schema(), without))
    schema.pop("description", None)
    return schema


def _describe(problem: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{path}: this argument is required"
    message = str(problem["msg"]).removeprefix("Value error, ").removesuffix(".")
    if problem["type"] == "value_error":
        return f"{path}: {message}" if path else message
    value = reprlib.repr(problem["input"])  # because the value may be a whole conversation
    return f"{path or 'arguments'}: {message[:1].lower()}{message[1:]}, but {value} was passed"


def _shortened(node: Any, without: Collection[str]) -> Any:
    if is_list(node):
        return [_shortened(item, without) for item in node]
    if not is_object(node):
        return node
    if "anyOf" in node:
        alternatives = [item for item in node["anyOf"] if item != {"type": "null"}]
        rest = {key: value for key, value in node.items() if key != "anyOf"}
        if len(alternatives) == 1:
            return _shortened({**alternatives[0], **rest}, without)
        node = {**rest, "anyOf": alternatives}
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "title" or key in without or (key, value) in _NOISE:
            continue
        if key == "properties":  # These keys are names of arguments, which may be "title".
            result[key] = {name: _shortened(schema, without) for name, schema in value.items()}
        elif key == "description":  # of a docstring, only the first paragraph
            result[key] = " ".join(value.partition("\n\n")[0].split())
        else:
            result[key] = _shortened(value, without)
    return result
