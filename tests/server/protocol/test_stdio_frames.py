"""Lines on standard input that are no messages: each is answered or logged, the next one served."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_server_compaction.protocol.stdio import Refusal, parse_frame

from tests.server.helpers import Json
from tests.support.fuzz import FUZZ, NIGHTLY_SECONDS, corpus, save_if_failing

pytestmark = pytest.mark.slow

WAIT_SECONDS = 150
MODERN: Json = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def follow(stream: IO[bytes], take: Callable[[bytes], None]) -> None:
    for line in stream:
        take(line)


class Host:
    """A host that writes raw lines and reads the responses."""

    def __init__(self, process: "subprocess.Popen[bytes]", *, is_modern: bool) -> None:
        self._process = process
        self._answers: Queue[Json] = Queue()
        self.logged: Queue[bytes] = Queue()
        self._next_id = 1_000_000
        self._meta = {"_meta": MODERN} if is_modern else {}
        streams = ((process.stdout, self._take), (process.stderr, self.logged.put))
        self._followers = [Thread(target=follow, args=each, daemon=True) for each in streams]
        for follower in self._followers:
            follower.start()

    def stop(self) -> None:
        """Kill the server and wait until its streams are read to the end."""
        self._process.kill()
        for follower in self._followers:
            follower.join(timeout=WAIT_SECONDS)

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        if "method" not in message:  # no notification
            self._answers.put(message)

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Json:
        return self._answers.get(timeout=WAIT_SECONDS)

    def ask(self, method: str, params: Json) -> list[Json]:
        """Send a request and return all replies up to its own, which is the last."""
        self._next_id += 1
        request = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        self.send(json.dumps({**request, "params": {**params, **self._meta}}).encode())
        answers = [self.answer()]
        while answers[-1].get("id") != self._next_id:
            answers.append(self.answer())
        return answers

    def call(self, name: str, arguments: Json) -> Json:
        return self.ask("tools/call", {"name": name, "arguments": arguments})[-1]["result"]


@contextmanager
def host(environment: dict[str, str], era: str) -> Generator[Host]:
    command = [sys.executable, "-m", "mcp_server_compaction"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    ) as process:
        found = Host(process, is_modern=era == "modern")
        try:
            if era == "legacy":
                about = {"name": "test", "version": "1"}
                greeting: Json = {"protocolVersion": "2025-11-25", "capabilities": {}}
                found.ask("initialize", {**greeting, "clientInfo": about})
                found.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
            yield found
        finally:
            found.stop()


DEEP = b"[" * 5_000 + b"]" * 5_000
ODD = {
    b'{"jsonrpc":"2.0","id":3,"method":"ping","params":{"x":' + DEEP + b"}}": (3, -32700),
    b'{"id":"a","method":"ping","params":{"x":' + b"9" * 5_000 + b"}}": ("a", -32600),
    b'{"method":"ping","params":{"x":' + DEEP + b'},"jsonrpc":"2.0","id":4}': (4, -32700),
    b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}': (5, -32600),
    b'{"jsonrpc":"2.0","id":6,"method":"pi\x01ng"}': (6, -32700),
    b'{"jsonrpc":"1.0","id":7,"method":"ping"}': (7, -32600),
    b"garbage": (None, -32700),
    b"\xff\xfe\x00": (None, -32700),
    b"7": (None, -32600),
    b'[{"jsonrpc":"2.0","id":8,"method":"ping"}]': (None, -32600),
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}': (None, -32600),
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}': (None, -32600),
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}': (None, -32600),
}


def test_a_line_that_cannot_be_read_is_answered_by_its_id_and_logged(
    environment: dict[str, str],
) -> None:
    with host(environment, "legacy") as server:
        for line, (request_id, code) in ODD.items():
            server.send(line)
            answer = server.answer()
            assert (answer["id"], answer["error"]["code"]) == (request_id, code), line[:80]
            assert ("levels deep" in answer["error"]["message"]) == (DEEP in line)
            assert b"standard input" in server.logged.get(timeout=WAIT_SECONDS)
        assert "tools" in server.ask("tools/list", {})[-1]["result"]


def test_a_text_cut_within_an_emoji_is_served_with_a_replacement(
    environment: dict[str, str],
) -> None:
    with host(environment, "modern") as server:
        text = "needle_7 " + r"\ud83d cut, \\ud83d as text, \ud83d\ude00 whole, \udc00\ud83d"
        message = '{"role":"user","content":"' + text + '"}'
        arguments = '{"session_id":"s","messages":[' + message + "]}"
        meta = f',"_meta":{json.dumps(MODERN)}'
        params = '{"name":"compact_messages","arguments":' + arguments + meta + "}"
        server.send(
            ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + "}").encode()
        )
        assert server.answer()["result"]["structuredContent"]["status"] == "unchanged"
        read = server.call("read_persisted_output", {"output_id": "transcript://s/messages/0-0"})
        expected = "needle_7 \ufffd cut, \\ud83d as text, 😀 whole, \ufffd\ufffd"
        assert expected in read["content"][0]["text"]


@pytest.mark.timeout(NIGHTLY_SECONDS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_next_request_is_served_after_any_line(environment: dict[str, str], era: str) -> None:
    with host(environment, era) as server:

        @settings(FUZZ, max_examples=FUZZ.max_examples // 2)  # of each era
        @given(lines())
        def run(line: bytes) -> None:
            with save_if_failing("frames", line.decode("latin-1")):
                check(server, line)

        server.ask("tools/list", {})  # the first request says which era it is
        for line in corpus("frames").values():
            check(server, line.encode("latin-1"))
        run()


def check(server: Host, line: bytes) -> None:
    """Every kind of request gets a response, and the next request is served."""
    server.send(line)
    *answers, last = server.ask("tools/list", {})
    assert "tools" in last["result"]
    found = parse_frame(line)
    if isinstance(found, Refusal) and found.is_request:
        assert [answer["error"]["code"] for answer in answers] == [found.code]


def lines() -> st.SearchStrategy[bytes]:
    """Lines of any bytes, and requests with something wrong in them."""
    request = b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"\\ud83d\\ude00"}}'
    mutated = st.tuples(st.integers(0, len(request)), st.integers(0, 9), st.binary(max_size=9)).map(
        lambda cut: request[: cut[0]] + cut[2] + request[cut[0] + cut[1] :]
    )
    plain = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
    fields = st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]),
        plain | st.just("2.0") | st.just("ping"),
    )
    objects = fields.map(lambda value: json.dumps(value).encode())
    return (st.binary() | mutated | objects).map(lambda line: line.replace(b"\n", b" "))


@given(lines())
def test_frame_is_a_message_a_refusal_with_reason_or_blank(line: bytes) -> None:
    found = parse_frame(line)
    if found is None:
        assert not line.strip()
    if isinstance(found, Refusal):
        assert found.problem
        assert found.code in {-32700, -32600}
