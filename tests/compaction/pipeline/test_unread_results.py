"""Unread tool results get their share of a target first."""

from typing import Any

import anyio
import pytest
from context_compaction import formats
from context_compaction.messages.model import Text, ToolResult
from context_compaction.messages.speakers import newest_results
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.result import CompactResult
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compaction.pipeline.test_promises import EXAMPLES, LIMIT_SECONDS
from tests.support.json_types import Json
from tests.support.promises import check_promises, temporary_archive
from tests.support.rendering import render
from tests.support.script import Call, Part, Step, Turn
from tests.support.strategies import FORMATS

ASKED = "Where is the retry_budget set, and to what?"
FOUND = "the retry_budget is set to seventeen"


def session(turns: int, lines: int, found_at: float, results: int = 1) -> list[Turn]:
    """Return finished turns and a turn with results that the model has not read yet."""
    past = [
        Turn(
            (Part("text", f"Please look at part {n} of the machine."),),
            (Step((Call("read_file", {"path": f"p{n}.md"}, (Part("text", f"part {n} " * 40),)),)),),
            f"Part {n} is in order, all of its {n + 3} screws are tight.",
        )
        for n in range(turns)
    ]
    return [*past, Turn((Part("text", ASKED),), (_unread(lines, found_at, results),), "")]


def _unread(lines: int, found_at: float, results: int) -> Step:
    def text(result: int) -> str:
        rows = [f"journal {result}, line {n}: nothing of note" for n in range(lines)]
        rows[int(found_at * (lines - 1))] = FOUND
        return "\n".join(rows)

    names = [f"journal{n}.txt" for n in range(results)]
    calls = (
        Call("read_file", {"path": name}, (Part("text", text(n)),)) for n, name in enumerate(names)
    )
    return Step(tuple(calls))


def unread(result: CompactResult, format: str) -> list[str]:
    """Return the texts of the newest results in the compacted list."""
    messages = formats.parse(result.messages, format=format)
    blocks = (block for index in newest_results(messages) for block in messages[index].blocks)
    return [
        "\n".join(part.text for part in block.content if isinstance(part, Text))
        for block in blocks
        if isinstance(block, ToolResult)
    ]


async def compacted(payload: list[Json], format: str, target: int) -> CompactResult:
    async with temporary_archive() as archive:
        request = CompactRequest(format=format, target_tokens=target)
        return await check_promises(payload, request, archive)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS)
@given(
    format=st.sampled_from(FORMATS),
    turns=st.integers(0, 25),
    lines=st.integers(300, 1_500),
    found_at=st.floats(0.05, 0.95),
    results=st.integers(1, 3),
    share=st.floats(0.25, 0.9),
)
@settings(EXAMPLES, max_examples=2 * EXAMPLES.max_examples)  # spread over all formats
def test_unread_result_shows_head_and_pointer_when_too_large(
    format: str, turns: int, lines: int, found_at: float, results: int, share: float
) -> None:
    payload = render(session(turns, lines, found_at, results), format)

    async def run() -> None:
        target = int(lines * 8 * results * share) + 800
        result = await compacted(payload, format, target)
        assert result.fits
        texts = unread(result, format)
        assert len(texts) == results
        for number, text in enumerate(texts):
            if "<persisted-output" in text:
                assert 'id="o_' in text
                assert "read_persisted_output" in text
            assert f"journal {number}, line 0: nothing of note" in text
        shares = sum(len(text) for text in texts)
        assert shares > 0.5 * target  # at least a third; unknown models count more tokens

    anyio.run(run)


def host_text(format: str, role: str) -> Json:
    """Return a host text: a system message, or a reminder as a user message."""
    words = (
        "Five calls are left." if role != "user" else "<system-reminder>Be brief.</system-reminder>"
    )
    if format in ("gemini", "bedrock-converse"):
        return {"role": "user", "parts" if format == "gemini" else "content": [{"text": words}]}
    return {"role": role, "content": words if format != "pi" else [{"type": "text", "text": words}]}


@pytest.mark.parametrize(
    ("format", "roles"),
    [
        ("anthropic", ("system", "user")),
        ("openai-chat", ("system", "developer", "user")),
        ("openai-responses", ("system", "developer", "user")),
        ("gemini", ("user",)),
        ("bedrock-converse", ("user",)),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "full", "micro"])
async def test_host_text_after_the_newest_result_takes_no_room(
    format: str, roles: tuple[str, ...], mode: Any
) -> None:
    payload = render(session(8, 420, 0.5), format)
    request = CompactRequest(
        format=format, mode=mode, context_window=16_000, max_output_tokens=2_000
    )

    async def count_lines(*following: Json) -> int:
        async with temporary_archive() as archive:
            result = await compact([*payload, *following], request, archive=archive)
        return str(result.messages).count("journal 0, line ")

    alone = await count_lines()
    assert 20 < alone < 420
    least = 0.8 * alone  # the fill buys pieces of sixteen lines, and a few go elsewhere
    for role in roles:
        message = host_text(format, role)
        assert await count_lines(message) > least
        if format != "anthropic" or role == "user":
            assert await count_lines(message, message) > least
