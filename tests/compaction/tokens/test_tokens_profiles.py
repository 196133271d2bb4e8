"""A model's profile is found whatever the spelling of its name."""

import pytest
from context_compaction.tokens.models import profile_for


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5",
        "claude-sonnet-4-5-20250929",
        "claude-sonnet-4-5@20250929",
        "anthropic/claude-sonnet-4.5",
        "openrouter/anthropic/Claude-Sonnet-4.5:beta",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ],
)
def test_profile_is_found_when_the_name_has_a_provider_or_a_date(name: str) -> None:
    profile = profile_for(name)

    assert (profile.name, profile.factor, profile.context_window) == ("claude-3", 1.22, 200_000)


@pytest.mark.parametrize("name", [None, "", "llama-4", "claudette", "o", "gptx"])
def test_unknown_model_gets_cautious_values(name: str | None) -> None:
    profile = profile_for(name)

    assert profile.factor == 1.5
    assert (profile.context_window, profile.max_output_tokens) == (200_000, 16_384)


@pytest.mark.parametrize(
    ("name", "window", "output"),
    [
        ("claude-opus-4-8", 1_000_000, 128_000),
        ("claude-opus-4-5", 200_000, 64_000),
        ("gpt-4o-mini", 128_000, 16_384),
        ("gpt-4.1-nano", 1_047_576, 32_768),
        ("gpt-4", 8_192, 4_096),
        ("gemini-2.5-pro", 1_048_576, 65_536),
    ],
)
def test_known_model_has_its_limits(name: str, window: int, output: int) -> None:
    profile = profile_for(name)

    assert (profile.context_window, profile.max_output_tokens) == (window, output)
