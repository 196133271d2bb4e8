"""The proxy keeps secrets, serves only this machine, and reports its faults."""

import json
import socket
from pathlib import Path

import pytest

from tests.support.simulated_host import log_of, send
from tests.support.strict_provider import Provider, in_turn, serve_provider
from tests.support.strict_rules import Fails

from .running import (
    APIS,
    SMALL,
    Proxy,
    check_all_accepted,
    edited,
    host_of,
    proxied,
    run,
    working,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

# Each secret is in a place where a request can have one.
KEYS = {
    "x-api-key": "sk-ant-api03-SECRETONE",
    "authorization": "Bearer sk-proj-SECRETTWO",
    "cookie": "session=SECRETTHREE",
    "x-goog-api-key": "SECRETFOUR",
    "anthropic-workspace": "SECRETFIVE",
}
MARKS = (b"SECRETONE", b"SECRETTWO", b"SECRETTHREE", b"SECRETFOUR", b"SECRETFIVE", b"SECRETSIX")


def check_no_secret(folder: Path, *texts: str) -> None:
    """Check that no file in the folder and no text has a secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for content in [*(path.read_bytes() for path in files), *(text.encode() for text in texts)]:
        assert not any(mark in content for mark in MARKS)


# Pitfall 21


@pytest.mark.parametrize("flags", [SMALL, (*SMALL, "--observe")], ids=["edit", "observe"])
def test_credentials_are_nowhere_but_in_their_request(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    provider_key = "AKIAQ3EGRLTSVTJ7SECR"
    with serve_provider(working(8)) as provider:
        with proxied(provider.url, tmp_path, *flags) as proxy:
            hosts = [host_of(proxy, api, headers=KEYS) for api in APIS]
            for host in hosts:
                host.result = lambda number, _: (
                    f"aws_access_key_id={provider_key}\n{log_of(number)}"
                )
                host.ask("Build it.")
            query = "/v1/messages?key=SECRETSIX"
            send(proxy.url, hosts[0].sent[-1], hosts[0].request_headers(), path=query)
            check_all_accepted(provider)
            provider.script = in_turn(Fails(500, "api_error", "No."))
            hosts[0].request()
            hosts[1].request()
        for request in provider.asked:
            assert "SECRETTHREE" in request.headers["cookie"]
        check_no_secret(tmp_path, "".join(proxy.log), json.dumps(proxy.status()))
        archived = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(provider_key.encode() in content for content in archived)
        assert b"AKIAQ3EGRLTSVTJ7SECR" in provider.asked[1].body


def test_credentials_are_not_reported_when_the_provider_is_down(tmp_path: Path) -> None:
    with proxied("http://127.0.0.1:9", tmp_path, *SMALL) as proxy:
        host = host_of(proxy, headers=KEYS)
        host.items = [{"role": "user", "content": log_of(number)} for number in range(20)]
        reply = host.request()
        assert reply.status == 502
    check_no_secret(tmp_path, reply.body.decode(), "".join(proxy.log), json.dumps(proxy.status()))


# Pitfall 22


def listening_addresses(process_id: int) -> set[str]:
    """Return the addresses at which a process listens, from the tables of the kernel."""
    links = [str(link.readlink()) for link in Path(f"/proc/{process_id}/fd").iterdir()]
    sockets = {link[8:-1] for link in links if link.startswith("socket:")}
    found = set[str]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process_id}/net/{table}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found.add(fields[1].partition(":")[0])
    return found


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="only Linux has /proc")
def test_proxy_listens_on_loopback_only(proxy: Proxy) -> None:
    assert listening_addresses(proxy.process.pid) == {"0100007F"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "169.254.169.254"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_other_hosts_and_web_pages_are_refused(
    headers: dict[str, str], status: int, proxy: Proxy, anything: Provider
) -> None:
    assert send(proxy.url, b"{}", headers, path="/v1/messages").status == status
    assert anything.requests == []


def test_preflight_of_a_browser_is_refused(proxy: Proxy, anything: Provider) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    reply = send(proxy.url, b"", headers, method="OPTIONS", path="/v1/messages")
    assert reply.status == 403
    assert not any(name.startswith("access-control") for name in reply.headers)
    assert anything.requests == []


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: ADDRESS",
        b"GET http://example.com/ HTTP/1.1\r\nHost: ADDRESS",
        b"GET //example.com/x HTTP/1.1\r\nHost: ADDRESS",
        b"GET /x HTTP/1.1\r\nHost: ADDRESS\r\nHost: evil.example",
    ],
)
def test_proxy_is_no_open_proxy(line: bytes, proxy: Proxy, anything: Provider) -> None:
    address = proxy.url.removeprefix("http://")
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        request = line.replace(b"ADDRESS", address.encode())
        connection.sendall(request + b"\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    status = int(answer.split()[1]) if answer else 400
    # What is passed on can only reach the one upstream.
    assert status >= 400 or all(r.headers["host"] in anything.url for r in anything.requests)


# Pitfall 19


def test_full_disk_is_told_and_the_host_is_answered(tmp_path: Path) -> None:
    with serve_provider(working(20)) as provider:
        with proxied(provider.url, tmp_path, *SMALL, limit="ulimit -f 8") as proxy:
            host = host_of(proxy)
            host.ask("Build it.")
            check_all_accepted(provider, host)
        assert sum(proxy.status()["fallbacks"].values()) > 0


def test_archive_that_cannot_be_opened_is_told_and_the_host_is_answered(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "sessions").write_text("not a folder", "utf-8")
    with serve_provider(working(12)) as provider:
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host = host_of(proxy)
            host.ask("Build it.")
            check_all_accepted(provider, host)
        status = proxy.status()
        assert edited(provider, host) or sum(status["fallbacks"].values()) > 0


# Observe first


def test_observing_proxy_changes_nothing_archives_all_and_counts(tmp_path: Path) -> None:
    with serve_provider(working(12)) as provider:
        with proxied(provider.url, tmp_path, *SMALL, "--observe") as proxy:
            for api in APIS:
                provider.requests.clear()
                host = host_of(proxy, api)
                host.ask("Build it.")
                check_all_accepted(provider, host)
                assert edited(provider, host) == []
        status = proxy.status()
        assert status["edited"] == 0
        assert status["kept_out_tokens"] > 0
        hits = json.loads(run(tmp_path, "search", "compiled module_3_77", "--json"))["hits"]
        assert len({hit["pointer"].partition("/messages/")[0] for hit in hits}) == len(APIS)


def test_status_counts_edits_and_tokens_kept_out(tmp_path: Path) -> None:
    with serve_provider(working(12)) as provider:
        with proxied(provider.url, tmp_path, *SMALL) as proxy:
            host = host_of(proxy)
            host.ask("Build it.")
            places = edited(provider, host)
        status = proxy.status()
        kept_out = sum(len(host.sent[p]) - len(provider.asked[p].body) for p in places)
        assert status["edited"] == len(places)
        assert status["conversations"] == len(provider.asked) - 1
        assert abs(status["kept_out_tokens"] - kept_out // 4) <= len(places)
        assert status["fallbacks"] == {}
        assert str(status["edited"]) in run(tmp_path, "proxy", "status")


# The way back


def test_pointers_name_tools_only_if_the_request_has_them(proxy: Proxy, provider: Provider) -> None:
    host = host_of(proxy)
    host.ask("Build it.")
    assert edited(provider, host)
    assert b"read_persisted_output" not in provider.asked[-1].body
    assert b"search_transcript" not in provider.asked[-1].body
