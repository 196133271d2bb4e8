"""What is known of a model is found by its name, however a host spells it."""

from time import process_time

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
def test_a_model_is_the_same_with_a_provider_or_a_date_around_it(name: str) -> None:
    profile = profile_for(name)

    assert (profile.name, profile.factor, profile.context_window) == ("claude-3", 1.22, 200_000)


@pytest.mark.parametrize(
    "name", ["claude-opus-4-7", "claude-opus-4-8", "claude-opus-5-5", "claude-haiku-5-5", "claude"]
)
def test_newer_and_unknown_claude_models_have_the_larger_factor(name: str) -> None:
    assert profile_for(name).factor == 1.5


@pytest.mark.parametrize(
    "name", ["claude-3-haiku-20240307", "claude-opus-4-20250514", "claude-opus-4-6"]
)
def test_claude_3_to_4_6_has_the_smaller_factor(name: str) -> None:
    assert profile_for(name).factor == 1.22


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4.1", "gpt-5", "gpt-5-codex", "o3", "o4-mini"])
def test_openai_models_count_with_their_own_tokenizer(name: str) -> None:
    assert profile_for(name).factor == 1.0


@pytest.mark.parametrize("name", [None, "", "llama-4", "claudette", "o", "gptx"])
def test_an_unknown_model_gets_cautious_values(name: str | None) -> None:
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
def test_known_models_have_their_limits(name: str, window: int, output: int) -> None:
    profile = profile_for(name)

    assert (profile.context_window, profile.max_output_tokens) == (window, output)


def test_a_name_of_any_length_is_looked_up_at_once() -> None:
    began = process_time()
    assert profile_for("claude-opus-4-8" * 50_000).factor == profile_for("claude-opus-4").factor
    assert profile_for("-" * 1_000_000).name == "unknown"
    assert process_time() - began < 1  # a minute and more, where each prefix was made
