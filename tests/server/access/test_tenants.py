"""Content of another tenant is reported exactly like missing content.

A thief requests content of the owner, then missing content, from a real service on a real
PostgreSQL. Both responses must have equal bytes, except for the requested name, and must cause
equal database statements. Then neither a response nor its duration reveals anything.
"""

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from context_compaction import open_archive
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.server.http import COMMAND
from tests.support.counting_proxy import Statements, counted
from tests.support.postgres import database

pytestmark = pytest.mark.slow

HOST = "compaction.example.org"
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MARKS = ("treasure", "beneath the oak", "captains_log")
_numbers = count()


@dataclass(frozen=True, slots=True)
class Names:
    """Names that identify content of a tenant."""

    session: str
    output: str
    head: str

    def fill(self, value: Any) -> Any:
        """Return `value` with its placeholders replaced by these names, or by a text for {long}."""
        match value:
            case str():
                for name in ("session", "output", "head"):
                    value = value.replace(f"{{{name}}}", getattr(self, name))
                return value.replace("{long}", "line of the treasure map\n" * 3_000)
            case [*items]:
                return [self.fill(item) for item in items]
            case {**fields}:
                return {key: self.fill(item) for key, item in fields.items()}
            case _:
                return value

    def mask(self, text: str) -> str:
        """Return `text` with each of these names replaced by NAME."""
        for name in astuple(self):
            for form in (name, name.replace("-", " ").replace("_", " ")):  # or as a query's words
                text = text.replace(form, "NAME")
        return text


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: of MCP if it has a `body` and a `method`, otherwise of plain HTTP."""

    path: str
    method: str = ""
    body: Any = None

    @property
    def writes(self) -> bool:
        """Whether the call may create a session of the thief with this name."""
        return self.method == "tools/call" and self.body["name"] in (
            "compact_messages",
            "persist_large_output",
        )


@dataclass(frozen=True, slots=True)
class Served:
    """A service, the statements that its database gets, and tokens of an owner and a thief."""

    base: str
    statements: Statements
    owner: str
    thief: str
    known: Names
    cursor: str

    def answer(self, token: str, ask: Ask) -> httpx2.Response:
        headers = {"Host": HOST, "Authorization": f"Bearer {token}"}
        if ask.method:
            params = {**ask.body, "_meta": META}
            named = ask.body.get("name") or ask.body.get("uri")
            headers |= {
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": VERSION,
                "Mcp-Method": ask.method,
                **({"Mcp-Name": named} if named else {}),
            }
            request = {"jsonrpc": "2.0", "id": 1, "method": ask.method, "params": params}
            return httpx2.post(f"{self.base}/mcp", json=request, headers=headers, timeout=150)
        if ask.body is None:
            return httpx2.get(f"{self.base}{ask.path}", headers=headers, timeout=150)
        return httpx2.post(f"{self.base}{ask.path}", content=ask.body, headers=headers, timeout=150)

    def call(self, token: str, tool: str, **arguments: Any) -> dict[str, Any]:
        done = self.answer(token, Ask("", "tools/call", {"name": tool, "arguments": arguments}))
        assert done.status_code == 200, done.text
        data = [line[6:] for line in done.text.splitlines() if line.startswith("data: ")]
        result: dict[str, Any] = json.loads(data[0] if data else done.text)["result"]
        assert not result.get("isError"), result
        return result

    def seen(self, names: Names, ask: Ask) -> tuple[Any, ...]:
        """Return the thief's response without the names, and the statements of the database."""
        filled = Ask(*names.fill([ask.path, ask.method, ask.body]))
        self.statements.take()
        done = self.answer(self.thief, filled)
        # The service looks a token up every five seconds, whatever the request is.
        statements = "\n".join(self.statements.take()).split("BEGIN")
        asked = [statement for statement in statements if "access_token" not in statement]
        text = names.mask(done.text)
        shown = {name: done.headers.get(name) for name in ("content-type", "location", "link")}
        return done.status_code, shown, text, asked


