"""Uploads: large outputs and transcripts by plain HTTP, whole or not at all."""

import base64
import json
import socket
from hashlib import sha256
from typing import Any

import httpx2
import pytest

from tests.server.access.test_team_service import Team, team
from tests.support.story import story

__all__ = ["team"]  # a fixture

pytestmark = pytest.mark.slow

TEXT = "".join(f"line {number} of a build log\n" for number in range(200_000))


def _post(team: Team, token: str, path: str, body: bytes, **headers: str) -> httpx2.Response:
    given = {"Host": "compaction.example.org", "Authorization": f"Bearer {token}", **headers}
    pieces = (body[at : at + 65_536] for at in range(0, len(body), 65_536))
    return httpx2.post(f"{team.base}{path}", content=pieces, headers=given, timeout=150)


def test_an_output_is_uploaded_hashed_and_read_back(team: Team) -> None:
    token = team.token("uploads", "read", "write")
    data = TEXT.encode()
    digest = base64.b64encode(sha256(data).digest()).decode()
    path = "/upload/outputs?session_id=build&tool_name=Bash"
    answer = _post(team, token, path, data, **{"Content-Digest": f"sha-256=:{digest}:"})
    assert answer.status_code == 201, answer.text
    kept: dict[str, Any] = answer.json()
    assert kept["size_bytes"] == len(data)
    assert kept["line_count"] == 200_000
    assert kept["sha256"] == sha256(data).hexdigest()
    read = team.call(
        token, "read_persisted_output", output_id=kept["output_id"], start_line=150_001, limit=1
    )
    assert "line 150000 of a build log" in json.dumps(read)
    other = team.token("elsewhere", "read", "write")
    assert team.call(other, "read_persisted_output", output_id=kept["output_id"])["isError"]


def test_what_does_not_come_in_whole_is_not_kept(team: Team) -> None:
    token = team.token("broken", "read", "write")
    wrong = base64.b64encode(bytes(32)).decode()
    answer = _post(
        team, token, "/upload/outputs", b"text", **{"Content-Digest": f"sha-256=:{wrong}:"}
    )
    assert answer.status_code == 400
    assert "Content-Digest" in answer.json()["error"]
    assert _post(team, token, "/upload/outputs", b"\xff\xfe").status_code == 400
    packed = _post(team, token, "/upload/outputs", b"x", **{"Content-Encoding": "gzip"})
    assert packed.status_code == 415
    host, port = team.base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=150) as half:
        head = (
            "POST /upload/outputs?session_id=half HTTP/1.1\r\nHost: compaction.example.org\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\nbegun"
        )
        half.sendall(head.encode())
    assert "half" not in team.page("/?format=json", token).text
    reads = team.token("broken", "read")
    assert _post(team, reads, "/upload/outputs", b"text").status_code == 403
    assert (
        httpx2.post(
            f"{team.base}/upload/outputs", headers={"Host": "compaction.example.org"}, timeout=150
        ).status_code
        == 401
    )


@pytest.mark.parametrize("kind", ["outputs", "transcripts"])
def test_a_misspelt_parameter_is_named_and_nothing_is_kept(team: Team, kind: str) -> None:
    token = team.token("misspelt", "read", "write")
    answer = _post(team, token, f"/upload/{kind}?session=build", b'{"role": "user"}')
    assert answer.status_code == 400
    assert "'session'" in answer.json()["error"]
    assert "session_id" in answer.json()["error"]
    assert team.page("/?format=json", token).json()["sessions"] == []


def test_a_transcript_is_uploaded_and_found(team: Team) -> None:
    token = team.token("transcripts", "read", "write")
    lines = "\n".join(json.dumps(message) for message in story(turns=4)).encode()
    answer = _post(team, token, "/upload/transcripts?session_id=told&format=anthropic", lines)
    assert answer.status_code == 201, answer.text
    assert answer.json()["message_count"] == len(story(turns=4))
    again = _post(team, token, "/upload/transcripts?session_id=told&format=anthropic", lines)
    assert again.status_code == 201
    shown = team.page("/sessions/told?format=json", token)
    assert shown.status_code == 200
    assert _post(team, token, "/upload/transcripts", b"{no json").status_code == 400
