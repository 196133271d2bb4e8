"""A document that was read once and that the work follows is told by what binds of it."""

from time import process_time

import pytest
from context_compaction import CompactRequest, compact, formats
from context_compaction.messages.model import text_of
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.tokens.counter import counter_for

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import assistant, call, lines, read, result, user

COUNT = counter_for("gpt-4o")
PATH = "/shop/docs/rollout-plan.md"
RULE = "Never widen the ledger schema without a migration, since replicas read it."
BROKEN_AT = RULE.index("without")
PLAN = f"""# Rollout plan

Written in spring.

## Ground rules

- {RULE[:BROKEN_AT].rstrip()}
  {RULE[BROKEN_AT:]}

## Shadow traffic

Mirror requests to the replica.

## Ledger backfill

Copy rows by day.

## Cutover window

Switch the gateway at night.
"""
WORK = "The shadow traffic runs, the ledger backfill is half done, the cutover window is open."


def talk(request: str, *said: str, path: str = PATH, text: str = PLAN) -> list[Json]:
    """A conversation that reads the document at its beginning and goes on to speak."""
    reads = [assistant(call("a", "Read", file_path=path)), user([result("a", text)])]
    later = [one for text in said for one in (user("Go on."), assistant(text))]
    return [user(request), *reads, assistant("I have read it."), *later]


def written(messages: list[Json], max_tokens: int = 1_500) -> str:
    parsed = formats.parse(messages, format="anthropic")
    return writer.write(SummaryInput(parsed, max_tokens), COUNT)


def test_what_binds_of_a_plan_that_the_user_named_and_the_agent_speaks_of_is_told_whole() -> None:
    text = written(talk("Start the work on the rollout-plan.", WORK))
    assert f"{PATH} [1], which the work follows, of it:" in text
    assert f"Ground rules: {RULE}" in text
    assert "Copy rows by day" not in text


@pytest.mark.parametrize(
    "messages",
    [
        talk("Look around.", WORK),  # nobody named it
        talk("Start the work on the rollout-plan.", "Other things are done."),
        talk("Start the work on the rollout-plan.", WORK, path="/shop/rollout-plan.py"),
        talk("Read the rollout-plan.", WORK, text="Never widen the ledger.\n"),
    ],
)
def test_a_text_that_nobody_named_or_speaks_of_is_not_taken_for_a_plan(
    messages: list[Json],
) -> None:
    assert "which the work follows" not in written(messages)


def test_of_several_files_of_one_name_none_is_taken_for_the_one_that_was_named() -> None:
    other = call("b", "Read", file_path="/shop/old/rollout-plan.md")
    reads = [assistant(other), user([result("b", "# Old plan\n\nKeep it.\n")])]
    messages = [*talk("Start the work on the rollout-plan.", WORK), *reads, assistant(WORK)]
    assert "which the work follows" not in written(messages)


def test_a_document_that_the_work_itself_changes_is_left_to_the_files() -> None:
    edit = call("b", "Edit", file_path=PATH, old_string="by day", new_string="by hour")
    changed = [user("Change it."), assistant(edit), user([result("b", "Done.")])]
    messages = [*talk("Start the work on the rollout-plan.", WORK), *changed, assistant(WORK)]
    assert "which the work follows" not in written(messages)


async def test_what_binds_of_a_followed_plan_survives_later_compactions() -> None:
    request = CompactRequest(mode="full", format="anthropic", session_id="s", target_tokens=3_000)
    messages = talk("Start the work on the rollout-plan.", WORK)
    async with temporary_archive() as archive:
        for number in range(3):
            log = lines(f"part {number} of the log", 150)
            reads = [assistant(call(f"l{number}", "Bash", command=f"cat {number}.log"))]
            more = [*reads, user([result(f"l{number}", log)]), assistant("I read the log.")]
            messages = [*messages, user(f"Look at log {number}."), *more, user("Good.")]
            done = await compact(messages, request, archive=archive)
            messages = [*done.messages, assistant("Yes.")]
            text = "\n".join(text_of(one.blocks) for one in read(done.messages))
            assert text.count(RULE) == 1
        write = call("w", "Write", file_path=PATH, content="# Another plan\n")
        more = [assistant(write), user([result("w", "Done.")]), user("And now?")]
        done = await compact([*messages, *more], request, archive=archive)
        assert "which the work follows" not in str(done.messages)


def test_a_long_document_costs_time_that_grows_with_its_length() -> None:
    started_seconds = process_time()
    written(talk("Start the rollout-plan.", WORK, text=PLAN + "\n" * 200_000 + "```\n" * 9))
    assert process_time() - started_seconds < 5
