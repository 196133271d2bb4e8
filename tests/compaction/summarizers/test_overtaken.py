"""What a later message has overtaken is not told as if it stood."""

import pytest
from context_compaction.activity.commits import PassedRun, known_commits
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.summarizers.test_extractive import assistant, ran, user, written
from tests.support.json_types import Json
from tests.support.small import answered

TALK_OF_IT = [user("Go on."), assistant("I go on.")]


def test_of_a_commit_that_was_amended_only_the_last_hash_is_told() -> None:
    talk = [user("Commit it."), *ran("a", "git commit -m fade", "[main aaaa111] fade")]
    amend = "git add -A && git commit --amend --no-edit"
    for call, name in (("b", "bbbb222"), ("c", "cccc333")):
        talk += [user("Once more."), *ran(call, amend, f"[main {name}] fade\n Date: today")]
    text = written([*talk, *TALK_OF_IT], 900)
    assert "aaaa111" not in text
    assert "bbbb222" not in text
    assert "[0] commit amended at [7]" in text
    assert "commit cccc333 fade" in text


def test_two_commits_of_one_subject_both_stand_where_nothing_was_amended() -> None:
    talk = [user("Go."), *ran("a", "git commit -am wip", "[main aaaa111] wip")]
    talk += ran("b", "git commit -m 'no git commit --amend here'", "[main bbbb222] no amend")
    text = written([*talk, *ran("c", "git commit -am wip", "[main cccc333] wip"), *TALK_OF_IT], 900)
    assert all(name in text for name in ("aaaa111", "bbbb222", "cccc333"))


def test_commits_that_were_reset_and_made_anew_and_fixups_that_were_folded_are_replaced() -> None:
    runs = [
        PassedRun(1, "git commit -m one", "[main aaaa111] one"),
        PassedRun(2, "git commit -m two", "[main bbbb222] two"),
        PassedRun(3, "git reset --soft HEAD~2", ""),
        PassedRun(4, "git commit -m both", "[main cccc333] both"),
        PassedRun(5, "git commit --fixup cccc333", "[main dddd444] fixup! both"),
        PassedRun(6, "git rebase --autosquash HEAD~2", "Successfully rebased"),
        PassedRun(7, "git checkout -q side && git commit --amend -m x", "[side eeee555] x"),
    ]
    assert known_commits(runs).replaced == {"aaaa111": 4, "bbbb222": 4, "dddd444": 6}


@given(st.lists(st.booleans(), max_size=8))
def test_as_many_commits_stand_as_were_made_and_not_amended(amended: list[bool]) -> None:
    commands = [
        f"git commit{' --amend' * one} -m s{at}" for at, one in enumerate([False, *amended])
    ]
    runs = [PassedRun(at, told, f"[main abcdef{at}] s{at}") for at, told in enumerate(commands)]
    assert len(known_commits(runs).replaced) == sum(amended)


def test_of_a_request_filed_again_after_a_failure_title_and_body_are_told_once() -> None:
    title = "Runtime port: hooks and mirroring must survive the switch"
    create = f'gh issue create --title "{title}" --body "{"It is a very long story. " * 40}"'
    failed = "could not add label: 'x' not found\n<shellId: 28 completed with exit code 1>"
    talk = [user("File it."), *ran("a", f"{create} --label x", failed)]
    talk += [*ran("b", f"{create} --label y", "https://git.example/issues/47"), *TALK_OF_IT]
    text = written(talk, 600)
    assert text.count(title) == 1
    assert text.count("agent filed [3]: ") == text.count("agent filed") == 1


def handed_over(title: str) -> Json:
    return user(f"PLEASE IMPLEMENT THIS PLAN:\n# {title}\n\n" + f"- {title}: do this.\n" * 90)


def test_a_plan_that_was_handed_over_says_that_a_newer_one_follows_and_is_told_in_short() -> None:
    plan = "# Keep the audience\n\n" + "- Keep the audience as it is.\n" * 90
    newer = "<proposed_plan>\n# Name the app\n- Use the slug.\n</proposed_plan>"
    talk = [
        user("Plan it."),
        assistant(f"<proposed_plan>\n{plan}</proposed_plan>"),
        user(f"PLEASE IMPLEMENT THIS PLAN:\n{plan}"),
        assistant("Implemented."),
        user("I would name the app by its slug. Plan that."),
        assistant(newer),
        user("Implement that plan."),
        assistant("I do."),
    ]
    text = written(talk, 300)
    assert "[2] user: (replaced: [4]) PLEASE IMPLEMENT THIS PLAN: # Keep the audience" in text
    assert text.count("Keep the audience as it is") < 12
    assert "I would name the app by its slug." in text


