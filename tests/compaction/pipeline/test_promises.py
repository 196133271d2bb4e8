"""The six promises on generated conversations, under every policy and with changed constants.

`HYPOTHESIS_PROFILE=nightly` runs thousands of examples.
"""

from typing import Any, Literal, get_args

import anyio
import pytest
from context_compaction.errors import SettingsError
from context_compaction.pipeline.compact import compact
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import check_promises, refusable, temporary_archive
from tests.support.strategies import FORMATS, conversations, hostile_conversations

pytestmark = pytest.mark.slow

Mode = Literal["auto", "micro", "full", "reactive"]
MODES = st.sampled_from(get_args(Mode))
SHARES = st.sampled_from([0.9, 0.5, 0.25, 0.1])
# The explain phase takes minutes on lists this large and explains little.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
EXAMPLES = settings(
    max_examples=settings().max_examples // 10,  # each example compacts a list three times
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


LIMIT_SECONDS = 7_200 if settings().max_examples > 1_000 else 240

# For tests that run once for each combination of policy and format.
POLICY_EXAMPLES = settings(EXAMPLES, max_examples=max(3, settings().max_examples // 30))

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


def check_promises_at_share(
    payload: list[Json], format: str, mode: Mode, share: float, **options: Any
) -> None:
    """Compact to a share of the tokens and check all promises."""

    async def run() -> None:
        # A separate archive, because the repaired list would otherwise be known already.
        async with temporary_archive() as another:
            counted = await compact(
                payload, CompactRequest(mode="record", format=format), archive=another
            )
        async with temporary_archive() as archive:
            target = max(1, int(counted.tokens.before * share))
            request = CompactRequest(mode=mode, format=format, target_tokens=target, **options)
            await check_promises(payload, request, archive)

    with refusable(payload):
        anyio.run(run)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("source", [conversations, hostile_conversations])
@given(data=st.data(), mode=MODES, share=SHARES)
@EXAMPLES
def test_promises_hold_for_generated_conversations(
    source: Any, format: str, data: st.DataObject, mode: Mode, share: float
) -> None:
    check_promises_at_share(data.draw(source(format)), format, mode, share)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "default"])
@given(
    data=st.data(),
    format=st.sampled_from(FORMATS),
    mode=MODES,
    share=SHARES,
    hostile=st.booleans(),
)
@EXAMPLES
def test_promises_hold_under_every_policy(
    policy: str, data: st.DataObject, format: str, mode: Mode, share: float, hostile: bool
) -> None:
    source = hostile_conversations if hostile else conversations
    check_promises_at_share(data.draw(source(format)), format, mode, share, policy=policy)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
@EXAMPLES
def test_valid_conversation_within_its_window_is_unchanged(
    format: str, data: st.DataObject
) -> None:
    payload = data.draw(conversations(format))

    async def run() -> None:
        async with temporary_archive() as archive:
            result = await compact(payload, CompactRequest(format=format), archive=archive)
        assert result.status == "unchanged"
        assert all(a is b for a, b in zip(result.messages, payload, strict=True))

    anyio.run(run)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(
    data=st.data(),
    policy=st.sampled_from([*POLICIES]),
    mode=MODES,
    window=WINDOWS,
    changes=CHANGES,
    pinned=st.lists(st.text(min_size=1, max_size=40).filter(str.strip), max_size=2),
    hostile=st.booleans(),
)
@settings(EXAMPLES, max_examples=EXAMPLES.max_examples * 3 // 5)
def test_promises_hold_for_any_constants_and_pins(
    format: str,
    data: st.DataObject,
    policy: str,
    mode: Mode,
    window: int,
    changes: dict[str, Any],
    pinned: list[str],
    hostile: bool,
) -> None:
    payload = data.draw((hostile_conversations if hostile else conversations)(format))
    request = CompactRequest(
        format=format,
        policy=policy,
        mode=mode,
        context_window=window,
        max_output_tokens=100,
        settings=changes,
        pinned=tuple(pinned),
    )

    async def run() -> None:
        async with temporary_archive() as archive:
            await check_promises(payload, request, archive)

    with refusable(payload):
        if changes.get("buffer_tokens", 0) + 100 < window:
            anyio.run(run)
            return
        # The caller's own buffer is not reduced, so it leaves no room for the conversation.
        with pytest.raises(SettingsError, match="leaves nothing for the conversation"):
            anyio.run(run)
