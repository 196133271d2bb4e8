"""The tool compact_messages with a path: the current session, and resuming a session."""

import json
import shutil
from pathlib import Path

import pytest
from context_compaction.file_access import default_folders, roots_of
from context_compaction.formats.session_files.read import read_conversation
from mcp_server_compaction.config import Config

from tests.server.helpers import answer_of, connect, conversation, error_of


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session of Claude Code in the user's home, for the server's working folder."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.chdir(project)
    folder = home / ".claude/projects" / str(project).replace("/", "-").replace("_", "-")
    folder.mkdir(parents=True)
    rows = [
        {"type": message["role"], "sessionId": "mine", "cwd": str(project), "message": message}
        for message in conversation()
    ]
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def local(config: Config, session: Path) -> Config:
    """A server as a host starts it: it may read the project and the sessions of hosts."""
    roots = roots_of(default_folders(Path.cwd(), Path.home()))
    return Config(archive_folder=config.archive_folder, roots=roots)


def _content(path: Path) -> bytes:
    return path.read_bytes()


async def test_current_is_the_session_of_this_folder(local: Config) -> None:
    async with connect(local) as client:
        answer = answer_of(
            await client.call_tool(
                "compact_messages", {"transcript_path": "current", "mode": "full"}
            )
        )
    assert answer["session_id"] == "mine"
    assert answer["changed"]
    assert "options={'resume': 'claude-code'}" in answer["next_step"]
    assert "resume_path" not in answer


async def test_resume_writes_a_session_and_returns_its_command(
    local: Config, session: Path
) -> None:
    before = _content(session)
    async with connect(local) as client:
        answer = answer_of(
            await client.call_tool(
                "compact_messages",
                {
                    "transcript_path": "current",
                    "mode": "full",
                    "options": {"resume": "claude-code"},
                },
            )
        )
    written = Path(answer["resume_path"])
    assert _content(session) == before
    assert written.parent == session.parent
    assert f"claude --resume {written.stem}" in answer["next_step"]
    found = read_conversation(_content(written), name="written")
    assert found.session_id == "mine"
    assert len(found.payload) == answer["message_count"]


async def test_undone_session_can_continue_in_another_host(
    local: Config, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = session.parent.parent / "codex"
    monkeypatch.setenv("CODEX_HOME", str(sessions))
    roots = roots_of([Path.cwd(), session.parent.parent])
    config = Config(archive_folder=local.archive_folder, roots=roots)
    path = {"transcript_path": str(session)}
    async with connect(config) as client:
        await client.call_tool("compact_messages", {**path, "mode": "full"})
        arguments = {**path, "mode": "undo", "options": {"resume": "codex"}}
        answer = answer_of(await client.call_tool("compact_messages", arguments))
    assert answer["session_id"] == "mine"
    written = Path(answer["resume_path"])
    assert written.is_relative_to(sessions)
    found = read_conversation(_content(written), name="written")
    assert found.format == "openai-responses"
    assert conversation()[0]["content"] in str(found.payload[0])


async def test_resume_writes_nothing_when_nothing_was_compacted_or_in_plan_mode(
    local: Config, session: Path
) -> None:
    async with connect(local) as client:
        for mode in ("plan", "auto"):
            arguments = {"transcript_path": "current", "mode": mode}
            resumed = {**arguments, "options": {"resume": "claude-code"}}
            answer = answer_of(await client.call_tool("compact_messages", resumed))
            assert "resume_path" not in answer
    assert "No session was written" in answer["next_step"]
    assert list(session.parent.iterdir()) == [session]


async def test_a_session_is_written_only_inside_the_roots(config: Config, session: Path) -> None:
    own = Config(archive_folder=config.archive_folder, roots=roots_of([Path.cwd()]))
    copy = shutil.copy(session, Path.cwd() / "copy.jsonl")
    async with connect(own) as client:
        arguments = {"transcript_path": str(copy), "mode": "full"}
        result = await client.call_tool(
            "compact_messages", {**arguments, "options": {"resume": "claude-code"}}
        )
    assert "outside the folders that may be written to" in error_of(result)
    assert list(session.parent.iterdir()) == [session]


async def test_current_reveals_no_files_without_roots(config: Config, session: Path) -> None:
    async with connect(Config(archive_folder=config.archive_folder)) as client:
        result = await client.call_tool("compact_messages", {"transcript_path": "current"})
    assert "mine" not in error_of(result)


async def test_messages_in_the_call_are_no_session_of_a_host(local: Config) -> None:
    async with connect(local) as client:
        result = await client.call_tool(
            "compact_messages", {"messages": conversation(), "options": {"resume": "pi"}}
        )
    assert "options.resume needs transcript_path" in error_of(result)
