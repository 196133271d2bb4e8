"""What the writer without a model keeps: what binds, and what must not be repeated."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest
from context_compaction import formats
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.summarizers.extractive.said import ends_of, pieces_of, telling_of
from context_compaction.tokens.counter import counter_for
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cpu_time import assert_growth
from tests.support.json_types import Json
from tests.support.small import agent as assistant
from tests.support.small import answered, holds_as_said_last, user

COUNT = counter_for("gpt-4o")
NOISE = "\n".join(f"line {n}: module_{n}.py compiled in {n * 7} ms" for n in range(400))

RULES = (
    "Never touch the billing tables.",
    "I am allergic to peanuts, so no meal with nuts.",
    "Bitte keine neuen Abhängigkeiten einführen.",
    "Nunca borres los registros de auditoría.",
    "Не трогай каталог с миграциями.",
    "不要修改配置文件里的端口号。",
    "本番環境には絶対に接続しないでください。",
)


def written(
    messages: list[Json],
    max_tokens: int = 500,
    later: list[Json] | None = None,
    instructions: str = "",
) -> str:
    parsed = formats.parse(messages, format="anthropic")
    after = formats.parse(later, format="anthropic") if later else ()
    request = SummaryInput(parsed, max_tokens, later=after, instructions=instructions)
    return writer.write(request, COUNT)


def ran(call_id: str, command: str, output: str) -> list[Json]:
    return answered(call_id, "bash", output, command=command)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_the_user_is_kept_word_for_word(rule: str) -> None:
    talk = [user("Fix the build."), *ran("a", "make", NOISE), user(rule), assistant("Understood.")]
    talk += [*ran("b", "make test", NOISE), user("Go on."), assistant("I go on.")]
    assert rule in written(talk)


def test_a_corrected_rule_is_marked_and_the_newer_one_stays() -> None:
    older, newer = "The service must listen on port 8080.", "It must listen on port 9191 instead."
    text = written([
        user(older), assistant("Understood."), user(newer.replace("It", "The service")),
        assistant("Understood."),
    ])  # fmt: skip
    assert "9191" in text
    assert f"(changed: [2]) {older}" in text


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The project is called Falcon.", "It was renamed, don't call the project Falcon."),
        ("We host in Frankfurt.", "We host in Dublin now."),
        ("The demo is on March 12.", "They pushed the demo to March 19."),
        ("Retry three times before giving up.", "Make that five retries before giving up."),
        ("El límite es de 20 usuarios.", "El límite sube a 35 usuarios."),
        ("默认端口是3000。", "默认端口现在是4000。"),
    ],
)
def test_a_rule_said_anew_in_other_words_is_never_told_as_the_last_word(
    older: str, newer: str
) -> None:
    text = written([user(older), assistant("Understood."), user(newer), assistant("Understood.")])
    assert newer in text
    assert holds_as_said_last(older, newer, text)


def test_two_rules_of_one_form_both_stand() -> None:
    rules = "Don't touch the vendor folder.", "Don't touch the build folder."
    assert_both_stand(*rules)


def test_two_rules_on_one_subject_both_stand() -> None:
    assert_both_stand("The nightly dumps stay encrypted.", "The nightly dumps belong in Backblaze.")


def assert_both_stand(*rules: str) -> None:
    text = written([user(rules[0]), assistant("Understood."), user(rules[1]), assistant("Yes.")])
    assert all(rule in text for rule in rules)


def test_who_asks_whether_to_change_a_rule_has_not_changed_it() -> None:
    rule = "Ship the parcel to 12 Elm Street."
    talk = [user(rule), assistant("Understood."), user("Could we ship it to 9 Oak Avenue instead?")]
    assert rule in written([*talk, assistant("We could.")])


def test_a_sentence_is_whole_across_an_abbreviation() -> None:
    rule = "Call me Robin, not Mr. Carter."
    talk = [user("Fix the build."), assistant("On it."), user(rule), assistant("Understood.")]
    assert rule in written([*talk, user("Go on."), assistant("I go on.")])


def test_rules_said_in_one_breath_stay_side_by_side() -> None:
    rule = "The staging database belongs to the data team. Don't write to it."
    talk = [user("Fix the build."), assistant("On it."), user(rule), assistant("Understood.")]
    assert rule in written([*talk, user("Go on."), assistant("I go on.")])


def test_chatter_gives_way_to_what_binds() -> None:
    rule = "Amounts are in thousands."
    chatter = [
        message
        for said in ("Thanks!", "Great, go ahead.", "Can you check that?", "I see, thank you.")
        for message in (user(said), assistant("Done."))
    ]
    text = written([*chatter, user(rule), assistant("Understood."), *chatter * 4], max_tokens=60)
    assert rule in text


@pytest.mark.parametrize(
    "fact", ["I can't do calls before 10:30, the school run.", "I'm vegetarian but fish is fine."]
)
def test_what_the_user_never_does_goes_before_what_he_cannot_do_just_now(fact: str) -> None:
    moment = [
        message
        for said in (
            "I can't find the number of my reservation right now.",
            "I'm not sure which of the two flights it was.",
            "I don't remember the name that it was booked under.",
        )
        for message in (user(said), assistant("Let me look it up for you."))
    ]
    text = written([user(fact), assistant("Understood."), *moment * 2], max_tokens=60)
    assert fact in text


def test_an_instruction_after_pasted_output_is_told_from_it() -> None:
    log = "\n".join(f"2026-01-0{n} 10:00:00 INFO must never happen {n}" for n in range(1, 9)) * 3
    rule = "Logs older than 30 days go in the bin."
    talk = [user("Go."), assistant("On it."), user(f"{log}\n\n{rule}"), assistant("Understood.")]
    assert rule in written([*talk, user("Go on."), assistant("I go on.")], max_tokens=120)


def test_a_rule_that_a_kept_request_corrects_is_marked() -> None:
    older = "Always store the uploads in the bucket acme-raw."
    newer = "From now on store the uploads in the bucket acme-clean."
    text = written([user(older), assistant("Understood.")], later=[user(newer)])
    assert f"(changed later) {older}" in text


def test_a_summary_whose_originals_are_lost_is_brought_up_to_date_alone() -> None:
    before = written([user("Never use tabs."), *ran("a", "git push", "ok"), assistant("Pushed.")])
    text = writer.write(SummaryInput((), 500, previous=before), COUNT)
    assert "Never use tabs." in text
    assert "git push" in text


@pytest.mark.parametrize("unit", ["<plan>\n", "<plan>\nstep\n", "</plan>\n", "│ x │\n", "│\n"])
def test_plans_and_drawings_without_an_end_cost_time_that_grows_with_the_text(unit: str) -> None:
    def write(units: int) -> None:
        written([
            user("Plan it."), assistant(unit * units), user("Go on."), assistant("I go on."),
        ])  # fmt: skip

    assert_growth(write, 2_000)


@pytest.mark.parametrize(
    "look",
    [
        "cargo install --list",
        "command -v rsync || true",
        "ssh box 'systemctl status web; systemctl --no-pager cat web'",
        "git merge-base HEAD main",
        "npm install --dry-run",
    ],
)
def test_what_only_asks_is_not_told_as_done_and_not_to_be_repeated(look: str) -> None:
    talk = [
        user("Look."),
        *ran("a", look, "here"),
        *ran("b", "ssh box 'systemctl restart web'", ""),
    ]
    text = written([*talk, user("Go on."), assistant("I go on.")], 900)
    assert "do not repeat: ssh box 'systemctl restart web'" in text


def test_side_effects_are_named_as_done_or_failed() -> None:
    talk = [
        user("Release it."),
        *ran("a", "git push origin main", "ok"),
        *ran("b", "npm publish", "npm error E403 forbidden\nexit code 1"),
        *ran("c", "rm old.py", ""),
    ]
    text = written(talk, max_tokens=700)
    assert "done, do not repeat: git push origin main" in text
    assert "open: failed: npm publish [3] -> npm error E403 forbidden" in text
    assert "ran rm old.py" in text


def test_what_failed_is_passed_by_a_run_whose_output_powershell_keeps() -> None:
    talk = [
        user("File it."),
        *ran("a", "gh issue create --label x", "label not found\nexit code 1"),
    ]
    talk += [*ran("b", "$url = gh issue create --title Port; $url", "https://git.example/47")]
    text = written([*talk, assistant("Filed."), user("Go on."), assistant("I go on.")], 700)
    assert "do not repeat: gh issue create --title Port" in text
    assert "failed" not in text


def test_what_was_not_done_is_told_with_its_turn_once_another_runs() -> None:
    talk = [
        user("Release it."),
        *ran("a", "npm publish", "npm error E403 forbidden\nexit code 1"),
        assistant("It was refused."),
    ]
    text = written(talk, max_tokens=700, later=[user("Leave it, mend the parser first.")])
    assert "failed: npm publish -> npm error E403 forbidden" in text
    assert "open:" not in text


@pytest.mark.parametrize(
    "head",
    [
        "Script completed\nWall time 0.0 seconds\nOutput:\n\n",
        "Chunk ID: 5\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n",
    ],
)
def test_what_a_host_puts_above_an_output_is_not_told(head: str) -> None:
    talk = [user("Which port?"), *ran("a", "python3 probe.py", f"{head}the port is 8123\n")]
    parsed = formats.parse(talk, format="anthropic")
    text = writer.write(SummaryInput(parsed, 500, is_turn_prefix=True), COUNT)
    assert "[1] -> the port is 8123" in text


def test_the_files_are_named_once_by_what_was_done_to_them() -> None:
    create = {"file_path": "new.py", "content": "def new(): ...\n"}
    edit = {"file_path": "old.py", "old_string": "port = 1", "new_string": "port = 2"}
    talk = [
        user("Go."),
        *answered("a", "Edit", "ok", **edit),
        *answered("b", "Write", "ok", **create),
        *answered("c", "Read", "text", file_path="other.py"),
    ]
    text = written(talk, max_tokens=700)
    assert text.endswith("\nchanged: new.py, old.py")


def test_a_short_summary_names_what_was_done_and_the_files_that_changed() -> None:
    edit = {"file_path": "old.py", "old_string": "port = 1", "new_string": "port = 2"}
    talk = [
        user("Go."),
        *ran("a", "git push origin main", "ok"),
        *answered("b", "Edit", "ok", **edit),
        *answered("c", "Edit", "ok", **{**edit, "file_path": "gone.py"}),
        *ran("d", "rm gone.py", ""),
    ]
    text = written(talk, max_tokens=400)
    assert "done, do not repeat: git push origin main" in text
    assert text.endswith("\nchanged: old.py")


@pytest.mark.parametrize("max_tokens", [0, 5, 40, 120, 400, 2_000])
def test_the_text_is_never_larger_than_asked(max_tokens: int) -> None:
    talk = [user("Fix it. " + RULES[0]), *ran("a", "make", NOISE), assistant("Done.")]
    assert COUNT.text(written(talk, max_tokens)) <= max_tokens


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from tests.compaction.summarizers.test_extractive import *\n"
        "print(written([user('Fix it. ' + RULES[0]), *ran('a', 'make', NOISE)], 300))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
            timeout=150,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(texts) == 1


# What each of these looks into is told in lines of the same form, so that nothing but the focus
# decides whose lines go first.
SUBJECTS = ("login timeouts", "invoice rounding", "webhook retries", "locale fallback")


def inquiry() -> list[Json]:
    """A talk of one request and many findings on each subject in turn."""
    talk = [user("Find out what is wrong.")]
    for n in range(160):
        subject = SUBJECTS[n % len(SUBJECTS)]
        talk += ran(f"c{n}", f"probe {n}", f"the {subject} came from handler_{n * 7} in unit_{n}")
    return talk


@pytest.mark.parametrize(
    ("focus", "subject"),
    [
        ("Keep everything about the login timeouts.", "login timeouts"),
        ("Focus on how invoices are rounded, please: invoiceRounding.", "invoice rounding"),
        ("Behalte vor allem die Webhook-Retries.", "webhook retries"),
        ("dwell on: locales and their fallbacks", "locale fallback"),
    ],
)
def test_the_lines_that_match_the_focus_go_first(focus: str, subject: str) -> None:
    plain = written(inquiry()).count(subject)
    steered = written(inquiry(), instructions=focus)
    assert steered.count(subject) >= 2 * plain
    others = [steered.count(other) for other in SUBJECTS if other != subject]
    assert steered.count(subject) > 2 * max(others)


def test_a_focus_on_what_is_nowhere_said_changes_nothing() -> None:
    assert written(inquiry(), instructions="Keep the Kubernetes manifests.") == written(inquiry())


def test_a_focus_in_a_script_without_spaces_steers_too() -> None:
    talk = [user("请检查。")]
    for n in range(120):
        what = "登录超时" if n % 4 == 0 else f"模块{n % 4}正常"
        talk += ran(f"c{n}", f"probe {n}", f"{what}: handler_{n * 7} unit_{n} checked in turn")
    plain = written(talk).count("登录超时")
    assert written(talk, instructions="请保留登录超时的内容").count("登录超时") > plain


def test_a_rule_stays_whatever_the_focus_is() -> None:
    rule = "Never touch the billing tables."
    talk = [user("Fix the build."), user(rule), assistant("Understood."), *inquiry()[1:]]
    assert rule in written(talk, instructions="Keep everything about the login timeouts.")


def chat() -> list[Json]:
    """A short chat: a request, rules that point back to what stands before them, and small talk."""
    return [
        user("Plan a trip to Lisbon for two. We like tiles and trams."),
        assistant("Happy to. When do you travel, and what is the budget?"),
        user("In May. Rule one: no flights before ten. Rule two: no hostels. Both rules are firm."),
        assistant("Understood. I suggest the 12:40 flight TP503 and Hotel Alfama at 140 euros."),
        user("Thanks!"),
        assistant("You are welcome."),
        user("Is the tile museum open on Mondays?"),
        assistant("No, the Museu do Azulejo is closed on Mondays; go on Tuesday at 10:00."),
        user("Fine, book Tuesday then."),
        assistant("Booked for Tuesday, 10:00, two tickets, 16 euros, code AZ-7741."),
    ]


@pytest.mark.parametrize("talk", [chat(), inquiry()], ids=["chat", "work"])
def test_more_room_never_keeps_less(talk: list[Json]) -> None:
    sizes = [COUNT.text(written(talk, room)) for room in range(20, 1_200, 20)]
    # A line break more or less where a line is joined with its neighbour.
    assert all(more >= less - 4 for less, more in pairwise(sizes))


def test_what_the_user_said_but_for_small_talk_stays_word_for_word_while_it_fits() -> None:
    text = written(chat(), 800)
    said = [message["content"] for message in chat() if message["role"] == "user"]
    assert [line for line in said if line not in text] == ["Thanks!"]


def test_a_small_summary_has_no_titles_and_a_large_one_has_them() -> None:
    assert "## " not in written(chat(), 500)
    assert "## The user, word for word\n[0] " in written(inquiry(), 3_000)


def test_sentences_that_point_back_bring_what_they_point_at() -> None:
    for room in range(40, 300, 20):
        text = written(chat(), room)
        assert ("Both rules are firm." in text) == ("Rule one: no flights before ten." in text)


def test_of_what_the_agent_tells_its_host_to_show_only_news_is_told() -> None:
    said = (
        'It is pushed.\n::git-stage{cwd="/app"}\n::git-commit{cwd="/app"}\n'
        '::git-push{cwd="/app" branch="mend/lease"}'
    )
    told = written([user("Mend the lease."), assistant(said)], 1_000)
    assert 'git-push branch="mend/lease"' in told
    assert "git-stage" not in told
    assert "git-commit" not in told


@pytest.mark.parametrize("is_last", [False, True])
def test_what_claude_code_says_in_the_agents_name_is_none_of_its_words(*, is_last: bool) -> None:
    limit = assistant("You've hit your session limit: resets 7pm.") | {"model": "<synthetic>"}
    said = [user("Mend it."), assistant("The lease is never renewed."), user("Go on."), limit]
    talk = said if is_last else [*said, user("Again."), assistant("It is renewed now.")]
    for max_tokens in (100, 1_000):
        told = written(talk, max_tokens)
        assert "session limit" not in told
        assert "never renewed" in told or max_tokens == 100


def test_a_command_that_failed_stands_with_its_error_and_with_what_cured_it() -> None:
    edit = {"file_path": "src/parser.py", "old_string": "a", "new_string": "b"}
    talk = [
        user("Mend the parser."),
        *ran("a", "cd app && make check 2>&1 | tail", "E   TypeError: parse() takes 1 argument"),
        *answered("b", "Edit", "ok", **edit),
        *ran("c", "cd app && make check", "14 checks, all fine"),
        assistant("The parser is mended."),
        user("Go on."),
        assistant("I go on."),
    ]
    told = (
        "failed: make check -> E   TypeError: parse() takes 1 argument; passed [5] after edits of "
    )
    text = written(talk, 1_000)
    assert f"{told}parser.py" in text
    assert "open: " not in text


FAILS = "E   TypeError: parse() takes 1 argument"
# What runs after the failure of "npm run check", what it prints, and whether that shows a success.
LATER = {
    ("npm run check", "14 checks, all fine"): True,
    ("npm run check 2>&1 | tail -5", "14 checks, all fine"): True,
    ("npm run check 2>&1 | grep -E '^(ok|# pass)'", "# pass 14"): True,
    ("npm run check -- --quiet", ""): True,
    (
        "npm run check 2>&1 | tail -5",
        "npm error command failed\nnpm error command sh -c tsgo",
    ): False,
    ("npm run check 2>&1 | grep 'error TS' | wc -l", "      11"): False,
    (
        "npm run check | tail -3; git log | head -1; echo exit $?",
        "1 failed, 9 passed\nexit 0",
    ): False,
    ("npm run lint", "no complaints"): False,
    ("npm run lint 2>&1 | tail -5", "no complaints"): False,
}


EXPECTED = "error: Database connection failed\n    at evaluation.test.ts:315"


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        (f"{EXPECTED}\n\n 1290 pass\n 0 fail\nRan 1290 tests\n[main 0ac166e] Mend", False),
        (f"{EXPECTED}\n======== 9 passed in 0.31s ========", False),
        (f"{EXPECTED}\n# pass 12\n# fail 0", False),
        (f"{EXPECTED}\n 1289 pass\n 1 fail", True),
        (f"{EXPECTED}\n 82 passing (1s)\n\n1 test failed.", True),
        (f"{EXPECTED}\nFAIL src/a.test.ts\nTests: 3 passed, 3 total", True),
        (f" 12 pass\n 0 fail\n{EXPECTED}", True),
        (EXPECTED, True),
    ],
)
def test_errors_that_passing_tests_print_are_no_failure(said: str, failed: bool) -> None:
    talk = [user("Commit it."), *ran("a", "git commit -m mend", said)]
    talk += [assistant("I see."), user("Go on."), assistant("I go on.")]
    assert ("failed: git commit" in written(talk, 2_000)) is failed


@given(later=st.lists(st.sampled_from(sorted(LATER)), min_size=1, max_size=4))
def test_what_failed_is_told_as_passed_only_where_the_same_is_shown_to_have_passed(
    later: list[tuple[str, str]],
) -> None:
    edit = {"file_path": "src/parser.py", "old_string": "a", "new_string": "b"}
    talk = [user("Mend the parser."), *ran("a", "npm run check", FAILS)]
    for n, (command, said) in enumerate(later):
        talk += [*answered(f"e{n}", "Edit", "ok", **edit), *ran(f"c{n}", command, said)]
    text = written([*talk, assistant("I see."), user("Go on."), assistant("I go on.")], 2_000)
    # Where what came of it is hidden, nothing is told.
    runs = [run for run in later if "lint" not in run[0]]
    is_told = bool(runs) and LATER[runs[0]]
    assert ("; passed [" in text) == is_told
    assert not is_told or f"; passed [{4 * later.index(runs[0]) + 5}]" in text


def test_an_error_whose_command_nobody_knows_is_told_of_none() -> None:
    edit = {"file_path": "src/parser.py", "old_string": "a", "new_string": "b"}
    both = "git stash pop && make check"
    talk = [
        user("Mend the parser."),
        *ran("a", both, "Error: parse() takes 1 argument"),
        *answered("b", "Edit", "ok", **edit),
        *ran("c", both, "14 checks, all fine"),
        assistant("The parser is mended."),
        user("Go on."),
        assistant("I go on."),
    ]
    assert "failed: " not in written(talk, 1_000)


def test_a_commit_beside_a_command_that_failed_is_not_told_as_failed() -> None:
    both = 'make docs; echo "docs exit $?"; git add -A; git commit -qm "docs: no error is left"'
    said = "docs exit 3\ndb9a453 docs: no error is left"
    talk = [user("Mend it."), *ran("a", both, said), assistant("Done."), user("Go on.")]
    assert "failed: " not in written([*talk, assistant("I go on.")], 1_000)


def test_what_a_look_prints_is_no_failure_of_the_command_beside_it() -> None:
    shown = "+    raise ValueError('no')\nError: shown in a diff"
    talk = [user("Show it."), *ran("a", "make list; git diff", shown)]
    assert "failed: " not in written(talk, 1_000)


def test_a_command_is_parted_outside_of_its_quotes_alone() -> None:
    command = "cd x && python tool.py --say 'one; two && three' | tail -3"
    text = written([user("Run it."), *ran("a", command, "it says 3")], 700)
    assert "python tool.py --say 'one; two && three' | tail -3 [1] -> it says 3" in text


def test_the_errors_of_a_run_that_still_fails_are_told_until_it_is_tried_again() -> None:
    errors = [f"src/part{n}.ts({n},7): error TS2305: no member 'm{n}'" for n in range(6)]
    output = "\n".join(["> build", *errors, "npm error code 2"])
    talk = [user("Build it."), *ran("a", "npm run build", output), assistant("I look.")]
    text = written(talk, 1_000)
    assert all(error in text for error in errors)
    assert errors[2] not in written(talk, 1_000, later=ran("b", "npm run build -w x", "fine"))
    assert "open:" not in written([*talk, *ran("c", "git commit -am x", "[main 1234567] x")], 1_000)


def test_what_came_of_a_finished_turn_is_told_by_the_agent_and_not_by_its_outputs() -> None:
    talk = [*item(1), *item(2)]
    assert "12 passed" not in written(talk, 3_000, later=[user("And item 3, please.")])


def test_a_plan_that_another_request_has_overtaken_says_when_it_was_written() -> None:
    todos = [{"content": "Write the parser", "status": "in_progress"}]
    talk = [user("Go."), *answered("t", "TodoWrite", "ok", todos=todos), assistant("It is done.")]
    text = written([*talk, user("Run it."), *ran("a", "make", "made\n")], 500)
    assert "[0] plan as written at [1], not brought up to date since; open then: Write" in text
    assert "[in_progress]" not in text
    assert "plan as of" not in text


def test_of_a_plan_in_prose_nothing_is_told_as_open() -> None:
    plan = "# Ship it\n\nThe first part is done.\nThen publish the package."
    talk = [user("Plan it."), *answered("t", "ExitPlanMode", "ok", plan=plan), assistant("So.")]
    text = written([*talk, user("Run it."), *ran("a", "make", "made\n")], 500)
    assert "not brought up to date since: # Ship it; The first part is done." in text
    assert "open then" not in text


def test_of_what_is_said_after_a_failure_the_announcement_behind_it_is_left_out() -> None:
    failed = ran("a", "make test", "FAILED tests/test_a.py::test_b - KeyError: 'fold'")
    why = "`fromtimestamp()` alone sets `fold`, and both clocks lost it."
    again = {"type": "tool_use", "id": "b", "name": "bash", "input": {"command": "cat clock.py"}}
    said = [{"type": "text", "text": f"{why} Let me look at the other one:"}, again]
    shown = {"type": "tool_result", "tool_use_id": "b", "content": "code"}
    talk: list[Json] = [user("Mend it."), *failed, {"role": "assistant", "content": said}]
    talk += [{"role": "user", "content": [shown]}, assistant("Both are mended."), user("Go on.")]
    text = written([*talk, assistant("I go on.")], 900)
    assert why in text
    assert "Let me look" not in text


def test_finished_items_of_a_plan_are_not_told_as_open() -> None:
    todos = [
        {"content": "Write the lexer", "status": "completed"},
        {"content": "Write the parser", "status": "in_progress"},
    ]
    talk = [user("Go."), *answered("t", "TodoWrite", "ok", todos=todos)]
    text = written(talk, 500)
    assert "plan as of [1]: [in_progress] Write the parser\n" in text
    assert "plan of [1], finished: Write the lexer" in text
    assert "[completed]" not in text
    talk += answered("w", "Write", "Written.", file_path="parser.py", content="x = 1")
    assert "plan as of [1], files were changed since: " in written(talk, 500)


def test_of_a_record_the_codes_come_before_its_prose_and_the_first_record_first_of_all() -> None:
    profile = {
        "name": "Mia Li",
        "about": "A customer who likes window seats and quiet mornings. " * 12,
        "payment_methods": {"credit_card_4421486": {"source": "card", "last_four": "7447"}},
        "reservations": ["NO6WO3", "AIXC49"],
    }
    said = "I would like to look at some more flights before I choose one of them. "
    talk = [
        user("Book me a flight."),
        *answered("c1", "get_user_details", json.dumps(profile), user_id="mia_li_3668"),
        *(part for n in range(9) for part in (user(f"{said}{n}"), assistant(f"Here is {n}."))),
    ]
    text = written(talk, max_tokens=140)
    assert [code for code in ("credit_card_4421486", "7447", "NO6WO3") if code not in text] == []
    assert "quiet mornings" not in text


def item(number: int) -> list[Json]:
    """A work item: what was asked, what was found, what was changed, and what came of it."""
    path, call = f"src/part{number}.py", f"e{number}"
    edit = {"file_path": path, "old_string": "a", "new_string": f"value_{number} = {number}"}
    found = f"The cause is in part {number}: the value was kept as text, and compared as a number"
    return [
        user(f"Item {number}: please mend part {number} of the machine, it stands still."),
        *ran(f"l{number}", f"cat {path}", NOISE),
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": f"{found}, so that nothing was ever found to be equal."},
                {"type": "tool_use", "id": call, "name": "Edit", "input": edit},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call, "content": "ok"}],
        },
        assistant("Now let me run the tests:"),
        *ran(f"t{number}", "pytest -q", "12 passed"),
        assistant(f"Part {number} turns again at {number}0 rounds, and all twelve tests pass."),
    ]


def test_every_work_item_has_a_line_before_any_is_told_in_full() -> None:
    talk = [message for number in range(12) for message in item(number)]
    text = written(talk, 900)
    for number in range(11):
        assert f"edited part{number}.py" in text
        assert f"Part {number} turns again" in text
    assert text.count("pytest -q") <= 1  # a command is told where it ran last


def test_of_a_small_memory_each_committed_item_has_its_subject() -> None:
    talk: list[Json] = []
    for number in range(8):
        commit = f"git commit -am 'machine: mend part {number}'"
        answer = f"[main 0abc{number}12] machine: mend part {number}\n 1 file changed"
        talk += [*item(number)[:-1], *ran(f"c{number}", commit, answer), item(number)[-1]]
    text = written([*talk, user("Thanks."), assistant("Gladly.")], 450)
    for number in range(8):
        assert f"commit 0abc{number}12 machine: mend part {number}" in text


def test_why_something_was_changed_stands_beside_what_came_of_it() -> None:
    talk = [message for number in range(4) for message in item(number)]
    text = written(talk, 1_500)
    assert "The cause is in part 0: the value was kept as text" in text
    assert "Now let me run the tests" not in text


SENTENCES = st.lists(
    st.tuples(
        st.text("abcdefgh ", min_size=14, max_size=60).filter(str.strip),
        st.sampled_from(["", " 42", " `a.py`", " was 3.5 s"]),
        st.sampled_from([".", "!", ":", "?"]),
    ).map(lambda parts: " ".join("".join(parts).split()).capitalize()),
    min_size=1,
    max_size=12,
)


@given(sentences=SENTENCES, chars=st.integers(20, 400))
def test_of_a_long_statement_whole_sentences_are_told_and_its_first_before_others(
    sentences: list[str], chars: int
) -> None:
    text = " ".join(sentences)
    told = telling_of(pieces_of(text), chars)
    if len(text) < chars:
        assert told == text
        return
    assert len(told) <= chars + 3 * len(sentences)
    if told.endswith(" …"):  # not even the first fits: its beginning says more than another
        assert text.startswith(told.removesuffix(" …"))
        return
    left = text
    for part in told.split(" … ") if told else ():
        before, found, left = left.partition(part)
        assert found
        assert not before or before[-1] in ".!:? "
        assert part[-1] in ".!:?"
    if sentences[0][-1] in ".!" and 16 < len(sentences[0]) < chars - 4:
        assert told.startswith(sentences[0])


@given(sentences=SENTENCES, rows=st.integers(0, 80), chars=st.integers(100, 900))
def test_the_ends_of_what_is_said_have_the_size_that_they_should(
    sentences: list[str], rows: int, chars: int
) -> None:
    table = "".join(f"| page{n} | {n * 7} |\n" for n in range(rows))
    told = ends_of(pieces_of(f"{' '.join(sentences)}\n\n{table}"), chars)
    assert 0 < len(told) <= chars + 10
    assert told.startswith(sentences[0][: chars // 3])
    assert told.endswith(f"{(rows - 1) * 7} |" if rows else sentences[-1][-chars // 4 :])


def test_rows_of_a_table_come_with_their_head() -> None:
    rows = "\n".join(f"| page{n} | {n * 7} |" for n in range(60))
    said = f"The build is green.\n\n| Page | Words |\n|------|------:|\n{rows}"
    told = telling_of(pieces_of(said), 3_000)
    assert "\n| Page | Words |\n| page0 | 0 |\n" in told
    assert "---" not in told
    assert telling_of(pieces_of(said), 160) == "The build is green."


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("See [cli.ts](/home/dev/shop/src/cli.ts:12).", "See /home/dev/shop/src/cli.ts:12."),
        ("See [the guide](docs/guide.md) first.", "See [the guide](docs/guide.md) first."),
    ],
)
def test_a_link_that_names_its_file_twice_names_it_once(said: str, told: str) -> None:
    assert pieces_of(said) == [f"\n{told}"]


def test_quoted_stars_stay_and_markup_goes() -> None:
    said = '**Item 6** masks each secret as "***" and `**kwargs` passes 2 values.'
    text = written([user("Mask it."), *ran("a", "make", "1 ok"), assistant(said), user("Go on.")])
    assert 'Item 6 masks each secret as "***" and `**kwargs` passes 2 values.' in text


def test_records_within_a_record_share_their_keys_too() -> None:
    legs = [{"from": f"AA{n}", "to": f"BB{n}", "seats": {"front": n, "back": 9}} for n in range(4)]
    talk = [user("Which are there?"), *answered("s", "get_legs", json.dumps({"legs": legs}))]
    text = written([*talk, assistant("Four."), user("Go on.")], 900)
    assert text.count("front") <= 1
    assert "AA3" in text


@pytest.mark.parametrize("max_tokens", [120, 200, 400])
def test_a_short_message_that_binds_is_told_whole_or_not_at_all(max_tokens: int) -> None:
    """Its first sentence ranks low, but the second means nothing without it."""
    asked = [
        f"Could you keep file {n} small? Nobody here reads above {n}00 lines." for n in range(30)
    ]
    talk = [one for text in asked for one in (user(text), assistant("Understood."))]
    text = written(talk, max_tokens)
    told = [one for one in asked if one.partition("? ")[2] in text]
    assert len(told) >= max_tokens // 40
    assert all(one in text for one in told)


def test_what_is_said_again_in_a_later_message_is_told_there_alone() -> None:
    prompt = "You work in the repository of the shop, and every change has a test of its own."
    talk = [
        one
        for task in ("Mend the cart.", "Mend the search.", "Mend the mail.")
        for one in (user(f"{task} {prompt}"), assistant("It is mended."))
    ]
    text = written(talk, 300)
    assert text.count(prompt) == 1
    assert all(task in text for task in ("Mend the cart.", "Mend the search.", "Mend the mail."))


def test_what_the_agent_said_last_of_a_turn_stands_behind_what_it_said_before() -> None:
    text = written([message for number in range(4) for message in item(number)], 1_500)
    told = [line for line in text.splitlines() if "agent" in line and "art 0" in line]
    assert "The cause is in part 0" in told[0]
    assert told[-1].startswith("  agent: ")


def test_the_agents_own_list_of_tasks_is_no_effect_and_no_output() -> None:
    talk = [
        user("Mend it."),
        *answered("a", "TaskCreate", "Task #1 created", subject="Mend the parser"),
        *answered("b", "TaskUpdate", "Updated task #1 status", taskId="1", status="completed"),
        *answered("c", "mcp__tracker__create_task", '{"key": "AB-17"}', title="Mend the parser"),
    ]
    text = written([*talk, assistant("It is mended.")], 900)
    assert "TaskCreate" not in text
    assert "TaskUpdate" not in text
    assert "AB-17" in text


def test_the_report_of_a_sub_agent_comes_without_what_the_host_puts_behind_it() -> None:
    report = (
        "The hook writes the index in 2 places.\nagentId: a37a9c9 (for resuming)\n"
        "<usage>total_tokens: 60782\ntool_uses: 22</usage>"
    )
    talk = [user("Who writes it?"), *answered("a", "Task", report, description="Find the writer")]
    text = written(talk, 900)
    assert "The hook writes the index in 2 places." in text
    assert "usage" not in text
    assert "agentId" not in text


@given(
    subjects=st.lists(
        st.from_regex(r"[a-z]{3,8}: [a-z]{3,9} [a-z]{3,9}", fullmatch=True),
        min_size=1,
        max_size=4,
        unique=True,
    )
)
def test_commits_are_told_with_their_hashes_wherever_a_log_lists_them(subjects: list[str]) -> None:
    talk: list[Json] = []
    for n, subject in enumerate(subjects):
        talk += [user(f"Item {n}."), *ran(f"c{n}", f"git commit -qm '{subject}'", "")]
    listed = "\n".join(f"{n}abc{n}ef {subject}" for n, subject in enumerate(subjects))
    talk += [*ran("l", "git log --oneline", listed), assistant("All is committed.")]
    text = written([*talk, user("Go on."), assistant("I go on.")], 2_000)
    for n, subject in enumerate(subjects):
        assert f"commit {n}abc{n}ef {subject}" in text


@given(body=st.lists(st.sampled_from(["mail('x')", "npm install x", "git push", "a; b"])))
def test_what_a_script_in_a_command_holds_is_no_effect_of_it(body: list[str]) -> None:
    script = "\n".join(["python3 - <<'EOF'", *body, "EOF"])
    text = written([user("Try it."), *ran("a", script, "fine"), assistant("It went fine.")], 900)
    assert "do not repeat" not in text


LAYOUT = "results/<experiment>/<time>/\n  case-1/\n    trace.jsonl"


@given(
    st.sampled_from([f"```text\n{LAYOUT}\n```", f"```\n{LAYOUT}\n```"]),
    st.integers(1, 6),
)
def test_a_layout_comes_with_the_answer_that_it_stands_in(block: str, later_turns: int) -> None:
    said = f"Cases stay together. The layout is:\n\n{block}\n\nIt takes 2 folders."
    talk = [user("How do we lay it out?"), assistant(said)]
    for number in range(later_turns):
        talk += [user(f"Go on with {number}."), assistant(f"Part {number} is written.")]
    rows = [line.strip() for line in written(talk, 900).splitlines()]
    at = next(at for at, row in enumerate(rows) if row.endswith("The layout is:"))
    assert rows[at + 1 : at + 4] == [row.strip() for row in LAYOUT.splitlines()]
    assert rows[at + 4] == "It takes 2 folders."


@pytest.mark.parametrize(
    ("command", "is_effect"),
    [
        ("curl -sI https://a.example/x | tr -d '\\r'", False),
        ("curl -s https://a.example/x | cut -d : -f 1", False),
        ("curl -s -X POST https://a.example/x -d name=1 | head", True),
        ("docker run --rm alpine ldd /bin/sh", False),
        ("docker run -d --name db postgres", True),
        ("git -C ../site push origin main", True),
    ],
)
def test_what_leaves_something_behind_must_not_be_repeated_and_all_else_may(
    command: str, is_effect: bool
) -> None:
    text = written([user("Try it."), *ran("a", command, "fine"), assistant("It went fine.")], 900)
    assert ("do not repeat" in text) == is_effect


def test_a_push_that_git_refused_is_not_told_as_done() -> None:
    push = "git push -u origin fix 2>&1 | tail -3"
    talk = [
        user("Push it."),
        *ran("a", push, "fatal: unable to find remote helper for 'entire'"),
        *ran("b", f"PATH=$PATH:/opt/entire {push}", "branch 'fix' set up to track 'origin/fix'."),
        *ran("c", push, "Everything up-to-date"),
        assistant("It is pushed to 1 remote."),
    ]
    text = written([*talk, user("Go on."), assistant("I go on with 2.")], 900)
    assert "done, do not repeat: git push -u origin fix\n" in text


@pytest.mark.parametrize(
    "command",
    [
        "git add . && git commit -q -F - <<'EOF'\nparser: two rows more\n\nWhy.\nEOF",
        "git commit -qm \"$(cat <<'EOF'\nparser: two rows more\n\nWhy.\nEOF\n)\"",
    ],
)
def test_a_commit_whose_message_is_given_as_a_text_has_its_subject(command: str) -> None:
    talk = [user("Commit."), *ran("a", command, ""), assistant("It is committed.")]
    text = written([*talk, user("Go on."), assistant("I go on.")], 900)
    assert "commit parser: two rows more" in text
    assert "Why." not in text


@pytest.mark.parametrize("argument", ["patchText", "input", "patch"])
def test_the_files_of_a_patch_are_told_whatever_its_argument_is_called(argument: str) -> None:
    patch = (
        "*** Begin Patch\n*** Add File: docs/plan.md\n+One.\n"
        "*** Update File: src/a.py\n@@\n-x\n+y\n*** End Patch"
    )
    talk = [user("Write it."), *answered("p", "apply_patch", "Success.", **{argument: patch})]
    text = written([*talk, assistant("Written."), user("Go on."), assistant("I do.")], 900)
    assert "wrote plan.md; edited a.py" in text


def test_a_file_that_a_patch_deletes_is_deleted_and_no_changed_file() -> None:
    first = "*** Begin Patch\n*** Update File: a.test.ts\n@@\n-x\n+y\n*** End Patch"
    second = (
        "*** Begin Patch\n*** Delete File: a.test.ts\n*** Add File: a.test.tsx\n+y\n*** End Patch"
    )
    # Other calls name it from the root.
    read = answered("r", "read", "x", path="/home/me/app/a.test.ts")
    talk = [user("Test it."), *read, *answered("p", "apply_patch", "Success.", input=first)]
    talk += [*answered("q", "apply_patch", "Success.", input=second), assistant("Renamed.")]
    text = written([*talk, user("Go on."), assistant("I do.")], 900)
    assert "wrote a.test.tsx; deleted a.test.ts" in text
    assert "changed: a.test.tsx\n" in text


def test_a_newest_turn_that_only_announced_a_search_tells_both() -> None:
    looked = answered("g", "Grep", "a.go:1: CPS", pattern="CPM|CPS", glob="**/*.go")
    looked[0]["content"].insert(0, {"type": "text", "text": "I see the mix-up. Let me look:"})
    text = written([user("Mend this :)"), *looked], 900)
    assert "searched with Grep(pattern=CPM|CPS, glob=**/*.go)" in text
    assert "I see the mix-up. Let me look:" in text
    later = [user("Go on."), *ran("a", "pytest -q", "3 passed"), assistant("It passes.")]
    assert "searched" not in written([user("Mend this :)"), *looked, *later], 900)


def test_what_a_command_opened_stands_behind_it_with_its_address() -> None:
    command = "git commit -qm one && git push -q && gh pr create --fill"
    answer = "[fix 1f00aa1] one\nhttps://example.org/a/b/pull/7\n"
    text = written([user("Send it."), *ran("a", command, answer), assistant("Sent.")], 900)
    told = "commit 1f00aa1 one; git push -q; gh pr create --fill -> https://example.org/a/b/pull/7"
    assert f"done, do not repeat: {told}" in text


def test_what_an_edit_touched_stands_behind_the_name_of_its_file() -> None:
    old, new = "def parse(text):\n    return text", "def parse(text):\n    return text.strip()"
    change = {"file_path": "src/parser.py", "old_string": old, "new_string": new}
    talk = [user("Mend it."), *answered("e", "Edit", "ok", **change), assistant("I go on.")]
    text = written([*talk, *ran("t", "pytest -q", "3 passed")], 900)
    assert "edited parser.py (parse)" in text
    assert text.count("parser.py") == 2  # and once with its path


def test_what_only_waits_for_something_is_no_work() -> None:
    talk = [
        user("Let it run."),
        *ran("a", "workmux wait worker --timeout 600", "still running"),
        assistant("No completion yet. I keep waiting instead of interrupting the worker that " * 2),
        *answered("b", "write_stdin", "", session_id=4, chars=""),
        assistant(
            "The worker has found the cause in `lexer.py`, and is about to mend it now. " * 3
        ),
        *ran("c", "workmux status worker", "working"),
        assistant("It is done in 3 minutes, and the worker wrote 2 tests of its own."),
    ]
    text = written([*talk, user("Go on."), assistant("I go on.")], 900)
    assert "ran " not in text
    assert "No completion yet" not in text
    assert "found the cause in `lexer.py`" in text


def test_of_a_long_output_the_outcome_alone_is_told() -> None:
    rows = "\n".join(f"case {n} of the table is fine" for n in range(60))
    text = written([user("Run it."), *ran("a", "make cases", f"{rows}\n60 passed in 2 s")], 2_000)
    assert "make cases [1] -> … 60 passed in 2 s" in text
    assert "case 7 " not in text


def test_a_command_is_named_by_what_it_does_and_not_by_its_comments() -> None:
    line = (
        "# Is the API's address right?\n# First: its health\ncurl -s localhost/health  # don't wait"
    )
    text = written([user("Ask."), *ran("a", line, "status 1 is up")])
    assert "curl -s localhost/health [1] -> status 1 is up" in text
    assert "#" not in text


def test_a_long_request_is_told_as_done_by_its_method_and_its_address_once() -> None:
    log_in = "{}=$(curl -s -X POST http://api/login -H 'Content-Type: application/json' -d '{}')"
    longer = f'{{"email": "a@example.com", "secret": "{"x" * 90}"}}'
    talk = [
        user("Share it."),
        *ran("a", "curl -s -X POST http://api/shares -d '{\"at\": 1}'", "500"),
        *ran("b", f"{log_in.format('A', longer)}\n{log_in.format('B', longer)}", "201"),
        *ran("c", 'echo hi | curl -s -X POST -F "file=@-" "http://api/add"', "201"),
        *ran("d", "curl -s -X POST http://api/shares -d '{\"at\": 2}'", "201"),
    ]
    text = written([*talk, assistant("Shared."), user("Go on."), assistant("I go on.")], 900)
    [told] = [line for line in text.splitlines() if "do not repeat" in line]
    assert told.partition(": ")[2].split("; ") == [
        "curl -s -X POST http://api/shares -d '{\"at\": 1}'",
        "curl -X POST http://api/login",
        'curl -s -X POST -F "file=@-" "http://api/add"',
        "curl -s -X POST http://api/shares -d '{\"at\": 2}'",
    ]


@pytest.mark.parametrize("end", ["Wall time: 0.03 seconds", "real\t0m1.4s", "exit:0", ""])
def test_how_long_a_command_took_is_no_answer_of_it(end: str) -> None:
    talk = [
        user("Go."),
        *ran("a", "chmod +x run", f"\n\n{end}"),
        *ran("b", "probe", f"12 up\n{end}"),
    ]
    text = written(talk)
    assert "chmod +x run [1] ->" not in text
    assert text.endswith("probe [3] -> 12 up")


def test_commands_are_told_where_neither_files_nor_commits_are() -> None:
    commit = ran("c", "git commit -m 'machine: faster'", "[main 0abc123] machine: faster")
    talk = [
        user("Faster."),
        *ran("a", "python speed.py", "9 s"),
        *ran("b", "python - <<'E'\nE", "1"),
    ]
    measured = written([*talk, assistant("It takes 9 s."), user("Go on.")], 900)
    assert "ran python speed.py" in measured
    assert "python -" not in measured
    committed = written([*talk, *commit, assistant("It takes 4 s."), user("Go on.")], 900)
    assert "commit 0abc123 machine: faster" in committed
    assert "speed.py" not in committed


def test_a_rule_of_two_words_is_kept_where_small_talk_is_not() -> None:
    talk = [user("Plan the week."), assistant("Gladly."), user("No dairy."), assistant("Noted.")]
    talk += [user("Thanks!"), assistant("You are welcome."), user("Go on."), assistant("I do.")]
    text = written(talk, 500)
    assert "No dairy." in text
    assert "Thanks!" not in text


LONG_QUESTION = f"{'The box serves an old build. ' * 40}How should it get the new one?"
TOLD_BY_CLAUDE = (
    f'The user answered: "{LONG_QUESTION}"="check the justfile.", "Publish now?"="Dry run only". '
    "Read the answers carefully."
)
TOLD_BY_CODEX = (
    '{"answers":{"box":{"answers":["check the justfile"]},"out":{"answers":["Dry run"]}}}'
)


@pytest.mark.parametrize("told", [TOLD_BY_CLAUDE, TOLD_BY_CODEX])
def test_every_answer_of_the_user_is_told_without_what_the_host_says_around_it(told: str) -> None:
    talk = [
        user("Ship it."),
        *answered("a", "AskUserQuestion", told, questions=[]),
        assistant("Shipped."),
    ]
    text = written(talk, 400)
    assert "= check the justfile" in text.replace('"', "")
    assert "= Dry run" in text.replace('"', "")
    assert "answers" not in text


@pytest.mark.parametrize(
    "said", ['Call it "foo", "bar" and "baz". Keep v1.', "Use rows[0], not rows.", "Nothing."]
)
def test_an_answer_of_the_user_is_told_to_its_end_whatever_marks_are_in_it(said: str) -> None:
    claude = f'The user answered: "Which?"="{said}", "And?"="{said}". Read the answers carefully.'
    codex = json.dumps({"answers": {"a": {"answers": [said]}}}, separators=(",", ":"))
    for told in (claude, codex):
        ask = answered("a", "AskUserQuestion", told, questions=[])
        text = written([user("Ship it."), *ask, assistant("Shipped.")])
        assert text.replace("\\", "").count(said) == told.replace("\\", "").count(said)
        assert "carefully" not in text


def test_another_program_in_quotes_does_not_end_a_failure() -> None:
    calls = ran("a", '"$VENV/bin/python" -m pytest', "Error: 3 failed\nexit code 1")
    calls += ran("b", '"$VENV/bin/ruff" check', "All checks passed!")
    text = written([user("Test it."), *calls])
    assert "3 failed" in text
    assert "passed [" not in text


def test_what_a_host_says_of_a_command_that_still_runs_is_no_answer_of_it() -> None:
    running = "Chunk ID: 4f1\nWall time: 1.0 seconds\nProcess running with session ID 8\n"
    outputs = [
        f"{running}Output:\n",
        "Script running with cell ID 3\nWall time 1.0 seconds\nOutput:\n",
    ]
    outputs += ["<shellId: 7 completed with exit code 0>"]
    calls = [one for n, out in enumerate(outputs) for one in ran(str(n), f"build part{n}", out)]
    text = written([user("Build all parts."), *calls])
    assert not any(said in text for said in ("running with", "Chunk ID", "shellId"))


@pytest.mark.parametrize("tool", ["AskUserQuestion", "request_user_input", "ask_followup_question"])
def test_what_the_user_answers_to_a_question_of_the_agent_is_told(tool: str) -> None:
    said = 'The user answered: "How to push?"="The tool is installed, add the remote yourself."'
    messages = [
        user("Commit all of it."),
        *answered("q", tool, said, questions=[{"question": "How to push?"}]),
        assistant("Pushed."),
        *(user("And now?"), assistant("Nothing is left to do.")),
    ]
    assert "add the remote yourself" in written(messages)


@given(st.integers(3, 60))
def test_the_last_words_stand_whole_where_there_is_room(count: int) -> None:
    words = " ".join(
        f"Finding {number} was mended in part {number * 7}." for number in range(count)
    )
    messages = [user("Mend all."), *ran("a", "make", NOISE), assistant(words), user("Thank you.")]
    assert words in " ".join(written(messages, 4_000).split())


@pytest.mark.parametrize(("top", "below"), [("C:\\dev\\shop\\", "\\"), ("/home/dev/shop/", "/")])
def test_the_folder_of_the_work_is_named_once(top: str, below: str) -> None:
    messages: list[Json] = [user("Write the pages.")]
    for number in range(8):
        path = f"{top}pages{below}page_{number}.py"
        messages += answered(
            f"w{number}", "Write", "Written.", file_path=path, content=f"n = {number}"
        )
    told = written([*messages, assistant("Written."), user("Good.")], 2_000)
    assert "page_7.py" in told
    assert told.count(top.replace("\\", "/")) == 1


def test_what_was_only_run_gives_way_to_what_the_agent_says_of_it() -> None:
    talk: list[Json] = []
    for n in range(24):
        talk += [user(f"Item {n}, please."), *ran(f"c{n}", f"probe --part {n} --all", f"{n} ms")]
        talk.append(assistant(f"Part {n} answers in {n} ms, since its table has {n * 7} rows."))
    text = written(talk, 900)
    assert text.count("since its table has") > text.count("probe --part")


def test_what_a_look_searches_for_is_nothing_that_was_done() -> None:
    talk = [
        user("Look."),
        *ran("a", 'echo "=== migrate ==="; grep -rn "npm install x\\|git push" docs', "docs/a.md"),
        *ran("b", "git tag -l 'v1*'", "v1.0"),
        *ran("b2", "git tag 2>/dev/null; git tag --sort=-creatordate | head -3", "v1.0"),
        *ran("c", "cat dump.sql | psql shop", "INSERT 0 1"),
        assistant("It stands in 1 place."),
    ]
    text = written([*talk, user("Go on."), assistant("I go on.")], 900)
    [line] = [line for line in text.splitlines() if "do not repeat" in line]
    assert "psql shop" in text
    assert "grep" not in line
    assert "tag" not in line


def test_a_report_that_two_requests_have_followed_is_no_state_of_the_work() -> None:
    talk = [user("Set it up."), *ran("a", "make up", "up\n"), assistant("All of it is up now.")]
    talk += [user("Not that one, the other."), *ran("b", "make other", "made\n")]
    talk += [user("Leave the proxy alone."), *ran("c", "make rest", "made\n")]
    assert "[0] ran make up\n  agent: All of it is up now.\n[4]" in written(talk)


def test_what_announces_a_call_is_not_told_as_the_last_words_once_it_was_made() -> None:
    talk = [user("Test it."), *ran("a", "ls", "a.py\n"), assistant("All 12 tests of `a.py` pass.")]
    talk += [*ran("b", "make x", "made\n"), assistant("Now I have it all. Let me add the tests:")]
    edit = answered("c", "Write", "Written.", file_path="test_b.py", content="x = 1")
    text = written([*talk, *edit])
    assert "Let me add" not in text
    assert "agent, last [3]: All 12 tests of `a.py` pass." in text


def test_of_what_the_agent_drew_the_newest_is_told() -> None:
    def drawn(title: str) -> str:
        return f"The sketch:\n\n```text\n┌───────┐\n│ {title} │\n└───────┘\n```\n\nShall I go on?"

    tree = "The layout:\n\n```\n├── src\n│   └── main.py\n└── tests\n```"
    talk = [user("Draw it."), assistant(drawn("first")), user("Where?"), assistant(tree)]
    talk += [user("No names."), assistant(drawn("third")), user("Build it.")]
    text = written([*talk, *ran("a", "make", NOISE)], max_tokens=900)
    assert "│ first │" not in text
    assert "│ third │" in text
    assert "main.py" in text


def test_of_a_plan_in_several_versions_the_newest_is_told_with_its_age() -> None:
    def plan(view: str) -> str:
        return f"<proposed_plan>\n# The panel\n\n- It is a {view} view.\n</proposed_plan>"

    talk = [user("Plan it."), assistant(plan("sidebar")), user("No."), assistant(plan("editor"))]
    text = written([*talk, user("Build it."), *ran("a", "make", "made\n"), user("No names.")], 900)
    assert "[0] agent: [a plan, replaced by [2]]" in text
    assert "sidebar" not in text
    assert "Plan as of [2]; later requests go before it:\n  The panel\n  - It is a editor" in text


@pytest.mark.parametrize(
    "text",
    [
        "Base directory for this skill: /skills/explore\n\n# Explore\n\n{} It is a way to look.",
        "<skill>\n<name>explore</name>\n{} It is a way to look.\n</skill>",
    ],
)
def test_of_a_skill_that_the_session_runs_under_stays_what_binds(text: str) -> None:
    rule = "You must NEVER write application code."
    talk = [user("Look at issue 5."), user(text.format(rule)), assistant("I look.")]
    talk += [user("And at 6."), *ran("a", "gh issue view 6", NOISE), assistant("It is a wish.")]
    told = written([*talk, user("Go on.")], max_tokens=900)
    assert f"[0] host's text [1], of it: {rule}" in told
    assert f"user: {rule}" not in told


def test_a_plan_pasted_for_finished_work_gives_way_to_what_came_of_later_work() -> None:
    plan = "\n\n".join(
        f"**{n}a.** `step_{n}()`:\n```rust\nfn step_{n}() {{}}\n```" for n in range(60)
    )
    talk = [user(f"Implement the following plan:\n\n{plan}"), assistant("All 60 are there.")]
    talk += [
        m
        for n in range(8)
        for m in (user(f"Now part {n}."), assistant(f"`p{n}` took {n} files. " + "It grew. " * 30))
    ]
    text = written(talk, 900)
    assert "Implement the following plan" in text
    assert all(f"`p{n}` took {n} files." in text for n in range(8))
    assert text.count("fn step_") <= 10


def test_what_the_agent_says_right_behind_a_failure_is_told_as_its_cause() -> None:
    cause = "Single words give two initials there, and rows without a record count as speech."
    failed = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    call = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "pnpm test"}}
    talk: list[Json] = [user("Build the panel."), {"role": "assistant", "content": [call]}]
    talk += [{"role": "user", "content": [{**failed, "content": "AssertionError: 3 failed"}]}]
    talk += [assistant(cause), *ran("e", "make fix", "done\n")]
    talk += [m for n in range(30) for m in (assistant(f"Step {n} of it."), user(f"Go on, {n}."))]
    assert cause in written(talk, max_tokens=1_200)
