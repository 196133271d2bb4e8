"""Pins under every policy: no layer removes them, and all promises hold."""

from typing import Any

import pytest
from context_compaction import CompactRequest, compact
from context_compaction.policies import POLICIES
from hypothesis import given
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import (
    MODES,
    POLICY_EXAMPLES,
    SHARES,
    Mode,
    check_promises_at_share,
)
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, turn_with_call, user
from tests.support.strategies import FORMATS, conversations

PASSAGE = "The harbour master is called Ingrid."
MESSAGE = "Chapter seven stays as it was written."
RESULT = "the seal is number 4471-B"
OPTION = "Speak French to the harbour master."


def talk(start: int, stop: int) -> list[Json]:
    return [
        message
        for n in range(start, stop)
        for message in turn_with_call(n, f"Request {n}: go on with part {n}.")
    ]


@pytest.mark.parametrize(
    ("policy", "mode"),
    [(policy, "auto") for policy in POLICIES]
    + [("default", mode) for mode in ("micro", "full", "reactive")],
)
async def test_pinned_text_survives_any_number_of_compactions(policy: str, mode: Any) -> None:
    marked = [
        *talk(0, 4),
        user(f"Take note. <pin>{PASSAGE}</pin> Go on."),
        assistant("Noted."),
        user(MESSAGE),
        *answered("seal", "Bash", RESULT, command="cat seal"),
        assistant("I have seen the seal."),
    ]
    last = len(marked) - 2
    context = [*marked, *talk(4, 20)]
    pins: dict[str, Any] = {
        "pinned_messages": (last - 2, last),
        "pinned": (OPTION,),
    }
    async with temporary_archive() as archive:
        for round_number in range(3):
            request = CompactRequest(
                format="anthropic", mode=mode, policy=policy, target_tokens=9_000, **pins
            )
            result = await compact(context, request, archive=archive)
            text = str(result.messages)
            for pinned in (PASSAGE, MESSAGE, RESULT, *([OPTION] if result.boundary else [])):
                assert pinned in text, (round_number, pinned)
            context = [*result.messages, *talk(20 + 9 * round_number, 29 + 9 * round_number)]
            # A host that marks messages passes their new indices with each call.
            indices = [
                index
                for index, m in enumerate(context)
                if is_original(m, MESSAGE) or is_original(m, RESULT)
            ]
            pins = {"pinned_messages": tuple(indices), "pinned": (OPTION,)}


def is_original(message: Json, text: str) -> bool:
    content = message["content"]
    return text in str(content) and not str(content).lstrip("[{'").startswith("<")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("format", FORMATS)
@given(
    data=st.data(),
    mode=MODES,
    share=SHARES,
    policy=st.sampled_from(sorted(POLICIES)),
    pinned=st.lists(st.text(min_size=1, max_size=40).filter(str.strip), max_size=2),
)
@POLICY_EXAMPLES
def test_promises_hold_for_a_conversation_with_pins(
    format: str, data: st.DataObject, mode: Mode, share: float, policy: str, pinned: list[str]
) -> None:
    payload = data.draw(conversations(format))
    check_promises_at_share(payload, format, mode, share, policy=policy, pinned=tuple(pinned))
