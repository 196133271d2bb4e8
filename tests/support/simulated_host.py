"""A host that keeps its whole message list and sends it with every request.

It sends what real hosts send: session headers, cache breakpoints that move, thinking as it came,
and tool results of several kilobytes. Its list never shrinks, so only a proxy can make it fit.
"""

import http.client
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from .json_types import Json
from .strict_rules import blocks_of, unmarked

Api = Literal["messages", "responses", "chat"]
TIMEOUT_SECONDS = 60

_PATHS = {
    "messages": "/v1/messages?beta=true", "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
}  # fmt: skip
_MARK: Json = {"type": "ephemeral"}


@dataclass(frozen=True)
class Reply:
    """A response as it came: status, headers with names in lower case, and the bytes."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def events(self) -> list[Json]:
        """The parsed events of a stream."""
        lines = self.body.decode("utf-8").splitlines()
        texts = (line.removeprefix("data: ") for line in lines if line.startswith("data: "))
        return [json.loads(text) for text in texts if text != "[DONE]"]


def send(
    url: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    *,
    method: str = "POST",
    path: str = "",
) -> Reply:
    """Send a request as it is, and return the whole response."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request(method, parts.path + path, body or None, headers or {})
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, names, response.read())
    finally:
        connection.close()


def log_of(number: int, lines: int = 80) -> str:
    """Return a tool result with distinct lines, about 4 KB with 80 lines."""
    return "\n".join(
        f"step {number} line {line}: compiled module_{number}_{line} in {line * 7 + number} ms"
        for line in range(lines)
    )


def steps(count: int, lines: int) -> list[Json]:
    """Return the messages of `count` tool calls in the form of Messages, without a prompt."""
    items: list[Json] = []
    for number in range(count):
        call: Json = {"type": "tool_use", "id": f"toolu_s{number}", "name": "Bash", "input": {}}
        result = {
            "type": "tool_result",
            "tool_use_id": call["id"],
            "content": log_of(number, lines),
        }
        items.append({"role": "assistant", "content": [call]})
        items.append({"role": "user", "content": [result]})
    return items


def function(name: str, description: str = "Runs a command.") -> Json:
    """Return the schema of a tool with one argument, in the form of Messages."""
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    return {"name": name, "description": description, "input_schema": schema}


@dataclass
class SimulatedHost:
    """One conversation.

    Attributes:
        url: Address of the provider, or of a proxy before it.
        api: API that the host uses.
        session_id: Session ID in the headers. "" sends none.
        agent_id: ID of a sub-agent in the session. "" for the main conversation.
        model: Name of the model.
        fields: More fields of the body, for example `thinking`.
        headers: More headers.
        tools: Tools in the form of Messages.
        result: Returns the output of a tool call by the call's number and input.
        items: The message list as the host keeps it.
        sent: The bodies of all requests, oldest first.
        replies: All responses, oldest first.
        after_results: Messages that the host adds after each tool result.
        write: Returns a request's body as text. By default, as JavaScript writes it.
    """

    url: str
    api: Api = "messages"
    session_id: str = "session-1"
    agent_id: str = ""
    model: str = "claude-sonnet-4-5"
    fields: Json = field(default_factory=dict[str, Any])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    tools: Sequence[Json] = (function("Bash"),)
    result: Callable[[int, Json], Any] = field(default=lambda number, _: log_of(number))
    items: list[Json] = field(default_factory=list[Json])
    sent: list[bytes] = field(default_factory=list[bytes])
    replies: list[Reply] = field(default_factory=list[Reply])
    after_results: Sequence[Json] = ()
    write: Callable[[Json], str] = field(
        default=lambda body: json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    )
    _calls: int = 0

    def ask(self, text: str, max_requests: int = 400) -> Reply:
        """Send a prompt, run the tools that the model calls, and return the last response."""
        self.items.append({"role": "user", "content": text})
        for _ in range(max_requests):
            reply = self.request()
            if reply.status != 200 or not self._take(reply):
                return reply
        raise AssertionError("the model calls tools without an end")

    def request(self) -> Reply:
        """Send the list as it is, and return the response."""
        self.sent.append(self.body())
        reply = send(self.url, self.sent[-1], self.request_headers(), path=_PATHS[self.api])
        self.replies.append(reply)
        return reply

    def request_headers(self) -> dict[str, str]:
        """Return the headers of the next request."""
        headers = {"content-type": "application/json", **self.headers}
        if self.api == "messages":
            headers |= {"x-api-key": "sk-ant-scripted", "anthropic-version": "2023-06-01"}
            names = {"x-claude-code-session-id": self.session_id}
            names["x-claude-code-agent-id"] = self.agent_id
        else:
            headers |= {"authorization": "Bearer sk-scripted"}
            is_codex = self.api == "responses"
            names = {"session-id" if is_codex else "x-session-id": self.session_id}
            if is_codex:
                names["thread-id"] = self.session_id
        return {**headers, **{name: value for name, value in names.items() if value}}

    def body(self) -> bytes:
        """Return the next request's body."""
        body: Json = {"model": self.model, "stream": True}
        if self.api == "messages":
            system = [
                {"type": "text", "text": "You are a coding agent.", "cache_control": _MARK},
                {
                    "type": "text",
                    "text": "Follow the project's rules.",
                    "cache_control": _MARK,
                },
            ]
            body |= {"max_tokens": 32_000, "system": system, "tools": list(self.tools)}
            body["messages"] = _marked(self.items)
        elif self.api == "responses":
            body |= {"instructions": "You are a coding agent.", "store": False}
            body |= {"include": ["reasoning.encrypted_content"], "input": self.items}
            body["tools"] = [
                {"type": "function", "name": tool["name"], "parameters": tool["input_schema"]}
                for tool in self.tools
            ]
        else:
            body |= {"messages": self.items, "stream_options": {"include_usage": True}}
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool["name"], "parameters": tool["input_schema"]},
                }
                for tool in self.tools
            ]
        return self.write(body | self.fields).encode("utf-8")

    def _take(self, reply: Reply) -> bool:
        """Add the answer to the list and run its tools. False if it calls none."""
        answer = _ANSWERS[self.api](reply.events)
        self.items += answer
        results: list[Json] = []
        for id_, arguments in _calls_of(self.api, answer):
            self._calls += 1
            output = self.result(self._calls, arguments)
            results.append(_RESULTS[self.api](id_, output))
        if results and self.api == "messages":
            results = [{"role": "user", "content": results}]
        self.items += [*results, *(self.after_results if results else ())]
        return bool(results)