@pytest.mark.parametrize("handed", [True, False])
def test_a_plan_is_told_once_where_the_newest_request_hands_it_over(handed: bool) -> None:
    plan = "# Keep the audience\n\n- Keep `aud` as it is.\n"
    talk = [user("Plan it."), assistant(f"<proposed_plan>\n{plan}</proposed_plan>\n")]
    request = f"PLEASE IMPLEMENT THIS PLAN:\n{plan}" if handed else "Implement it."
    text = written(talk, 600, later=[user(request), assistant("I do.")])
    assert ("Keep `aud` as it is." in text) == (not handed)
    assert ("[a plan, which a later request hands over]" in text) == handed


def test_a_plan_without_a_word_is_handed_over_by_no_request_and_replaces_none() -> None:
    plan = "# Keep the audience\n\n- Keep `aud` as it is.\n"
    proposed = assistant(f"<proposed_plan>\n{plan}</proposed_plan>\n")
    empty = assistant("<proposed_plan>\n\n</proposed_plan>\n")
    text = written([user("Plan it."), proposed, user("Well?"), empty], 600, [user("Go on.")])
    assert "Keep `aud` as it is." in text
    assert "hands over" not in text


def test_of_documents_below_the_same_line_the_newest_stands_whole() -> None:
    talk = [handed_over("Old"), assistant("Done."), handed_over("New"), assistant("Done too.")]
    text = written([*talk, user("Now test it.")], 1_200)
    assert "[0] (replaced: [2]) PLEASE IMPLEMENT THIS PLAN: # Old" in text
    assert "[2] PLEASE IMPLEMENT THIS PLAN: # New" in text


def test_what_was_said_before_a_note_of_the_host_is_no_state_once_the_agent_goes_on() -> None:
    note = user("<task-notification>\nThe sweep finished.\n</task-notification>")
    talk = [user("Should we stop it?"), assistant("No, leave it: the sweep runs.")]
    assert "agent, before the newest request [1]" in written(talk, later=[note])
    told = written(talk, later=[note, assistant("The sweep is in: 2 new.")])
    assert "before the newest request" not in told
    assert "agent: No, leave it: the sweep runs." in told
    typed = [user("Then wait for it."), assistant("I wait.")]
    assert "agent, before the newest request [1]" in written(talk, later=typed)
    gone_on = [assistant("Stopped after all."), *typed]
    assert "before the newest request" not in written(talk, later=gone_on)


def test_what_the_agent_says_through_the_tool_that_ends_its_work_is_its_last_word() -> None:
    summary = "**Merged, green, closed.** The suites pass at `ea412f9`: 283 of 283. " * 3
    talk = [user("Go."), *answered("a", "task_complete", summary, summary=summary)]
    assert "Merged, green, closed. The suites pass" in written(talk)


def test_what_binds_of_a_skill_is_told_in_whole_sentences_though_its_lines_are_broken() -> None:
    skill = (
        "Base directory for this skill: /app/.skills/flow\n\n# Flow\n\n"
        "Each phase has a file. **Read the file when you\nenter the phase** — not before, and "
        "never skip it because the phase\nlooks obvious.\n\n"
        "- Never push to main unless the owner has\n  said so.\n- Be kind.\n"
    )
    text = written([user("Use it."), user(skill), assistant("I do."), *TALK_OF_IT], 900)
    told = next(line for line in text.splitlines() if "host's text" in line)
    assert "of it: **Read the file when you enter the phase** — not before, and never skip" in told
    assert "Never push to main unless the owner has said so." in told


def test_of_a_rule_whose_value_changes_the_rest_is_not_told_as_replaced() -> None:
    older = 'Always one commit per item, with the prefix "night: ".'
    newer = 'Commit prefix is "sched: " instead of "night: " from now on.'
    text = written([user(older), assistant("Understood."), user(newer), *TALK_OF_IT], 900)
    assert f"(changed: [2]) {older}" in text


def test_what_the_host_and_the_agent_add_for_the_hosts_sake_is_nobodys_word() -> None:
    cited = "<oai-mem-citation>\n<rollout_ids>\n0199-aa\n</rollout_ids>\n</oai-mem-citation>"
    talk = [user("Do it."), assistant(f"It is port 8093 now.\n{cited}")]
    talk += [user("[Request interrupted by user]"), user("No, leave the port.")]
    talk += [user("Why does [Request interrupted by user] stand in the log?")]
    text = written([*talk, *TALK_OF_IT], 900)
    assert "It is port 8093 now." in text
    assert "No, leave the port." in text
    assert "rollout" not in text
    assert text.count("interrupted") == text.count("Why does [Request interrupted by user] stand")


