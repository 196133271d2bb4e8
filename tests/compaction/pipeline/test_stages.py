"""The stages of a call: the same outcome whether somebody is asked between them, in few threads."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread
from context_compaction.archive import Archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, MODES, Mode
from tests.support.promises import temporary_archive
from tests.support.strategies import FORMATS, conversations

MOST_THREADS = 4


async def listening(_fraction: float, _step: str) -> None:
    """Somebody who wants to know how far the work is."""


@given(data=st.data(), mode=MODES, target_tokens=st.integers(100, 2_000))
@EXAMPLES
def test_who_listens_gets_the_same_outcome_as_who_does_not(
    data: st.DataObject, mode: Mode, target_tokens: int
) -> None:
    format = data.draw(st.sampled_from(FORMATS))
    payload = data.draw(conversations(format))
    request = CompactRequest(mode=mode, format=format, session_id="s", target_tokens=target_tokens)

    async def twice(archive: Archive, **options: Any) -> list[CompactResult]:
        first = await compact(payload, request, archive=archive, **options)
        return [first, await compact(first.messages, request, archive=archive, **options)]

    async def both() -> tuple[list[CompactResult], list[CompactResult]]:
        async with temporary_archive() as one, temporary_archive() as other:
            return await twice(one), await twice(other, report_progress=listening)

    alone, watched = anyio.run(both)
    assert alone == watched


@pytest.mark.parametrize(("target_tokens", "status"), [(100_000, "unchanged"), (500, "compacted")])
async def test_a_call_that_asks_nobody_goes_to_a_thread_four_times(
    monkeypatch: pytest.MonkeyPatch, target_tokens: int, status: str
) -> None:
    run_sync, threads = to_thread.run_sync, 0

    async def counted(work: Callable[..., Any], *given: Any, **options: Any) -> Any:
        nonlocal threads
        threads += 1
        return await run_sync(work, *given, **options)

    turn = [{"role": "user", "content": "go on " * 50}, {"role": "assistant", "content": "done"}]
    request = CompactRequest(target_tokens=target_tokens)
    async with temporary_archive() as archive:
        monkeypatch.setattr(to_thread, "run_sync", counted)
        result = await compact(turn * 20, request, archive=archive)
        monkeypatch.undo()
    assert (result.status, threads <= MOST_THREADS) == (status, True)
