"""The path from a window to trigger and target, and the tokens that always stay."""

import re
from dataclasses import replace
from typing import Any

import pytest
from context_compaction.budget import Budget, window_budget
from context_compaction.errors import SettingsError
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest, Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.promises import temporary_archive
from tests.support.small import compacted, lines, session


def make_budget(context_window: int, max_output_tokens: int, **settings: Any) -> Budget:
    request = CompactRequest(context_window=context_window, max_output_tokens=max_output_tokens)
    return window_budget(request, Settings(**settings))


@given(context_window=st.integers(16, 2_000_000), max_output_tokens=st.integers(1, 200_000))
def test_budget_leaves_nearly_half_of_every_window(
    context_window: int, max_output_tokens: int
) -> None:
    budget = make_budget(context_window=context_window, max_output_tokens=max_output_tokens)

    assert 0.49 * context_window <= budget.trigger_tokens < context_window


@given(context_window=st.integers(16, 2_000_000), max_output_tokens=st.integers(1, 200_000))
def test_budget_follows_the_formula_when_it_leaves_a_quarter(
    context_window: int, max_output_tokens: int
) -> None:
    budget = make_budget(
        context_window=context_window, max_output_tokens=max_output_tokens, small_window="formula"
    )
    formula = context_window - min(max_output_tokens, 20_000) - 13_000
    assert budget.trigger_tokens >= 0.25 * context_window
    if formula >= 0.25 * context_window:
        assert budget.trigger_tokens == formula


@given(small=st.integers(16, 200_000), growth=st.integers(0, 10_000))
def test_trigger_does_not_fall_when_the_window_grows(small: int, growth: int) -> None:
    before = make_budget(context_window=small, max_output_tokens=64_000)
    after = make_budget(context_window=small + growth, max_output_tokens=64_000)

    assert before.trigger_tokens <= after.trigger_tokens + 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context_window": 0}, "`context_window` is 0"),
        ({"max_output_tokens": -1}, "`max_output_tokens` is -1"),
        ({"buffer_tokens": 190_000}, "leaves nothing for the conversation. Lower them"),
    ],
)
def test_budget_is_refused_with_a_remedy_when_it_is_impossible(
    settings: dict[str, Any], message: str
) -> None:
    values: dict[str, Any] = {"context_window": 200_000, "max_output_tokens": 16_384, **settings}

    with pytest.raises(SettingsError, match=message):
        make_budget(**values)


TOOLS = [{"name": "t", "description": lines("d", 600), "input_schema": {"type": "object"}}]


async def test_window_is_refused_when_fixed_tokens_fill_it() -> None:
    with pytest.raises(SettingsError, match="true `context_window`, fewer tools"):
        await compacted(session(24, 120), context_window=9_000, tools=TOOLS)


@given(window_tokens=st.integers(16_000, 100_000), share=st.floats(0.1, 0.7))
@settings(max_examples=25)
async def test_system_prompt_and_tools_leave_a_third_of_the_rest_to_the_conversation(
    window_tokens: int, share: float
) -> None:
    overhead_tokens = int(window_tokens * share)
    result = await compacted(
        session(24, 120),
        context_window=window_tokens,
        max_output_tokens=32_000,
        overhead_tokens=overhead_tokens,
    )
    fixed_tokens = result.tokens.trigger - overhead_tokens
    assert fixed_tokens >= 0.2 * (window_tokens - overhead_tokens)
    assert result.tokens.trigger < window_tokens
    assert result.fits or result.irreducible
    if result.tokens.trigger + 20_000 > window_tokens:
        assert any("are reserved for the response" in warning for warning in result.warnings)


async def test_reactive_keeps_part_of_the_conversation_next_to_many_tools() -> None:
    history = session(8, 60)
    result = await compacted(history, mode="reactive", tools=TOOLS)
    alone = await compacted(history, mode="reactive")
    tools_tokens = result.tokens.before - alone.tokens.before
    assert tools_tokens > result.tokens.before / 2
    assert result.fits
    assert result.tokens.after - tools_tokens > 1_000


LONG = lines("s", 300)
SYSTEM_MESSAGES: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [{"role": "system", "content": LONG}],
    "openai-chat developer": [{"role": "developer", "content": LONG}],
    "openai-chat late": [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Yes."},
        {"role": "system", "content": LONG},
    ],
    "openai-responses": [{"type": "message", "role": "developer", "content": LONG}],
    "anthropic": [{"role": "system", "content": LONG}],
    "gemini": [{"role": "system", "parts": [{"text": LONG}]}],
}


def talk(format_name: str) -> list[Any]:
    """Return a conversation without tools in one of the formats."""
    messages: list[Any] = []
    for number in range(20):
        for role in ("user", "assistant"):
            text = lines(f"{role}_{number}", 30)
            if format_name == "gemini":
                name = "user" if role == "user" else "model"
                messages.append({"role": name, "parts": [{"text": text}]})
            else:
                messages.append({"role": role, "content": text})
    return messages


FIXED: list[tuple[list[Any], dict[str, Any], str]] = [
    *(
        (session(24, 120), options, "Nothing would be left")
        for options in ({"tools": TOOLS}, {"system": lines("s", 600)}, {"overhead_tokens": 9_000})
    ),
    *(
        ([*messages, *talk(name.split()[0])], {"format": name.split()[0]}, "system messages, which")
        for name, messages in SYSTEM_MESSAGES.items()
    ),
]


@pytest.mark.parametrize(
    ("history", "options", "message"), FIXED, ids=["tools", "system", "overhead", *SYSTEM_MESSAGES]
)
@pytest.mark.parametrize("mode", ["full", "micro"])
async def test_target_is_refused_when_fixed_tokens_fill_it(
    mode: Any, history: list[Any], options: dict[str, Any], message: str
) -> None:
    request = CompactRequest(mode=mode, session_id="s", target_tokens=3_000, **options)
    async with temporary_archive() as archive:
        with pytest.raises(SettingsError, match=message) as caught:
            await compact(history, request, archive=archive)
        assert await archive.sessions() == ([], None)
        least = int(re.findall(r"Pass more than (\d+)", str(caught.value))[0])
        with pytest.raises(SettingsError, match=f"more than {least}"):
            await compact(history, replace(request, target_tokens=least), archive=archive)
        larger = replace(request, target_tokens=least + 4_000)
        result = await compact(history, larger, archive=archive)
        assert result.fits or mode == "micro"
        recorded = await compact(history, replace(request, mode="record"), archive=archive)
        assert len(recorded.messages) == len(history)


@given(
    system_lines=st.integers(1, 900), target=st.integers(300, 14_000), is_named=st.booleans(),
    mode=st.sampled_from(["auto", "full", "reactive"]),
)  # fmt: skip
@settings(max_examples=12)
async def test_compact_keeps_conversation_next_to_system_messages(
    system_lines: int, target: int, is_named: bool, mode: Any
) -> None:
    history = [{"role": "developer", "content": lines("s", system_lines)}, *talk("openai-chat")]
    size = {"target_tokens": target} if is_named else {"context_window": 2 * target}
    request: dict[str, Any] = {"mode": mode, "format": "openai-chat", "model": "gpt-4o", **size}
    try:
        result = await compacted(history, **request)
    except SettingsError as caught:
        assert "which stay, take up to" in str(caught)  # noqa: PT017
        return
    [fixed] = [m for m in result.messages if m["role"] == "developer"]
    assert fixed == history[0]
    assert result.fits or result.tokens.after - result.tokens.target < 400
