"""A session compacted by us is continued by its real host: the model sees the compacted list."""

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

# The question and its answer; Codex tells the model anew where it is.
_NEW_MESSAGES = {"claude-code": 2, "codex": 4, "pi": 2}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def _ours(host: Installed, *arguments: str) -> Any:
    program = [sys.executable, "-m", "mcp_server_compaction", *arguments, "--json"]
    return json.loads(host.run(program))


def _files(host: Installed) -> dict[Path, bytes]:
    found = (path for path in host.home.rglob("*.jsonl") if "archive" not in path.parts)
    return {path: path.read_bytes() for path in found}


def _work(host: Installed, name: str) -> None:
    """A session of some turns, each in a process of its own, as a person comes back to it."""
    host.ask(f"{FACT} {WORK} 0: print its log.")
    [path] = _session_files(host, name)
    session_id = str(path.stem[-36:])
    for step in range(1, STEPS):
        host.ask(f"{WORK} {step}: print its log.", session_id)


def _session_files(host: Installed, name: str) -> list[Path]:
    folder = {"claude-code": ".claude/projects", "codex": ".codex", "pi": ".pi/agent/sessions"}
    return sorted((host.home / folder[name]).rglob("*.jsonl"))


def _texts(value: object) -> list[str]:
    """Every text of a message, however deep."""
    if is_list(value):
        return [text for item in value for text in _texts(item)]
    if not is_object(value):
        return []
    own = [value[key] for key in ("text", "content", "output") if isinstance(value.get(key), str)]
    return own + [text for key in ("content", "output") for text in _texts(value.get(key))]


def _check_pairs(request: Json) -> None:
    """Every call has its result in what was sent, and every result its call."""
    messages: list[Json] = request.get("messages", [])
    blocks: list[Any] = [block for message in messages for block in message["content"]]
    items: list[Json] = request.get("input") or list(filter(is_object, blocks))
    calls = {"tool_use": "id", "function_call": "call_id"}
    results = {"tool_result": "tool_use_id", "function_call_output": "call_id"}
    called = [item[calls[item["type"]]] for item in items if item["type"] in calls]
    answered = [item[results[item["type"]]] for item in items if item["type"] in results]
    assert called == answered


@pytest.mark.parametrize("name", _NEW_MESSAGES)
def test_a_real_host_goes_on_with_what_was_compacted(
    name: str, npm_folder: Path, tmp_path: Path
) -> None:
    program = program_of(CLIENTS[name], npm_folder)
    with serve_host_model() as model:
        host = installed(name, program, tmp_path, model.url)
        _work(host, name)
        before = _files(host)
        size_before = len(model.sent())

        done = _ours(host, "compact", "current", "--resume", name)
        resumed = done["resume"]
        assert done["changed"]
        assert resumed["command"].endswith(resumed["session_id"])
        written = Path(resumed["path"])
        assert written not in before
        assert {path: path.read_bytes() for path in before} == before
        rows = [json.loads(line) for line in written.read_text("utf-8").splitlines()]

        host.ask("What is the release called?", resumed["session_id"])
        sent = model.sent()
        assert len(sent) < size_before
        for kept in (FACT, f"{WORK} {STEPS - 1}:", "What is the release called?"):
            assert kept in sent
        assert "step 1 line 160 of the log" not in sent
        _check_pairs(model.requests[-1])
        for text in _texts([row.get("message") or row.get("payload") for row in rows]):
            assert json.dumps(text.strip(), ensure_ascii=False)[1:-1] in sent

        # What the host added is new to the archive, and nothing else is.
        imported = _ours(host, "import", str(written))
        assert (imported["sessions"], imported["failed"]) == (1, 0)
        assert imported["messages_written"] == _NEW_MESSAGES[name]

        # It is one session still: the next compaction goes on from here, to a summary alone.
        again = _ours(host, "compact", "current", "--resume", name, "--mode", "full")
        assert again["session_id"] == done["session_id"]
        host.ask("What is the release called?", again["resume"]["session_id"])
        assert "<context_summary" in model.sent()
        assert FACT in model.sent()
        assert len(model.sent()) < len(sent)
        _check_pairs(model.requests[-1])


def test_opencode_imports_what_was_compacted_and_goes_on_with_it(
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

        done = _ours(host, "compact", str(export), "--resume", "opencode")
        assert done["changed"]
        assert done["session_id"] == session_id
        resumed = done["resume"]
        host.run([str(program), "import", resumed["path"]])

        host.ask("What is the release called?", resumed["session_id"])
        assert len(model.sent()) < size_before
        for kept in (FACT, f"{WORK} {STEPS - 1}:", "What is the release called?"):
            assert kept in model.sent()
        assert "step 1 line 160 of the log" not in model.sent()
        _check_pairs(model.requests[-1])
        assert session_id in host.run([str(program), "session", "list"])
