"""Several compactions inside one turn keep one text for its start, and one for restored files."""

import json
from hashlib import md5

import pytest
from context_compaction import CompactRequest, compact

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS

STEPS = 24


def running_turn(steps: int) -> Turn:
    """Return a turn that has read `steps` files and goes on."""
    calls: list[Call] = []
    for step in range(steps):
        lines = [f"{step}.{line}: {md5(b'%d-%d' % (line, step)).hexdigest()}" for line in range(80)]
        text = Part("text", "\n".join(lines))
        calls.append(Call("Bash", {"command": f"cat src/f{step}.py"}, (text,)))
    steps_done = tuple(Step((call,), text=f"Step {n} is done.") for n, call in enumerate(calls))
    return Turn((Part("text", "Read all files."),), steps=steps_done, answer="")


@pytest.mark.parametrize("format", FORMATS)
async def test_text_of_a_long_turn_is_replaced_and_not_repeated(format: str) -> None:
    request = CompactRequest(
        format=format, session_id="s", context_window=40_000, max_output_tokens=4_000
    )
    compactions = 0
    async with temporary_archive() as archive:
        for steps in range(1, STEPS):
            messages: list[Json] = render([running_turn(steps)], format)
            if format.startswith("openai"):
                messages = [{"role": "system", "content": "You read files."}, *messages]
            result = await compact(messages, request, archive=archive)
            compactions += result.boundary is not None
            text = json.dumps(result.messages)
            assert text.count("<restored_files>") <= 1
            assert text.count("Step 0 is done.") <= 1
            assert text.count("Read all files.") == 1
    assert compactions >= 3
