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
            timeout=150,
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
    failed = shell("compact", transcript, "--policy", "absent", code=2)
    assert (failed.stdout, "Traceback" in failed.stderr) == ("", False)
    assert "default" in failed.stderr


def test_compact_shows_a_table_by_layer_and_where_to_read(run: Run, transcript: Path) -> None:
    before = transcript.read_bytes()
    done = run("compact", transcript, "--target", "50%", "--session", "s")
    assert done.stdout.startswith("Compacted: 27 -> ")
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


def test_compact_says_when_it_cannot_fit(run: Run, transcript: Path) -> None:
    done = run("compact", transcript, "--target", "20", "--pin", "Never touch the ledger. " * 40)
    assert "Does not fit" in done.stdout
    assert "tokens" in done.stdout.partition("Does not fit")[2]


def test_a_conversation_that_fits_is_left_alone(run: Run, transcript: Path) -> None:
    done = run("compact", transcript, "--window", "1000000")
    assert done.stdout.startswith("Unchanged: ")
    assert "Note: No summary" not in done.stdout


def test_wishes_for_a_summary_say_when_none_was_written(run: Run, transcript: Path) -> None:
    wishes = ("--pin", "Never touch the ledger.", "--instructions", "Keep the ledger.")
    whole = run("compact", transcript, "--window", "1000000", *wishes)
    assert "No summary was needed, so --pin and --instructions changed nothing." in whole.stdout
    cut = run("compact", transcript, "--target", "25%", *wishes)
    assert "changed nothing" not in cut.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["--target", "lots"], 2, "25%"),
        (["--policy", "absent"], 2, "default"),
        (["--format", "absent"], 2, "anthropic"),
        (["--to", "absent"], 2, "anthropic"),
        (["--out", "out.txt"], 2, ".jsonl"),
        (["--out", "session.json"], 2, "input file"),
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
    assert "\n    s\n    27 messages" in run("sessions").stdout
    found = json.loads(run("search", "value_3_17", "--json").stdout)
    pointer = found["hits"][0]["pointer"]
    assert "value_3_17" in run("read", pointer).stdout
    assert "Nowhere found: zzyzx. 0 hits" in run("search", "zzyzx").stderr
    assert "elsewhere in the archive: value_3_17." in run(
        "search", "value_3_17", "--role", "system"
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
    assert run("read", "s/messages/0-2", "--lines", "2").stdout == messages.split("\n")[1] + "\n"
    assert run("read", "s/messages/0-2", "--tail", "1").stdout == messages.split("\n")[-2] + "\n"
    matching = run("read", "s/messages/0-9", "--pattern", "checkout").stdout.split("\n")
    assert matching[0].startswith("1-[0] user ")
    assert matching[1].startswith("2:")


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["read", "o_0123456789abcdef01234567"], 1, "o_0123456789abcdef01234567"),
        (["read", "o_0123456789abcdef01234567"], 1, "mcp-server-compaction search WORDS"),
        (["read", "nonsense"], 2, "no pointer"),
        (["read", "o_0123456789abcdef01234567", "--tail", "1", "--lines", "1"], 2, "at most one"),
        (["search", "x", "--session", "nope"], 1, "no session 'nope'"),
        (["search", "x", "--since", "yesterday"], 2, "ISO 8601"),
        (["compact", "no/such/file.json"], 1, "no/such/file.json is no file and no archived"),
        (["compact", "."], 1, ". is a folder"),
        (["compact", os.devnull], 1, "is no regular file"),
    ],
)
def test_a_failed_lookup_is_explained(
    run: Run, arguments: list[str], code: int, expected: str
) -> None:
    done = run(*arguments, code=code)
    assert expected in done.stderr
    assert done.stdout == ""


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


def test_the_words_of_a_search_need_no_quotation_marks(run: Run, transcript: Path) -> None:
    run("compact", transcript)
    words = str(conversation()[0]["content"]).split()[:3]
    assert run("search", *words).stdout == run("search", " ".join(words)).stdout != ""


@pytest.mark.parametrize("days", ["nan", "inf", "1e300", "0", "-1"])
def test_a_token_is_good_for_days_that_end(run: Run, days: str) -> None:
    done = run("token", "create", "--user", "robin", "--days", days, code=2)
    assert "cannot be good for" in done.stderr
    assert run("token", "list").stdout == ""


def test_a_plan_speaks_of_nothing_that_it_did_not_write(run: Run, transcript: Path) -> None:
    for options in (("--target", "25%"), ()):  # one that would act, and one that would not
        done = run("compact", transcript, *options, "--mode", "plan")
        assert "nothing is written" in done.stdout
        assert "Kept whole" not in done.stdout
        assert "read POINTER" not in done.stdout
        assert run("sessions").stdout == ""


