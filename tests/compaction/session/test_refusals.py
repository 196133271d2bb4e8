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


async def refused(tmp_path: Path, payload: list[Json], **wishes: Any) -> CompactResult:
    """The provider refused `payload`; the call is made by a process of its own."""
    wishes = {"format": "anthropic", "session_id": "s", "mode": "reactive", **wishes}
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        return await compact(payload, CompactRequest(**wishes), archive=archive)


@pytest.mark.parametrize("policy", REPLACING)
async def test_reactive_halves_at_each_rejection_until_nothing_is_left(
    tmp_path: Path, policy: str
) -> None:
    handed = [long_session()]
    answer = await refused(tmp_path, handed[0], policy=policy)
    while answer.status != "no_progress" and len(handed) < 9:
        assert answer.messages not in handed
        assert answer.tokens.upper <= answer.tokens.before // 2 or not answer.fits
        assert answer.messages[-1]["content"] == "Now the docs.", "the newest turn stays"
        assert not problems(answer.messages, "anthropic", original=long_session())
        handed.append(answer.messages)
        answer = await refused(tmp_path, handed[-1], policy=policy)
    assert answer.status == "no_progress"
    assert 2 <= len(handed) <= 6
    assert f"rejected {len(handed)} versions of this request" in answer.warnings[-1]
    assert answer.irreducible


@pytest.mark.parametrize("policy", ["claude-code", "four-layer"])
async def test_paper_policies_retry_once_and_warn(tmp_path: Path, policy: str) -> None:
    first = await refused(tmp_path, long_session(), policy=policy)
    assert first.status == "compacted"
    second = await refused(tmp_path, first.messages, policy=policy)
    assert (second.status, second.changed, second.fits) == ("no_progress", False, False)
    assert second.messages == first.messages
    assert any("reactive_retries allows (1)" in warning for warning in second.warnings)


async def test_rejected_result_is_not_returned_again(tmp_path: Path) -> None:
    first = await refused(tmp_path, long_session())
    second = await refused(tmp_path, first.messages)
    assert second.tokens.after < first.tokens.after
    # A host that keeps its own list, in another process: what is known to fail is not tried again.
    again = await refused(tmp_path, long_session())
    assert again.messages == second.messages


async def test_repeated_reactive_call_returns_the_same_bytes(
    tmp_path: Path,
) -> None:
    first = await refused(tmp_path, long_session())
    again = await refused(tmp_path, long_session())
    assert again.messages == first.messages
    assert any("this list with mode=reactive" in warning for warning in again.warnings)
    smaller = await refused(tmp_path, again.messages)
    assert smaller.tokens.after <= first.tokens.after // 2


async def test_auto_does_not_return_a_rejected_list(tmp_path: Path) -> None:
    wishes = {"mode": "auto", "target_tokens": 20_000}
    await refused(tmp_path, long_session(), **wishes)
    smaller = await refused(tmp_path, long_session(), target_tokens=20_000)
    again = await refused(tmp_path, long_session(), **wishes)
    assert again.messages == smaller.messages


async def test_reactive_reports_no_progress_each_time(tmp_path: Path) -> None:
    history = [user("a " * 9_000), assistant("b " * 9_000), user("Go on.")]
    first = await refused(tmp_path, history, mode="micro")
    again = await refused(tmp_path, history, mode="micro")
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
# A target of the caller's own, larger than what was refused.
@example(calls=[("answer", 0), ("answer", 90_000), ("answer", 90_000)])
def test_reactive_returns_no_rejected_list_for_any_target(
    calls: list[tuple[str, int]],
) -> None:
    async def run() -> None:
        handed = long_session()
        met: list[list[Json]] = []
        with TemporaryDirectory() as folder, anyio.fail_after(150):
            for whose, target in calls:
                handed = long_session() if whose == "first" else handed
                met.append(handed)
                answer = await refused(Path(folder), handed, target_tokens=target or None)
                assert answer.messages not in met or answer.messages == handed
                if answer.status == "no_progress":
                    assert "of this request" in answer.warnings[-1]
                    return
                assert answer.messages != handed
                is_halved = answer.tokens.after <= answer.tokens.before // 2
                assert whose == "first" or is_halved or not answer.fits
                handed = answer.messages

    anyio.run(run)
