"""Rules of the system prompt: never repeated, never lost, and conflicts with them are marked."""

from typing import Any

import pytest
from context_compaction import CompactRequest, compact
from context_compaction.messages import placeholders

from tests.support.converted import PROVIDER_FORMATS
from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.rendering import Call, Part, Step, Turn, render
from tests.support.small import lines

SYSTEM = "You help in a harbour office. Write the report in English. Deliveries close at 17:00."
CONFLICT = "Write the report in German instead, not in English."
ALLOWED = "Always greet the harbour master by name."


def talk(format: str, *requests: str) -> list[Json]:
    step = Step((Call("Bash", {"command": "ls"}, (Part("text", lines("out", 60)),)),))
    return render([Turn((Part("text", text),), (step,), "Done.") for text in requests], format)


async def compacted_twice(payload: list[Json], format: str, **options: Any) -> str:
    """Return the context after two compactions."""
    async with temporary_archive() as archive:
        request = CompactRequest(format=format, mode="full", **options)
        first = await compact(payload, request, archive=archive)
        grown = [*first.messages, *talk(format, "Go on with part 5.", "And the last part.")]
        return str((await compact(grown, request, archive=archive)).messages)


@pytest.mark.parametrize("format", PROVIDER_FORMATS)
@pytest.mark.parametrize("as_blocks", [False, True])
async def test_rule_is_marked_when_it_conflicts_with_the_system_prompt(
    format: str, as_blocks: bool
) -> None:
    system: Any = [{"type": "text", "text": SYSTEM}] if as_blocks else SYSTEM
    if as_blocks and format == "gemini":
        system = {"parts": [{"text": SYSTEM}]}
    payload = talk(format, "Count the boats.", CONFLICT, ALLOWED, "Go on.", "And the next part.")
    text = await compacted_twice(payload, format, system=system)
    assert f"{placeholders.DIFFERS}{CONFLICT}" in text
    assert ALLOWED in text
    assert f"{placeholders.DIFFERS}{ALLOWED}" not in text
    # The host sends the system prompt with every call, so repeating its rules would only cost.
    assert "Deliveries close" not in text


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("openai-chat", {"role": "system", "content": SYSTEM}),
        ("openai-chat", {"role": "developer", "content": SYSTEM}),
        ("openai-responses", {"role": "developer", "content": SYSTEM}),
        ("anthropic", {"role": "system", "content": SYSTEM}),
    ],
)
async def test_system_message_inside_the_list_stays_verbatim(format: str, message: Json) -> None:
    before = talk(format, "Count the boats.", "Count them again.")
    after = talk(format, CONFLICT, "Go on.", "And the next part.")
    text = await compacted_twice([*before, message, *after], format)
    assert text.count(SYSTEM) == 1
    assert f"{placeholders.DIFFERS}{CONFLICT}" in text
