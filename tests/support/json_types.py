"""Types of JSON values, for code that assumes no shape."""

from typing import Any, TypeAlias, TypeGuard

Json: TypeAlias = dict[str, Any]


def is_object(value: Any) -> TypeGuard[Json]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether `value` is a JSON list."""
    return isinstance(value, list)
