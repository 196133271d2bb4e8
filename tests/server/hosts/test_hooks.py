"""The command `hook EVENT`: it answers events of hosts and never fails the host."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from context_compaction.activity.outcome import numbered_lines
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.__main__ import run as program
from mcp_server_compaction.hosts.hook_events import KINDS, LARGE_CHARS, shortened_result

from tests.server.helpers import Json
from tests.support.session_rows import claude_code_row
from tests.support.waiting import eventually

Hook = Callable[..., Any]

LARGE = "\n".join(f"line {n} of the build: step_{n} took {n * 7 % 91} ms" for n in range(2_000))
SMALL = "ok\n"


def value_at(answer: Json, *path: str | int) -> Any:
    value: Any = answer
    for key in path:
        value = value[key]
    return value


Run = Callable[..., str]

# A hook does not wait for the background process that it starts.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use temporary folders, also in the processes that hooks start."""
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the program in this process, because a new process is slow, and return its output."""

    def run(*arguments: str, stdin: bytes = b"") -> str:
        monkeypatch.setattr(sys, "argv", ["mcp-server-compaction", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        # Only commands other than hooks end with SystemExit.
        with contextlib.suppress(SystemExit):
            program()
        printed = capsys.readouterr()
        assert "hook" not in arguments or printed.err == ""
        return printed.out

    return run


@pytest.fixture
def hook(run: Run) -> Hook:
    """Run a hook and return its answer; None if it printed nothing."""

    def hook(event: str, payload: Json, host: str = "claude-code") -> Any:
        output = run("hook", event, "--host", host, stdin=json.dumps(payload).encode())
        return json.loads(output) if output else None

    return hook


def claude(tool: str, response: Any, **arguments: Any) -> Json:
    return {
        "session_id": "s-1",
        "transcript_path": "/nowhere.jsonl",
        "cwd": "/",
        "hook_event_name": "PostToolUse",
        "tool_name": tool,
        "tool_input": arguments,
        "tool_response": response,
        "tool_use_id": "toolu_1",
    }


BASH = {"stdout": LARGE, "stderr": "warning", "interrupted": False, "isImage": False}
READ = {
    "type": "text",
    "file": {"filePath": "/a", "content": LARGE, "numLines": 9, "startLine": 1, "totalLines": 9},
}
BLOCKS = [{"type": "text", "text": LARGE}, {"type": "image", "data": "A" * 30_000}]
PICTURE = "data:image/png;base64," + "A" * 30_000
NOTEBOOK = {
    "type": "notebook",
    "file": {"cells": [{"image": {"image_data": "A" * 30_000, "media_type": "image/png"}}]},
}
PDF = {"uri": "a://b", "mimeType": "application/pdf", "blob": "A" * 30_000}
RESOURCE = {"content": [{"type": "resource", "resource": PDF}]}
RESULTS: list[Any] = [
    ("claude-code", "PostToolUse", claude("Bash", BASH), ("updatedToolOutput", "stdout")),
    ("claude-code", "PostToolUse", claude("Read", READ), ("updatedToolOutput", "file", "content")),
    (
        "claude-code",
        "PostToolUse",
        claude("mcp__github__list", BLOCKS),
        ("updatedMCPToolOutput", 0, "text"),
    ),
    (
        "claude-code",
        "PostToolUse",
        claude("mcp__github__show", LARGE),
        ("updatedMCPToolOutput", 0, "text"),
    ),
    ("codex", "PostToolUse", claude("Bash", LARGE), ("reason",)),
    ("codex", "PostToolUse", claude("mcp__x__y", {"content": BLOCKS[:1]}), ("reason",)),
    (
        "gemini-cli",
        "AfterTool",
        claude("run_shell_command", {"llmContent": LARGE, "returnDisplay": ""}),
        ("reason",),
    ),
    (
        "gemini-cli",
        "AfterTool",
        claude("mcp_x_y", {"llmContent": [{"text": LARGE}]}),
        ("reason",),
    ),
    (
        "cursor",
        "postToolUse",
        {
            "conversation_id": "s-1",
            "cursor_version": "2026.09.18",
            "tool_name": "MCP:query",
            "tool_output": json.dumps({"content": BLOCKS}),
        },
        ("updated_mcp_tool_output", "content", 0, "text"),
    ),
    ("opencode", "tool.execute.after", claude("bash", LARGE), ("output",)),
]


@pytest.mark.parametrize(
    ("host", "event", "payload", "path"),
    RESULTS,
    ids=[f"{host}-{payload['tool_name']}" for host, _, payload, _ in RESULTS],
)
def test_hook_replaces_large_text_by_a_pointer_and_keeps_the_shape_of_the_result(
    hook: Hook,
    run: Run,
    host: str,
    event: str,
    payload: Json,
    path: tuple[str | int, ...],
) -> None:
    answer = hook(event, payload, host)
    specific = answer.get("hookSpecificOutput", answer)
    marker = value_at(specific, *path)
    assert len(marker) < 4_000
    pointer = next(word for word in marker.split('"') if word.startswith("o_"))
    assert run("read", pointer) == LARGE
    if host == "claude-code":
        assert specific["hookEventName"] == event
    restored = json.dumps(answer).replace(json.dumps(marker), json.dumps(LARGE))
    for unchanged in ('"stderr": "warning"', '"numLines": 9', "A" * 30_000):
        assert (unchanged in restored) == (unchanged in json.dumps(payload).replace("\\", ""))


@pytest.mark.parametrize(
    ("host", "event", "payload"),
    [
        ("claude-code", "PostToolUse", claude("Bash", {**BASH, "stdout": SMALL})),
        ("claude-code", "PostToolUse", claude("Read", READ, limit=2_000)),
        ("claude-code", "PostToolUse", claude("mcp__compaction__read_persisted_output", LARGE)),
        ("claude-code", "PostToolUse", {**claude("Bash", BASH), "cursor_version": "3"}),
        ("claude-code", "PostToolUse", claude("Read", {"type": "image", "base64": LARGE})),
        (
            "claude-code",
            "PostToolUse",
            claude("Bash", {"stdout": PICTURE, "isImage": True}),
        ),
        ("claude-code", "PostToolUse", claude("Read", NOTEBOOK)),
        ("cursor", "postToolUse", {**claude("MCP:x", ""), "tool_output": json.dumps(RESOURCE)}),
        ("codex", "PostToolUse", claude("Bash", SMALL)),
        ("codex", "PostToolUse", claude("mcp__x__y", {"content": BLOCKS})),
        ("cursor", "postToolUse", {**claude("Shell", ""), "tool_output": LARGE}),
        ("claude-code", "Notification", claude("Bash", BASH)),
    ],
)
def test_hook_changes_nothing_when_the_result_is_small_or_media_or_was_selected(
    hook: Hook, tmp_path: Path, host: str, event: str, payload: Json
) -> None:
    assert hook(event, payload, host) is None
    assert not (tmp_path / "archive").exists()


def test_hook_accepts_flags_before_its_name_in_a_new_process(tmp_path: Path, run: Run) -> None:
    secret = "ghp_" + "Zk3vR8qLw1Xy6TnB2m" + "Hs9PdJc4FgA7eUo5Qi"
    elsewhere = ["--archive", str(tmp_path / "elsewhere")]
    flags = [*elsewhere, "--redaction", "on", "hook", "PostToolUse"]
    done = subprocess.run(
        [sys.executable, "-m", "mcp_server_compaction", *flags],
        input=json.dumps(claude("Bash", f"{secret}\n{LARGE}")).encode(),
        capture_output=True,
        timeout=150,
        check=True,
    )
    assert done.stderr == b""
    assert not (tmp_path / "archive").exists()
    marker = json.loads(done.stdout)["hookSpecificOutput"]["updatedToolOutput"]
    pointer = next(word for word in marker.split('"') if word.startswith("o_"))
    stored = run(*elsewhere, "read", pointer)
    assert "step_7" in stored
    assert secret not in stored


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from(["", "x", "y" * (LARGE_CHARS + 1), "\ud800" * LARGE_CHARS + "zz"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "content", "llmContent", "output", "isError", "file"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["Bash", "MCP:x", "mcp__x__y"]), VALUES)
def test_shortened_result_stores_only_long_texts_of_any_result(
    host: str, tool: str, response: Any
) -> None:
    stored: list[str] = []

    def store(text: str, is_numbered: bool) -> str:
        stored.append(text)
        return "pointer"

    payload = {"tool_name": tool, "tool_response": response, "tool_output": response}
    answer = shortened_result(host, payload, store)
    assert (answer is None) == (not stored)
    assert all(len(text) > LARGE_CHARS for text in stored)


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["PostToolUse"], b""),
        (["SessionStart"], b"null"),
        (["Stop"], b"[1]"),
        (["Stop"], b"\xff"),
        (["PostToolUse"], b'{"session_id": 3}'),
        (["PreCompact"], b"[" * 100_000),
        (["Nonsense"], b"{}"),
        ([], b"{}"),
        (["Stop", "--host", "nobody"], b"{}"),
        (["Stop", "--nonsense"], b"{}"),
    ],
)
def test_hook_prints_nothing_when_its_input_is_invalid(
    run: Run, arguments: list[str], stdin: bytes
) -> None:
    assert run("hook", *arguments, stdin=stdin) == ""


@pytest.mark.posix("named pipes")
def test_hook_prints_nothing_when_a_path_is_a_pipe_or_the_archive_is_a_file(
    hook: Hook, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    payload = {**claude("Bash", BASH), "transcript_path": str(tmp_path / "pipe.jsonl")}
    assert hook("UserPromptSubmit", payload) is None
    (tmp_path / "archive").write_text("", "utf-8")
    for event in ("PostToolUse", "PreCompact"):
        assert hook(event, payload) is None


def test_hook_keeps_the_output_and_logs_the_error_when_it_cannot_store_it(
    hook: Hook, tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive/blobs").write_text("not a folder", "utf-8")
    assert hook("PostToolUse", claude("Bash", BASH)) is None
    assert "PostToolUse" in (tmp_path / "archive/hooks/log").read_text("utf-8")


def transcript(path: Path, turns: int = 3) -> Path:
    rows: list[Json] = []
    for turn in range(turns):
        messages = [
            ("user", f"Step {turn}: never use tabs. Please fix src/file_{turn}.py"),
            ("assistant", [{"type": "text", "text": f"Fixed file_{turn}."}]),
        ]
        for role, content in messages:
            fields = {"sessionId": "s-1", "timestamp": "2026-11-22T10:00:00Z"}
            rows.append(claude_code_row(role, len(rows), content, **fields))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_log_contains_no_secret_when_a_path_or_an_id_contains_one(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = (
        "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    )  # in parts, so that no scanner reports this file
    file = tmp_path / f"{secret}.jsonl"
    file.write_text(transcript(tmp_path / "a").read_text("utf-8").replace("s-1", secret), "utf-8")
    payload = {**claude("Bash", BASH), "session_id": secret, "transcript_path": str(file)}
    monkeypatch.setenv("MCP_COMPACTION_REDACTION", "on")
    for event in ("PostToolUse", "PreCompact"):
        assert hook(event, payload) is None
    log = tmp_path / "archive/hooks/log"
    eventually(lambda: "[redacted: github pat].jsonl" in log.read_text("utf-8"))
    assert secret not in log.read_text("utf-8")


def test_preview_contains_no_secret_when_redaction_is_on(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_COMPACTION_REDACTION", "on")
    secret = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
    answer = json.dumps(hook("PostToolUse", claude("Bash", BASH | {"stdout": secret + LARGE})))
    assert "read_persisted_output" in answer
    assert secret not in answer


@pytest.mark.slow
@pytest.mark.parametrize("event", ["Stop", "SessionEnd"])
def test_hook_archives_the_transcript_in_the_background(
    hook: Hook, run: Run, tmp_path: Path, event: str
) -> None:
    path = transcript(tmp_path / "s-1.jsonl")
    payload = {"session_id": "s-1", "transcript_path": str(path), "cwd": "/"}
    assert hook(event, payload) is None

    def sessions() -> list[Json]:
        rows = [json.loads(line) for line in run("sessions", "--json").splitlines()]
        return [row for row in rows if row["message_count"] == 6]

    assert [row["session_id"] for row in eventually(sessions)] == ["s-1"]


@pytest.mark.slow
def test_session_start_adds_rules_and_the_session_id_after_a_compaction(
    hook: Hook, run: Run, tmp_path: Path
) -> None:
    path = transcript(tmp_path / "s-1.jsonl", turns=12)
    payload = {"session_id": "s-1", "transcript_path": str(path), "cwd": "/"}
    assert hook("SessionStart", {**payload, "source": "startup"}) is None
    first = hook("SessionStart", {**payload, "source": "compact"})
    assert 'session_id "s-1"' in first["hookSpecificOutput"]["additionalContext"]
    hook("PreCompact", {**payload, "trigger": "auto"})

    def notes() -> str:
        answer = hook("SessionStart", {**payload, "source": "compact"})
        text = answer["hookSpecificOutput"]["additionalContext"]
        return text if "never use tabs" in text else ""

    text = eventually(notes)
    assert len(text) < 10_000
    pointer = text.partition('originals="')[2].partition('"')[0]
    assert "never use tabs" in run("read", pointer)
    run("delete", "--yes", "s-1")
    assert list((tmp_path / "archive/hooks").rglob("*.md")) == []  # notes contain the user's words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "before", "prompt", "rows"),
    [
        (
            "cursor",
            "preCompact",
            "beforeSubmitPrompt",
            [
                {"role": "user", "message": {"content": [{"type": "text", "text": "Never fry."}]}},
                {"role": "assistant", "message": {"content": [{"type": "text", "text": "Ok."}]}},
            ],
        ),
        (
            "gemini-cli",
            "PreCompress",
            "BeforeAgent",
            [
                {"sessionId": "s-1", "projectHash": "h"},
                {"id": "1", "type": "user", "content": [{"text": "Never fry."}]},
                {
                    "id": "2",
                    "type": "gemini",
                    "content": "",
                    "toolCalls": [
                        {
                            "id": "c",
                            "name": "read_file",
                            "args": {"path": "a"},
                            "status": "success",
                            "result": [{"functionResponse": {"response": {"output": "A file."}}}],
                        }
                    ],
                },
                {"id": "2", "type": "gemini", "content": "Ok."},
                {"$set": {"lastUpdated": "x"}},
            ],
        ),
    ],
)
def test_prompt_adds_notes_once_when_the_host_has_no_event_after_a_compaction(
    hook: Hook, tmp_path: Path, host: str, before: str, prompt: str, rows: list[Json]
) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn', "utf-8")
    payload = {"session_id": "s-1", "transcript_path": str(path)}
    assert hook(prompt, payload, host) is None
    assert hook(before, payload, host) is None
    answer = eventually(lambda: hook(prompt, payload, host))
    assert "s-1" in json.dumps(answer)
    assert hook(prompt, payload, host) is None  # once


@pytest.mark.slow
def test_hook_archives_the_messages_that_the_plugin_of_opencode_sends(hook: Hook, run: Run) -> None:
    tool = {"status": "completed", "input": {"command": "ls"}, "output": "KANGAROO_TOKEN_5"}
    messages = [
        {"info": {"role": "user"}, "parts": [{"type": "text", "text": "List it."}]},
        {
            "info": {"role": "assistant"},
            "parts": [
                {"type": "step-start"},
                {"type": "tool", "callID": "c", "tool": "bash", "state": tool},
                {"type": "text", "text": "Done."},
            ],
        },
    ]
    payload = {"session_id": "ses_1", "cwd": "/", "messages": messages}
    assert hook("session.idle", payload, "opencode") is None
    assert "ses_1" in eventually(lambda: run("sessions"))
    assert "ses_1" in run("search", "KANGAROO_TOKEN_5")
    answer = hook("session.compacting", payload, "opencode")
    assert "ses_1" in answer["context"]


def test_prompt_warns_once_when_the_context_is_nearly_full(hook: Hook, tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    payload = {"session_id": "s-1", "transcript_path": str(path), "prompt": "go on"}

    def note_after(row: Json) -> str:
        sidechain = {"isSidechain": True, "message": {"usage": {"input_tokens": 999_999}}}
        path.write_text(f"torn\n{json.dumps(row)}\n{json.dumps(sidechain)}\n", "utf-8")
        return json.dumps(hook("UserPromptSubmit", payload))

    def claude_row(tokens: int, model: str = "claude-x") -> Json:
        usage = {"input_tokens": 3, "cache_read_input_tokens": tokens}
        return {"message": {"model": model, "usage": usage}}

    assert "140K of 200K" in note_after(claude_row(140_000))
    assert note_after(claude_row(150_000)) == "null"
    assert note_after(claude_row(20_000)) == "null"
    assert note_after(claude_row(150_000, "claude-x[1m]")) == "null"
    info = {"last_token_usage": {"total_tokens": 230_000}, "model_context_window": 258_400}
    assert "230K of 258K" in note_after({"type": "event_msg", "payload": {"info": info}})


TRUNCATED = "\n".join(LARGE.splitlines()[:1_000]) + "\n\n... [1000 lines truncated] ..."


def saved_output(host: str, path: Path) -> Json:
    """Return the event of a call whose output the host truncated and saved in `path`."""
    if host == "opencode":
        return {**claude("bash", TRUNCATED), "output_path": str(path)}
    return claude("Bash", {**BASH, "stdout": TRUNCATED, "persistedOutputPath": str(path)})


@pytest.mark.parametrize("host", ["claude-code", "opencode"])
@pytest.mark.parametrize("place", ["own", "elsewhere", "link", "gone"])
@pytest.mark.posix("symbolic links")
def test_hook_stores_the_full_output_only_from_the_folder_of_the_host(
    hook: Hook, run: Run, tmp_path: Path, host: str, place: str
) -> None:
    host_folders = {
        "claude-code": ".claude/projects/p/s-1/tool-results",
        "opencode": ".local/share/opencode",
    }
    folder = tmp_path / "home" / host_folders[host]
    folder.mkdir(parents=True)
    secret = tmp_path / "secret.txt"
    secret.write_text(LARGE, "utf-8")
    path = {"elsewhere": secret}.get(place, folder / "a.txt")
    if place == "link":
        path.symlink_to(secret)
    elif place == "own":
        path.write_text(LARGE, "utf-8")
    event = "tool.execute.after" if host == "opencode" else "PostToolUse"
    answer = json.dumps(hook(event, saved_output(host, path), host))
    pointer = next(word for word in answer.split('\\"') if word.startswith("o_"))
    assert run("read", pointer) == (LARGE if place == "own" else TRUNCATED)
    assert ("Full text: read_persisted_output" in answer) == (place == "own")


@pytest.mark.parametrize("text", [LARGE, "x" * 30_000, "\n".join("y" * 500 for _ in range(99))])
def test_hook_keeps_the_first_lines_when_the_host_numbers_the_lines(hook: Hook, text: str) -> None:
    answer = hook("PostToolUse", claude("Read", {"file": {"content": text, "startLine": 1}}))
    shown = answer["hookSpecificOutput"]["updatedToolOutput"]["file"]["content"]
    head, marker, _ = shown.partition("\n<persisted-output ")
    assert marker
    assert text.startswith(head)
    rows = "\n".join(f"{number:6}\t{row}" for number, row in enumerate(shown.split("\n"), 1))
    assert numbered_lines(rows) is None  # the marker is not counted as a line of the file


BOUNDARY = {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"}


@pytest.mark.parametrize("boundary", [BOUNDARY, {"type": "compacted", "payload": {"message": ""}}])
def test_prompt_ignores_usage_from_before_a_compaction(
    hook: Hook, tmp_path: Path, boundary: Json
) -> None:
    path = tmp_path / "s-1.jsonl"
    rows = [{"message": {"model": "claude-x", "usage": {"input_tokens": 170_000}}}, boundary]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert hook("UserPromptSubmit", {"session_id": "s-1", "transcript_path": str(path)}) is None


@pytest.mark.parametrize("source", ["resume", "fork"])
def test_session_start_adds_notes_only_when_the_resumed_session_was_compacted(
    hook: Hook, tmp_path: Path, source: str
) -> None:
    path = transcript(tmp_path / "s-1.jsonl")
    payload = {"session_id": "s-1", "transcript_path": str(path), "source": source}
    assert hook("SessionStart", payload) is None
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(BOUNDARY) + "\n")
    assert "s-1" in json.dumps(hook("SessionStart", payload))


@pytest.mark.parametrize("host", ["claude-code", "codex", "pi", "opencode"])
def test_id_of_a_resumed_session_finds_the_archived_session(
    hook: Hook, run: Run, tmp_path: Path, host: str
) -> None:
    source = transcript(tmp_path / "s-1.jsonl", turns=40)
    report = json.loads(run("compact", str(source), "--mode", "full", "--resume", host, "--json"))
    resumed, archived = report["resume"], report["session_id"]
    payload = {"session_id": resumed["session_id"], "transcript_path": resumed["path"]}
    if host in {"claude-code", "codex"}:
        answer = hook("SessionStart", {**payload, "source": "resume"}, host)
        assert f'session_id \\"{archived}\\"' in json.dumps(answer)
    if host == "opencode":
        answer = hook("session.compacting", {"session_id": resumed["session_id"]}, host)
        assert f'session_id \\"{archived}\\"' in json.dumps(answer)
    assert archived in run("search", "--session", resumed["session_id"], "tabs")
