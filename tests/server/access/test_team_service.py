"""A team's service: each caller can access only the archive of the token's tenant."""

import json
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import rsa
from mcp_server_compaction.cli import main

from tests.server.access.oauth_server import OAuthServer, oauth_server
from tests.server.http import COMMAND, environment_of
from tests.support.small import user

pytestmark = pytest.mark.slow

PUBLIC = "https://compaction.example.org"
AUDIENCE = f"{PUBLIC}/mcp"
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True)
class Team:
    """A service that goes by a public name, its archive, and an authorization server."""

    base: str
    folder: Path
    oauth: OAuthServer

    def command(self, *arguments: str) -> str:
        """Return the output of the command line."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            env=environment_of(self.folder),
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def token(self, tenant: str, *scopes: str, user: str = "robin", days: str = "1") -> str:
        named = [word for scope in scopes for word in ("--scope", scope)]
        return self.command(
            "token", "create", "--tenant", tenant, "--user", user, "--days", days, *named
        )

    def ask(self, token: str | None, method: str, name: str = "", **params: Any) -> httpx2.Response:
        headers = {
            "Host": "compaction.example.org",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
        }
        if named := name or params.get("uri", ""):
            headers["Mcp-Name"] = named
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        given = {**params, **({"name": name} if name else {}), "_meta": META}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
        return httpx2.post(f"{self.base}/mcp", json=request, headers=headers, timeout=150)

    def call(self, token: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return the result of a tool, which may be an error."""
        answer = self.ask(token, "tools/call", tool, arguments=arguments)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = _json(answer)["result"]
        return found

    def page(self, path: str, token: str | None = None, **headers: str) -> httpx2.Response:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        given = {"Host": "compaction.example.org", **shown, **headers}
        return httpx2.get(f"{self.base}{path}", headers=given, timeout=150)


def _json(answer: httpx2.Response) -> dict[str, Any]:
    text = answer.text
    if text.startswith("event:") or "\ndata: " in text:
        text = next(line[6:] for line in text.splitlines() if line.startswith("data: "))
    found: dict[str, Any] = json.loads(text)
    return found


