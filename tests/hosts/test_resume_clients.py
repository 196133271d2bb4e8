"""A real host continues a compacted session: the model gets the compacted messages."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from context_compaction.messages.model import is_list, is_object

from .clients import CLIENTS, Installed, installed, program_of
from .scripted_host_model import WORK, Json, serve_host_model

STEPS = 6
FACT = "The release is called ZEBRA-77 and must never be pushed to the branch main."

# Prompt and response. Codex also sends its working folder again.
_NEW_MESSAGES = {"claude-code": 2, "codex": 4, "pi": 2}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def _run(host: Installed, *arguments: str) -> Any:
    program = [sys.executable, "-m", "mcp_server_compaction", *arguments, "--json"]
    return json.loads(host.run(program))


def _files(host: Installed) -> dict[Path, bytes]:
    paths = (path for path in host.home.rglob("*.jsonl") if "archive" not in path.parts)
    return {path: path.read_bytes() for path in paths}


def _work(host: Installed, name: str) -> None:
    """Run a session of several turns, each in a new process of the host."""
    host.ask(f"{FACT} {WORK} 0: print its log.")
    [path] = _session_files(host, name)
    session_id = str(path.stem[-36:])
    for step in range(1, STEPS):
        host.ask(f"{WORK} {step}: print its log.", session_id)


def _session_files(host: Installed, name: str) -> list[Path]:
    folder = {"claude-code": ".claude/projects", "codex": ".codex", "pi": ".pi/agent/sessions"}
    return sorted((host.home / folder[name]).rglob("*.jsonl"))


def _texts(value: object) -> list[str]:
    """Return all texts in a message at any depth."""
    if is_list(value):
        return [text for item in value for text in _texts(item)]
    if not is_object(value):
        return []
    texts = [value[key] for key in ("text", "content", "output") if isinstance(value.get(key), str)]
    return texts + [text for key in ("content", "output") for text in _texts(value.get(key))]


def _check_pairs(request: Json) -> None:
    """Check that calls and results of the request have equal IDs in equal order."""
    messages: list[Json] = request.get("messages", [])
    blocks: list[Any] = [block for message in messages for block in message["content"]]
    items: list[Json] = request.get("input") or list(filter(is_object, blocks))
    calls = {"tool_use": "id", "function_call": "call_id"}
    results = {"tool_result": "tool_use_id", "function_call_output": "call_id"}
    call_ids = [item[calls[item["type"]]] for item in items if item["type"] in calls]
    result_ids = [item[results[item["type"]]] for item in items if item["type"] in results]
    assert call_ids == result_ids


@pytest.mark.parametrize("name", _NEW_MESSAGES)
def test_host_continues_a_compacted_session(name: str, npm_folder: Path, tmp_path: Path) -> None:
    program = program_of(CLIENTS[name], npm_folder)
    with serve_host_model() as model:
        host = installed(name, program, tmp_path, model.url)
        _work(host, name)
        before = _files(host)
        size_before = len(model.sent())

        report = _run(host, "compact", "current", "--resume", name)
        resumed = report["resume"]
        assert report["changed"]
        assert resumed["command"].endswith(resumed["session_id"])
        written = Path(resumed["path"])
        assert written not in before
        assert {path: path.read_bytes() for path in before} == before
        rows = [json.loads(line) for line in written.read_text("utf-8").splitlines()]

        host.ask("What is the release called?", resumed["session_id"])
        sent = model.sent()
        assert len(sent) < size_before
        for text in (FACT, f"{WORK} {STEPS - 1}:", "What is the release called?"):
            assert text in sent
        assert "step 1 line 160 of the log" not in sent
        _check_pairs(model.requests[-1])
        for text in _texts([row.get("message") or row.get("payload") for row in rows]):
            assert json.dumps(text.strip(), ensure_ascii=False)[1:-1] in sent

        # Only the messages that the host added are new to the archive.
        imported = _run(host, "import", str(written))
        assert (imported["sessions"], imported["failed"]) == (1, 0)
        assert imported["messages_written"] == _NEW_MESSAGES[name]

        # The next compaction continues the session and writes a summary.
        again = _run(host, "compact", "current", "--resume", name, "--mode", "full")
        assert again["session_id"] == report["session_id"]
        host.ask("What is the release called?", again["resume"]["session_id"])
        assert "<context_summary" in model.sent()
        assert FACT in model.sent()
        assert len(model.sent()) < len(sent)
        _check_pairs(model.requests[-1])


def test_opencode_imports_and_continues_a_compacted_session(
    npm_folder: Path, tmp_path: Path
) -> None:
    program = program_of(CLIENTS["opencode"], npm_folder)
    with serve_host_model() as model:
        host = installed("opencode", program, tmp_path, model.url)
        host.ask(f"{FACT} {WORK} 0: print its log.")
        [session_id] = re.findall(r"ses_\w+", host.run([str(program), "session", "list"]))
        for step in range(1, STEPS):
            host.ask(f"{WORK} {step}: print its log.", session_id)
        size_before = len(model.sent())
        export = host.project / "session.json"
        export.write_text(host.run([str(program), "export", session_id]), "utf-8")

        report = _run(host, "compact", str(export), "--resume", "opencode")
        assert report["changed"]
        assert report["session_id"] == session_id
        resumed = report["resume"]
        host.run([str(program), "import", resumed["path"]])

        host.ask("What is the release called?", resumed["session_id"])
        assert len(model.sent()) < size_before
        for text in (FACT, f"{WORK} {STEPS - 1}:", "What is the release called?"):
            assert text in model.sent()
        assert "step 1 line 160 of the log" not in model.sent()
        _check_pairs(model.requests[-1])
        assert session_id in host.run([str(program), "session", "list"])
