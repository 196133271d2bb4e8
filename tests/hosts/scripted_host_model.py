"""A model on loopback for real hosts: it asks for one command a turn, and keeps what it was sent.

It speaks, streaming, as far as the hosts need it, Anthropic's Messages API and OpenAI's Responses
API. A question that asks for no work is answered with text alone.
"""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

WORK = "Please work on step"
# Of the hosts' tools, the one that runs a command, with its arguments.
_SHELLS: dict[str, Callable[[str], Json]] = {
    "Bash": lambda command: {"command": command, "description": "Print"},
    "bash": lambda command: {"command": command, "description": "Print"},
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
}


@dataclass
class HostModel:
    """The address of the model, and every request for an answer that it was sent."""

    url: str = ""
    requests: list[Json] = field(default_factory=list[Json])

    def sent(self) -> str:
        """The messages of the newest request, as JSON text."""
        newest = self.requests[-1]
        return json.dumps(newest.get("messages") or newest.get("input"), ensure_ascii=False)


@contextmanager
def serve_host_model() -> Generator[HostModel]:
    """A model that serves until the block ends."""
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
            pass  # the test's output is its own

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
            is_responses = self.path.startswith("/v1/responses")
            if not is_responses and not self.path.startswith("/v1/messages"):
                self._answer(b"{}", "application/json")
                return
            if request.get("tools"):  # else the host asks for a title, or the like
                model.requests.append(request)
            events = _responses(request) if is_responses else _messages(request)
            text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
            self._answer(text.encode(), "text/event-stream")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler


def _call_of(request: Json, newest: str) -> tuple[str, Json] | None:
    """The call that the newest message asks for: a command for each step, whose output is long."""
    if WORK not in newest:
        return None
    names = [tool.get("name") for tool in request.get("tools") or ()]
    name = next((shell for shell in _SHELLS if shell in names), None)
    if name is None:
        return None
    step = newest.rpartition(WORK)[2].split()[0].strip(".:")
    return name, _SHELLS[name](f"seq -f 'step {step} line %g of the log' 1 300")


def _messages(request: Json) -> list[Json]:
    messages = request["messages"]
    # Claude Code may list its tools behind the question.
    asked = [message for message in messages if message["role"] != "system"]
    call = _call_of(request, json.dumps(asked[-1]))
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
    call = _call_of(request, json.dumps(items[-1]))
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
