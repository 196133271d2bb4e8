"""The provider's usage report anchors an estimate, checked on a real session."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from context_compaction import formats
from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject, Messages, make_message
from context_compaction.tokens.counter import (
    UsageAnchor,
    anchor_from_usage,
    counter_for,
    request_count,
)

SESSION = Path(__file__).parents[3] / "examples" / "pi-session.jsonl"
SHORT = tuple(make_message("user", f"message {number}") for number in range(6))


@cache
def real_session() -> tuple[Messages, list[JsonObject]]:
    """Return a coding session with Claude Sonnet 4.5, with the API's usage of each response."""
    lines = map(json.loads, SESSION.read_text(encoding="utf-8").splitlines())
    payload = [line["message"] for line in lines if line["type"] == "message"]
    return formats.parse(payload, format="pi"), payload


def real_anchors() -> list[UsageAnchor]:
    """Return the session's reports, except early ones, because one response was aborted."""
    _, payload = real_session()
    return [
        anchor_from_usage(message["usage"], index)
        for index, message in enumerate(payload)
        if index >= 90 and any(message.get("usage", {}).get(name) for name in ("input", "output"))
    ]


# For each API, a report of 3,000 cached, 500 other and 100 output tokens, in all 3,600.
REPORTS: dict[str, JsonObject] = {
    "Anthropic": {
        "input_tokens": 12, "cache_read_input_tokens": 3_000, "cache_creation_input_tokens": 500,
        "output_tokens": 88, "service_tier": "standard",
    },
    "Anthropic without cache": {
        "input_tokens": 3_592, "cache_read_input_tokens": None, "output_tokens": 8,
    },
    "OpenAI Responses": {
        "input_tokens": 3_500, "input_tokens_details": {"cached_tokens": 3_000},
        "output_tokens": 100, "total_tokens": 3_600,
    },
    "OpenAI Chat": {
        "prompt_tokens": 3_500, "prompt_tokens_details": {"cached_tokens": 3_000},
        "completion_tokens": 100, "total_tokens": 3_600,
    },
    "Gemini": {
        "promptTokenCount": 3_500, "cachedContentTokenCount": 3_000, "candidatesTokenCount": 60,
        "thoughtsTokenCount": 40, "totalTokenCount": 3_600,
    },
    "Gemini, wrapped": {"usageMetadata": {"promptTokenCount": 3_500, "candidatesTokenCount": 100}},
    "Gemini's SDK": {"prompt_token_count": 3_500, "candidates_token_count": 100},
    "pi": {"input": 0, "output": 100, "cacheRead": 3_000, "cacheWrite": 500},
    "Bedrock Converse": {
        "inputTokens": 12, "cacheReadInputTokens": 3_000, "cacheWriteInputTokens": 500,
        "outputTokens": 88, "totalTokens": 3_600,
    },
}  # fmt: skip


@pytest.mark.parametrize("api", REPORTS)
def test_usage_report_counts_cached_input_once(api: str) -> None:
    assert anchor_from_usage(REPORTS[api], 4) == UsageAnchor(3_600, 4)


@pytest.mark.parametrize(
    ("usage", "index", "message"),
    [
        ({}, 0, "has none of the fields input_tokens, prompt_tokens"),
        ({"tokens": 5}, 0, "Pass the `usage` object of the provider's last response"),
        ({"input_tokens": "many"}, 0, "`usage.input_tokens` is 'many'"),
        ({"input_tokens": True}, 0, "`usage.input_tokens` is True"),
        ({"input_tokens": 5, "output_tokens": -1}, 0, "`usage.output_tokens` is -1"),
        ({"prompt_tokens": 5.5}, 0, "`usage.prompt_tokens` is 5.5"),
        ({"input_tokens": 0, "output_tokens": 0}, 0, "a request of 0 tokens"),
    ],
)
def test_usage_report_is_refused_when_it_is_impossible(
    usage: JsonObject, index: int, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        anchor_from_usage(usage, index)


def test_estimate_covers_messages_after_the_anchor_only() -> None:
    counter = counter_for("claude-opus-4-8")

    anchor = UsageAnchor(50_000, 3)
    requests = request_count(SHORT, counter, overhead_tokens=9_999, anchor=anchor)
    estimate = requests.estimate(SHORT)

    assert estimate.tokens == 50_000 + counter.message(SHORT[4]) + counter.message(SHORT[5])
    assert estimate.upper == 50_000 + -(-(estimate.tokens - 50_000) * 110 // 100)
    assert estimate.method == "usage+o200k*1.50/claude"


def test_estimated_growth_of_a_real_session_is_within_one_percent() -> None:
    messages, _ = real_session()
    counter = counter_for("claude-sonnet-4-5")
    first, *_, last = real_anchors()

    estimated = sum(
        map(counter.message, messages[first.message_index + 1 : last.message_index + 1])
    )

    assert estimated == pytest.approx(last.total_tokens - first.total_tokens, rel=0.01)


def test_upper_estimate_from_an_anchor_holds_in_a_real_session() -> None:
    """Hidden thinking is not in the list, so the report can exceed the estimate a little."""
    messages, _ = real_session()
    counter = counter_for("claude-sonnet-4-5")
    anchors = real_anchors()

    for anchor, truth in pairwise(anchors[::6]):
        part = messages[: truth.message_index + 1]
        requests = request_count(part, counter, overhead_tokens=0, anchor=anchor)
        estimate = requests.estimate(part)

        assert truth.total_tokens * 0.992 <= estimate.upper <= truth.total_tokens * 1.02
