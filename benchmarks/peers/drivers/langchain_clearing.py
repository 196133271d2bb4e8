"""Time LangChain's clearing of tool results, as its middleware calls it."""

from typing import Any

from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core.messages import convert_to_messages
from langchain_core.messages.utils import count_tokens_approximately
from timing import time_calls


def clear(messages: list[Any]) -> list[Any]:
    """Return the messages for the model."""
    ClearToolUsesEdit().apply(messages, count_tokens=count_tokens_approximately)
    return messages


time_calls(convert_to_messages, clear)
