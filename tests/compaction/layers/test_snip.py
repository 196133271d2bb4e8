"""Snip: the middle of a long list goes by message count, pairs kept."""

from context_compaction.layers.drop_messages import snip
from context_compaction.messages.model import Text
from context_compaction.messages.tool_pairs import problems
from context_compaction.settings import Settings

from tests.support.json_types import Json
from tests.support.small import (
    RULES,
    assistant,
    call,
    layer_context,
    read,
    result,
    user,
)


def chat(turns: int) -> list[Json]:
    return [
        message
        for n in range(turns)
        for message in (user(f"question {n}"), assistant(f"answer {n}"))
    ]


def test_up_to_its_limit_a_list_is_left_alone() -> None:
    messages = read(chat(25))
    assert snip(messages, layer_context()).messages is messages


def test_the_first_three_and_the_newest_forty_seven_stay_around_a_pointer() -> None:
    messages = read(chat(40))
    step = snip(messages, layer_context())
    note = step.messages[3]
    assert step.messages == (*messages[:3], note, *messages[-47:])
    assert note.blocks == (Text("[Messages removed: 30; originals: transcript://s/messages/3-32]"),)
    assert [edit.index for edit in step.edits] == list(range(3, len(messages) - 47))
    assert {edit.pointers for edit in step.edits} == {("transcript://s/messages/3-32",)}
    assert sum(e.tokens_after for e in step.edits) < sum(e.tokens_before for e in step.edits)


def test_cuts_move_outward_so_that_no_call_loses_its_result() -> None:
    payload = [user("go")]
    for n in range(40):
        payload += [
            assistant(call(f"a{n}", "Bash"), call(f"b{n}", "Bash")),
            user([result(f"a{n}", "1"), result(f"b{n}", "2")]),
        ]
    messages = read(payload)
    for most in range(10, 16):
        step = snip(messages, layer_context(Settings(snip_max_messages=most)))
        assert step.messages is not messages
        assert problems(step.messages, RULES) == []
        assert most <= len(step.messages) <= most + 3


def test_the_newest_stays_where_the_head_alone_would_be_more_than_may_stay() -> None:
    messages = read(chat(4))
    for most in (0, 1, 2, 3):
        step = snip(messages, layer_context(Settings(snip_max_messages=most)))
        assert step.messages[-1] is messages[-1]


def test_what_was_snipped_is_not_snipped_again() -> None:
    once = snip(read(chat(40)), layer_context()).messages
    assert snip(once, layer_context()).messages is once


def test_system_messages_and_the_providers_own_summaries_are_not_snipped() -> None:
    payload = chat(40)
    payload[7] = assistant({"type": "compaction", "content": "sealed"}, "go on")
    payload[11:11] = [{"role": "system", "content": "Speak French."}]
    messages = read(payload)
    step = snip(messages, layer_context())
    assert messages[7] in step.messages
    assert messages[11] in step.messages
