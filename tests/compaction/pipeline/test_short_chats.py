"""Short chats of 300 to 2,000 tokens keep more text when the target grows."""

import random
import re
from itertools import pairwise

import pytest
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.short_chats import SHORT_CHATS, chat

NAMES = [*((name,) for name in SHORT_CHATS), ("trip", "recipe"), tuple(SHORT_CHATS)]
SHARES = range(10, 75, 10)
_LINE_TOKENS = 8


def talk(names: tuple[str, ...]) -> list[Json]:
    """The chats one after another, with one open request at the end."""
    *said, request = [message for name in names for message in chat(name)[:-1]] + [chat("trip")[-1]]
    return [*said, request]


def sentences(names: tuple[str, ...]) -> list[str]:
    """What is said in them, by the sentence."""
    texts = (text for name in names for text in SHORT_CHATS[name])
    return [
        one for text in texts for one in re.split(r"(?<=[.!?:;»])\s+|\n", text) if len(one) > 12
    ]


async def compacted(payload: list[Json], target: int) -> CompactResult:
    async with temporary_archive() as archive:
        request = CompactRequest(format="anthropic", model="gpt-4o", target_tokens=target)
        return await compact(payload, request, archive=archive)


async def size_of(payload: list[Json]) -> int:
    async with temporary_archive() as archive:
        counting = CompactRequest(mode="record", format="anthropic", model="gpt-4o")
        return (await compact(payload, counting, archive=archive)).tokens.upper


def text_of(result: CompactResult) -> str:
    return "\n".join(str(message["content"]) for message in result.messages)


@pytest.mark.parametrize("names", NAMES, ids="+".join)
async def test_short_chat_keeps_more_when_the_target_grows(names: tuple[str, ...]) -> None:
    payload = talk(names)
    full = await size_of(payload)
    results = [await compacted(payload, max(40, full * share // 100)) for share in SHARES]
    fitting = [result for result in results if result.fits]
    sizes = [result.tokens.upper for result in fitting]
    # A summary comes to half of what it replaces at most, so that a line may take a longer's place.
    assert all(more >= less - _LINE_TOKENS for less, more in pairwise(sizes))
    kept = [sum(one in text_of(result) for one in sentences(names)) for result in fitting]
    # One sentence more or less: where a longer one finds place, two shorter ones may give way.
    assert all(more >= less - 1 for less, more in pairwise(kept))
    assert kept[-1] >= 0.4 * len(sentences(names))


@pytest.mark.parametrize("seed", range(3))
async def test_turns_keep_more_when_the_target_grows(seed: int) -> None:
    """What the user said in all the chats, drawn with repetitions, and answers of the agent."""
    draw = random.Random(seed)
    said = [text for turns in SHORT_CHATS.values() for text in turns[::2]]
    told = [text for turns in SHORT_CHATS.values() for text in turns[1::2]]
    payload: list[Json] = []
    for _ in range(draw.randint(4, 14)):
        payload.append({"role": "user", "content": draw.choice(said)})
        payload.append({"role": "assistant", "content": draw.choice(told)})
    payload.append(chat("trip")[-1])
    all_said = {one for name in SHORT_CHATS for one in sentences((name,))}
    full = await size_of(payload)
    results = [await compacted(payload, max(40, full * share // 100)) for share in SHARES]
    texts = [text_of(result) for result in results if result.fits]
    kept = [sum(one in text for one in all_said) for text in texts]
    # Where more messages stay in full, fewer are summarised, and their summary is shorter.
    assert all(more >= less - max(1, less // 8) for less, more in pairwise(kept))
    assert kept[-1] > kept[0]


@pytest.mark.parametrize("names", NAMES, ids="+".join)
async def test_named_target_is_filled_in_a_short_chat(names: tuple[str, ...]) -> None:
    payload = talk(names)
    target = await size_of(payload) // 2
    result = await compacted(payload, target)
    assert 0.85 * target < result.tokens.upper <= target


@pytest.mark.parametrize("names", NAMES, ids="+".join)
async def test_small_summary_has_one_frame_line_and_no_headings(
    names: tuple[str, ...],
) -> None:
    payload = talk(names)
    result = await compacted(payload, await size_of(payload) * 3 // 10)
    first = text_of(result).split("\n")
    assert first[0].startswith("<context_summary ")
    assert not any(line.startswith("## ") for line in first[1:])
    assert "Condensed" not in text_of(result)


async def test_goal_stays_whole_with_its_rules() -> None:
    payload = talk(("trip",))
    full = await size_of(payload)
    for share in SHARES:
        text = text_of(await compacted(payload, max(40, full * share // 100)))
        assert "Now tell me what is still open." in text
        if share >= 40:
            assert "long weekend in Porto" in text
            assert "nothing before nine in the morning" in text
            assert "Both rules hold" in text
