"""A scripted model on loopback that refuses what the real providers refuse.

It serves Anthropic's Messages and OpenAI's Responses and Chat Completions, with and without
streaming. It records the bytes and headers of all requests and the bytes of all answers. The rules
are in `strict_rules` and `provider_rules`.
"""

import gzip
import hashlib
import json
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, TypeAlias

import zstandard

from .json_types import Json, is_list, is_object
from .strict_answers import (
    Answer,
    Says,
    Usage,
    completion_events,
    completion_of,
    message_events,
    message_of,
    response_events,
    response_of,
)
from .strict_rules import (
    BOUND_MODELS,
    MAX_BODY_BYTES,
    Fails,
    Issued,
    anthropic_refusal,
    blocks_of,
    chat_refusal,
    response_items,
    responses_refusal,
    signature,
    unmarked,
)

# Maximum duration of a hanging response; a test that waits for its end has failed.
HANG_SECONDS = 30
_BYTES_PER_TOKEN = 4
# "the system checks up to 20 content blocks before each explicit cache_control breakpoint"
_LOOKBACK_BLOCKS = 20
# "Caching is available for prompts containing 1024 tokens or more, in increments of 128 tokens"
_OPENAI_CACHE_TOKENS = 128


@dataclass(frozen=True)
class Raw:
    """A response in bytes, for everything that is no answer of a model."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


@dataclass(frozen=True)
class Hangs:
    """A response that stops after its first words, while the connection stays open."""

    text: str = ""


@dataclass
class Request:
    """One request as it arrived, and what it got.

    Attributes:
        method: HTTP method.
        path: Path with the query.
        headers: Names in lower case, with their values.
        body: The bytes of the body.
        refusal: Error of the provider's rules. "" if the request was valid.
        status: HTTP status of the response.
        sent: Body of the response as sent, in the pieces in which it was written.
        usage: Input tokens. None if the request was no valid request to a model.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    refusal: str = ""
    status: int = 0
    sent: list[bytes] = field(default_factory=list[bytes])
    usage: Usage | None = None

    @cached_property
    def json(self) -> Json:
        """The parsed body; empty if it is not a JSON object."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if is_object(value) else {}

    @property
    def items(self) -> list[Json]:
        """The message list of the request."""
        return self.json.get("messages") or self.json.get("input") or []

    @property
    def api(self) -> str:
        """Name of the API: "messages", "responses" or "chat"; "" for another path."""
        path = self.path.partition("?")[0]
        found = re.search(r"/(v1/messages|responses|chat/completions)$", path)
        names = {"v1/messages": "messages", "chat/completions": "chat"}
        return names.get(found[1], found[1]) if found and self.method == "POST" else ""


Reply: TypeAlias = Says | Fails | Hangs | Raw
Script: TypeAlias = Callable[[Request], Reply]


@dataclass
class Provider:
    """A running provider.

    Attributes:
        url: Address of the provider, without a path.
        requests: All requests, oldest first.
        issued: What it remembers of its answers.
        hung_up: Set when a client closed the connection of a hanging answer.
        is_strict: Whether the rules are checked. Without them the script gets every request.
    """

    script: Script
    issued: Issued
    url: str = ""
    requests: list[Request] = field(default_factory=list[Request])
    hung_up: Event = field(default_factory=Event)
    closing: Event = field(default_factory=Event)
    is_strict: bool = True
    lock: Lock = field(default_factory=Lock)
    _written: set[str] = field(default_factory=set[str])
    _number: int = 0

    @property
    def bodies(self) -> list[Json]:
        """The parsed bodies of all requests, oldest first."""
        return [request.json for request in self.requests]

    @property
    def asked(self) -> list[Request]:
        """The requests to a model, oldest first."""
        return [request for request in self.requests if request.api]

    @property
    def refused(self) -> list[Request]:
        """The requests that broke a rule."""
        return [request for request in self.requests if request.refusal]

    def refusal(self, request: Request) -> Fails | None:
        """Return the error of the API's rules; None for a valid request."""
        if not self.is_strict:
            return None
        if len(request.body) > MAX_BODY_BYTES:
            return Fails(413, "request_too_large", "Request exceeds the maximum size")
        if not request.json:
            return Fails(400, "invalid_request_error", "The request body is not valid JSON")
        rules = {
            "messages": anthropic_refusal, "responses": responses_refusal, "chat": chat_refusal
        }  # fmt: skip
        return rules[request.api](request.headers, request.json, self.issued)

    def answer(self, request: Request, says: Says) -> Answer:
        """Return the complete answer, and remember what later requests must keep."""
        body = request.json
        signed = ""
        if says.thinking and request.api == "messages":
            signed = signature(body, says.thinking)
        with self.lock:
            self._number += 1
            usage = self._usage(request)
            answer = Answer(says, self._number, str(body.get("model")), signed, usage)
        request.usage = usage
        if says.thinking and request.api == "messages":
            self.issued.thinking_calls |= {f"toolu_{id_}" for id_ in answer.call_ids}
        if request.api == "responses":
            response = response_of(answer)
            items: list[Json] = response["output"]
            if len(items) > 1 and items[0]["type"] == "reasoning":
                self.issued.reasoning_ids[items[1]["id"]] = items[0]["id"]
            if body.get("store", True):
                stored = [*response_items(body, self.issued), *items]
                self.issued.responses[response["id"]] = stored
        return answer

    def _usage(self, request: Request) -> Usage:
        """Return the input tokens, by the prefixes of earlier requests."""
        hashes, sizes, marks = list[str](), list[int](), list[int]()
        digest, size = hashlib.sha256(str(request.json.get("model")).encode()), 0
        for place, (part, is_marked) in enumerate(prompt_parts(request)):
            digest.update(part)
            size += len(part)
            hashes.append(digest.hexdigest())
            sizes.append(size)
            if is_marked:
                marks.append(place)
        is_anthropic = request.api == "messages"
        lookback = _LOOKBACK_BLOCKS if is_anthropic else len(hashes)
        places = {place for mark in marks for place in range(mark, mark - lookback, -1)}
        known = [sizes[p] for p in places if p >= 0 and hashes[p] in self._written]
        self._written |= {hashes[mark] for mark in marks}
        read = max(known, default=0) // _BYTES_PER_TOKEN
        if not is_anthropic:
            self._written |= set(hashes)
            read = read // _OPENAI_CACHE_TOKENS * _OPENAI_CACHE_TOKENS
            return Usage(read, 0, size // _BYTES_PER_TOKEN - read)
        end = max((sizes[mark] for mark in marks), default=0) // _BYTES_PER_TOKEN
        return Usage(read, max(end - read, 0), size // _BYTES_PER_TOKEN - max(end, read))


def prompt_parts(request: Request) -> list[tuple[bytes, bool]]:
    """Return the prompt in the order in which a provider caches it.

    Each part is a tool, a system block or a block of a message. The flag says whether a cache
    breakpoint follows. OpenAI caches without breakpoints, so there the flag is set on the last one.
    """
    body = request.json
    tools: list[Any] = body.get("tools") or []
    parts = [*_part_of("tool", tools)]
    if request.api != "messages":
        parts += [
            *_part_of("instructions", [body.get("instructions")]),
            *_part_of("", _items(body)),
        ]
        return [*((part, False) for part, _ in parts[:-1]), (parts[-1][0], True)]
    system: Any = body.get("system") or []
    parts += [*_part_of("system", system if is_list(system) else [system])]
    for message in body["messages"]:
        parts += [*_part_of(message["role"], blocks_of(message))]
    return parts


def _items(body: Json) -> list[Any]:
    given: Any = body.get("messages") or body.get("input") or []
    return given if is_list(given) else [given]


def _part_of(kind: str, values: Sequence[Any]) -> Iterator[tuple[bytes, bool]]:
    for value in values:
        text = json.dumps([kind, unmarked(value)], ensure_ascii=True)
        yield text.encode(), '"cache_control"' in json.dumps(value)


def shared_prefix(earlier: Request, later: Request) -> float:
    """Return the share of the earlier prompt's bytes that is a prefix of the later prompt.

    Cache breakpoints do not count, because a host moves them with every request.
    """
    before = b"".join(part for part, _ in prompt_parts(earlier))
    after = b"".join(part for part, _ in prompt_parts(later))
    if after.startswith(before):
        return 1.0
    sizes = range(1, len(before) + 1)
    same = bisect_left(sizes, x=True, key=lambda size: not after.startswith(before[:size]))
    return same / len(before)


def in_turn(*replies: Reply) -> Script:
    """Return a script that gives each reply once, then the last reply forever."""
    left = list(replies)
    lock = Lock()

    def next_reply(_: Request) -> Reply:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return next_reply


@contextmanager
def serve_provider(
    script: Script, *, bound_models: str = "", window_tokens: int = 0, is_strict: bool = True
) -> Generator[Provider]:
    """Run a provider until the end of the block.

    Args:
        script: Returns the reply to each valid request to a model.
        bound_models: Regular expression for models that bind thinking to its prefix. "" for those
            in Anthropic's documentation.
        window_tokens: Limit for input tokens. 0 is no limit.
        is_strict: Whether the rules are checked.
    """
    models = re.compile(bound_models) if bound_models else BOUND_MODELS
    issued = Issued(bound_models=models, window_tokens=window_tokens)
    provider = Provider(script, issued, is_strict=is_strict)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.provider = provider
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.closing.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    provider: Provider
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, but no client that hangs up."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_HEAD(self) -> None:
        self._receive()

    def do_GET(self) -> None:
        self._receive()

    def do_POST(self) -> None:
        self._receive()

    def do_PUT(self) -> None:
        self._receive()

    def do_DELETE(self) -> None:
        self._receive()

    def do_OPTIONS(self) -> None:
        self._receive()

    def _receive(self) -> None:
        assert isinstance(self.server, _Server)
        provider = self.server.provider
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._request = request = Request(self.command, self.path, headers, self._body())
        with provider.lock:
            provider.requests.append(request)
        with suppress(ConnectionError):  # the client may hang up at any time
            if request.api:
                refusal = provider.refusal(request)
                request.refusal = refusal.message if refusal else ""
                self._reply(provider, refusal or provider.script(request))
            else:
                self._reply(provider, self._other(request))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(chunks)

    def _other(self, request: Request) -> Raw:
        path = request.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            tokens = len(request.body) // _BYTES_PER_TOKEN
            return Raw(json.dumps({"input_tokens": tokens}).encode())
        if path.endswith("/models"):
            return Raw(b'{"object": "list", "data": []}')
        if path.endswith("/responses/compact"):
            item = {"type": "compaction", "encrypted_content": "gAAAA"}
            return Raw(json.dumps({"output": [item], "usage": {"input_tokens": 1}}).encode())
        if path == "/":
            return Raw(b"{}")
        return Raw(b'{"error": {"type": "not_found_error", "message": "Not found"}}', 404)

    def _reply(self, provider: Provider, reply: Reply) -> None:
        request = self._request
        if isinstance(reply, Raw):
            self._send(reply.status, reply.body, reply.headers)
        elif isinstance(reply, Fails):
            error = {"type": reply.kind, "message": reply.message}
            data: Json = {"error": error}
            if request.api == "messages":
                data = {"type": "error", **data, "request_id": "req_0"}
            else:
                error["code"] = reply.kind
            kind = ("Content-Type", "application/json")
            self._send(reply.status, json.dumps(data).encode(), (kind, *reply.headers))
        elif isinstance(reply, Hangs):
            self._hang(provider, provider.answer(request, Says(reply.text)))
        elif request.json.get("stream"):
            self._stream(reply, self._events(provider.answer(request, reply)))
        else:
            forms = {"messages": message_of, "responses": response_of, "chat": completion_of}
            whole = json.dumps(forms[request.api](provider.answer(request, reply))).encode()
            headers = [("Content-Type", "application/json"), *reply.headers]
            if reply.encoding:
                headers.append(("Content-Encoding", reply.encoding))
            self._send(200, _encoded(whole, reply.encoding), headers)

    def _events(self, answer: Answer) -> list[bytes]:
        api = self._request.api
        if api == "chat":
            texts = [json.dumps(event) for event in completion_events(answer)]
            return [f"data: {text}\n\n".encode() for text in [*texts, "[DONE]"]]
        events = message_events(answer) if api == "messages" else response_events(answer)
        return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]

    def _send(self, status: int, body: bytes, headers: Sequence[tuple[str, str]]) -> None:
        self._request.status = status
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._request.sent.append(body)
            self.wfile.write(body)

    def _begin_stream(self, headers: Sequence[tuple[str, str]] = ()) -> None:
        self._request.status = 200
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, says: Says, events: list[bytes]) -> None:
        encoding = (("Content-Encoding", says.encoding),) if says.encoding else ()
        self._begin_stream([*says.headers, *encoding])
        if says.encoding:
            events = [_encoded(b"".join(events), says.encoding)]
        if says.broken:
            events = events[: len(events) // 2]
            self.close_connection = True
        for event in events:
            self._chunk(event)
        if says.broken == "cut":
            self._request.sent.append(b"event: content_block_delta\nda")
            self.wfile.write(b"fff\r\nevent: content_block_delta\nda")
            return
        if says.broken == "error":
            error = {"type": "overloaded_error", "message": "Overloaded"}
            data = json.dumps({"type": "error", "error": error})
            self._chunk(f"event: error\ndata: {data}\n\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self._request.sent.append(data)
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _hang(self, provider: Provider, answer: Answer) -> None:
        """Send the first events, then wait until the client hangs up or the test ends."""
        self.close_connection = True
        try:
            self._begin_stream()
            self._chunk(self._events(answer)[0])
        except ConnectionError:
            provider.hung_up.set()
            raise
        self.connection.settimeout(0.05)
        for _ in range(HANG_SECONDS * 20):
            if provider.closing.is_set():
                return
            try:
                if self.connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        provider.hung_up.set()


def _encoded(data: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(data, mtime=0)
    return zstandard.compress(data) if encoding == "zstd" else data
