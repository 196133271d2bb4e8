"""Short chats of 300 to 2,000 tokens keep more text when the target grows."""

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
    """Return the chats in sequence, with an open request at the end."""
    return [*(message for name in names for message in chat(name)[:-1]), chat("trip")[-1]]


def sentences(names: tuple[str, ...]) -> list[str]:
    """Return the sentences of the chats that have more than 12 characters."""
    texts = (text for name in names for text in SHORT_CHATS[name])
    parts = (part for text in texts for part in re.split(r"(?<=[.!?:;»])\s+|\n", text))
    return [part for part in parts if len(part) > 12]


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
    # A summary is limited to half of the replaced text, so a short line may replace a longer line.
    assert all(more >= less - _LINE_TOKENS for less, more in pairwise(sizes))
    counts = [sum(part in text_of(result) for part in sentences(names)) for result in fitting]
    # A longer sentence may replace two shorter ones.
    assert all(more >= less - 1 for less, more in pairwise(counts))
    assert counts[-1] >= 0.4 * len(sentences(names))


@pytest.mark.parametrize("names", NAMES, ids="+".join)
async def test_named_target_is_filled_in_a_short_chat(names: tuple[str, ...]) -> None:
    payload = talk(names)
    target = await size_of(payload) // 2
    result = await compacted(payload, target)
    assert 0.85 * target < result.tokens.upper <= target


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
