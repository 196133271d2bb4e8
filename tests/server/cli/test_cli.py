"""The command line: answers on standard output, everything else beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from mcp_server_compaction.cli import main

from tests.server.helpers import Json, conversation
from tests.support.messages_api import Says, serve
from tests.support.story import SUMMARY, story

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line with an archive of its own; here, since a process starts slowly."""
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        texts = [str(argument) for argument in arguments]
        done = CliRunner().invoke(main, texts, catch_exceptions=False)
        assert done.exit_code == code, done.stderr
        return subprocess.CompletedProcess(texts, code, done.stdout, done.stderr)

    return run


@pytest.fixture
def shell(tmp_path: Path) -> Run:
    """The same in a process of its own, as a shell starts it."""
    own = {
        "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }

    def run(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "mcp_server_compaction", *map(str, arguments)],
            capture_output=True,
            env={**os.environ, **own},
            cwd=tmp_path,
            text=True,
            encoding="utf-8",
            timeout=50,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    return path


def test_a_process_answers_on_its_output_alone_and_complains_beside_it(
    shell: Run, transcript: Path
) -> None:
    done = shell("compact", transcript, "--target", "12000", "--json")
    assert json.loads(done.stdout)["fits"]
    failed = shell("compact", transcript, "--policy", "absent", code=1)
    assert (failed.stdout, "Traceback" in failed.stderr) == ("", False)
    assert "default" in failed.stderr


def test_compact_shows_a_table_by_layer_and_where_to_read(run: Run, transcript: Path) -> None:
    before = transcript.read_bytes()
    done = run("compact", transcript, "--target", "50%", "--session", "s")
    assert "compacted" in done.stdout
    assert "microcompact" in done.stdout
    pointer = next(word for word in done.stdout.split() if word.startswith("o_"))
    read = run("read", pointer)
    assert read.stdout in {
        message["content"][0]["content"]
        for message in conversation()
        if isinstance(message["content"], list) and message["role"] == "user"
    }
    assert transcript.read_bytes() == before


def test_compact_prints_its_receipt_as_json_alone(run: Run, transcript: Path) -> None:
    receipt = json.loads(run("compact", transcript, "--target", "12000", "--json").stdout)
    assert receipt["fits"]
    assert receipt["tokens"]["upper"] <= 12_000
    assert receipt["message_count"]["after"] <= receipt["message_count"]["before"]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_compact_writes_the_messages_whole(
    run: Run, transcript: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"out{suffix}"
    run("compact", transcript, "--target", "25%", "--out", out)
    text = out.read_text(encoding="utf-8")
    messages: list[Json] = (
        [json.loads(line) for line in text.splitlines()] if suffix == ".jsonl" else json.loads(text)
    )
    assert messages[-1] == conversation()[-1]
    assert [path.name for path in tmp_path.glob("out*")] == [out.name]
    again = json.loads(run("compact", out, "--json").stdout)
    assert again["status"] == "unchanged"


def test_compact_converts_before_it_compacts(run: Run, transcript: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run("compact", transcript, "--to", "openai-chat", "--target", "50%", "--out", out)
    messages = json.loads(out.read_text(encoding="utf-8"))
    assert {message["role"] for message in messages} <= {"user", "assistant", "tool", "system"}
    assert any(message["role"] == "tool" for message in messages)


def test_compact_says_when_it_cannot_fit(run: Run, transcript: Path) -> None:
    done = run("compact", transcript, "--target", "20", "--pin", "Never touch the ledger. " * 40)
    assert "Does not fit" in done.stdout
    assert "tokens" in done.stdout.partition("Does not fit")[2]


def test_a_conversation_that_fits_is_left_alone(run: Run, transcript: Path) -> None:
    done = run("compact", transcript, "--window", "1000000")
    assert "unchanged" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--target", "lots"], 1, "25%"),
        (["--policy", "absent"], 1, "default"),
        (["--format", "absent"], 1, "anthropic"),
        (["--to", "absent"], 1, "anthropic"),
        (["--out", "out.txt"], 1, ".jsonl"),
        (["--out", "session.json"], 1, "input file"),
        (["--window", "0"], 2, "--window"),
        (["--nonsense"], 2, "--nonsense"),
    ],
)
def test_a_wrong_option_is_explained_without_a_traceback(
    run: Run, transcript: Path, arguments: list[str], code: int, expected: str
) -> None:
    before = transcript.read_bytes()
    done = run("compact", transcript, *arguments, code=code)
    assert expected in done.stderr
    assert done.stdout == ""
    assert transcript.read_bytes() == before


def test_a_file_that_is_no_conversation_is_explained(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("just notes", encoding="utf-8")
    assert "notes.txt" in run("compact", tmp_path / "notes.txt", code=1).stderr


def test_the_archive_is_searched_read_and_listed(run: Run, transcript: Path) -> None:
    run("compact", transcript, "--mode", "record", "--session", "s")
    assert "s  " in run("sessions").stdout
    found = json.loads(run("search", "value_3_17", "--json").stdout)
    pointer = found["hits"][0]["pointer"]
    assert "value_3_17" in run("read", pointer).stdout
    assert "Nowhere found: zzyzx. 0 hits" in run("search", "zzyzx").stderr
    assert "elsewhere in the archive: value_3_17." in run(
        "search", "value_3_17", "--role", "system"
    ).stderr.replace(" 3 17", "_3_17")
    shown = run("search", "value_3_17", "--limit", "1")
    assert pointer in shown.stdout
    exact = run("read", "transcript://s/messages/0-2", "--json").stdout
    assert [json.loads(line) for line in exact.splitlines()] == conversation()[:3]
    messages = run("read", "transcript://s/messages/0-2").stdout
    assert "\nI look at module 0.\n> Bash call_0\ncommand: cat src/module_0.py\n" in messages
    assert "\n< result Bash call_0\nline 1 of module_0: value_0_1 = compute(7)\n" in messages
    assert run("read", "s/messages/0-2", "--lines", "2").stdout == messages.split("\n")[1] + "\n"
    assert run("read", "s/messages/0-2", "--tail", "1").stdout == messages.split("\n")[-2] + "\n"
    assert run("read", "s/messages/0-9", "--pattern", "checkout").stdout.startswith("2:")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["read", "o_0123456789abcdef01234567"], "o_0123456789abcdef01234567"),
        (["read", "o_0123456789abcdef01234567"], "mcp-server-compaction search WORDS"),
        (["read", "nonsense"], "no pointer"),
        (["read", "o_0123456789abcdef01234567", "--tail", "1", "--lines", "1"], "at most one"),
        (["search", "x", "--session", "nope"], "no session 'nope'"),
        (["search", "x", "--since", "yesterday"], "ISO 8601"),
    ],
)
def test_a_failed_lookup_is_explained(run: Run, arguments: list[str], expected: str) -> None:
    done = run(*arguments, code=1)
    assert expected in done.stderr
    assert done.stdout == ""


