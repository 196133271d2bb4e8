"""Pins under every policy: no layer removes them, and all promises hold."""

from typing import Any

import pytest
from context_compaction import CompactRequest, compact
from context_compaction.policies import POLICIES

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.small import answered, assistant, turn_with_call, user

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
