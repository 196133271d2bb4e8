"""A local model for real hosts. It calls one tool in each turn, and records all requests.

It implements the streaming parts of Anthropic's Messages API, OpenAI's Responses API and Gemini's
API that the hosts use. A prompt that requests no work gets a response without a tool call.
"""

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

WORK = "Please work on step"
PRINT = "Please print the long log"
FIND = "Please search for"
LONG_LOG = "seq -f 'line %g of the long log' 1 1000"
# Tool of each host that runs a shell command, with its arguments.
_SHELLS: dict[str, Callable[[str], Json]] = {
    "Bash": lambda command: {"command": command, "description": "Print"},
    "bash": lambda command: {"command": command, "description": "Print"},
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
    "run_shell_command": lambda command: {"command": command},
}
# Texts in messages with a tool's result, after which the turn ends.
_RESULTS = ('"tool_result"', '"function_call_output"', '"functionResponse"')


@dataclass
class HostModel:
    """A running model.

    Attributes:
        url: Address of the model.
        requests: All requests with tools, oldest first.
    """

    url: str = ""
    requests: list[Json] = field(default_factory=list[Json])

    def sent(self) -> str:
        """Return the messages of the newest request as JSON."""
        newest = self.requests[-1]
        return json.dumps(_messages_of(newest), ensure_ascii=False)


def _messages_of(request: Json) -> list[Json]:
    return request.get("messages") or request.get("input") or request.get("contents") or []


@contextmanager
def serve_host_model() -> Generator[HostModel]:
    """Run a model until the end of the block."""
    model = HostModel()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(model))
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        thread.join(timeout=5)
        server.server_close()


def _handler(model: HostModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass  # the log would be mixed with the output of the test

        def do_HEAD(self) -> None:
            self._answer(b"", "application/json")

        def do_GET(self) -> None:
            self._answer(b"{}", "application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if "count_tokens" in self.path:
                self._answer(b'{"input_tokens": 10}', "application/json")
                return
            request = json.loads(body)
            respond = next((api for path, api in _APIS.items() if path in self.path), None)
            if respond is None:
                self._answer(b"{}", "application/json")
                return
            if request.get("tools"):  # requests without tools ask for a title
                model.requests.append(request)
            text = "".join(map(_event, respond(request)))
            self._answer(text.encode(), "text/event-stream")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler


def _event(data: Json) -> str:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _call_of(request: Json) -> tuple[str, Json] | None:
    """Return the tool call that the newest message asks for; None if it asks for none."""
    # Claude Code sends system messages after the message of the user.
    messages = [item for item in _messages_of(request) if item.get("role") != "system"]
    newest = json.dumps(messages[-1])
    tools: list[Json] = request.get("tools") or []
    declared = [item for tool in tools for item in tool.get("functionDeclarations", [tool])]
    names = [str(tool.get("name")) for tool in declared]
    if any(mark in newest for mark in _RESULTS):
        return None
    if FIND in newest:
        tool_name = next((name for name in names if name.endswith("search_transcript")), None)
        query = re.findall(r"[\w-]+", newest.rpartition(FIND)[2])[0]
        return (tool_name, {"query": query}) if tool_name else None
    shell = next((shell for shell in _SHELLS if shell in names), None)
    if shell is None:
        return None
    if PRINT in newest:
        return shell, _SHELLS[shell](LONG_LOG)
    if WORK in newest:
        step = newest.rpartition(WORK)[2].split()[0].strip(".:")
        return shell, _SHELLS[shell](f"seq -f 'step {step} line %g of the log' 1 300")
    return None


def _messages(request: Json) -> list[Json]:
    messages = request["messages"]
    call = _call_of(request)
    block: Json = {"type": "text", "text": ""}
    delta: Json = {"type": "text_delta", "text": "That is done."}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{len(messages):06}", "name": call[0]}
        block["input"] = {}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    usage = {"input_tokens": 150_000, "output_tokens": 1}
    start = {"id": f"msg_{len(messages):06}", "type": "message", "role": "assistant"}
    start |= {"model": request["model"], "content": [], "usage": usage}
    end = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**start, "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def _responses(request: Json) -> list[Json]:
    items = request["input"]
    call = _call_of(request)
    number = len(items)
    if call:
        item: Json = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": call[0], "arguments": json.dumps(call[1]), "status": "completed"}
    else:
        part = {"type": "output_text", "text": "That is done.", "annotations": list[Json]()}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]}
        item |= {"status": "completed"}
    usage = {
        "input_tokens": 150_000,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 150_009,
    }
    done = {"id": f"resp_{number}", "object": "response", "status": "completed"}
    return [
        {"type": "response.created", "response": {**done, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**done, "output": [item], "usage": usage}},
    ]


def _gemini(request: Json) -> list[Json]:
    call = _call_of(request)
    part: Json = {"text": "That is done."}
    if call:
        part = {"functionCall": {"name": call[0], "args": call[1]}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 150_000, "candidatesTokenCount": 9, "totalTokenCount": 150_009}
    return [{"candidates": [candidate], "usageMetadata": usage}]


_APIS = {
    "/v1/responses": _responses,
    "/v1/messages": _messages,
    ":streamGenerateContent": _gemini,
}