def test_what_the_user_says_again_and_again_is_told_once_where_it_was_said_last() -> None:
    talk = [m for n in range(9) for m in (user("Commit and continue."), assistant(f"Step {n}."))]
    text = written([user("Tidy the skill."), *talk, user("Now the README."), *TALK_OF_IT], 900)
    assert text.count("Commit and continue.") == 1
    assert "[17] Commit and continue." in text or "user: Commit and continue." in text


def test_the_hosts_line_behind_a_notification_is_not_the_users() -> None:
    note = "<task-notification>\n<task-id>b3</task-id>\n</task-notification>\n"
    line = "Read the output file to retrieve the result: /tmp/claude-1000/-a/tasks/b3.output"
    text = written([user("Deploy it."), user(f"{note}{line}"), *TALK_OF_IT], 900)
    assert "retrieve the result" not in text
    said = "Read the output file to retrieve the result: it is in out.txt."
    assert said in written([user(said), *TALK_OF_IT], 900)


def test_files_that_were_changed_since_the_last_commit_are_told_apart_from_the_others() -> None:
    def wrote(path: str) -> list[Json]:
        return answered(path, "Write", "Written.", file_path=path, content="x = 1\n")

    talk = [user("Do it."), *wrote("app/a.py"), *wrote("app/b.py")]
    assert "changed: app/b.py, app/a.py" in written([*talk, *TALK_OF_IT], 900)
    talk += ran("c", "git add -A && git commit -qm parts", "")
    assert "changed up to commit [5]: app/b.py, app/a.py" in written([*talk, *TALK_OF_IT], 900)
    failed, answer = ran("d", "git commit -qm late", "error: gpg failed to sign the data")
    answer["content"][0]["is_error"] = True
    talk += [*wrote("app/a.py"), failed, answer]
    told = written([*talk, *TALK_OF_IT], 900)
    assert "changed since commit [5]: app/a.py; before: app/b.py" in told


def test_the_branch_is_told_with_its_last_commit_and_whether_it_was_pushed() -> None:
    made = [user("Go."), *ran("a", "git switch -c fix/wal", "Switched to a new branch 'fix/wal'")]
    made += ran("b", "git commit -qm one", "[fix/wal 1f00aa1] one\n 1 file changed")
    assert "branch: fix/wal, last commit 1f00aa1 [3], no push of it is told" in written(made)
    made += ran("c", "git push", "To github.com:a/b\n   1f00aa0..1f00aa1  fix/wal -> fix/wal")
    assert "branch: fix/wal, last commit 1f00aa1 [3], pushed [5]" in written(made)
    made += ran("d", "git fetch", "   1f00aa0..1f00aa9  main       -> origin/main")
    assert "branch: fix/wal, last commit 1f00aa1 [3], pushed [5]" in written(made)
    made += ran("e", "git commit -qm two", "[fix/wal 2f00aa2] two\n 1 file changed")
    assert "branch: fix/wal, last commit 2f00aa2 [9], no push of it is told" in written(made)


def test_changes_that_were_never_committed_are_told_to_be_so_once_git_was_used() -> None:
    none = "git: no commit or push by the agent is told"
    made = [user("Go."), *answered("w", "Write", "Written.", file_path="a.py", content="x = 1\n")]
    assert none not in written(made)  # another tool than git may keep this work
    made += ran("a", "git status --short", " M a.py")
    assert none in written(made)
    assert none not in written([*made, *ran("b", "git commit -qm one", "")])
    assert none not in written([*made, *ran("b", "jj describe -m one", "")])
    assert none not in written([*made, *ran("b", "gh pr create --fill", "")])
    looked = [user("Go."), *ran("a", "git status --short", "")]
    assert none not in written(looked)


def test_no_branch_is_told_where_nothing_was_committed() -> None:
    looked = [user("Go."), *ran("a", "git status -sb", "## main...origin/main")]
    assert "branch: " not in written(looked)


def test_a_branch_that_was_asked_for_is_told_without_a_commit() -> None:
    asked = [user("Go."), *ran("a", "git branch --show-current", "feat/share\n")]
    assert "branch: feat/share" in written(asked)


def test_a_branch_is_told_where_it_was_committed_to_or_pushed_last() -> None:
    talk = [user("Go."), *ran("a", "git commit -qm one", "[main 1f00aa1] one\n 1 file changed")]
    later = ran("c", "git push", "   1f00aa0..1f00aa1  main -> main")
    assert "branch: main" in written(talk)
    assert "branch: " not in written(talk, later=[*later, user("And now?")])
