"""The six promises on generated conversations in every format, hostile ones included."""

from typing import Literal, get_args

import anyio
import pytest
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
# The explain phase takes minutes on lists this large, and says little about them.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
EXAMPLES = settings(
    max_examples=settings().max_examples // 10,  # each compacts a list three times over
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# The nightly profile has ten times as many examples, and more.
LIMIT_SECONDS = 7_200 if settings().max_examples > 1_000 else 240

# The default has the examples above; each other policy a few of every format.
POLICY_EXAMPLES = settings(EXAMPLES, max_examples=max(3, settings().max_examples // 30))


def check(
    payload: list[Json], format: str, mode: Mode, share: float, policy: str = "default"
) -> None:
    """Compact to a share of the tokens and check everything that is promised."""

    async def run() -> None:
        async with temporary_archive() as another:  # or what it repaired would stand already
            counted = await compact(
                payload, CompactRequest(mode="record", format=format), archive=another
            )
        async with temporary_archive() as archive:
            target = max(1, int(counted.tokens.before * share))
            request = CompactRequest(mode=mode, format=format, target_tokens=target, policy=policy)
            await check_promises(payload, request, archive)

    with refusable(payload):
        anyio.run(run)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), mode=MODES, share=SHARES)
@EXAMPLES
def test_promises_hold_for_generated_conversations(
    format: str, data: st.DataObject, mode: Mode, share: float
) -> None:
    check(data.draw(conversations(format)), format, mode, share)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data(), mode=MODES, share=SHARES)
@EXAMPLES
def test_promises_hold_for_hostile_conversations(
    format: str, data: st.DataObject, mode: Mode, share: float
) -> None:
    check(data.draw(hostile_conversations(format)), format, mode, share)


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "default"])
@given(data=st.data(), mode=MODES, share=SHARES, hostile=st.booleans())
@POLICY_EXAMPLES
def test_promises_hold_under_every_policy(
    policy: str, format: str, data: st.DataObject, mode: Mode, share: float, hostile: bool
) -> None:
    source = hostile_conversations if hostile else conversations
    check(data.draw(source(format)), format, mode, share, policy)


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
        assert all(one is other for one, other in zip(payload, result.messages, strict=True))

    anyio.run(run)
