"""Time compact-middleware's two layers without a model: collapse groups, clear old results."""

from datetime import UTC, datetime, timedelta
from typing import Any

from compact_middleware.collapse import collapse_messages
from compact_middleware.config import CollapseConfig, MicrocompactConfig
from compact_middleware.microcompact import microcompact_messages
from langchain_core.messages import AIMessage, convert_to_messages
from timing import time_calls

# The tools of the transcript, because the package's default lists have none of them.
TOOLS = {"Read", "Bash", "Grep", "Glob", "Edit", "Write"}
COLLAPSE = CollapseConfig(collapse_tools={"Read", "Grep", "Glob"})
CLEAR = MicrocompactConfig(compactable_tools=TOOLS)


def prepare(messages: list[Any]) -> list[Any]:
    """Convert the messages, with a last message from two hours ago.

    The package clears results only if the user was away for an hour.
    """
    converted = convert_to_messages(messages)
    last = next(message for message in reversed(converted) if isinstance(message, AIMessage))
    two_hours_ago = datetime.now(UTC) - timedelta(hours=2)
    last.additional_kwargs["timestamp"] = two_hours_ago.isoformat()
    last.response_metadata["timestamp"] = two_hours_ago.isoformat()
    return converted


def compact(messages: list[Any]) -> list[Any]:
    """Apply both layers."""
    collapsed, _ = collapse_messages(messages, COLLAPSE)
    cleared, _ = microcompact_messages(collapsed, CLEAR)
    return cleared


time_calls(prepare, compact)
