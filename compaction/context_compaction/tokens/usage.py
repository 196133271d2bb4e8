"""The provider's own count: the usage that it reported for an earlier request, as an anchor.

An estimate that starts from the last report and counts only what followed is within 1 % on
average; the same estimator without it cannot count the system prompt, the tools and the provider's
own additions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from context_compaction.errors import SettingsError
from context_compaction.messages.model import JsonObject


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """The tokens of a request and its answer, as the provider reported them.

    Attributes:
        total_tokens: Everything up to and with the message at `message_index`, the system prompt
            and tools included.
        message_index: Position in the list of the answer that the usage was reported with.
    """

    total_tokens: int
    message_index: int


# Fields to add up, by the API that reports them; the first is the one that tells it apart. Cached
# input is counted apart by Anthropic, Bedrock and pi, and inside the input by OpenAI and Gemini.
_SHAPES: Mapping[str, tuple[str, ...]] = {
    "Anthropic Messages or OpenAI Responses": (
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
    ),
    "OpenAI Chat Completions": ("prompt_tokens", "completion_tokens"),
    "Gemini": (
        "promptTokenCount",
        "toolUsePromptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
    ),
    "Gemini's Python SDK": (
        "prompt_token_count",
        "tool_use_prompt_token_count",
        "candidates_token_count",
        "thoughts_token_count",
    ),
    "Bedrock Converse": (
        "inputTokens",
        "cacheReadInputTokens",
        "cacheWriteInputTokens",
        "outputTokens",
    ),
    "pi": ("input", "cacheRead", "cacheWrite", "output"),
}
_WRAPPERS = ("usage", "usageMetadata", "usage_metadata")
_REMEDY = "Pass the `usage` object of the provider's last answer as it came, or leave it out"


def anchor_from_usage(usage: JsonObject, message_index: int) -> UsageAnchor:
    """The anchor that a provider's usage report makes.

    Args:
        usage: The object as the API returned it (Anthropic, OpenAI Chat and Responses, Gemini,
            Bedrock Converse, pi), or the object that holds it under "usage" or "usageMetadata".
        message_index: Position of the answer that it was reported with, from 0.

    Raises:
        SettingsError: The report is of no known shape, or holds impossible numbers.
    """
    report = _unwrap(usage)
    for names in _SHAPES.values():
        if report.get(names[0]) is not None:
            total_tokens = sum(_tokens_of(report, name) for name in names)
            if total_tokens == 0:
                raise SettingsError(f"`usage` says that the request cost 0 tokens. {_REMEDY}.")
            return UsageAnchor(total_tokens, message_index)
    raise SettingsError(
        f"`usage` has none of the fields {', '.join(names[0] for names in _SHAPES.values())}. "
        f"{_REMEDY}."
    )


def _unwrap(usage: JsonObject) -> JsonObject:
    for name in _WRAPPERS:
        inner = usage.get(name)
        if isinstance(inner, dict):
            return cast("dict[str, object]", inner)
    return usage


def _tokens_of(report: JsonObject, name: str) -> int:
    value: Any = report.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SettingsError(f"`usage.{name}` is {value!r}, not a number of tokens. {_REMEDY}.")
    return value
