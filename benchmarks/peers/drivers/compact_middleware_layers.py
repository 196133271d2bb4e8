"""compact-middleware's two layers without a model: groups collapsed, old results cleared."""

from datetime import UTC, datetime, timedelta
from typing import Any

from compact_middleware.collapse import collapse_messages
from compact_middleware.config import CollapseConfig, MicrocompactConfig
from compact_middleware.microcompact import microcompact_messages
from langchain_core.messages import AIMessage, convert_to_messages
from timing import time_calls

# Its own lists name no tool of the transcript's; these are those that it has.
TOOLS = {"Read", "Bash", "Grep", "Glob", "Edit", "Write"}
COLLAPSE = CollapseConfig(collapse_tools={"Read", "Grep", "Glob"})
CLEAR = MicrocompactConfig(compactable_tools=TOOLS)


def prepare(messages: list[Any]) -> list[Any]:
    made = convert_to_messages(messages)
    # It clears when the user was away for an hour.
    last = next(message for message in reversed(made) if isinstance(message, AIMessage))
    said = datetime.now(UTC) - timedelta(hours=2)
    last.additional_kwargs["timestamp"] = said.isoformat()
    last.response_metadata["timestamp"] = said.isoformat()
    return made


def compact(messages: list[Any]) -> list[Any]:
    collapsed, _ = collapse_messages(messages, COLLAPSE)
    cleared, _ = microcompact_messages(collapsed, CLEAR)
    return cleared


time_calls(prepare, compact)
