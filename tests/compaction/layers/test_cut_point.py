"""Cut points: the index at which history is cut, and the messages that replace it."""

import re

from context_compaction.layers.cut_point import CutPoint, find_cut, history_of, turn_prefix_of
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import (
    COUNT,
    RULES,
    answered,
    assistant,
    call,
    compacted,
    lines,
    read,
    result,
    text,
    user,
    with_confirmed_texts,
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


def cut_of(messages: Messages, keep_tokens: int, **more: int | bool) -> CutPoint | None:
    return find_cut(messages, count=COUNT, rules=RULES, keep_tokens=keep_tokens, **more)  # type: ignore[arg-type]


def test_find_cut_prefers_the_start_of_a_turn() -> None:
    messages = read([m for n in range(4) for m in turn(n)])
    tail_tokens = COUNT.messages(messages[12:])
    cut = cut_of(messages, tail_tokens + 700)  # a message boundary would keep a little more
    assert cut == CutPoint(12)
    assert messages[12].blocks == read([user("Request 2")])[0].blocks


def test_find_cut_keeps_the_last_turns_when_they_fit() -> None:
    messages = read([m for n in range(4) for m in turn(n)])
    all_tokens = COUNT.messages(messages)
    assert cut_of(messages, 100, keep_turns=2, max_tokens=all_tokens) == CutPoint(12)
    assert cut_of(messages, 100, keep_turns=2, max_tokens=50) != CutPoint(12)


def test_cut_inside_the_running_turn_keeps_its_request() -> None:
    messages = read([*turn(0), *turn(1, calls=6)[:-1]])
    cut = cut_of(messages, 1_500)
    assert cut is not None
    assert cut.request_at == 6
    assert history_of(messages, cut) == messages[:6]
    assert turn_prefix_of(messages, cut) == messages[7 : cut.first_kept]


def test_find_cut_returns_none_when_only_synthetic_messages_would_be_replaced() -> None:
    summary = placeholders.summary(placeholders.Span("s", 0, 9), "what was said")
    assert cut_of(with_confirmed_texts(read([user(summary), user("go on")])), 0) is None
    assert cut_of(read([user("go")]), 0) is None


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


async def test_oversized_turn_keeps_its_request_in_full() -> None:
    request = "Mend the parser. " * 20
    payload = [user(request), *turn(0, calls=10)[1:-1]]
    answer = await compacted(payload, target_tokens=2_500)
    assert answer.fits
    assert payload[0] in answer.messages
    assert "<context_summary" not in str(answer.messages)


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


async def test_pinned_text_is_verbatim_once_at_the_start_of_every_summary() -> None:
    rule = "Never touch the production database."
    payload = [m for n in range(4) for m in turn(n)]
    answer = await compacted(payload, mode="full", pinned=(rule, f" {rule} ", ""))
    summary = answer.summary or ""
    assert summary.count(rule) == 1
    assert f"## Pinned (verbatim, still in force)\n- {rule}\n" in summary


async def test_later_summary_replaces_the_earlier_summary() -> None:
    full = CompactRequest(mode="full", format="anthropic", session_id="s")
    async with temporary_archive() as archive:
        first = await compact([m for n in range(3) for m in turn(n)], full, archive=archive)
        grown = [*first.messages, *[m for n in range(3, 6) for m in turn(n)]]
        second = await compact(grown, full, archive=archive)
    assert str(second.messages).count("<context_summary ") == 1
    assert "Request 0" in (second.summary or "")  # from the originals, not from the earlier summary
    assert second.boundary is not None
    assert second.boundary.start_seq == 0