def _marked(items: list[Json]) -> list[Json]:
    """Return the messages with one cache breakpoint, on the last message that can have it."""
    last = items[-1]
    blocks = blocks_of(last)
    marked = [*unmarked(blocks[:-1]), {**blocks[-1], "cache_control": _MARK}]
    return [*items[:-1], {**last, "content": marked}]


def _message_answer(events: list[Json]) -> list[Json]:
    blocks: list[Json] = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"]})
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            name = delta["type"].removesuffix("_delta")
            key = "partial_json" if name == "input_json" else name
            blocks[-1][key] = blocks[-1].get(key, "") + delta[key]
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block.pop("partial_json", "{}"))
    return [{"role": "assistant", "content": blocks}]


def _response_answer(events: list[Json]) -> list[Json]:
    return list(events[-1]["response"]["output"])


def _chat_answer(events: list[Json]) -> list[Json]:
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    message: Json = {"role": "assistant"}
    message["content"] = "".join(delta.get("content") or "" for delta in deltas) or None
    calls = [
        {key: value for key, value in call.items() if key != "index"}
        for delta in deltas
        for call in delta.get("tool_calls", [])
    ]
    return [{**message, "tool_calls": calls} if calls else message]


def _calls_of(api: Api, answer: list[Json]) -> list[tuple[str, Json]]:
    if api == "messages":
        blocks: list[Json] = answer[0]["content"]
        return [(b["id"], b["input"]) for b in blocks if b["type"] == "tool_use"]
    if api == "responses":
        calls = [item for item in answer if item["type"] == "function_call"]
        return [(call["call_id"], json.loads(call["arguments"])) for call in calls]
    functions: list[Json] = answer[0].get("tool_calls", [])
    return [(call["id"], json.loads(call["function"]["arguments"])) for call in functions]


_ANSWERS: dict[str, Callable[[list[Json]], list[Json]]] = {
    "messages": _message_answer,
    "responses": _response_answer,
    "chat": _chat_answer,
}
_RESULTS: dict[str, Callable[[str, Any], Json]] = {
    "messages": lambda id_, out: {"type": "tool_result", "tool_use_id": id_, "content": out},
    "responses": lambda id_, out: {"type": "function_call_output", "call_id": id_, "output": out},
    "chat": lambda id_, out: {"role": "tool", "tool_call_id": id_, "content": out},
}