def test_doctor_speaks_of_every_part(run: Run, transcript: Path) -> None:
    assert "made when it is first used" in run("doctor").stdout
    run("compact", transcript, "--mode", "record")
    report = run("doctor").stdout
    for part in ("python", "sqlite", "mcp", "tiktoken", "vocabulary", "1 sessions", "extractive"):
        assert part in report


def test_the_command_line_lets_a_model_write_where_it_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "story.json"
    path.write_text(json.dumps(story()), encoding="utf-8")
    wish = ("compact", path, "--mode", "full", "--target", "8000")
    assert "answered" not in run(*wish, "--session", "a").stdout
    with serve(lambda _: Says(SUMMARY)) as api:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        address = ("--summary-url", api.url, "--summary-model", "m", "--summary-timeout", "100")
        flags = ("--summarizer", "anthropic", *address)
        done = run(*flags, *wish, "--session", "b")
        unchosen = run(*address, *wish)
    assert "Summary written by: anthropic (m)." in done.stdout
    assert "m answered 1 requests" in done.stdout
    assert "Summary written by: extractive." in unchosen.stdout
    assert "answered" not in unchosen.stdout
    assert len(api.requests) == 1
    failed = run(*flags, *wish, "--session", "c")
    assert "Verbatim extracts stand in the summary" in failed.stdout
    assert "test-key" not in done.stdout + failed.stdout + failed.stderr


def test_a_root_that_is_no_folder_is_a_usage_error(run: Run) -> None:
    assert "not a folder" in run("--root", "/absent", "doctor", code=2).stderr


def test_the_version_is_told(run: Run) -> None:
    assert "mcp-server-compaction" in run("--version").stdout


def test_policies_lists_each_with_its_source_and_constants(run: Run) -> None:
    shown = run("policies").stdout
    assert "claude-code (S0, and the production constants in S3)" in shown
    assert "trigger_tokens=50000" in shown
    document = json.loads(run("policies", "--json").stdout)
    assert [policy["name"] for policy in document["policies"]][:2] == ["default", "economy"]


def test_compare_shows_policies_side_by_side_and_leaves_the_archive_alone(
    run: Run, transcript: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    shown = run("compare", transcript, "--policies", "default,three-layer", "--html", page).stdout
    assert "default" in shown
    assert "three-layer" in shown
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 8
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in html
    for column in ("user turns", "results", "files", "recall", "in context", "re-billed", "cost"):
        assert f">{column}" in html
    assert not (tmp_path / "archive").exists()


def test_compare_answers_in_json(run: Run, transcript: Path) -> None:
    done = run("compare", transcript, "--policies", "default", "--window", 8_000, "--json")
    report = json.loads(done.stdout)
    assert report["window"] == 8_000
    [row] = report["policies"]
    assert row["tokens_after"] < row["tokens_before"]
    assert row["calls_over"] == 0
    assert 0 < row["recall_with_context"] <= row["recall"] <= 1
    assert report["price_usd"] == 3.0
    for column in ("saved_by_layer", "user_turns", "results", "files", "compact_seconds",
                   "rebilled_tokens", "cost_usd"):  # fmt: skip
        assert column in row


def test_compare_refuses_a_policy_that_does_not_exist(run: Run, transcript: Path) -> None:
    done = run("compare", transcript, "--policies", "defualt", code=1)
    assert "There is no policy 'defualt'" in done.stderr
