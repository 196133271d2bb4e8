"""What the agent thought behind a failure is told where it said nothing there."""

from pathlib import Path

import anyio
import pytest
from context_compaction import CompactRequest, compact, formats, open_archive
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import writer
from context_compaction.tokens.counter import counter_for

from tests.support.json_types import Json
from tests.support.small import answered, assistant, call, lines, result, thinking, user

COUNT = counter_for("gpt-4o")
CAUSE = "The JSON of the fixture holds a raw escape, which the decoder refuses."
THOUGHT = f"{CAUSE} I mend it there."
OLD, NEW = "raw escape \\x1b in the fixture", "escaped \\u001b in the fixture"
SECRET = "sk-ant-api03-" + "a1B2c3D4e5" * 9 + "-AA"


def failed() -> list[Json]:
    error = "FAIL test_fallback\nError: invalid JSON in the fixture: raw escape at 31"
    ran = assistant("I run the tests.", call("c1", "Bash", command="pytest -q tests/fallback.py"))
    return [user("Make the tests pass."), ran, user([result("c1", error, is_error=True)])]


def mended(*before: Json | str) -> list[Json]:
    edit = call("c2", "Edit", file_path="a/f.py", old_string=OLD, new_string=NEW)
    return [assistant(*before, edit), user([result("c2", "Done.")])]


def passed() -> list[Json]:
    ran = answered("c3", "Bash", "3 passed", command="pytest -q tests/fallback.py")
    return [*ran, assistant("All tests pass."), user("Good. What is next?")]


def written(messages: list[Json], format: str = "anthropic", max_tokens: int = 1_000) -> str:
    parsed = formats.parse(messages, format=format)
    return writer.write(SummaryInput(parsed, max_tokens), COUNT)


def test_the_cause_of_a_failure_is_what_the_agent_thought_where_it_said_none() -> None:
    text = written([*failed(), *mended(thinking(THOUGHT)), *passed()])
    assert f"agent thought [3]: {CAUSE}" in text
    assert text.index("failed: pytest") < text.index(CAUSE)


def test_a_thought_that_is_a_message_of_its_own_is_told_with_the_calls_behind_it() -> None:
    def called(call_id: str, name: str, arguments: str, output: str) -> list[Json]:
        made = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        return [made, {"type": "function_call_output", "call_id": call_id, "output": output}]

    error = "Process exited with code 1\nError: invalid JSON: raw escape in the fixture at 31"
    shown = [{"type": "summary_text", "text": THOUGHT}]
    patch = f"*** Begin Patch\n*** Update File: f.py\n@@\n-{OLD}\n+{NEW}\n*** End Patch"
    items: list[Json] = [
        {"role": "user", "content": "Make the tests pass."},
        *called("c1", "shell", '{"command": "pytest -q"}', error),
        {"type": "reasoning", "id": "r1", "summary": shown, "encrypted_content": "AbCd" * 20},
        *called("c2", "shell", f'{{"command": "apply_patch {patch!r}"}}'.replace("'", ""), "Done"),
        {"role": "assistant", "content": "It is mended."},
    ]
    text = written(items, "openai-responses")
    assert CAUSE in text
    assert "AbCdAbCd" not in text


def test_what_the_agent_said_stands_alone() -> None:
    said = "The decoder refuses a raw escape: `f.py` holds one."
    text = written([*failed(), *mended(thinking(THOUGHT), said), *passed()])
    assert said in text
    assert "thought" not in text


@pytest.mark.parametrize(
    "block", [{"type": "redacted_thinking", "data": "cmVkYWN0ZWQ" * 9}, thinking("")]
)
def test_a_thought_without_a_text_is_not_told(block: Json) -> None:
    text = written([*failed(), *mended(block), *passed()])
    assert "thought" not in text
    assert "cmVk" not in text


def test_of_a_long_thought_a_few_sentences_are_told_that_name_most() -> None:
    musing = (
        "What else could it be, then? " * 9 + "It may be a matter of the order, who knows. " * 9
    )
    cause = "`f.py` holds a raw `\\x1b`, which `decoder.py` refuses."
    text = written([*failed(), *mended(thinking(f"{musing}{cause}")), *passed()])
    assert cause in text
    assert "What else" not in text
    assert text.count("who knows") < 6


def test_what_the_agent_thought_without_a_failure_is_not_told() -> None:
    change = call("c2", "Edit", file_path="limits.py", old_string="512", new_string="4096 # rows")
    listing = answered("c1", "Bash", "parser_limits = 512", command="cat limits.py")
    why = "`parser_limits` in the listing is 512, and it has to be 4096 for such rows."
    work = [assistant(thinking(why), change), user([result("c2", "Done.")])]
    talk = [user("Long rows fail."), *listing, *work, assistant("Now it is well, I think.")]
    assert "thought" not in written(talk)


def test_no_secret_of_a_thought_is_told(tmp_path: Path) -> None:
    async def run() -> str:
        thought = f"The raw escape of the fixture stands behind the key {SECRET} of the JSON."
        talk = [*failed(), *mended(thinking(thought)), *passed()]
        talk += [*answered("k1", "Bash", lines("out"), command="run"), assistant("It ran.")]
        wish = CompactRequest(mode="full", target_tokens=900, summarizer="extractive")
        index = tmp_path / "index"
        async with open_archive(tmp_path / "a", index_root=index, redaction="on") as archive:
            return str((await compact(talk, wish, archive=archive)).messages)

    text = anyio.run(run)
    assert "agent thought [3]: The raw escape of the fixture" in text
    assert SECRET not in text


def test_a_cause_stays_when_its_summary_is_summarised_again(tmp_path: Path) -> None:
    async def run() -> str:
        wish = CompactRequest(
            mode="full", target_tokens=1_500, summarizer="extractive", session_id="s"
        )
        held = [*failed(), *mended(thinking(THOUGHT)), *passed()]
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
            for n in range(3):
                more = answered(f"k{n}", "Bash", lines(f"out{n}"), command=f"run {n}")
                held = [*held, *more, assistant(f"Part {n} is done."), user(f"Go on with {n}.")]
                held = list((await compact(held, wish, archive=archive)).messages)
        return str(held)

    assert f"agent thought [3]: {CAUSE}" in anyio.run(run)
