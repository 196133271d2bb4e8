"""A session replayed call by call: its cost, what is still known, when the prefix breaks."""

import pytest
from context_compaction.request import CompactRequest
from mcp_server_compaction.compare.recall_metric import Names
from mcp_server_compaction.compare.replay import READ_PRICE, WRITE_PRICE, Replay, replay

from tests.support.promises import temporary_archive
from tests.support.small import assistant, user
from tests.support.synthetic import synthetic_session


async def replayed(payload: list[dict[str, object]], **wishes: object) -> Replay:
    request = CompactRequest(format="anthropic", **wishes)  # type: ignore[arg-type]
    async with temporary_archive() as archive:
        return await replay(payload, request, archive)


async def test_without_a_compaction_each_request_reads_the_one_before_from_the_cache() -> None:
    payload = [
        user("word " * 3_000),
        assistant("One."),
        user("And src/app/main.py?"),
        assistant("Two."),
    ]
    session = await replayed(payload)
    first, second = session.calls
    assert first.read_tokens == 0
    assert second.read_tokens == first.written_tokens
    assert session.compactions == 0
    written = first.written_tokens + second.written_tokens
    assert session.billed_tokens == second.read_tokens * READ_PRICE + written * WRITE_PRICE


async def test_recall_counts_names_that_the_model_uses_again() -> None:
    payload = [
        user("Look at src/app/main.py and lib_util.c."),
        assistant("I read src/app/main.py now."),
    ]
    session = await replayed(payload)
    [call] = session.calls
    assert (call.needed, call.found) == (1, 1)


@pytest.mark.slow
async def test_the_default_never_exceeds_the_window_and_breaks_the_prefix_rarely() -> None:
    payload = synthetic_session(60_000, 5)
    session = await replayed(payload, context_window=32_000)
    assert session.calls_over == 0
    assert session.compactions > 0
    breaks = [call.breaks_prefix for call in session.calls]
    assert sum(breaks) * 4 < len(breaks)


async def test_a_full_stop_behind_a_name_is_none_of_it() -> None:
    payload = [user("Look at src/app/main.py."), assistant("So I open src/app/main.py now.")]
    [call] = (await replayed(payload)).calls
    assert (call.needed, call.found, call.found_in_context) == (1, 1, 1)


def test_a_name_has_its_context_where_two_words_stand_near_it_as_before() -> None:
    names = Names()
    names.learn([user("The parser of invoices lives in src/billing/parse.py since May.")])
    needed = names.needed(assistant("I open src/billing/parse.py now."))
    assert needed == {"src/billing/parse.py"}
    for text, expected in (
        ("Files: src/billing/parse.py", (1, 0)),
        ("The parser: src/billing/parse.py", (1, 1)),
        ("The parser" + " ." * 200 + " src/billing/parse.py", (1, 0)),
        ("The parser of invoices lives elsewhere.", (0, 0)),
    ):
        assert names.found(needed, [user(text)]) == expected
