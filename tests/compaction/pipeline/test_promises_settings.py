"""The six promises under every policy, whatever its constants are changed to, in any window.

`HYPOTHESIS_PROFILE=nightly` looks at thousands of examples.
"""

from typing import Any

import anyio
import pytest
from context_compaction.errors import SettingsError
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import check_promises, refusable, temporary_archive
from tests.support.strategies import FORMATS, conversations, hostile_conversations

pytestmark = pytest.mark.slow

FRACTIONS = st.sampled_from([0.01, 0.1, 0.36, 0.5, 0.9, 1.0])
SIZES = st.sampled_from([0, 1, 50, 1_000, 100_000])
CONSTANTS: dict[str, st.SearchStrategy[Any]] = {
    "estimator": st.sampled_from(["auto", "chars/4", "chars/3"]),
    "trigger_tokens": SIZES,
    "trigger_fraction": FRACTIONS,
    "conversation_fraction": FRACTIONS,
    "target_fraction": FRACTIONS,
    "buffer_tokens": SIZES,
    "persist_result_tokens": SIZES,
    "persist_newest_chars": SIZES,
    "preview_chars": SIZES,
    "snip_max_messages": st.sampled_from([2, 5, 50]),
    "clear_every_turn": st.booleans(),
    "keep_recent_results": st.sampled_from([0, 1, 3, 50]),
    "min_result_tokens": SIZES,
    "min_savings_tokens": SIZES,
    "clip_argument_chars": SIZES,
    "keep_recent_fraction": FRACTIONS,
    "keep_recent_turns": st.sampled_from([0, 1, 6]),
    "summary_tokens": SIZES,
    "restore_files": st.sampled_from([0, 1, 5]),
    "restore_file_tokens": SIZES,
    "restore_total_tokens": SIZES,
    "scale_to_budget": st.booleans(),
}
CHANGES = st.sets(st.sampled_from(sorted(CONSTANTS)), max_size=5).flatmap(
    lambda names: st.fixed_dictionaries({name: CONSTANTS[name] for name in sorted(names)})
)
WINDOWS = st.sampled_from([300, 1_000, 4_000, 32_000])
MODES: st.SearchStrategy[Any] = st.sampled_from(["auto", "micro", "full", "reactive"])
IS_NIGHTLY = settings().max_examples > 1_000
EXAMPLES = settings(
    # A few in CI for each of the policies and formats: hundreds in all.
    max_examples=max(3, settings().max_examples // 20),
    phases=tuple(phase for phase in Phase if phase is not Phase.explain),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check(payload: list[Json], request: CompactRequest) -> None:
    async def run() -> None:
        async with temporary_archive() as archive:
            await check_promises(payload, request, archive)

    with refusable(payload):
        anyio.run(run)


@pytest.mark.timeout(7_200 if IS_NIGHTLY else 240)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data())
@EXAMPLES
def test_promises_hold_for_any_constants(policy: str, format: str, data: st.DataObject) -> None:
    source = data.draw(st.sampled_from([conversations, hostile_conversations]))
    request = CompactRequest(
        format=format,
        policy=policy,
        mode=data.draw(MODES),
        context_window=data.draw(WINDOWS),
        max_output_tokens=100,
        settings=data.draw(CHANGES),
    )
    payload = data.draw(source(format))
    if request.settings.get("buffer_tokens", 0) + 100 >= (request.context_window or 0):
        # Named, and so not cut: nothing is left for the conversation.
        with pytest.raises(SettingsError, match="leaves nothing for the conversation"):
            check(payload, request)
        return
    check(payload, request)
