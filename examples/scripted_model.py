"""A model that follows a script, served on loopback, so that the examples need no key or network.

It supports the parts of Anthropic's Messages API and OpenAI's Chat Completions that the examples
need. Its script reads all files, answers, and then finds forgotten text through the server.
"""

import json
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, TypeAlias

from demo_project import FILES

# The provider rejects this request as too long, although our estimate says that it fits.
REJECTED_REQUEST = 4
# Characters of JSON per token, close to the newest models of the two providers.
MESSAGES_CHARS_PER_TOKEN = 2.3
CHAT_CHARS_PER_TOKEN = 3.5
OUTPUT_TOKENS = 30  # tokens of a response in addition to its text

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One tool call."""

    name: str
    arguments: Json


@dataclass(frozen=True)
class Move:
    """One response of the model: its text and tool calls."""

    text: str
    calls: tuple[Call, ...] = ()


# A response may depend on the text of the request.
Script: TypeAlias = Sequence[Callable[[str], Move]]


def demo_script() -> Script:
    """Read every file, answer, find text that left the context, answer again."""
    reads = [
        Move(f"I read {path}.", (Call("read_file", {"path": path}),)) for path in list(FILES)[2:]
    ]
    first_two = tuple(Call("read_file", {"path": path}) for path in list(FILES)[:2])
    moves = [
        Move("I list the files.", (Call("list_files", {}),)),
        Move("I start with two files.", first_two),
        *reads,
        Move("The highest RETRY_LIMIT is 9: that is in src/delivery.py."),
    ]
    return [*(lambda _, move=move: move for move in moves), _search, _read_hit, _quote]


def _search(_: str) -> Move:
    """Search for the requested text, which has left the context."""
    arguments = {"query": "basket_step_7 ticket", "limit": 1}
    return Move("That text left my context. I search it.", (Call("search_transcript", arguments),))


def _read_hit(request: str) -> Move:
    """Read the message that the search found."""
    pointers = re.findall(r'pointer\\": ?\\"([^"\\]+)', request)  # JSON text within JSON
    if not pointers:
        return Move("The search found nothing.")
    arguments = {"output_id": pointers[-1], "pattern": "Step 7 of the basket"}
    return Move("I read the message.", (Call("read_persisted_output", arguments),))


def _quote(request: str) -> Move:
    """Quote the line from the last result."""
    quotes = re.findall(r"Step 7 of the basket, as agreed in ticket \d+", request)
    return Move(f"It says: {quotes[-1]}." if quotes else "I could not find the line.")


class ScriptedModel:
    """A model that responds from a script and rejects one request as too long."""

    def __init__(self, script: Script, rejected_request: int = REJECTED_REQUEST) -> None:
        self._script = script
        self._rejected_request = rejected_request
        self._requests = 0
        self._moves = 0
        self._lock = Lock()

    def answer(self, path: str, body: str) -> tuple[int, Json]:
        """Return the HTTP status and the JSON for one request."""
        with self._lock:
            self._requests += 1
            if self._requests == self._rejected_request:
                return 400, _too_long(path)
            if self._moves == len(self._script):
                return 500, {"error": {"type": "api_error", "message": "The script has ended."}}
            move = self._script[self._moves](body)
            self._moves += 1
            number = self._moves
        return 200, _as_chat(number, move, body) if _is_chat(path) else _as_message(
            number, move, body
        )


@contextmanager
def serve(model: ScriptedModel) -> Generator[str]:
    """Yield the address of the model, which is served until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, answer = model.answer(self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing, because the examples print each step."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _is_chat(path: str) -> bool:
    return path.endswith("/chat/completions")


def _too_long(path: str) -> Json:
    """Return the error of the provider, verbatim."""
    if _is_chat(path):
        message = "This model's maximum context length is 8192 tokens. Reduce the messages."
        code = "context_length_exceeded"
        return {"error": {"message": message, "type": "invalid_request_error", "code": code}}
    message = "prompt is too long: 8702 tokens > 8192 maximum"
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def _as_message(number: int, move: Move, request: str) -> Json:
    calls = [
        {
            "type": "tool_use",
            "id": f"toolu_{number}_{at}",
            "name": call.name,
            "input": call.arguments,
        }
        for at, call in enumerate(move.calls)
    ]
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [{"type": "text", "text": move.text}, *calls],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": int(len(request) / MESSAGES_CHARS_PER_TOKEN),
            "output_tokens": int(len(move.text) / MESSAGES_CHARS_PER_TOKEN) + OUTPUT_TOKENS,
        },
    }


def _as_chat(number: int, move: Move, request: str) -> Json:
    input_tokens = int(len(request) / CHAT_CHARS_PER_TOKEN)
    output_tokens = int(len(move.text) / CHAT_CHARS_PER_TOKEN) + OUTPUT_TOKENS
    message: Json = {"role": "assistant", "content": move.text}
    if move.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{at}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for at, call in enumerate(move.calls)
        ]
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if move.calls else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    }
