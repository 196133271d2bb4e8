"""`compact SESSION --resume HOST` writes a new session that the host can continue."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner
from context_compaction.formats.session_files.hosts import WRITERS
from context_compaction.formats.session_files.model import NewSession
from context_compaction.formats.session_files.read import read_conversation
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts.catalog import this_user
from mcp_server_compaction.hosts.session_files import archived_id_of

from tests.server.helpers import Json, conversation

Run = Callable[..., Json]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the user. The working folder is a project outside it."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(project)
    return home


@pytest.fixture
def run(home: Path) -> Run:
    def run(*arguments: object, code: int = 0) -> Json:
        texts = [*map(str, arguments), *([] if code else ["--json"])]
        result = CliRunner().invoke(main, texts, catch_exceptions=False)
        assert result.exit_code == code, result.stderr
        return {"error": result.stderr} if code else json.loads(result.stdout)

    return run


def _session(home: Path, name: str = "one", project: Path | None = None) -> Path:
    """Write a session file of Claude Code to its usual folder."""
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


def test_resume_refuses_a_session_when_its_host_removed_the_texts(run: Run, home: Path) -> None:
    path = _session(home)
    run("import", path)
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for row in rows:
        row["message"]["content"] = "" if row["type"] == "user" else []
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    error = run("compact", path, "--resume", "claude-code", code=2)["error"]
    assert "the host removed their texts" in error
    assert "read transcript://one/messages/0-9" in error
    assert list(path.parent.iterdir()) == [path]


def test_resume_leaves_the_original_session_unchanged(run: Run, home: Path) -> None:
    path = _session(home)
    before = path.read_bytes()
    report = run("compact", path, "--resume", "claude-code")
    written = Path(report["resume"]["path"])
    assert path.read_bytes() == before
    assert written.parent == path.parent
    assert report["resume"]["command"] == f"claude --resume {written.stem}"
    conversation_read = read_conversation(written.read_bytes(), name="written")
    assert len(conversation_read.payload) == report["message_count"]["after"]
    assert conversation_read.session_id == "one" == report["session_id"]
    assert written.stat().st_mode & 0o077 == 0
    assert [file for file in path.parent.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize(("host", "command"), [("codex", "codex resume"), ("pi", "pi --session")])
def test_resume_writes_a_session_for_another_host(
    run: Run, home: Path, host: str, command: str
) -> None:
    report = run("compact", _session(home), "--resume", host)
    written = Path(report["resume"]["path"])
    assert written.is_relative_to(home / f".{host}")
    assert report["resume"]["command"] == f"{command} {report['resume']['session_id']}"
    conversation_read = read_conversation(written.read_bytes(), name="written")
    assert (conversation_read.kind, conversation_read.session_id) == (host, report["session_id"])


def test_resume_keeps_the_provider_of_an_opencode_export(run: Run, home: Path) -> None:
    model = {"providerID": "acme", "modelID": "model-7"}
    messages: list[Json] = [
        {
            "info": {"role": "user", "model": model}
            if number % 2 == 0
            else {**model, "role": "assistant"},
            "parts": [{"type": "text", "text": f"Step {number}: " + "word " * 400}],
        }
        for number in range(40)
    ]
    export = home / "export.json"
    info = {"id": "ses_1", "directory": "/"}
    export.write_text(json.dumps({"info": info, "messages": messages}), "utf-8")
    report = run("compact", export, "--resume", "opencode", "--mode", "full")
    written = json.loads(Path(report["resume"]["path"]).read_text("utf-8"))
    models = [message["info"].get("model") or message["info"] for message in written["messages"]]
    assert {(model["providerID"], model["modelID"]) for model in models} == {("acme", "model-7")}


def test_compact_finds_an_archived_session_by_the_beginning_of_its_id(run: Run, home: Path) -> None:
    run("compact", _session(home, "first-1"), "--mode", "record")
    run("compact", _session(home, "first-2"), "--mode", "record")
    report = run("compact", "first-2", "--resume", "claude-code")
    assert report["session_id"] == "first-2"
    assert Path(report["resume"]["path"]).exists()
    assert "2 sessions start with 'first'" in run("compact", "first", code=2)["error"]
    assert "No such file or session: nowhere" in run("compact", "nowhere", code=1)["error"]


def test_current_is_the_newest_session_of_the_working_folder(
    run: Run, home: Path, tmp_path: Path
) -> None:
    assert "No host has a transcript" in run("compact", "current", code=1)["error"]
    older, newer = _session(home, "older"), _session(home, "newer")
    other = _session(home, "other", tmp_path)
    for seconds, path in enumerate((older, newer, other)):
        os.utime(path, (1_700_000_000 + seconds, 1_700_000_000 + seconds))
    report = run("compact", "current", "--resume", "claude-code")
    assert report["session_id"] == "newer"
    # The new session is not current, because no host has continued it.
    assert run("compact", "current")["session_id"] == "newer"
    older.unlink()
    newer.unlink()
    assert "1 that `--resume` wrote" in run("compact", "current", code=1)["error"]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.zst"])
@pytest.mark.parametrize("host", ["codex", "pi"])
def test_current_finds_sessions_of_codex_and_pi(
    run: Run, home: Path, host: str, ending: str
) -> None:
    folder = "sessions/2026/01/02" if host == "codex" else "agent/sessions"
    folder_path = home / f".{host}" / folder
    if host == "pi":
        folder_path /= f"--{str(Path.cwd())[1:].replace('/', '-')}--"
    folder_path.mkdir(parents=True)
    new = NewSession("11111111-1111-4111-8111-111111111111", "s", str(Path.cwd()), 1.7e9, 9)
    messages: list[Json] = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}
    ]
    if host == "pi":
        messages = [{"role": "user", "content": "Hi."}]
    rows = WRITERS[host](messages, new)
    rows.append({"type": "event_msg", "payload": {}} if host == "codex" else {"type": "label"})
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    data = b"".join(lines)
    if ending == "jsonl.zst":
        compress = zstandard.ZstdCompressor().compress
        data = compress(lines[0]) + compress(b"".join(lines[1:]))
    name = f"rollout-1-{new.session_id}" if host == "codex" else f"1_{new.session_id}"
    (folder_path / f"{name}.{ending}").write_bytes(data)
    assert run("compact", "current")["session_id"] == "s"
    assert archived_id_of(new.session_id, this_user()) == "s"


def test_current_skips_a_damaged_compressed_file(run: Run, home: Path) -> None:
    path = _session(home, "intact")
    path.with_name("damaged.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd damaged")
    assert run("compact", "current")["session_id"] == "intact"


def test_resume_reports_an_error_when_the_session_cannot_be_written(run: Run, home: Path) -> None:
    path = _session(home)
    (home / ".codex").write_text("a file where the folder should be", "utf-8")
    error = run("compact", path, "--resume", "codex", code=2)["error"]
    assert "Cannot write" in error


def test_resumed_session_is_found_when_its_file_is_one_long_line(home: Path) -> None:
    path = home / ".local/share/opencode/compacted/new.json"
    path.parent.mkdir(parents=True)
    row = {"mcp_server_compaction": {"session_id": "s"}, "text": "x" * 3_000_000}
    path.write_text(json.dumps(row), "utf-8")
    assert archived_id_of("new", this_user()) == "s"


def test_undo_writes_the_conversation_as_it_was_before_the_compaction(
    run: Run, home: Path, tmp_path: Path
) -> None:
    path = _session(home)
    compacted = run("compact", path, "--mode", "full")
    out = tmp_path / "undone.json"
    undone = run("undo", compacted["session_id"], "--out", out)
    assert undone["status"] == "undone"
    assert json.loads(out.read_bytes()) == conversation()
    again = run("compact", path)
    assert again["message_count"]["before"] == again["message_count"]["after"]
    assert "no compaction that can be undone" in run("undo", path, code=1)["error"]


def test_undo_restores_one_message_by_its_pointer(run: Run, home: Path, tmp_path: Path) -> None:
    path = _session(home)
    session_id = run("compact", path, "--mode", "full")["session_id"]
    out = tmp_path / "restored.json"
    restored = run("undo", session_id, "--restore", f"{session_id}/1", "--out", out)
    assert restored["restore"] == f"transcript://{session_id}/messages/1"
    assert 1 in restored["restored_messages"]
    messages = json.loads(out.read_bytes())
    assert conversation()[1] in messages
    assert len(messages) < len(conversation())
    again = run("undo", session_id, "--restore", f"{session_id}/1", code=1)
    assert "Nothing to restore" in again["error"]
    both = CliRunner().invoke(main, ["undo", session_id, "0", "--restore", f"{session_id}/1"])
    assert both.exit_code == 2


def test_undo_writes_a_session_that_the_host_can_continue(run: Run, home: Path) -> None:
    path = _session(home)
    run("compact", path, "--mode", "full")
    done = CliRunner().invoke(main, ["undo", str(path), "--resume", "claude-code"])
    assert done.exit_code == 0, done.stderr
    (written,) = {*path.parent.glob("*.jsonl")} - {path}
    assert read_conversation(written.read_bytes(), name="s").payload == conversation()
    assert f"claude --resume {written.stem}" in done.stdout
