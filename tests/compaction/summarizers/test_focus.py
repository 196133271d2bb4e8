"""The caller's instructions decide which topic a summary without a model prefers."""

import pytest

from tests.support.json_types import Json
from tests.support.small import agent, compacted, user

COUNT = 40


def conversation() -> list[Json]:
    turns = [
        message
        for n in range(COUNT)
        for message in (
            user(f"Please look at module {n}."),
            agent(f"The module {n} has the limit {n * 37}. " + f"It calls helper{n}. " * 30),
        )
    ]
    return [*turns, user("Go on.")]


@pytest.mark.parametrize("topic", range(2, COUNT - 4, 7))
@pytest.mark.parametrize("words", ["module {}", "What is the limit of helper{}?"])
async def test_summary_has_the_topic_of_the_instructions_at_any_age(topic: int, words: str) -> None:
    fact = f"has the limit {topic * 37}."
    plain = await compacted(conversation(), mode="full", target_tokens=1_000)
    focused = await compacted(
        conversation(), mode="full", target_tokens=1_000, instructions=words.format(topic)
    )
    assert fact not in str(plain.messages)
    assert fact in str(focused.messages)


async def test_instructions_without_a_rare_word_change_nothing() -> None:
    plain = await compacted(conversation(), mode="full", target_tokens=1_000, session_id="s")
    instructions = "Please look at the module"
    same = await compacted(
        conversation(), mode="full", target_tokens=1_000, session_id="s", instructions=instructions
    )
    assert same.messages == plain.messages