def _turn_about(text: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "captains_log"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": f"{text}\n" * 400}
    return [
        {"role": "user", "content": f"{text} " * 40},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": f"I have read it: {text}. " * 30},
        {"role": "user", "content": "And now?"},
    ]


@contextmanager
def _service(address: str, folder: Path) -> Generator[str]:
    environment = {**os.environ, "MCP_COMPACTION_ARCHIVE": address, "XDG_DATA_HOME": str(folder)}
    where = ["--host", "0.0.0.0", "--port", "0", "--public-url", f"https://{HOST}"]
    process = subprocess.Popen(
        [*COMMAND, "serve", "--http", *where],
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("Serving on "), line + process.stderr.read()
    try:
        yield f"http://127.0.0.1:{line.split(' as ')[0].rsplit(':', 1)[-1]}"
    finally:
        process.terminate()
        process.communicate(timeout=150)


async def _head_of(address: str, session: str) -> str:
    async with open_archive(address) as archive:
        (history, *_), _ = await archive.branches(session)
        return history.head


@pytest.fixture(scope="module")
def served(
    postgres_server: str, postgres_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("tenants")
    with (
        database(postgres_server, f"tenants_{os.getpid()}", postgres_template) as address,
        counted(address) as statements,
        _service(statements.address, folder) as base,
    ):

        def token(tenant: str) -> str:
            named = ("--tenant", tenant, "--user", "robin")
            scopes = [word for scope in ("read", "write", "admin") for word in ("--scope", scope)]
            made = subprocess.run(
                [*COMMAND, "--archive", address, "token", "create", *named, *scopes],
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, made.stderr
            return made.stdout.strip()

        owner, thief = token("owner"), token("thief")
        asks = Served(base, statements, owner, thief, Names("", "", ""), "")
        session = "vault-70000002"
        for name in ("vault-70000000", "vault-70000001", session):
            messages = [
                *_turn_about("the treasure is hidden beneath the oak"),
                *_turn_about("the treasure is gold"),
            ]
            for mode in ("record", "full"):
                asks.call(owner, "compact_messages", session_id=name, messages=messages, mode=mode)
        long = "\n".join(f"line {at} of the treasure map" for at in range(4_000))
        stored = asks.call(owner, "persist_large_output", output=long, session_id=session)
        page = asks.call(owner, "search_transcript", query="treasure", limit=1)
        found = page["structuredContent"]
        head = anyio.run(_head_of, f"{address}&tenant=owner", session)
        asks.call(thief, "compact_messages", session_id="mine", messages=_turn_about("a crow bar"))
        known = Names(session, stored["structuredContent"]["output_id"], head)
        yield Served(base, statements, owner, thief, known, found["next_cursor"])


POINTERS = [
    "{output}",
    "output://{output}",
    "output://{output}/lines/1-5",
    "transcript://{session}/messages/1",
    "transcript://{session}/messages/0-3@{head}",
    "transcript://{session}/files",
    "transcript://{session}@{head}/files/captains_log",
    "transcript://{session}/receipts",
    "transcript://{session}/receipts/last",
    "transcript://{session}/context",
]
PAGES = [
    "/sessions/{session}",
    "/sessions/{session}?head={head}",
    "/sessions/{session}/messages/0-3",
    "/sessions/{session}/messages/2/0",
    "/sessions/{session}/compactions",
    "/sessions/{session}/compactions/1",
    "/sessions/{session}/branches",
    "/sessions/{session}/context",
    "/sessions/{session}/export?as=html",
    "/sessions/{session}/delete",
    "/outputs/{output}",
    "/search?q=treasure&session_id={session}",
    "/search?q={output}",
    "/storage/prune?days=1",
]
QUERIES = ["treasure", "beneath the oak", "captains_log", "{session}", "{output}", "treas*"]
NUMBERS = st.integers(-3, 5_000)


def _of_tool(tool: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Ask]:
    """Return calls of a tool with some of its optional arguments."""
    needed = {key: value for key, value in arguments.items() if not key.startswith("_")}
    optional = {key[1:]: value for key, value in arguments.items() if key.startswith("_")}
    given = st.fixed_dictionaries(needed, optional=optional)
    return given.map(lambda some: Ask("", "tools/call", {"name": tool, "arguments": some}))


reads = _of_tool(
    "read_persisted_output",
    output_id=st.sampled_from(POINTERS),
    _start_line=NUMBERS,
    _limit=st.integers(1, 400),
    _pattern=st.sampled_from(["treasure", "line \\d+"]),
)
searches = _of_tool(
    "search_transcript",
    query=st.sampled_from(QUERIES),
    _session_id=st.just("{session}"),
    _kind=st.sampled_from(["words", "phrase", "regex"]),
    _role=st.sampled_from(["user", "tool"]),
    _limit=st.integers(1, 20),
)
compactions = _of_tool(
    "compact_messages",
    session_id=st.just("{session}"),
    _mode=st.sampled_from(["auto", "plan", "micro", "full", "record"]),
    _new_messages=st.just([{"role": "user", "content": "go on"}]),
    _messages=st.sampled_from([_turn_about("the treasure is gold"), _turn_about("a crow bar")]),
    _options=st.sampled_from([{}, {"parent_session_id": "{session}"}]),
)
persists = _of_tool(
    "persist_large_output",
    output=st.sampled_from(["{long}", "short"]),
    session_id=st.just("{session}"),
)
resources = st.sampled_from([*POINTERS, "transcript://{session}"]).map(
    lambda uri: Ask("", "resources/read", {"uri": uri})
)


def _completion(name: str, typed: str) -> Ask:
    body = {
        "ref": {"type": "ref/resource", "uri": "transcript://{session_id}"},
        "argument": {"name": name, "value": typed},
        "context": {"arguments": {"session_id": "{session}"}},
    }
    return Ask("", "completion/complete", body)


def _page(path: str, suffix: str) -> Ask:
    return Ask(path + (("&" if "?" in path else "?") + suffix if suffix else ""))


completions = st.builds(
    _completion,
    st.sampled_from(["session_id", "output_id", "start", "stop"]),
    st.sampled_from(["{session}", "{output}", ""]),
)
pages = st.builds(_page, st.sampled_from(PAGES), st.sampled_from(["", "format=json", "part=1"]))
DELETE = Ask("/sessions/{session}/delete", body="session={session}")
posts = st.sampled_from([DELETE, Ask("/sessions/{session}/protect", body="protected=yes")])
kinds = (reads, searches, compactions, persists, resources, completions, pages, posts)


@given(ask=st.one_of(*kinds))
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
def test_content_of_another_tenant_is_reported_as_missing(served: Served, ask: Ask) -> None:
    number = next(_numbers)
    digest = sha256(b"%d" % number).hexdigest()
    # These names have the form of real names, but no session has them.
    missing = Names(
        f"vault-{number + 90_000_000}",
        f"o_{digest[: len(served.known.output) - 2]}",
        digest[-len(served.known.head) :],
    )
    note(str(ask))
    seen: list[list[tuple[Any, ...]]] = []
    for names in (served.known, missing):
        # A request that writes creates a session of the thief, so delete it again.
        asks = [ask, DELETE] if ask.writes else [ask]
        seen.append([served.seen(names, request) for request in asks])
    foreign, never = seen
    assert foreign == never
    assert ask.writes or not any(mark in foreign[0][2] for mark in MARKS if mark not in str(ask))


def test_owner_can_read_everything_that_another_tenant_requested(served: Served) -> None:
    """Check that the content exists, also after the thief has written and deleted sessions."""
    for pointer in POINTERS:
        asked = served.known.fill(pointer)
        text = json.dumps(served.call(served.owner, "read_persisted_output", output_id=asked))
        assert any(mark in text for mark in (*MARKS, "vault")), pointer
    for path in PAGES:
        ask = Ask(served.known.fill(path))
        page = served.answer(served.owner, ask)
        assert page.status_code in (200, 303), (path, page.text)
    search = {"query": "treasure", "limit": 1, "cursor": served.cursor}
    for ask in (
        Ask("", "resources/list", {}),
        _completion("session_id", "vault"),
        Ask("/"),
        Ask("/storage/prune?days=0&format=json"),
        Ask("", "tools/call", {"name": "search_transcript", "arguments": search}),
    ):
        assert "vault" in served.answer(served.owner, ask).text, ask
        stolen = served.answer(served.thief, ask)
        assert stolen.status_code in (200, 303), stolen.text
        assert not any(mark in stolen.text for mark in ("vault", *MARKS[1:])), ask
