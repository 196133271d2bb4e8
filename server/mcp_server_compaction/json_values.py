"""Telling apart parsed JSON values in a way that type checkers follow."""

from typing import Any, TypeGuard

from context_compaction.messages import JsonObject


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)


def is_object(value: Any) -> TypeGuard[JsonObject]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)
