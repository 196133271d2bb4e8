"""Cut points: the index at which history is cut, and the messages that replace it."""

import re

from tests.support.json_types import Json
from tests.support.provider_rules import problems
from tests.support.small import (
    answered,
    assistant,
    call,
    compacted,
    lines,
    result,
    text,
    user,
)

OPENING = re.compile(
    r'<(context_summary|turn_context) originals="transcript://[^"/]+/messages/(\d+)-(\d+)@[0-9a-f]{12}">\n'
)


def turn(number: int, calls: int = 2) -> list[Json]:
    """Return a request, `calls` steps of about 500 tokens each, and an answer."""
    steps = [
        message
        for step in range(calls)
        for message in answered(
            f"c{number}_{step}", "Bash", lines(f"t{number}s{step}", 60), command=f"run {step}"
        )
    ]
    return [user(f"Request {number}"), *steps, assistant(f"Answer {number}")]


async def test_full_summary_is_first_and_contains_its_pointer() -> None:
    payload = [m for n in range(3) for m in turn(n)]
    answer = await compacted(payload, mode="full", session_id="s")
    [first] = [m for m in answer.messages if "<context_summary" in str(m["content"])]
    assert first is answer.messages[0]
    assert first["role"] == "user"
    found = OPENING.match(first["content"])
    assert found is not None
    assert answer.boundary is not None
    assert answer.boundary.start_seq == int(found[2]) == 0
    span = f"transcript://s/messages/0-{found[3]}"
    assert f'originals="{span}@' in first["content"]
    assert "\n[0] user: Request 0\n" in first["content"]
    assert first["content"].endswith("\n</context_summary>")
    assert not problems(answer.messages, "anthropic", original=payload)


async def test_split_turn_has_a_checkpoint_after_its_request() -> None:
    payload = [*turn(0), *turn(1, calls=12)[:-1]]
    answer = await compacted(payload, target_tokens=4_000, session_id="s")
    texts = [str(message["content"]) for message in answer.messages]
    request = answer.messages.index(user("Request 1"))
    assert answer.messages[request] is payload[6]
    assert texts[request + 1].startswith("<turn_context ")
    assert "Turn Context (split turn)" in texts[request + 1]
    assert answer.boundary is not None
    assert answer.boundary.is_split_turn
    assert answer.fits


async def test_request_stays_and_results_in_its_message_are_replaced() -> None:
    steered = user([result("x", lines("x", 60)), text("No, look into the parser instead.")])
    payload = [
        *turn(0),
        user("Mend it."),
        assistant(call("x", "Bash", command="ls")),
        steered,
        *turn(1, calls=12)[1:-1],
    ]
    answer = await compacted(payload, target_tokens=4_000)
    assert answer.status == "compacted"
    assert answer.fits
    assert user([text("No, look into the parser instead.")]) in answer.messages
    assert not problems(answer.messages, "anthropic", original=payload)
    assert any(edit.index == 8 and edit.pointers for edit in answer.edits)


async def test_system_messages_and_provider_summaries_stay_verbatim() -> None:
    compaction = assistant({"type": "compaction", "content": "sealed"}, "go on")
    payload = [
        user("start"),
        {"role": "system", "content": "Speak French."},
        compaction,
        *[m for n in range(4) for m in turn(n)],
    ]
    answer = await compacted(payload, mode="full")
    assert any(message is compaction for message in answer.messages)
    assert "Speak French." in str(answer.messages)
    assert not problems(answer.messages, "anthropic", original=payload)


async def test_list_starts_with_a_user_message_when_the_first_kept_is_the_assistants() -> None:
    compaction = assistant({"type": "compaction", "content": "sealed"}, "go on")
    payload = [user("start"), compaction, *[m for n in range(4) for m in turn(n)]]
    answer = await compacted(payload, mode="full")
    assert answer.status == "compacted"
    assert answer.messages[:2] == [
        user("[The conversation starts with the assistant.]"),
        compaction,
    ]
    assert not problems(answer.messages, "anthropic", original=payload)


async def test_call_next_to_a_provider_summary_is_replaced_with_its_result() -> None:
    block = {"type": "compaction", "content": "sealed"}
    payload = [
        user("start"),
        assistant(block, "go on", call("k", "Bash", command="ls")),
        user([result("k", lines("k"))]),
        *[m for n in range(4) for m in turn(n)],
    ]
    answer = await compacted(payload, mode="full")
    assert answer.status == "compacted"
    assert assistant(block) in answer.messages
    assert any(edit.index == 1 and edit.pointers for edit in answer.edits)
    assert not problems(answer.messages, "anthropic", original=payload)
