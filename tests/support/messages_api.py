"""A scripted model behind Anthropic's Messages API on loopback.

It uses the real wire format: server-sent events in chunked encoding, and errors as JSON with status
and headers. It records all requests for the tests.
"""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

# Maximum duration of a hanging response; a test that waits for its end has failed.
HANG_SECONDS = 30
_PIECE_CHARS = 40


@dataclass(frozen=True)
class Says:
    """A response with text.

    Attributes:
        text: Text of the response; empty for none.
        stop_reason: Stop reason of the API.
        thinking: Thinking before the text; empty for none.
    """

    text: str
    stop_reason: str = "end_turn"
    thinking: str = ""


@dataclass(frozen=True)
class Fails:
    """A response that is an error."""

    status: int
    kind: str
    message: str = "The script says no."
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Hangs:
    """A response that stops after its first words, while the connection stays open."""

    text: str = ""


Reply: TypeAlias = Says | Fails | Hangs
Script: TypeAlias = Callable[[Json], Reply]


@dataclass
class MessagesApi:
    """The running server and its recorded requests.

    Attributes:
        url: Address of the server.
        requests: Bodies of all requests, in the order of their arrival.
        headers: Headers of each request.
        asked: Set when the first request arrives.
        hung_up: Set when a client closed the connection of a hanging response.
        closing: Set when the server stops.
    """

    url: str = ""
    requests: list[Json] = field(default_factory=list[Json])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    asked: Event = field(default_factory=Event)
    hung_up: Event = field(default_factory=Event)
    closing: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)


def replies_in_order(*replies: Reply) -> Script:
    """Return a script that gives each reply once, then the last reply forever."""
    remaining = list(replies)
    lock = Lock()

    def next_reply(_: Json) -> Reply:
        with lock:
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return next_reply


@contextmanager
def serve(script: Script) -> Generator[MessagesApi]:
    """Serve the API while the block runs."""
    api = MessagesApi()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.api, server.script = api, script
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield api
    finally:
        api.closing.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    api: MessagesApi
    script: Script


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/messages", self.path
        api = self._server.api
        with api.lock:
            api.requests.append(body)
            api.headers.append({key.lower(): value for key, value in self.headers.items()})
        api.asked.set()
        reply = self._server.script(body)
        if isinstance(reply, Fails):
            self._fail(reply)
            return
        assert body["stream"] is True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isinstance(reply, Hangs):
            self._hang(reply, body)
        else:
            self._send(*events(reply, body))
            self._end()

    @property
    def _server(self) -> _Server:
        assert isinstance(self.server, _Server)
        return self.server

    def _fail(self, reply: Fails) -> None:
        error = {"type": reply.kind, "message": reply.message}
        data = json.dumps({"type": "error", "error": error}).encode()
        self._answer(reply.status, data, (("Content-Type", "application/json"), *reply.headers))

    def _answer(self, status: int, data: bytes, headers: Sequence[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(data)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _hang(self, reply: Hangs, body: Json) -> None:
        self.close_connection = True
        try:
            self._send(*events(Says(reply.text), body)[:-3])
            if self._is_still_there():
                return
        except OSError:
            pass  # it hung up while we spoke
        self._server.api.hung_up.set()

    def _is_still_there(self) -> bool:
        """Return False when the client hangs up, or True when the test ends."""
        self.connection.settimeout(0.05)
        for _ in range(HANG_SECONDS * 20):
            if self._server.api.closing.is_set():
                return True
            try:
                if self.connection.recv(1) == b"":
                    return False
            except TimeoutError:
                continue
        return True

    def _send(self, *stream: Json) -> None:
        for event in stream:
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""


def events(reply: Says, body: Json) -> list[Json]:
    """Return the stream of one response."""
    usage = {
        "input_tokens": len(json.dumps(body)) // 4,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 7,
        "output_tokens": 1,
    }
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    sent: list[Json] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    blocks: list[tuple[Json, Sequence[Json]]] = []
    if reply.thinking:
        thought = {"type": "thinking_delta", "thinking": reply.thinking}
        signed = {"type": "signature_delta", "signature": "c2ln"}
        block = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((block, [thought, signed]))
    if reply.text:
        pieces = [
            {"type": "text_delta", "text": reply.text[at : at + _PIECE_CHARS]}
            for at in range(0, len(reply.text), _PIECE_CHARS)
        ]
        blocks.append(({"type": "text", "text": ""}, pieces))
    for index, (block, deltas) in enumerate(blocks):
        sent.append({"type": "content_block_start", "index": index, "content_block": block})
        sent += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        sent.append({"type": "content_block_stop", "index": index})
    sent.append({
        "type": "message_delta",
        "delta": {"stop_reason": reply.stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": len(reply.text) // 4 + 1},
    })
    sent.append({"type": "message_stop"})
    return sent