@contextmanager
def team_service(folder: Path, *flags: str) -> Generator[Team]:
    with oauth_server() as oauth:
        where = ["--host", "0.0.0.0", "--port", "0", "--public-url", PUBLIC]
        asked = ["--oauth-issuer", oauth.issuer, "--audit-log", str(folder / "audit.log")]
        process = subprocess.Popen(
            [*COMMAND, "serve", "--http", *where, *asked, *flags],
            stderr=subprocess.PIPE,
            env=environment_of(folder),
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("Serving on "), line + process.stderr.read()
        port = line.split(" as ")[0].rsplit(":", 1)[-1]
        try:
            yield Team(f"http://127.0.0.1:{port}", folder, oauth)
        finally:
            process.terminate()
            process.communicate(timeout=150)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Generator[Team]:
    with team_service(tmp_path_factory.mktemp("team")) as served:
        yield served


def test_service_refuses_callers_without_a_valid_token_and_names_the_oauth_metadata(
    team: Team,
) -> None:
    good = team.token("acme", "read")
    bad = [None, "nonsense", good[:-1], good.replace("acme", "other"), good + "x", "mcpc~a~b~c"]
    for token in bad:
        answer = team.ask(token, "tools/list")
        assert answer.status_code == 401, token
        assert "oauth-protected-resource/mcp" in answer.headers["www-authenticate"]
    metadata = team.page("/.well-known/oauth-protected-resource/mcp").json()
    assert metadata["resource"] == AUDIENCE
    assert metadata["authorization_servers"] == [team.oauth.issuer]
    assert metadata["scopes_supported"] == ["read", "write", "admin"]
    assert team.ask(good, "tools/list").status_code == 200
    for path in ("/", "/sessions/s", "/search?q=x", "/storage"):
        assert team.page(path).status_code == 401
    for probe in ("/healthz", "/readyz"):
        assert httpx2.get(f"{team.base}{probe}", timeout=150).status_code == 200


def test_forged_and_foreign_tokens_are_refused(team: Team) -> None:
    oauth = team.oauth
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = jwt.PyJWK(oauth.answer("/keys")["keys"][0])  # type: ignore[index]
    assert team.ask(oauth.token(AUDIENCE), "tools/list").status_code == 200
    forged = [
        oauth.token(AUDIENCE, key=other),
        oauth.token(AUDIENCE, kid="unknown"),
        oauth.token("https://somebody.else/mcp"),
        oauth.token(AUDIENCE, iss="https://somebody.else"),
        oauth.token(AUDIENCE, exp=int(time.time()) - 3600),
        oauth.token(AUDIENCE, exp=None),
        oauth.token(AUDIENCE, sub=None),
        oauth.token(AUDIENCE, tenant=None),
        oauth.token(AUDIENCE, tenant="../acme"),
        *(oauth.token(AUDIENCE, tenant=odd) for odd in (7, True, ["acme"], {"name": "acme"})),
        jwt.encode(
            {"iss": oauth.issuer, "aud": AUDIENCE, "sub": "x", "exp": 2**33, "tenant": "acme"},
            "",
            algorithm="none",
            headers={"kid": oauth.kid},
        ),
        jwt.encode(
            {"iss": oauth.issuer, "aud": AUDIENCE, "sub": "x", "exp": 2**33, "tenant": "acme"},
            str(public.key_id) * 8,
            algorithm="HS256",
            headers={"kid": oauth.kid},
        ),
    ]
    for token in forged:
        assert team.ask(token, "tools/list").status_code == 401


def test_token_allows_only_the_actions_of_its_scopes(team: Team) -> None:
    reads, writes = team.token("scoped", "read"), team.token("scoped", "write")
    message = [user("The harbour is closed.")]
    refused = _json(
        team.ask(reads, "tools/call", "compact_messages", arguments={"messages": message})
    )
    assert "lacks the scope 'write'" in refused["error"]["message"]
    assert not team.call(writes, "compact_messages", session_id="s", messages=message)["isError"]
    refused = _json(
        team.ask(writes, "tools/call", "search_transcript", arguments={"query": "harbour"})
    )
    assert "lacks the scope 'read'" in refused["error"]["message"]
    found = team.call(reads, "search_transcript", query="harbour")
    assert "closed" in json.dumps(found)
    assert team.page("/sessions/s", reads).status_code == 200
    asked = httpx2.post(
        f"{team.base}/sessions/s/delete",
        headers={"Host": "compaction.example.org", "Authorization": f"Bearer {reads}"},
        timeout=150,
    )
    assert asked.status_code == 403
    assert "admin" in asked.text
    lines = (team.folder / "audit.log").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert any(
        (entry["tenant"], entry["action"], entry["what"], entry["outcome"])
        == ("scoped", "search_transcript", "harbour", "ok")
        for entry in entries
    )
    assert any(entry["outcome"] == "refused" for entry in entries)
    assert "closed" not in "".join(lines), "no content"


def test_tokens_are_listed_without_secrets_and_end_when_they_are_revoked(team: Team) -> None:
    token = team.token("ended", "read", user="casey")
    (listed,) = json.loads(team.command("token", "list", "--tenant", "ended", "--json"))
    assert (listed["user"], listed["scopes"]) == ("casey", ["read"])
    secret = token.rsplit("~", 1)[-1]
    assert secret not in json.dumps(listed)
    token_files = [path.read_text() for path in team.folder.rglob("tokens.json")]
    assert token_files
    assert not any(secret in text for text in token_files)
    assert team.ask(token, "tools/list").status_code == 200
    team.command("token", "revoke", "--tenant", "ended", listed["token_id"])
    deadline = time.monotonic() + 150
    while team.ask(token, "tools/list").status_code == 200:
        assert time.monotonic() < deadline
    assert team.ask(token, "tools/list").status_code == 401


def test_keys_may_rotate_and_are_not_fetched_for_each_wrong_token(tmp_path: Path) -> None:
    with team_service(tmp_path) as team:
        assert team.ask(team.oauth.token(AUDIENCE), "tools/list").status_code == 200
        for _ in range(8):
            wrong = team.oauth.token(AUDIENCE, kid="unknown")
            assert team.ask(wrong, "tools/list").status_code == 401
        assert team.oauth.fetches < 6  # at most one in a minute


def test_browser_enters_with_a_token_once_and_its_cookie_opens_only_pages(team: Team) -> None:
    token = team.token("browsing", "read", "write")
    team.call(token, "compact_messages", session_id="shown", messages=[user("A blue door.")])
    host = {"Host": "compaction.example.org"}
    with httpx2.Client(base_url=team.base, headers=host, timeout=150) as browser:
        origin = {"Origin": PUBLIC, "Sec-Fetch-Site": "same-origin"}
        entered = browser.post("/login", data={"token": token}, headers=origin)
        cookie = entered.headers["set-cookie"].split(";")[0]
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert "Secure" in entered.headers["set-cookie"]  # outside it is https
        assert "blue door" in browser.get("/sessions/shown", headers={"Cookie": cookie}).text
        assert browser.get("/sessions/shown", headers={"Cookie": cookie + "x"}).status_code == 401
    shown = cookie.split("=", 1)[1]
    assert team.ask(shown, "tools/list").status_code == 401


def test_service_refuses_a_host_other_than_the_public_url(team: Team) -> None:
    token = team.token("acme", "read")
    for name in ("127.0.0.1", "evil.example.org", "compaction.example.org.evil.org"):
        refused = team.page("/", token, Host=name)
        assert refused.status_code == 421
        assert "--public-url" in refused.text
    foreign = team.page("/", token, Origin="https://evil.example.org")
    assert foreign.status_code == 403


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--host", "0.0.0.0"], "--public-url"),
        (["--public-url", "http://compaction.example.org"], "https://"),
        (["--public-url", PUBLIC, "--unix-socket", "s"], "one user"),
        (["--oauth-issuer", "https://issuer"], "--public-url"),
    ],
)
def test_flags_that_would_open_the_archive_are_refused(
    flags: list[str], expected: str, tmp_path: Path
) -> None:
    line = ["--archive", str(tmp_path), "serve", "--http", "--port", "0", *flags]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 2, done.stderr
    assert expected in done.stderr
