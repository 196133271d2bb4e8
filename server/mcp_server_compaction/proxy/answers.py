"""Read answers of the provider: the usage, and a summary by the caller's own model.

The question for a summary is one more message behind the list that the provider has just read, so
nearly everything is read from its prompt cache. The request has the caller's own fields and
credentials.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
from context_compaction import (
    JsonObject,
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SummaryError,
    TellChars,
    is_list,
    is_object,
)  # fmt: skip

from mcp_server_compaction.proxy.requests import Conversation

# Sends a body with the caller's path and headers.
Ask = Callable[[bytes], Awaitable[httpx2.Response]]
_QUESTION = (
    "Write a summary of this conversation for the engineer who continues the work. Call no tool. "
    "Use these headings: ## Task, ## Rules of the user, ## Work done, ## Files and results, "
    "## Problems, ## Current state and next step. Keep names, paths, numbers and the user's rules "
    "exact. Do not describe finished work as open. Write at most {} words, and nothing else."
)


def usage_in(answer: bytes) -> JsonObject:
    """Return the usage in a complete answer, which may be a stream; empty if it reports none."""
    usage: JsonObject = {}
    is_stream = not answer.lstrip().startswith(b"{")
    for line in answer.split(b"\n") if is_stream else (answer,):
        if b'"usage"' not in line:
            continue
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            continue
        for holder in (event, event.get("message"), event.get("response")):
            found = holder.get("usage") if is_object(holder) else None
            if is_object(found):
                usage |= {name: value for name, value in found.items() if value is not None}
    return usage


@dataclass(slots=True)
class CallerModel:
    """The model of one request.

    Attributes:
        talk: The request.
        sent: The body that the provider got.
        ask: Sends another body.
        model: Name of the model.
        window_tokens: Token limit of a request. The list is sent as it was, so it always fits.
        timeout_seconds: Time limit of the summary.
        writer: Name for receipts.
    """

    talk: Conversation
    sent: bytes
    ask: Ask
    model: str
    window_tokens: int = 1_000_000
    timeout_seconds: float = 180.0
    writer: str = "caller"
    _is_asked: bool = False

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:  # noqa: ARG002
        """Return the model's answer to one question; `prompt` gives its length only."""
        if self._is_asked:
            raise SummaryError("The caller's model is asked only one time")
        self._is_asked = True
        body: JsonObject = json.loads(self.sent)
        question = _QUESTION.format(prompt.max_tokens // 2)
        body[self.talk.api.list_name].append({"role": "user", "content": question})
        body.pop("stream_options", None)
        response = await self.ask(json.dumps({**body, "stream": False}).encode("ascii"))
        answer = await response.aread()
        if response.status_code != 200:
            raise SummaryError(f"The provider answered {response.status_code}")
        return ModelAnswer(_text_of(json.loads(answer)), ModelUsage(requests=1))


def _text_of(value: Any) -> str:
    """Return the text in an answer of any of the three APIs, without thinking and calls."""
    if is_list(value):
        return "".join(map(_text_of, value))
    if not is_object(value):
        return value if isinstance(value, str) else ""
    kind, inner = value.get("type"), ("content", "output", "choices", "message", "text")
    if kind in ("thinking", "reasoning", "tool_use", "function_call"):
        return ""
    return "".join(_text_of(value.get(name)) for name in inner)
