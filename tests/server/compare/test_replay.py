"""Replaying a session request by request: cost, recall, and breaks of the cached prefix."""

import pytest
from context_compaction.request import CompactRequest
from mcp_server_compaction.compare.recall_metric import NameRecall
from mcp_server_compaction.compare.replay import READ_PRICE, WRITE_PRICE, Replay, replay

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
    session = await replay_anthropic(payload)
    first, second = session.calls
    assert first.read_tokens == 0
    assert second.read_tokens == first.written_tokens
    assert session.compactions == 0
    written = first.written_tokens + second.written_tokens
    assert session.billed_tokens == second.read_tokens * READ_PRICE + written * WRITE_PRICE


async def test_recall_counts_names_that_the_answer_repeats() -> None:
    payload = [
        user("Look at src/app/main.py and lib_util.c."),
        assistant("I read src/app/main.py now."),
    ]
    session = await replay_anthropic(payload)
    [call] = session.calls
    assert (call.needed, call.found) == (1, 1)


@pytest.mark.slow
async def test_default_policy_fits_the_window_and_rarely_breaks_the_prefix() -> None:
    payload = synthetic_session(60_000, 5)
    session = await replay_anthropic(payload, context_window=32_000)
    assert session.calls_over == 0
    assert session.compactions > 0
    breaks = [call.breaks_prefix for call in session.calls]
    assert sum(breaks) * 4 < len(breaks)


async def test_recall_ignores_a_full_stop_after_a_name() -> None:
    payload = [user("Look at src/app/main.py."), assistant("So I open src/app/main.py now.")]
    [call] = (await replay_anthropic(payload)).calls
    assert (call.needed, call.found, call.found_in_context) == (1, 1, 1)


def test_name_is_found_in_context_when_two_of_its_words_are_near_it() -> None:
    recall = NameRecall()
    recall.learn([user("The parser of invoices lives in src/billing/parse.py since May.")])
    needed = recall.needed_names(assistant("I open src/billing/parse.py now."))
    assert needed == {"src/billing/parse.py"}
    for text, expected in (
        ("Files: src/billing/parse.py", (1, 0)),
        ("The parser: src/billing/parse.py", (1, 1)),
        ("The parser" + " ." * 200 + " src/billing/parse.py", (1, 0)),
        ("The parser of invoices lives elsewhere.", (0, 0)),
    ):
        assert recall.count_found(needed, [user(text)]) == expected
