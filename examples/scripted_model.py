"""A model that follows a script, served on loopback: the examples run without key or network.

It speaks the wire formats of Anthropic's Messages API and of OpenAI's Chat Completions, as far as
the examples need them, and shows what a model would do: read all files, answer, and then read back
through the server what has left its context.
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

# The provider counts in its own way: at this request it refuses what our server thought would fit.
REFUSED_REQUEST = 4
# Characters of JSON for one token, about as the newest models of the two providers have it.
MESSAGES_CHARS_PER_TOKEN = 2.3
CHAT_CHARS_PER_TOKEN = 3.5
OUTPUT_TOKENS = 30  # of an answer, beside its text

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One tool call of a move."""

    name: str
    arguments: Json


@dataclass(frozen=True)
class Move:
    """What the model says at one request: text, and the tools it calls."""

    text: str
    calls: tuple[Call, ...] = ()


# A move may depend on what the model can see: the text of the request.
Script: TypeAlias = Sequence[Callable[[str], Move]]


def demo_script() -> Script:
    """Read every file, answer, look up what has left the context, answer again."""
    reads = [
        Move(f"I read {path}.", (Call("read_file", {"path": path}),)) for path in list(FILES)[2:]
    ]
    first_two = tuple(Call("read_file", {"path": path}) for path in list(FILES)[:2])
    moves = [
        Move("I look at what there is.", (Call("list_files", {}),)),
        Move("I begin with two files at once.", first_two),
        *reads,
        Move("The highest RETRY_LIMIT is 9: that is in src/delivery.py."),
    ]
    return [*(lambda _, move=move: move for move in moves), _search, _read_hit, _quote]


def _search(_: str) -> Move:
    """Look for what was asked: it is no longer in the context."""
    wanted = {"query": "basket_step_7 ticket", "limit": 1}
    return Move("That has left my context: I search for it.", (Call("search_transcript", wanted),))


def _read_hit(request: str) -> Move:
    """Read what the search has found."""
    pointers = re.findall(r'pointer\\": ?\\"([^"\\]+)', request)  # JSON text within JSON
    if not pointers:
        return Move("The search found nothing.")
    wanted = {"output_id": pointers[-1], "pattern": "Step 7 of the basket"}
    return Move("I read the place.", (Call("read_persisted_output", wanted),))


def _quote(request: str) -> Move:
    """Answer with the words that the last result has."""
    found = re.findall(r"Step 7 of the basket, as agreed in ticket \d+", request)
    return Move(f"It says: {found[-1]}." if found else "I could not find the line.")


class ScriptedModel:
    """Answers requests by a script; refuses one of them as too long."""

    def __init__(self, script: Script, refused_request: int = REFUSED_REQUEST) -> None:
        self._script = script
        self._refused_request = refused_request
        self._requests = 0
        self._moves = 0
        self._lock = Lock()

    def answer(self, path: str, body: str) -> tuple[int, Json]:
        """HTTP status and JSON for one request."""
        with self._lock:
            self._requests += 1
            if self._requests == self._refused_request:
                return 400, _too_long(path)
            if self._moves == len(self._script):
                return 500, {"error": {"type": "api_error", "message": "The script is at its end."}}
            move = self._script[self._moves](body)
            self._moves += 1
            number = self._moves
        return 200, _as_chat(number, move, body) if _is_chat(path) else _as_message(
            number, move, body
        )


@contextmanager
def serve(model: ScriptedModel) -> Generator[str]:
    """The address of the model, for as long as the block runs."""

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
            """Say nothing: the examples print what happens."""

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
    """The refusals of the two providers, word for word."""
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
