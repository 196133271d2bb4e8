"""Snip: the middle of a long list is removed by message count, and pairs stay together."""

from context_compaction.layers.drop_messages import snip
from context_compaction.layers.repair import repair
from context_compaction.messages.model import tool_calls
from context_compaction.request import Settings

from tests.support.json_types import Json
from tests.support.small import (
    RULES,
    answered,
    assistant,
    layer_context,
    lines,
    read,
    user,
)


def chat(turns: int) -> list[Json]:
    return [
        message
        for n in range(turns)
        for message in (user(f"question {n}"), assistant(f"answer {n}"))
    ]


def test_snip_keeps_the_newest_message_when_the_limit_is_below_the_head() -> None:
    messages = read(chat(4))
    for most in (0, 1, 2, 3):
        step = snip(messages, layer_context(Settings(snip_max_messages=most)))
        assert step.messages[-1] is messages[-1]


def test_snip_keeps_system_messages_and_provider_summaries() -> None:
    payload = chat(40)
    payload[7] = assistant({"type": "compaction", "content": "sealed"}, "go on")
    payload[11:11] = [{"role": "system", "content": "Speak French."}]
    messages = read(payload)
    step = snip(messages, layer_context())
    assert messages[7] in step.messages
    assert messages[11] in step.messages


def test_snip_keeps_the_newest_plan_and_a_loaded_skill() -> None:
    def planned(call_id: str, state: str) -> list[Json]:
        todos = [{"content": "parse", "status": state}]
        return answered(call_id, "TodoWrite", "ok", todos=todos)

    skill = answered("s", "Skill", lines("rule", 40), skill="review")
    messages = read([*chat(3), *planned("a", "pending"), *skill, *planned("b", "done"), *chat(40)])
    step = snip(messages, layer_context())
    call_ids = {call.call_id for message in step.messages for call in tool_calls(message)}
    assert call_ids == {"s", "b"}
    assert repair(step.messages, RULES).edits == ()
    assert snip(step.messages, layer_context()).messages is step.messages
