"""Commands print results on standard output, and everything else on standard error."""

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

from tests.compaction.pipeline.test_chosen_range import talk
from tests.server.helpers import Json, conversation
from tests.support.story import SUMMARY, story
from tests.support.strict_answers import Says
from tests.support.strict_provider import serve_provider

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process with an empty archive, because a new process starts slowly."""
    monkeypatch.setenv("MCP_COMPACTION_ARCHIVE", str(tmp_path / "archive"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        texts = [str(argument) for argument in arguments]
        result = CliRunner().invoke(main, texts, catch_exceptions=False)
        assert result.exit_code == code, result.stderr
        return subprocess.CompletedProcess(texts, code, result.stdout, result.stderr)

    return run


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps(conversation()), encoding="utf-8")
    return path


def archived_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "archive").rglob("*") if path.is_file()]


def process(
    folder: Path, *arguments: str, stdout: IO[bytes] | int = subprocess.PIPE, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """Run the program in a new process, as a shell does."""
    return subprocess.run(
        [sys.executable, "-m", "mcp_server_compaction", *arguments],
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "MCP_COMPACTION_ARCHIVE": str(folder / "archive")},
        timeout=150,
        check=False,
    )


def test_compact_reads_standard_input_and_prints_json_only(tmp_path: Path) -> None:
    messages = json.dumps(conversation()).encode()
    command = ("compact", "-", "--target", "12000", "--json")
    receipt = json.loads(process(tmp_path, *command, stdin=messages).stdout)
    assert receipt["fits"]
    assert receipt["tokens"]["upper"] <= 12_000
    assert receipt["message_count"]["before"] == len(conversation())


def test_compact_summarizes_only_the_range_in_the_detail(run: Run, tmp_path: Path) -> None:
    messages = talk()
    (tmp_path / "s.json").write_text(json.dumps(messages), encoding="utf-8")
    command = ("compact", "s.json", "--range", "3-10", "--detail", "short")
    receipt = json.loads(run(*command, "--out", "out.json", "--json").stdout)
    assert receipt["range"] == [3, 10]
    out = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert out == [*messages[:3], out[3], *messages[11:]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--range", "3"), "for example 3-10"),
        (("--range", "10-3"), "Pass the first number and then the last"),
        (("--range", "3-99"), "the list has 14 messages"),
        (("--detail", "short", "--target", "900"), "Pass one of them"),
        (("--range", "3-5", "--to", "openai-chat"), "Summarize the range in a separate call"),
    ],
)
def test_compact_refuses_impossible_range(
    run: Run, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "s.json").write_text(json.dumps(talk()), encoding="utf-8")
    assert words in run("compact", "s.json", *options, code=2).stderr


def test_compact_json_contains_every_printed_note(run: Run, tmp_path: Path) -> None:
    secret = "the key is AKIAIOSFODNN7EXAMPLQ"
    messages = [{"role": "user", "content": secret}, {"role": "assistant", "content": "I see."}]
    (tmp_path / "s.json").write_text(json.dumps(messages), encoding="utf-8")
    command = ("compact", "s.json", "--model", "claud-3", "--pin", "Be brief.")
    lines = run(*command).stdout.splitlines()
    report = json.loads(run(*command, "--json", "--session", "other").stdout)
    notes = [line.removeprefix("Note: ") for line in lines if line.startswith("Note: ")]
    assert notes == report["notes"] + report["warnings"]
    assert len(notes) == 3


@pytest.mark.parametrize("is_named", [True, False])
def test_compact_of_an_archived_session_counts_for_its_model(
    run: Run, tmp_path: Path, is_named: bool
) -> None:
    """The model is that of the last call, or else the one in the answers."""
    model = "claude-opus-4-7"
    field = {} if is_named else {"model": model}
    messages = [m | (field if m["role"] == "assistant" else {}) for m in conversation()]
    (tmp_path / "s.json").write_text(json.dumps(messages), encoding="utf-8")
    named = ("--model", model, "--target", "50%") if is_named else ("--mode", "record")
    session_id = json.loads(run("compact", "s.json", *named, "--json").stdout)["session_id"]
    undone = [("undo", session_id)] if is_named else []
    for command in (("compact", session_id), *undone, ("compact", session_id)):
        receipt = json.loads(run(*command, "--json").stdout)
        assert receipt["counted_for"] == model, command


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_compact_writes_all_messages_to_the_out_file(
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


def test_compact_converts_the_messages_when_to_is_given(
    run: Run, transcript: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    run("compact", transcript, "--to", "openai-chat", "--target", "50%", "--out", out)
    messages = json.loads(out.read_text(encoding="utf-8"))
    assert {message["role"] for message in messages} <= {"user", "assistant", "tool", "system"}
    assert any(message["role"] == "tool" for message in messages)


def test_search_command_has_every_argument_of_the_search_tool() -> None:
    names = {option.name for option in search.params}
    assert {*SearchArguments.model_fields} <= names


def test_search_read_and_sessions_show_an_archived_session(run: Run, transcript: Path) -> None:
    run("compact", transcript, "--mode", "record", "--session", "s")
    assert "\n    s\n    27 messages" in run("sessions").stdout
    hits = json.loads(run("search", "value_3_17", "--json").stdout)["hits"]
    pointer = hits[0]["pointer"]
    assert "value_3_17" in run("read", pointer).stdout
    assert "No matches for: zzyzx. Matches: 0" in run("search", "zzyzx", code=1).stderr
    assert "elsewhere in the archive: value_3_17." in run(
        "search", "value_3_17", "--role", "system", code=1
    ).stderr.replace(" 3 17", "_3_17")
    of_file = run("search", "look", "--path", "src/module_3.py").stdout
    assert of_file.count("I look at") == of_file.count("I look at module 3.") == 1
    output = run("search", "value_3_17", "--limit", "1")
    assert output.stdout.startswith("s/")
    assert "value_3_17" in run("read", output.stdout.split()[0]).stdout
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


def test_read_names_the_existing_messages_when_a_range_is_outside(
    run: Run, transcript: Path
) -> None:
    session = json.loads(run("compact", transcript, "--json").stdout)["session_id"]
    count = len(conversation())
    for numbers in (f"{count}", f"{count}-{count + 5}", "999999"):
        result = run("read", f"{session}/{numbers}", code=1)
        assert f"messages 0 to {count - 1}" in result.stderr
    alone = run("read", session, code=2)
    assert f"{session}/0-9" in alone.stderr
    run("read", f"{session}/0-9")


def test_compact_names_no_pointers_of_a_plan_and_reports_an_earlier_compaction(
    run: Run, transcript: Path
) -> None:
    planned = run("compact", transcript, "--target", "25%", "--mode", "plan").stdout
    assert "nothing is written" in planned
    assert "Archived" not in planned
    assert "read POINTER" not in planned
    assert run("sessions").stdout == ""
    assert "Earlier compaction" not in run("compact", transcript, "--target", "25%").stdout
    again = run("compact", transcript).stdout
    assert f"Earlier compaction: replaced the first {len(conversation())} messages by" in again
    assert "Compacted" not in again, "the second run changes nothing"


def test_plan_does_not_say_that_secrets_were_archived(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    key = "ghp_" + "a1B2c3D4e5" * 4
    path.write_text(json.dumps([{"role": "user", "content": key[:40]}]), encoding="utf-8")
    planned = run("compact", path, "--mode", "plan").stdout
    assert "A compaction archives possible secrets unchanged" in " ".join(planned.split())
    assert not any(key[:40].encode() in p.read_bytes() for p in archived_files(tmp_path))
    done = run("compact", path).stdout
    assert "archived possible secrets unchanged" in " ".join(done.split())
    assert any(key[:40].encode() in p.read_bytes() for p in archived_files(tmp_path))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_error_is_one_line_when_the_output_cannot_be_written(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = process(tmp_path, "policies", stdout=full)
    assert result.returncode == 1
    assert result.stderr.decode().splitlines() == [
        "Error: Cannot read or write the output: No space left on device."
    ]


def test_doctor_checks_every_part_of_the_program(
    run: Run, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server_compaction.hosts.checking.TOTAL_SECONDS", 150)
    assert "created on first use" in run("doctor").stdout
    run("compact", transcript, "--mode", "record")
    report = json.loads(run("doctor", "--json").stdout)
    assert report["archive"][1].startswith("1 sessions, 27 messages")
    assert {"python", "sqlite", "vocabulary", "roots", "summary writers"} <= report.keys()
    unreachable = "postgresql://nobody@127.0.0.1:1/nothing"
    assert "PROBLEM" in run("--archive", unreachable, "doctor", code=1).stdout
    assert "PROBLEM" in run("--archive", unreachable, "doctor", "--json", code=1).stdout


def test_doctor_names_the_command_that_installs_the_package_for_a_database(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from mcp_server_compaction.__main__ import run; run()"
    )
    address = "postgresql://nobody@127.0.0.1:1/nothing"
    done = subprocess.run(
        [sys.executable, "-c", code, "--archive", address, "doctor"],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    assert "PROBLEM: An archive in PostgreSQL needs the package psycopg." in done.stdout
    assert "pip install 'mcp-server-compaction[postgres]'\n" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "step"),
    [("undo", "Undoing: 20%  read"), ("compact --mode plan", "Planning: 20%  read")],
)
def test_progress_says_what_the_command_does(
    run: Run, transcript: Path, monkeypatch: pytest.MonkeyPatch, words: str, step: str
) -> None:
    monkeypatch.setattr("mcp_server_compaction.cli.terminal.PROGRESS_SECONDS", 0)
    run("compact", transcript, "--mode", "full")
    lines = run(*words.split(), transcript).stderr.splitlines()
    assert lines[0] == step
    assert lines[-1].partition(":")[0] == step.partition(":")[0]
    assert "100%" in lines[-1]


def test_compact_calls_a_model_only_when_it_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "story.json"
    path.write_text(json.dumps(story()), encoding="utf-8")
    command = ("compact", path, "--mode", "full", "--target", "8000")
    with serve_provider(lambda _: Says(SUMMARY)) as api:
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        server = ("--summarizer-url", f"{api.url}/v1", "--summarizer-key-env", "OPENAI_API_KEY")
        flags = (*server, "--summarizer-model", "qwen3:8b", "--summarizer-window", "32000")
        result = run(*flags, *command, "--session", "b")
        without_name = run(*command)
    assert "Summary written by: openai (qwen3:8b)\n" in result.stdout
    assert "Summary written by: extractive\n" in without_name.stdout
    assert len(api.requests) == 1
    failed = run(*flags, *command, "--session", "c")
    assert "The summary consists of verbatim extracts" in failed.stdout
    assert "test-key" not in result.stdout + failed.stdout + failed.stderr


def test_compare_reports_every_policy_and_creates_no_archive(
    run: Run, transcript: Path, tmp_path: Path
) -> None:
    command = ("compare", transcript, "--policies", "default", "--window", 8_000)
    output = run(*command).stdout
    for column in ("too long", "recall", "cached", "re-billed", "cost"):
        assert column in output
    assert max(map(len, output.splitlines()[:12])) <= 80
    conclusion = output.splitlines()[-1]
    assert conclusion.startswith("default would have cost $")
    assert "of the names that the model used again" in conclusion
    report = json.loads(run(*command, "--json").stdout)
    assert (report["window"], report["price_usd"]) == (8_000, 3.0)
    without, row = report["policies"]
    assert without["policy"] == "no compaction"
    assert without["tokens_after"] == without["tokens_before"]
    assert without["replay"]["calls_over"] > row["replay"]["calls_over"] == 0
    assert row["tokens_after"] < row["tokens_before"]
    assert 0 < row["recall"] <= 1
    assert not (tmp_path / "archive").exists()


def test_compare_names_unreadable_lines(run: Run, transcript: Path, tmp_path: Path) -> None:
    lines = [json.dumps(message) for message in json.loads(transcript.read_text("utf-8"))]
    torn = tmp_path / "torn.jsonl"
    torn.write_text("\n".join([*lines[:9], "{torn", *lines[9:]]), "utf-8")
    command = ("compare", torn, "--policies", "default", "--window", 8_000)
    assert "Note: line 10 is no JSON object and is skipped" in run(*command).stdout
    [note] = json.loads(run(*command, "--json").stdout)["notes"]
    assert note.startswith("line 10 ")


def test_compact_prints_short_pointers_that_read_accepts(run: Run, transcript: Path) -> None:
    session = "0a1b2c3d-0000-4000-8000-123456789abc"
    before = transcript.read_bytes()
    lines = run("compact", transcript, "--target", "12000", "--session", session).stdout.split("\n")
    assert transcript.read_bytes() == before
    assert lines[0].startswith("Compacted: 27 -> ")
    assert lines[1].startswith("Archived: session 0a1b2c3d (all messages) in ")
    table = lines[lines.index(next(line for line in lines if line.startswith("layer "))) :]
    # The line after the rows contains the program's path, which may be long.
    assert max(len(line) for line in table[: table.index("") - 1]) <= 80
    assert max(map(len, run("sessions").stdout.splitlines())) <= 80
    words = {word for line in table for word in line.split()}
    for pointer in words:
        if pointer.startswith(("0a1b2c3d/", "o_")):
            assert run("read", pointer).stdout
    assert "checkout" in run("read", "0a1b2c3d/0").stdout
    # The hit may also be an output that the compaction stored.
    hits = run("search", "value_3_17", "--session", "0a1b").stdout.splitlines()
    assert any(line.startswith("0a1b2c3d/") for line in hits)
    assert session in run("pin", "0a1b2c3d").stdout
    run("compact", transcript, "--mode", "record", "--session", f"{session[:-1]}d")
    error = run("read", "0a1b2c3d/0", code=2).stderr
    assert session in error
    assert f"{session[:-1]}d" in error


def test_compact_lists_the_pieces_that_cannot_shrink(run: Run, transcript: Path) -> None:
    result = run("compact", transcript, "--target", "20", "--pin", "Never touch the ledger. " * 40)
    assert "tokens" in result.stdout.partition("Does not fit")[2]


def test_token_commands_create_list_and_revoke_tokens(run: Run) -> None:
    assert "Tenant acme has no tokens" in run("token", "list", "--tenant", "acme").stderr
    for days in ("nan", "1e300", "0", "-1"):
        error = run("token", "create", "--user", "robin", "--days", days, code=2).stderr
        assert "Invalid number of days" in error
    run("token", "create", "--user", "robin")
    (token,) = json.loads(run("token", "list", "--json").stdout)
    assert "secret_hash" not in token
    assert token["token_id"] in run("token", "revoke", token["token_id"]).stdout
    assert run("token", "list").stdout == ""


def test_policies_lists_names_and_constants(run: Run) -> None:
    assert "trigger_tokens=50000" in run("policies").stdout
    document = json.loads(run("policies", "--json").stdout)
    assert "default" in [policy["name"] for policy in document["policies"]]


def test_commands_that_serve_nothing_do_not_import_mcp() -> None:
    code = (
        "import sys\n"
        "from mcp_server_compaction.cli import archive, compacting, hosts, policies, storage\n"
        "print(*sorted({'mcp', 'mcp_types', 'starlette'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150
    )
    assert done.stdout.strip() == ""


def test_next_steps_name_a_program_that_the_shell_finds(tmp_path: Path) -> None:
    environment = {**os.environ, "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive"), "PATH": ""}
    command = [sys.executable, "-m", "mcp_server_compaction", "sessions"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=150, check=True
    )
    assert done.stderr.endswith(f"run: {sys.executable} -m mcp_server_compaction import\n")


def test_read_restores_content_to_a_new_file(run: Run, transcript: Path, tmp_path: Path) -> None:
    run("compact", transcript, "--target", "12000", "--session", "s")
    restored = tmp_path / "restored.txt"
    assert "Restored to" in run("read", "s/2", "--json", "--save", restored).stdout
    assert json.loads(restored.read_text("utf-8")) == conversation()[2]
    assert "exists" in run("read", "s/2", "--save", restored, code=1).stderr
    run("read", "s/999", "--save", tmp_path / "none.txt", code=1)
    assert not (tmp_path / "none.txt").exists()


def test_search_prints_equal_passages_once(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(story(turns=1)), encoding="utf-8")
        run("compact", path, "--mode", "record", "--session", name)
    lines = run("search", "INV-4711 invoices March rounded", "--role", "user").stdout.split("\n")
    assert sum("rounded wrongly" in line for line in lines) == 1
    assert sum("same text as" in line for line in lines) == 1


def test_help_lists_each_command_with_a_whole_sentence(run: Run) -> None:
    commands = run("--help").stdout.partition("Commands:")[2]
    assert "..." not in commands
    assert "Archive session files of Claude Code, Codex and pi" in " ".join(commands.split())
