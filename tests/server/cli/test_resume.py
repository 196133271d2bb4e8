"""`compact SESSION --resume HOST`: a session beside the original, which its host goes on with."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from context_compaction.formats.session_files.hosts import WRITERS
from context_compaction.formats.session_files.model import NewSession
from context_compaction.formats.session_files.read import read_conversation
from mcp_server_compaction.cli import main

from tests.server.helpers import Json, conversation

Run = Callable[..., Json]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder; the project is the folder beside it, where the program is started."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(project)
    return home


@pytest.fixture
def run(home: Path) -> Run:
    def run(*arguments: object, code: int = 0) -> Json:
        texts = [*map(str, arguments), *([] if code else ["--json"])]
        done = CliRunner().invoke(main, texts, catch_exceptions=False)
        assert done.exit_code == code, done.stderr
        return {"error": done.stderr} if code else json.loads(done.stdout)

    return run


def _session(home: Path, name: str = "one", project: Path | None = None) -> Path:
    """A session of Claude Code, in its place."""
    cwd = project or Path.cwd()
    folder = home / ".claude/projects" / str(cwd).replace("/", "-").replace("_", "-")
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "type": message["role"],
            "sessionId": name,
            "cwd": str(cwd),
            "uuid": f"{name}-{number}",
            "message": message,
        }
        for number, message in enumerate(conversation())
    ]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_session_that_its_host_emptied_is_not_resumed(run: Run, home: Path) -> None:
    path = _session(home)
    run("import", path)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        row["message"]["content"] = "" if row["type"] == "user" else []
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    error = run("compact", path, "--resume", "claude-code", code=2)["error"]
    assert "its host removed their words" in error
    assert "read transcript://one/messages/0-9" in error
    assert list(path.parent.iterdir()) == [path]


def test_the_original_stays_and_the_new_session_holds_what_was_left(run: Run, home: Path) -> None:
    path = _session(home)
    before = path.read_bytes()
    done = run("compact", path, "--resume", "claude-code")
    written = Path(done["resume"]["path"])
    assert path.read_bytes() == before
    assert written.parent == path.parent
    assert done["resume"]["command"] == f"claude --resume {written.stem}"
    found = read_conversation(written.read_bytes(), name="written")
    assert len(found.payload) == done["message_count"]["after"]
    assert found.session_id == "one" == done["session_id"]
    assert written.stat().st_mode & 0o077 == 0
    assert [file for file in path.parent.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize(("host", "command"), [("codex", "codex resume"), ("pi", "pi --session")])
def test_a_session_goes_over_to_another_host(run: Run, home: Path, host: str, command: str) -> None:
    done = run("compact", _session(home), "--resume", host)
    written = Path(done["resume"]["path"])
    assert written.is_relative_to(home / f".{host}")
    assert done["resume"]["command"] == f"{command} {done['resume']['session_id']}"
    found = read_conversation(written.read_bytes(), name="written")
    assert (found.kind, found.session_id) == (host, done["session_id"])


def test_opencode_goes_on_with_the_provider_of_the_export(run: Run, home: Path) -> None:
    about = {"providerID": "acme", "modelID": "model-7"}
    messages: list[Json] = [
        {
            "info": {"role": "user", "model": about}
            if number % 2 == 0
            else {**about, "role": "assistant"},
            "parts": [{"type": "text", "text": f"Step {number}: " + "word " * 400}],
        }
        for number in range(40)
    ]
    export = home / "export.json"
    info = {"id": "ses_1", "directory": "/"}
    export.write_text(json.dumps({"info": info, "messages": messages}), "utf-8")
    done = run("compact", export, "--resume", "opencode", "--mode", "full")
    written = json.loads(Path(done["resume"]["path"]).read_text("utf-8"))
    abouts = [message["info"].get("model") or message["info"] for message in written["messages"]]
    assert {(one["providerID"], one["modelID"]) for one in abouts} == {("acme", "model-7")}


def test_an_archived_session_is_named_by_the_beginning_of_its_id(run: Run, home: Path) -> None:
    run("compact", _session(home, "first-1"), "--mode", "record")
    run("compact", _session(home, "first-2"), "--mode", "record")
    done = run("compact", "first-2", "--resume", "claude-code")
    assert done["session_id"] == "first-2"
    assert Path(done["resume"]["path"]).exists()
    assert "2 sessions start with 'first'" in run("compact", "first", code=2)["error"]
    assert "nowhere is no file" in run("compact", "nowhere", code=1)["error"]


def test_current_is_the_newest_session_of_this_folder_alone(
    run: Run, home: Path, tmp_path: Path
) -> None:
    assert "No host keeps a transcript" in run("compact", "current", code=1)["error"]
    older, newer = _session(home, "older"), _session(home, "newer")
    other = _session(home, "other", tmp_path)
    for seconds, path in enumerate((older, newer, other)):
        os.utime(path, (1_700_000_000 + seconds, 1_700_000_000 + seconds))
    done = run("compact", "current", "--resume", "claude-code")
    assert done["session_id"] == "newer"
    # Nobody has gone on with what was written: it is not the session that somebody works in.
    assert run("compact", "current")["session_id"] == "newer"


@pytest.mark.parametrize("host", ["codex", "pi"])
def test_current_finds_the_sessions_of_other_hosts(run: Run, home: Path, host: str) -> None:
    folder = "sessions/2026/01/02" if host == "codex" else "agent/sessions"
    place = home / f".{host}" / folder
    if host == "pi":
        place /= f"--{str(Path.cwd())[1:].replace('/', '-')}--"
    place.mkdir(parents=True)
    new = NewSession("11111111-1111-4111-8111-111111111111", "s", str(Path.cwd()), 1.7e9, 9)
    messages: list[Json] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}
    ]
    if host == "pi":
        messages = [{"role": "user", "content": "Hi."}]
    rows = WRITERS[host](messages, new)
    rows.append({"type": "event_msg", "payload": {}} if host == "codex" else {"type": "label"})
    name = "rollout-1.jsonl" if host == "codex" else "1.jsonl"
    (place / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert run("compact", "current")["session_id"] == "s"


def test_a_place_that_cannot_be_written_is_said(run: Run, home: Path) -> None:
    path = _session(home)
    (home / ".codex").write_text("a file where the folder should be", "utf-8")
    error = run("compact", path, "--resume", "codex", code=2)["error"]
    assert "cannot be written" in error