def test_a_second_run_says_that_the_first_compacted_it(run: Run, transcript: Path) -> None:
    count = len(conversation())
    first = run("compact", transcript, "--target", "25%")
    assert "An earlier call" not in first.stdout
    for options in ((), ("--mode", "plan")):
        again = run("compact", transcript, *options)
        assert f"An earlier call brought the first {count} of them down to" in again.stdout
        assert "Compacted" not in again.stdout, "this one did nothing"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_output_that_cannot_be_written_is_one_line_of_complaint(
    transcript: Path, tmp_path: Path
) -> None:
    for arguments in (["doctor"], ["policies"], ["compact", str(transcript)]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "mcp_server_compaction", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                env={**os.environ, "MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive")},
                timeout=150,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr.decode().splitlines() == [
            "Error: What was to be printed cannot be read or written: No space left on device."
        ]


def test_doctor_speaks_of_every_part(run: Run, transcript: Path) -> None:
    assert "made when it is first used" in run("doctor").stdout
    run("compact", transcript, "--mode", "record")
    report = run("doctor").stdout
    for part in ("python", "sqlite", "mcp", "tiktoken", "vocabulary", "1 sessions", "extractive"):
        assert part in report


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_doctor_fails_where_the_archive_cannot_be_opened(run: Run, form: tuple[str, ...]) -> None:
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    assert "PROBLEM" in run("--archive", nobody, "doctor", *form, code=1).stdout


@pytest.mark.parametrize(
    "flags", [("--public-url", "https://compaction.example.org"), ("--port", "1"), ("--metrics",)]
)
def test_what_only_http_has_is_refused_without_it(run: Run, flags: tuple[str, ...]) -> None:
    said = run("serve", *flags, code=2).stderr
    assert flags[0] in said
    assert "--http" in said


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
    assert html.count('<svg xmlns="') == 8  # charts; keys of colours are pictures too
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in html
    for column in ("user turns", "results", "files", "recall", "in context", "re-billed", "cost"):
        assert f">{column}" in html
    assert max(map(len, shown.splitlines()[:20])) <= 80
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize("price", ["nan", "inf"])
def test_compare_refuses_a_price_that_is_no_number(run: Run, transcript: Path, price: str) -> None:
    done = run("compare", transcript, "--price", price, "--json", code=2)
    assert f"--price is {price}" in done.stderr


def test_compare_answers_in_json(run: Run, transcript: Path) -> None:
    done = run("compare", transcript, "--policies", "default", "--window", 8_000, "--json")
    report = json.loads(done.stdout)
    assert report["window"] == 8_000
    without, row = report["policies"]
    assert without["policy"] == "no compaction"
    assert without["tokens_after"] == without["tokens_before"]
    assert without["calls_over"] > 0
    assert row["tokens_after"] < row["tokens_before"]
    assert row["calls_over"] == 0
    assert 0 < row["recall_with_context"] <= row["recall"] <= 1
    assert report["price_usd"] == 3.0
    for column in ("saved_by_layer", "user_turns", "results", "files", "compact_seconds",
                   "rebilled_tokens", "cost_usd"):  # fmt: skip
        assert column in row


def test_compare_refuses_a_policy_that_does_not_exist(run: Run, transcript: Path) -> None:
    done = run("compare", transcript, "--policies", "defualt", code=2)
    assert "There is no policy 'defualt'" in done.stderr


def test_what_is_printed_fits_a_terminal_and_is_accepted_back(run: Run, transcript: Path) -> None:
    session = "0a1b2c3d-0000-4000-8000-123456789abc"
    done = run("compact", transcript, "--target", "12000", "--session", session)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Compacted: ")
    assert lines[1].startswith("Kept whole: session 0a1b2c3d in ")
    assert lines[2].startswith("Look: ")
    table = lines[lines.index(next(line for line in lines if line.startswith("layer "))) :]
    assert max(len(line) for line in table[: table.index("")]) <= 80
    assert max(map(len, run("sessions").stdout.splitlines())) <= 80
    pointer = next(line.strip() for line in table if line.strip().startswith("0a1b2c3d/"))
    assert "checkout test fails" in run("read", pointer).stdout
    assert "checkout" in run("read", "0a1b2c3d/0").stdout
    found = run("search", "value_3_17", "--session", "0a1b").stdout
    assert found.startswith("0a1b2c3d/")
    assert "27 messages" in run("sessions", "--of", "0a1b2c3d").stdout
    assert session in run("pin", "0a1b2c3d").stdout


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


def test_timed_sessions_of_one_minute_are_told_apart_when_printed_short(
    run: Run, transcript: Path
) -> None:
    for at in ("3d4e", "9f00"):
        session = f"019a1b2c-{at}-7000-8000-123456789abc"
        run("compact", transcript, "--mode", "record", "--session", session)
    hits = run("search", "value_3_17").stdout.splitlines()[::2]
    assert {hit.split("/")[0] for hit in hits} == {"019a1b2c-3d4e", "019a1b2c-9f00"}
    for hit in hits:
        assert run("read", hit.split()[0]).stdout


def test_a_plan_with_resume_says_how_to_have_the_session(run: Run, transcript: Path) -> None:
    done = run("compact", transcript, "--mode", "plan", "--resume", "claude-code")
    assert "this was a plan" in done.stdout


