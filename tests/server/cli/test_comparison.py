"""Replaying a session request by request: cost, recall, and breaks of the cached prefix."""

import pytest
from context_compaction.request import CompactRequest
from mcp_server_compaction.cli.policies import READ_PRICE, WRITE_PRICE, Replay, replay

from tests.support.promises import temporary_archive
from tests.support.small import assistant, user
from tests.support.synthetic import synthetic_session


async def replay_anthropic(payload: list[dict[str, object]], **settings: object) -> Replay:
    request = CompactRequest(format="anthropic", **settings)  # type: ignore[arg-type]
    async with temporary_archive() as archive:
        return await replay(payload, request, archive)


async def test_replay_reads_the_previous_request_from_the_cache_when_nothing_is_compacted() -> None:
    payload = [
        user("word " * 3_000),
        assistant("One."),
        user("And src/app/main.py?"),
        assistant("Two."),
    ]
    first = await replay_anthropic(payload[:2])
    both = await replay_anthropic(payload)
    assert first.read_tokens == 0
    assert both.read_tokens == first.written_tokens
    assert both.compactions == 0
    assert both.billed_tokens == both.read_tokens * READ_PRICE + both.written_tokens * WRITE_PRICE


async def test_recall_counts_names_that_the_answer_repeats() -> None:
    payload = [
        user("Look at src/app/main.py and lib_util.c."),
        assistant("I read src/app/main.py now."),
    ]
    session = await replay_anthropic(payload)
    assert (session.needed, session.found) == (1, 1)


@pytest.mark.slow
async def test_default_policy_fits_the_window_and_rarely_breaks_the_prefix() -> None:
    payload = synthetic_session(60_000, 5)
    session = await replay_anthropic(payload, context_window=32_000)
    assert session.calls_over == 0
    assert session.compactions > 0
    assert session.compactions * 4 < session.calls
