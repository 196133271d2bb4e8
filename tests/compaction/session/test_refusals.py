"""After "prompt too long": each result is smaller, none repeats, and the series ends."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from context_compaction.archive.local.archive import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.provider_rules import problems
from tests.support.small import assistant, session, user

REPLACING = [name for name, policy in POLICIES.items() if "summarize" in policy.layers]


def long_session() -> list[Json]:
    return session(24, 120)


async def compact_rejected(tmp_path: Path, payload: list[Json], **options: Any) -> CompactResult:
    """Compact a list that the provider rejected, in a newly opened archive."""
    options = {"format": "anthropic", "session_id": "s", "mode": "reactive", **options}
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        return await compact(payload, CompactRequest(**options), archive=archive)


@pytest.mark.parametrize("policy", REPLACING)
async def test_reactive_halves_at_each_rejection_until_nothing_is_left(
    tmp_path: Path, policy: str
) -> None:
    rejected = [long_session()]
    result = await compact_rejected(tmp_path, rejected[0], policy=policy)
    while result.status != "no_progress" and len(rejected) < 9:
        assert result.messages not in rejected
        assert result.tokens.upper <= result.tokens.before // 2 or not result.fits
        assert result.messages[-1]["content"] == "Now the docs.", "the newest turn stays"
        assert not problems(result.messages, "anthropic", original=long_session())
        rejected.append(result.messages)
        result = await compact_rejected(tmp_path, rejected[-1], policy=policy)
    assert result.status == "no_progress"
    assert 2 <= len(rejected) <= 6
    assert f"rejected {len(rejected)} versions of this request" in result.warnings[-1]
    assert result.irreducible


@pytest.mark.parametrize("policy", ["claude-code", "four-layer"])
async def test_paper_policies_retry_once_and_warn(tmp_path: Path, policy: str) -> None:
    first = await compact_rejected(tmp_path, long_session(), policy=policy)
    assert first.status == "compacted"
    second = await compact_rejected(tmp_path, first.messages, policy=policy)
    assert (second.status, second.changed, second.fits) == ("no_progress", False, False)
    assert second.messages == first.messages
    assert any("reactive_retries allows (1)" in warning for warning in second.warnings)


async def test_repeated_reactive_call_returns_the_newest_list_not_rejected(tmp_path: Path) -> None:
    first = await compact_rejected(tmp_path, long_session())
    again = await compact_rejected(tmp_path, long_session())
    assert again.messages == first.messages
    assert any("this list with mode=reactive" in warning for warning in again.warnings)
    smaller = await compact_rejected(tmp_path, again.messages)
    assert smaller.tokens.after <= first.tokens.after // 2
    # A host that keeps its whole list does not get the rejected result again.
    last = await compact_rejected(tmp_path, long_session())
    assert last.messages == smaller.messages


async def test_auto_does_not_return_a_rejected_list(tmp_path: Path) -> None:
    options = {"mode": "auto", "target_tokens": 20_000}
    await compact_rejected(tmp_path, long_session(), **options)
    smaller = await compact_rejected(tmp_path, long_session(), target_tokens=20_000)
    again = await compact_rejected(tmp_path, long_session(), **options)
    assert again.messages == smaller.messages


async def test_reactive_reports_no_progress_each_time(tmp_path: Path) -> None:
    history = [user("a " * 9_000), assistant("b " * 9_000), user("Go on.")]
    first = await compact_rejected(tmp_path, history, mode="micro")
    again = await compact_rejected(tmp_path, history, mode="micro")
    assert first.status == again.status == "no_progress"
    assert (again.messages, again.warnings) == (first.messages, first.warnings)


CALLS = st.lists(
    st.tuples(st.sampled_from(["answer", "answer", "first"]), st.sampled_from([0, 2_000, 90_000])),
    min_size=2,
    max_size=7,
)


@pytest.mark.slow
@given(calls=CALLS)
@settings(max_examples=settings().max_examples // 5)
# The caller's target is larger than the rejected list.
@example(calls=[("result", 0), ("result", 90_000), ("result", 90_000)])
def test_reactive_returns_no_rejected_list_for_any_target(calls: list[tuple[str, int]]) -> None:
    async def run() -> None:
        rejected = long_session()
        rejected_lists: list[list[Json]] = []
        with TemporaryDirectory() as folder, anyio.fail_after(150):
            for source, target in calls:
                rejected = long_session() if source == "first" else rejected
                rejected_lists.append(rejected)
                result = await compact_rejected(
                    Path(folder), rejected, target_tokens=target or None
                )
                assert result.messages not in rejected_lists or result.messages == rejected
                if result.status == "no_progress":
                    assert "of this request" in result.warnings[-1]
                    return
                assert result.messages != rejected
                is_halved = result.tokens.after <= result.tokens.before // 2
                assert source == "first" or is_halved or not result.fits
                rejected = result.messages

    anyio.run(run)