def test_a_beginning_that_two_sessions_share_is_refused_with_both(
    run: Run, transcript: Path
) -> None:
    names = [f"0a1b2c3d-0000-4000-8000-12345678900{end}" for end in (1, 2)]
    for name in names:
        run("compact", transcript, "--mode", "record", "--session", name)
    told = run("read", "0a1b2c3d/0", code=2).stderr
    assert all(name in told for name in names)


def test_lists_with_nothing_in_them_say_so_beside_the_answer(run: Run) -> None:
    sessions, tokens = run("sessions"), run("token", "list", "--tenant", "acme")
    assert (sessions.stdout, tokens.stdout) == ("", "")
    assert "No session is archived here yet" in sessions.stderr
    assert "Tenant acme has no tokens" in tokens.stderr


def test_a_token_that_is_revoked_is_named(run: Run) -> None:
    run("token", "create", "--user", "robin")
    (token,) = json.loads(run("token", "list", "--json").stdout)
    assert token["token_id"] in run("token", "revoke", token["token_id"]).stdout


def test_standard_input_is_compacted_and_persisted(shell: Run, tmp_path: Path) -> None:
    own = {"MCP_COMPACTION_ARCHIVE": str(tmp_path / "archive")}

    def piped(text: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "mcp_server_compaction", *arguments]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=150, check=True,
            env={**os.environ, **own},
        ).stdout  # fmt: skip

    receipt = json.loads(piped(json.dumps(conversation()), "compact", "-", "--json"))
    assert receipt["message_count"]["before"] == len(conversation())
    text = "\n".join(f"line {number}" for number in range(2_000))
    stored = json.loads(piped(text, "persist", "-", "--tool", "make", "--json"))
    assert stored["size_bytes"] == len(text)
    assert shell("read", stored["output_id"]).stdout == text
    assert stored["output_id"] in piped(text, "persist")


def test_a_file_that_is_no_text_is_not_persisted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "image.bin").write_bytes(b"\xff\xfe\x00")
    assert "not text" in run("persist", tmp_path / "image.bin", code=2).stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("mcp-server-compaction compact --policy ec", "economy"),
        ("mcp-server-compaction compact --to open", "openai-chat"),
        ("mcp-server-compaction search --session my-s", "my-session"),
        ("mcp-server-compaction ses", "sessions"),
        ("mcp-server-compaction compact my-s", "my-session"),
        ("mcp-server-compaction sessions --of my-s", "my-session"),
        ("mcp-server-compaction compare --policies default,ec", "default,economy"),
    ],
)
def test_a_shell_is_offered_what_fits(
    run: Run, transcript: Path, monkeypatch: pytest.MonkeyPatch, words: str, offered: str
) -> None:
    run("compact", transcript, "--mode", "record", "--session", "my-session")
    assert "_MCP_SERVER_COMPACTION_COMPLETE" in run("completion", "bash").stdout
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    monkeypatch.setenv("_MCP_SERVER_COMPACTION_COMPLETE", "bash_complete")
    done = CliRunner().invoke(
        main, prog_name="mcp-server-compaction", complete_var="_MCP_SERVER_COMPACTION_COMPLETE"
    )
    assert f"plain,{offered}" in done.stdout


def test_help_and_version_are_found_where_people_look(run: Run) -> None:
    assert run("-h").stdout == run("--help").stdout
    assert run("compact", "-h").stdout == run("compact", "--help").stdout
    assert run("version").stdout.startswith("mcp-server-compaction 0.")


def test_a_model_that_is_not_known_is_told(
    run: Run, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "'claud-3' is not known" in run("compact", transcript, "--model", "claud-3").stdout
    monkeypatch.setenv("MCP_COMPACTION_MODEL", "claud-4")
    assert "'claud-4' is not known" in run("compact", transcript).stdout
    assert "not known" not in run("compact", transcript, "--model", "gpt-4o").stdout


def test_commands_answer_in_json(run: Run, transcript: Path) -> None:
    run("compact", transcript, "--mode", "record", "--session", "s")
    assert json.loads(run("doctor", "--json").stdout)["archive"][1].startswith("1 sessions")
    assert json.loads(run("pin", "s", "--json").stdout) == {"sessions": ["s"], "pinned": True}
    assert json.loads(run("delete", "s", "--yes", "--json").stdout)["sessions"] == ["s"]


def test_a_title_is_what_the_person_asked_not_what_the_host_put_before_it(
    run: Run, tmp_path: Path
) -> None:
    texts = [
        "<command-name>/clear</command-name>\n<command-args></command-args>",
        "/mode",
        "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>",
        "<system-reminder>Be brief.</system-reminder>\nMend the <b>ledger</b>.\nThen rest.",
    ]
    messages: list[Json] = []
    for text in texts:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}]
    (tmp_path / "s.json").write_text(json.dumps(messages), encoding="utf-8")
    run("compact", tmp_path / "s.json", "--mode", "record", "--session", "s")
    assert run("sessions").stdout.startswith("Mend the <b>ledger</b>.\n    s\n")
    run("search", "ledger")  # from here on the index gives the title
    assert run("sessions").stdout.startswith("Mend the <b>ledger</b>.\n    s\n")
