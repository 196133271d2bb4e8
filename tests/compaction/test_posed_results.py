"""Results that a host hands over in the user's name are told from what the user typed."""

import pytest
from context_compaction import markers
from context_compaction.compaction import CompactRequest
from context_compaction.posed_results import with_results_told_apart

from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.small import assistant, lines, read, user

TASK = "Mend the parser. Always run the tests before you say that it is done."
LISTING = "12: never call this twice, always close the file\n13: must be 'days' or 'seconds'"


def loop(result: str, times: int = 5) -> list[Json]:
    """A host without tool calls: each answer runs, and its outcome comes as the user's words."""
    payload = [user(TASK)]
    for number in range(times):
        payload += [assistant(f"open part_{number}.py"), user(result.format(number))]
    return payload


def posed(payload: list[Json]) -> list[int]:
    messages = read(payload)
    told = with_results_told_apart(messages)
    return [at for at, message in enumerate(told) if message is not messages[at]]


@pytest.mark.parametrize(
    "result",
    [
        "[File: part_{}.py]\n" + LISTING + "\n(Open file: part.py)\nbash-$",
        "Observation: part_{}\n" + LISTING,
        "<returncode>0</returncode>\n<output>\npart_{}\n</output>",
        "<output>\npart_{}\n</output>",
        "[read_file for 'part_{}.py'] Result:\n\n" + LISTING,
        "EXECUTION RESULT of [read]:\npart_{}\n" + LISTING,
        "Tool result: part_{}\n" + LISTING,
        "root@box:/srv# ls part_{}\n" + LISTING + "\nroot@box:/srv#",
    ],
)
def test_results_are_told_apart_by_a_label_or_a_prompt(result: str) -> None:
    assert posed(loop(result)) == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    "said",
    [
        "Thanks! Now do number {}.",
        "Please: number {} next.\n\nThanks",
        "Number {} costs 5 $",
        "What does `cd ..` do in number {}?",
    ],
)
def test_what_somebody_types_again_and_again_is_no_result(said: str) -> None:
    assert posed(loop(said)) == []


def test_two_pasted_outputs_among_what_is_typed_are_no_results() -> None:
    payload = loop("Go on with {}.", 4)
    payload += [assistant("And?"), user("Output: 5 failed"), assistant("?"), user("Output: 1")]
    assert posed(payload) == []


def test_the_task_itself_is_never_a_result() -> None:
    payload = loop("part {}\nbash-$")
    payload[0] = user(TASK + "\nbash-$")
    assert markers.is_request(with_results_told_apart(read(payload))[0])


async def test_a_summary_quotes_no_result_as_the_users_request_or_words() -> None:
    payload = loop("[File: part_{}.py]\n" + LISTING + lines("code", 80) + "\nbash-$", 12)
    async with temporary_archive() as archive:
        request = CompactRequest(format="anthropic", target_tokens=2_500, session_id="s")
        answer = await check_promises(payload, request, archive)
    assert answer.summary is not None
    asked = answer.summary.partition("## Goal, requests\n")[2].partition("\n## ")[0]
    assert asked == f"- {TASK}"
    assert "- user: " not in answer.summary
