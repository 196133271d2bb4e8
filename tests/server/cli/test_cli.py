"""The command line: answers on standard output, everything else beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner
from mcp_server_compaction.cli import main
from mcp_server_compaction.cli.archive import search
from mcp_server_compaction.protocol.schemas import SearchArguments

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
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    return path


def process(
    folder: Path, *arguments: str, stdout: IO[bytes] | int = subprocess.PIPE, given: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """The program in a process of its own, as a shell starts it."""
    return subprocess.run(
        [sys.executable, "-m", "mcp_server_compaction", *arguments],
        input=given,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "MCP_COMPACTION_ARCHIVE": str(folder / "archive")},
        timeout=150,
        check=False,
    )


def test_a_process_reads_its_input_and_answers_on_its_output_alone(tmp_path: Path) -> None:
    said = json.dumps(conversation()).encode()
    wish = ("compact", "-", "--target", "12000", "--json")
    receipt = json.loads(process(tmp_path, *wish, given=said).stdout)
    assert receipt["fits"]
    assert receipt["tokens"]["upper"] <= 12_000
    assert receipt["message_count"]["before"] == len(conversation())


def test_json_has_every_note_that_a_person_is_shown(run: Run, tmp_path: Path) -> None:
    secret = "the key is AKIAIOSFODNN7EXAMPLQ"  # of no account
    said = [{"role": "user", "content": secret}, {"role": "assistant", "content": "I see."}]
    (tmp_path / "s.json").write_text(json.dumps(said), encoding="utf-8")
    wishes = ("compact", "s.json", "--model", "claud-3", "--pin", "Be brief.")
    shown = run(*wishes).stdout.splitlines()
    told = json.loads(run(*wishes, "--json", "--session", "other").stdout)
    notes = [line.removeprefix("Note: ") for line in shown if line.startswith("Note: ")]
    assert notes == told["notes"] + told["warnings"]
    assert len(notes) == 3


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


def test_every_argument_of_the_search_tool_is_an_option_of_the_command() -> None:
    assert {*SearchArguments.model_fields} <= {option.name for option in search.params}


def test_the_archive_is_searched_read_and_listed(run: Run, transcript: Path) -> None:
    run("compact", transcript, "--mode", "record", "--session", "s")
    assert "\n    s\n    27 messages" in run("sessions").stdout
    found = json.loads(run("search", "value_3_17", "--json").stdout)
    pointer = found["hits"][0]["pointer"]
    assert "value_3_17" in run("read", pointer).stdout
    assert "No matches for: zzyzx. 0 hits" in run("search", "zzyzx", code=1).stderr
    assert "elsewhere in the archive: value_3_17." in run(
        "search", "value_3_17", "--role", "system", code=1
    ).stderr.replace(" 3 17", "_3_17")
    of_file = run("search", "look", "--path", "src/module_3.py").stdout
    assert of_file.count("I look at") == of_file.count("I look at module 3.") == 1
    shown = run("search", "value_3_17", "--limit", "1")
    assert shown.stdout.startswith("s/")
    assert "value_3_17" in run("read", shown.stdout.split()[0]).stdout
    exact = run("read", "transcript://s/messages/0-2", "--json").stdout
    assert [json.loads(line) for line in exact.splitlines()] == conversation()[:3]
    messages = run("read", "transcript://s/messages/0-2").stdout
    assert "\nI look at module 0.\n> Bash call_0\ncommand: cat src/module_0.py\n" in messages
    assert "\n< result Bash call_0\nline 1 of module_0: value_0_1 = compute(7)\n" in messages


def test_import_reports_progress_on_a_pipe(
    run: Run, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server_compaction.cli.terminal.PROGRESS_SECONDS", 0)
    assert "Importing: 0%  session.json\n" in run("import", transcript).stderr


def test_what_a_session_does_not_have_is_explained_not_left_blank(
    run: Run, transcript: Path
) -> None:
    session = json.loads(run("compact", transcript, "--json").stdout)["session_id"]
    count = len(conversation())
    for numbers in (f"{count}", f"{count}-{count + 5}", "999999"):
        done = run("read", f"{session}/{numbers}", code=1)
        assert f"messages 0 to {count - 1}" in done.stderr
    alone = run("read", session, code=2)
    assert f"{session}/0-9" in alone.stderr
    run("read", f"{session}/0-9")


def test_a_plan_speaks_of_nothing_that_it_did_not_write_and_a_second_run_of_the_first(
    run: Run, transcript: Path
) -> None:
    planned = run("compact", transcript, "--target", "25%", "--mode", "plan").stdout
    assert "nothing is written" in planned
    assert "Kept whole" not in planned
    assert "read POINTER" not in planned
    assert run("sessions").stdout == ""
    assert "An earlier call" not in run("compact", transcript, "--target", "25%").stdout
    again = run("compact", transcript).stdout
    assert f"An earlier call brought the first {len(conversation())} of them down to" in again
    assert "Compacted" not in again, "this one did nothing"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_output_that_cannot_be_written_is_one_line_of_complaint(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = process(tmp_path, "policies", stdout=full)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "Error: What was to be printed cannot be read or written: No space left on device."
    ]


def test_doctor_checks_every_part(run: Run, transcript: Path) -> None:
    assert "made when it is first used" in run("doctor").stdout
    run("compact", transcript, "--mode", "record")
    report = json.loads(run("doctor", "--json").stdout)
    assert report["archive"][1].startswith("1 sessions, 27 messages")
    assert {"python", "sqlite", "vocabulary", "roots", "summary writers"} <= report.keys()
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    assert "PROBLEM" in run("--archive", nobody, "doctor", code=1).stdout
    assert "PROBLEM" in run("--archive", nobody, "doctor", "--json", code=1).stdout


def test_the_command_line_lets_a_model_write_where_it_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "story.json"
    path.write_text(json.dumps(story()), encoding="utf-8")
    wish = ("compact", path, "--mode", "full", "--target", "8000")
    with serve(lambda _: Says(SUMMARY)) as api:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        address = ("--summary-url", api.url, "--summary-model", "m", "--summary-timeout", "100")
        flags = ("--summarizer", "anthropic", *address)
        done = run(*flags, *wish, "--session", "b")
        unchosen = run(*address, *wish)
    assert "Summary written by: anthropic (m)." in done.stdout
    assert "Summary written by: extractive." in unchosen.stdout
    assert len(api.requests) == 1
    failed = run(*flags, *wish, "--session", "c")
    assert "The summary consists of verbatim extracts" in failed.stdout
    assert "test-key" not in done.stdout + failed.stdout + failed.stderr


def test_compare_shows_policies_side_by_side_and_leaves_the_archive_alone(
    run: Run, transcript: Path, tmp_path: Path
) -> None:
    wish = ("compare", transcript, "--policies", "default", "--window", 8_000)
    shown = run(*wish).stdout
    for column in ("user turns", "results", "files", "recall", "in context", "re-billed", "cost"):
        assert column in shown
    assert max(map(len, shown.splitlines()[:12])) <= 80
    report = json.loads(run(*wish, "--json").stdout)
    assert (report["window"], report["price_usd"]) == (8_000, 3.0)
    without, row = report["policies"]
    assert without["policy"] == "no compaction"
    assert without["tokens_after"] == without["tokens_before"]
    assert without["calls_over"] > row["calls_over"] == 0
    assert row["tokens_after"] < row["tokens_before"]
    assert 0 < row["recall_with_context"] <= row["recall"] <= 1
    assert not (tmp_path / "archive").exists()


def test_what_is_printed_fits_a_terminal_and_is_accepted_back(run: Run, transcript: Path) -> None:
    session = "0a1b2c3d-0000-4000-8000-123456789abc"
    before = transcript.read_bytes()
    lines = run("compact", transcript, "--target", "12000", "--session", session).stdout.split("\n")
    assert transcript.read_bytes() == before
    assert lines[0].startswith("Compacted: 27 -> ")
    assert lines[1].startswith("Kept whole: session 0a1b2c3d in ")
    table = lines[lines.index(next(line for line in lines if line.startswith("layer "))) :]
    assert max(len(line) for line in table[: table.index("")]) <= 80
    assert max(map(len, run("sessions").stdout.splitlines())) <= 80
    words = {word for line in table for word in line.split()}
    for pointer in words:
        if pointer.startswith(("0a1b2c3d/", "o_")):
            assert run("read", pointer).stdout
    assert "checkout" in run("read", "0a1b2c3d/0").stdout
    assert run("search", "value_3_17", "--session", "0a1b").stdout.startswith("0a1b2c3d/")
    assert session in run("pin", "0a1b2c3d").stdout
    run("compact", transcript, "--mode", "record", "--session", f"{session[:-1]}d")
    both = run("read", "0a1b2c3d/0", code=2).stderr
    assert session in both
    assert f"{session[:-1]}d" in both


def test_what_cannot_shrink_is_named(run: Run, transcript: Path) -> None:
    done = run("compact", transcript, "--target", "20", "--pin", "Never touch the ledger. " * 40)
    assert "tokens" in done.stdout.partition("Does not fit")[2]


def test_tokens_are_made_listed_and_revoked(run: Run) -> None:
    assert "Tenant acme has no tokens" in run("token", "list", "--tenant", "acme").stderr
    for days in ("nan", "1e300", "0", "-1"):
        said = run("token", "create", "--user", "robin", "--days", days, code=2).stderr
        assert "cannot be good for" in said
    run("token", "create", "--user", "robin")
    (token,) = json.loads(run("token", "list", "--json").stdout)
    assert "secret_hash" not in token
    assert token["token_id"] in run("token", "revoke", token["token_id"]).stdout
    assert run("token", "list").stdout == ""


def test_the_policies_are_listed(run: Run) -> None:
    assert "trigger_tokens=50000" in run("policies").stdout
    document = json.loads(run("policies", "--json").stdout)
    assert "default" in [policy["name"] for policy in document["policies"]]


def test_a_conversion_does_not_take_the_short_name_of_its_session(
    run: Run, transcript: Path
) -> None:
    session = "0a1b2c3d-0000-4000-8000-123456789abc"
    for name in (session, f"{session}.openai-chat"):
        run("compact", transcript, "--mode", "record", "--session", name)
    listed = run("sessions", "--json").stdout.splitlines()
    assert len(listed) == 2
    for pointer in ("0a1b2c3d/0-3", f"{session}.openai-chat/0-3"):
        assert run("read", pointer).stdout
    hits = run("search", "value_3_17").stdout.splitlines()[::2]
    assert {hit.split("/")[0] for hit in hits} == {"0a1b2c3d", f"{session}.openai-chat"}
    for hit in hits:
        run("read", hit.split()[0])
    assert run("pin", "0a1b2c3d").stdout == f"Kept: {session}\n"
