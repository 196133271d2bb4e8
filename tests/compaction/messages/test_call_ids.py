"""Pairs of calls and results in lists that use IDs more than once."""

from collections.abc import Sequence

from context_compaction.messages.model import (
    NO_RESULT,
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    result_text,
    tool_calls,
    tool_results,
)
from context_compaction.messages.tool_pairs import with_unique_call_ids
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import assistant, call, read, result, user

IDS = st.sampled_from(["a", "b", "a_2"])
CALLS = IDS.map(lambda call_id: ToolCall(call_id, "Bash", {}))
RESULTS = st.tuples(IDS, st.sampled_from(["printed", "printed", NO_RESULT])).map(
    lambda pair: ToolResult(pair[0], (Text(pair[1]),))
)
MESSAGES = st.one_of(
    st.lists(CALLS, min_size=1, max_size=2).map(lambda calls: Message("assistant", tuple(calls))),
    st.lists(RESULTS, min_size=1, max_size=3).map(lambda made: Message("user", tuple(made))),
    st.sampled_from([Message("user", (Text("Go on."),)), Message("assistant", (Text("Hm."),))]),
    st.sampled_from([Message("user", (ToolCall("a", "Bash", {}),))]),
    st.sampled_from([Message("assistant", (ToolResult("a", (Text("printed"),)),))]),
)
HOSTILE = st.lists(MESSAGES, max_size=10).map(tuple)


def renamed(messages: Messages) -> list[tuple[str, str, str]]:
    """Return kind, ID in the list and unique ID of each call and result, in order."""
    named = with_unique_call_ids(messages)
    assert [message.role for message in named] == [message.role for message in messages]
    found: list[tuple[str, str, str]] = []
    for before, after in zip(messages, named, strict=True):
        for was, block in zip(before.blocks, after.blocks, strict=True):
            if isinstance(was, ToolCall):
                assert isinstance(block, ToolCall)
                found.append((f"{before.role} calls", was.call_id, block.call_id))
            elif isinstance(was, ToolResult):
                assert isinstance(block, ToolResult)
                assert block.content == was.content
                kind = "stand-in" if result_text(was) == NO_RESULT else "result"
                found.append((f"{before.role}'s {kind}", was.call_id, block.call_id))
            else:
                assert block is was
    return found


@given(HOSTILE)
def test_unique_call_ids_match_each_result_to_at_most_one_earlier_call(
    messages: Messages,
) -> None:
    blocks = renamed(messages)
    calls = [own for kind, _, own in blocks if kind.endswith("calls")]
    results = [own for kind, _, own in blocks if not kind.endswith("calls")]
    assert len(set(calls)) == len(calls)
    assert len(set(results)) == len(results)
    made: dict[str, str] = {}
    for kind, original, own in blocks:
        if kind == "assistant calls":
            made[own] = original
        elif kind != "user calls" and own in calls:  # a result with a call
            assert kind in ("user's result", "user's stand-in")
            assert made[own] == original


@given(HOSTILE)
def test_real_result_takes_precedence_over_a_synthetic_one(
    messages: Messages,
) -> None:
    blocks = renamed(messages)
    kinds = {own: kind for kind, _, own in blocks if not kind.endswith("calls")}
    for at, (kind, original, own) in enumerate(blocks):
        rest = [
            item for item, given, _ in blocks if given == original and item == "assistant calls"
        ]
        if kind != "assistant calls" or len(rest) > 1:
            continue
        later = [item for item, given, _ in blocks[at:] if given == original]
        expected = next((item for item in later if item == "user's result"), None)
        expected = expected or next((item for item in later if item == "user's stand-in"), None)
        assert kinds.get(own) == expected


@given(st.lists(st.tuples(st.lists(IDS, min_size=1, max_size=3), st.booleans()), max_size=6))
def test_results_belong_to_the_calls_directly_before_them(
    turns: Sequence[tuple[list[str], bool]],
) -> None:
    talk: list[Json] = [user("Go.")]
    for n, (ids, is_answered) in enumerate(turns):
        talk.append(assistant(*(call(item, "Bash", n=f"{n}.{k}") for k, item in enumerate(ids))))
        answers = [result(item, f"{n}.{k}") for k, item in enumerate(ids)]
        talk.append(user(answers if is_answered else "Never mind."))
    named = with_unique_call_ids(read(talk))
    asked = {item.call_id: item.arguments["n"] for message in named for item in tool_calls(message)}
    reported = {
        item.call_id: result_text(item) for message in named for item in tool_results(message)
    }
    assert len(asked) == sum(len(ids) for ids, _ in turns)
    assert reported.keys() <= asked.keys()
    assert all(asked[item] == text for item, text in reported.items())
    assert len(reported) == sum(len(ids) for ids, is_answered in turns if is_answered)


@given(HOSTILE)
def test_open_calls_keep_their_ids_when_messages_of_the_assistant_follow(
    messages: Messages,
) -> None:
    start = len(messages)
    while start and messages[start - 1].role == "assistant":
        start -= 1
    named = with_unique_call_ids(messages)
    before, after = (
        [item.call_id for message in part[start:] for item in tool_calls(message)]
        for part in (messages, named)
    )
    first = {call_id: before.index(call_id) for call_id in before}
    assert all(after[number] == call_id for call_id, number in first.items())
