"""Count the tokens and bytes of messages for a model, by block type, and of a whole request.

Every figure names its method, for example "o200k*1.50/claude": the tokenizer, the factor of the
model family, and the family. Images and documents count by size, never as base64 text.

If the host passes the usage of an earlier response, the provider has counted everything up to that
response: the system prompt, the tools, and what it adds itself. That figure is used as it is. Only
messages after it, and the effect of edits, are estimated, and only these estimates have a margin.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from context_compaction.errors import SettingsError
from context_compaction.messages.cache import CountCache, ObjectCache, cache_for, text_key
from context_compaction.messages.model import (
    Block,
    Document,
    Image,
    JsonObject,
    Message,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    compact_json,
    is_list,
    is_object,
    utf8_json,
)
from context_compaction.messages.raw import hide_private
from context_compaction.request import EstimatorName
from context_compaction.tokens import models
from context_compaction.tokens.media import (
    ImageRule,
    base64_tokens,
    decode_base64_text,
    document_tokens,
    encrypted_tokens,
    image_tokens,
)
from context_compaction.tokens.vocabulary import load_o200k

# Keys, braces and type names around a new block or message, in the longest format.
FRAME_BYTES = 200
# Tokens that a provider adds to a list, a message, a tool call and a tool result.
BASE_TOKENS = 10
MESSAGE_TOKENS = 4
TOOL_CALL_TOKENS = 20
TOOL_RESULT_TOKENS = 8

_TEXT_TYPES = ("text/", "application/json", "application/xml")
_LONG_BASE64 = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\-\r\n]{256,}={0,2}")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A token count.

    Attributes:
        tokens: The estimate.
        upper: Upper estimate, which the true count rarely exceeds.
        method: Name of the counting method.
    """

    tokens: int
    upper: int
    method: str


@dataclass(frozen=True, slots=True)
class MessageCounter:
    """Counts messages for one model family. Get one from `counter_for`.

    Counts are whole tokens, rounded up for each block. They add up exactly: the count of a list is
    `BASE_TOKENS` plus the counts of its messages.

    Attributes:
        counter: Counter of texts.
        image: Rule for the tokens of images.
        margin: Factor from an estimate to its upper estimate.
        cache: Counts of texts, shared by all calls with this counter.
        tokens: Token counts of messages, lists and blocks, which the counter keeps alive.
        sizes: Sizes of messages in bytes.
    """

    counter: models.TextCounter
    image: ImageRule
    margin: float
    cache: CountCache = field(default_factory=CountCache)
    tokens: ObjectCache = field(default_factory=ObjectCache)
    sizes: ObjectCache = field(default_factory=ObjectCache)

    @property
    def method(self) -> str:
        """Name of the counting method, for example "o200k*1.50/claude"."""
        return self.counter.name

    def with_own_caches(self) -> "MessageCounter":
        """Return a counter for one call, which starts with the counts of this one."""
        return replace(self, tokens=ObjectCache(self.tokens), sizes=ObjectCache(self.sizes))

    def learn(self, message: Message, tokens: int, size_bytes: int) -> None:
        """Cache the counts of a message, known from an equal message of an earlier call."""
        self.tokens.learn(message, tokens)
        self.sizes.learn(message, size_bytes)

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.cache.get_or_compute(text_key(text), lambda: self.counter.count(text))

    def block(self, block: Block) -> int:
        """Return the tokens of a block."""
        return self.tokens.get_or_compute(block, self._block)

    def _block(self, block: Block) -> int:
        match block:
            case Text():
                return self.text(block.text)
            case ToolCall(name=name, arguments=arguments):
                text = arguments if isinstance(arguments, str) else compact_json(arguments)
                return TOOL_CALL_TOKENS + self.text(f"{name} {text}")
            case ToolResult():
                return TOOL_RESULT_TOKENS + sum(map(self.block, block.content))
            case Thinking(text=text, signature=signature):
                return self.text(text) if text else encrypted_tokens(signature or "")
            case Image():
                return image_tokens(block.data or block.url, self.image)
            case Document():
                return self._document(block)
            case Opaque():
                return self._json(block.source)

    def message(self, message: Message) -> int:
        """Return the tokens of a message, including the tokens that the provider adds to it."""
        return self.tokens.get_or_compute(message, self._message)

    def total(self, messages: Sequence[Message]) -> int:
        """Return the sum of the tokens of messages, without `BASE_TOKENS`."""
        return self.tokens.total(messages, self._message)

    def messages(self, messages: Messages) -> int:
        """Return the tokens of a message list: `BASE_TOKENS` plus the tokens of its messages."""
        return self.tokens.get_or_compute(messages, self._messages)

    def request_bytes(self, messages: Sequence[Message]) -> int:
        """Return the bytes of messages in a request, for the provider's size limit."""
        return self.sizes.total(messages, message_bytes)

    def overhead(self, *, system: Any = None, tools: Sequence[JsonObject] | None = None) -> int:
        """Return the tokens of the system prompt and the tool definitions.

        Args:
            system: The prompt, as a string or in a provider's JSON form.
            tools: The tool definitions of the request.
        """
        tokens = 0
        if system:
            tokens += self.text(system) if isinstance(system, str) else self._json(system)
        if tools:
            # A public calibration of Claude 3.7 and 4.5 measured 366 to 549 tokens for using tools
            # at all, and 53 for each tool.
            tokens += 550 + sum(55 + self._json(tool) for tool in tools)
        return tokens

    def _messages(self, messages: Messages) -> int:
        return BASE_TOKENS + self.total(messages)

    def _message(self, message: Message) -> int:
        # An unedited message with hidden fields is sent with them, but no block counts them.
        raw = None if message.edited else message.source
        if raw is not None and hide_private(raw) is not raw:
            return MESSAGE_TOKENS + self._json(raw)
        return MESSAGE_TOKENS + sum(map(self.block, message.blocks))

    def _document(self, document: Document) -> int:
        if document.text is not None:
            return self.text(document.text)
        if document.data and document.media_type.startswith(_TEXT_TYPES):
            return self.text(decode_base64_text(document.data))
        return document_tokens(document)

    def _json(self, value: Any) -> int:
        """Return the tokens of a JSON value. Long base64 counts as its content, not as text."""
        media: list[str] = []
        tokens = self.text(compact_json(_without_base64(value, media)))
        return tokens + sum(base64_tokens(data, self.image) for data in media)


def counter_for(model: str | None = None, *, estimator: EstimatorName = "auto") -> MessageCounter:
    """Return the counter for a model.

    The first call of a process loads the vocabulary, which takes about 0.4 s of CPU.

    Args:
        model: Name of the model, with or without its provider; None counts cautiously.
        estimator: "auto" counts with the vocabulary in the package, times the factor of the model.
            "chars/4" is the papers' estimate and "chars/3" Claude Code's.

    Raises:
        VocabularyError: The vocabulary in the package is missing or damaged.
        SettingsError: The estimator is unknown.
    """
    profile = models.profile_for(model)
    if estimator in models.CHARS_COUNTERS:
        return MessageCounter(models.CHARS_COUNTERS[estimator], profile.image, margin=1.0)
    if estimator != "auto":
        raise SettingsError(f"`estimator` is {estimator!r}. Pass 'auto', 'chars/4' or 'chars/3'.")
    load_o200k()
    counter = models.model_counter(profile)
    return MessageCounter(counter, profile.image, profile.margin, cache_for(counter.name))


def _without_base64(value: Any, media: list[str]) -> Any:
    """Return a copy of a JSON value with long base64 strings moved to `media`."""
    if isinstance(value, str):
        if len(value) >= 256 and _LONG_BASE64.fullmatch(value):
            media.append(value)
            return ""
        return value
    if is_object(value):
        return {key: _without_base64(item, media) for key, item in value.items()}
    if is_list(value):
        return [_without_base64(item, media) for item in value]
    return value


def message_bytes(message: Message) -> int:
    """Return the bytes of the JSON that `message` adds to a request, media included.

    The size of an unedited message is exact for clients that write UTF-8 without white space, as
    the providers' SDKs do. The size of other messages is a close upper estimate.
    """
    if message.source is not None and not message.edited:
        return len(utf8_json(message.source))
    return FRAME_BYTES + sum(map(_block_bytes, message.blocks))


def _block_bytes(block: Block) -> int:
    if block.source is not None and not block.edited:
        return len(utf8_json(block.source))
    values: list[Any]
    match block:
        case ToolCall():
            # Some formats write the arguments as JSON inside a JSON string.
            values = [block.call_id, block.name, compact_json(block.arguments)]
        case ToolResult():
            values = [block.call_id, block.name]
        case Opaque():
            values = [block.source]
        case _:
            values = [getattr(block, name, None) for name in ("text", "signature", "data", "url")]
    content = block.content if isinstance(block, ToolResult) else ()
    return FRAME_BYTES + len(utf8_json(values)) + sum(map(_block_bytes, content))


def content_tokens(block: Block, count: MessageCounter) -> int:
    """Return the tokens of a block's content, without those that stay if a result is cleared."""
    if isinstance(block, ToolResult):
        return sum(count.block(part) for part in block.content)
    return count.block(block)


# A report below this share of the estimate is implausible: no tokenizer differs that much from
# the estimate, but hosts omit cached tokens or pass the usage of another request.
MIN_PLAUSIBLE_SHARE = 0.6
# Decimal places that are kept, because binary fractions are slightly off (110.00000000000001).
_DIGITS = 6

# The fields that each API reports and that add up to the total. The first field identifies the API.
# Anthropic, Bedrock and pi report cached input separately; OpenAI and Gemini include it in the
# input.
_USAGE_FIELDS = (
    # Anthropic Messages and OpenAI Responses.
    ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"),
    # OpenAI Chat Completions.
    ("prompt_tokens", "completion_tokens"),
    # Gemini, then its Python SDK.
    ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    (
        "prompt_token_count",
        "tool_use_prompt_token_count",
        "candidates_token_count",
        "thoughts_token_count",
    ),
    # Bedrock Converse.
    ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens", "outputTokens"),
    # pi.
    ("input", "cacheRead", "cacheWrite", "output"),
)
_REMEDY = "Pass the `usage` object of the provider's last response unchanged, or omit it."


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """The provider's token count of a request and its response.

    Attributes:
        total_tokens: Tokens of everything up to the message at `message_index` inclusive, with the
            system prompt and the tools.
        message_index: Index of the response in the message list, from 0.
    """

    total_tokens: int
    message_index: int


def anchor_from_usage(usage: JsonObject, message_index: int) -> UsageAnchor:
    """Return the anchor that a usage report gives.

    Args:
        usage: The object that the API returned (Anthropic, OpenAI Chat and Responses, Gemini,
            Bedrock Converse, pi), or an object that holds it as "usage" or "usageMetadata".
        message_index: Index of the response that the usage was reported with, from 0.

    Raises:
        SettingsError: The report has an unknown shape or impossible numbers.
    """
    wrapped = (usage.get(name) for name in ("usage", "usageMetadata", "usage_metadata"))
    report = next(filter(is_object, wrapped), usage)
    for names in _USAGE_FIELDS:
        if report.get(names[0]) is not None:
            total_tokens = sum(_reported_tokens(report, name) for name in names)
            if total_tokens == 0:
                raise SettingsError(f"`usage` reports a request of 0 tokens. {_REMEDY}")
            return UsageAnchor(total_tokens, message_index)
    known = ", ".join(names[0] for names in _USAGE_FIELDS)
    raise SettingsError(f"`usage` has none of the fields {known}. {_REMEDY}")


def _reported_tokens(report: JsonObject, name: str) -> int:
    value: object = report.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SettingsError(f"`usage.{name}` is {value!r}, not a number of tokens. {_REMEDY}")
    return value


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Counts the requests that one call can end with. Get one from `request_count`.

    Attributes:
        count: Counter of the messages.
        overhead_tokens: Tokens of the request besides the messages.
        anchor_tokens: The provider's count; 0 without a report.
        anchored_tokens: Our count of the messages that the provider counted.
        scale: The provider's count of those messages divided by our count, at most 1. If the
            provider counted more than we did, the difference is overhead.
        anchored_messages: Object IDs of the messages that the provider counted.
        anchored_blocks: Object IDs of the blocks of those messages.
        warnings: Warning about a usage report that is too low to be true and is not used.
    """

    count: MessageCounter
    overhead_tokens: int
    anchor_tokens: int = 0
    anchored_tokens: int = 0
    scale: float = 1.0
    anchored_messages: frozenset[int] = frozenset()
    anchored_blocks: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()

    @property
    def overhead_upper(self) -> int:
        """Upper estimate of the overhead. The provider's own count needs no margin."""
        return math.ceil(self.overhead_tokens * (1 if self.anchor_tokens else self.count.margin))

    def estimate(self, messages: Messages) -> Estimate:
        """Return the estimate of a request with `messages`."""
        method = self.count.method
        if not self.anchor_tokens:
            tokens = self.count.messages(messages) + self.overhead_tokens
            upper = math.ceil(round(tokens * self.count.margin, _DIGITS))
            return Estimate(tokens, upper, method)
        remaining, added = self._remaining_and_added(messages)
        removed = self.scale * (self.anchored_tokens - remaining)
        tokens = math.ceil(self.anchor_tokens - removed + added)
        upper = math.ceil(round(self._upper(remaining, added), _DIGITS))
        return Estimate(tokens, max(tokens, upper), f"usage+{method}")

    def message_limit(self, max_tokens: int) -> int:
        """Return how much messages of the caller's list may count in a request of `max_tokens`."""
        margin, scale = self.count.margin, self.scale
        if not self.anchor_tokens:
            return math.floor(round(max_tokens / margin, _DIGITS)) - self.overhead_tokens
        by_remaining = (max_tokens - self.overhead_tokens) / (scale * margin)
        by_removed = self.anchored_tokens - (self.anchor_tokens - max_tokens) * margin / scale
        return math.floor(max(by_remaining, by_removed))

    def room(self, messages: Messages, max_tokens: int) -> int:
        """Return how many tokens, by the counter, can be added to `messages`.

        The upper estimate of the request then is at most `max_tokens`. A negative result is
        the number of tokens to remove.
        """
        margin = self.count.margin
        if not self.anchor_tokens:
            tokens = self.count.messages(messages) + self.overhead_tokens
            return math.floor(round(max_tokens / margin, _DIGITS)) - tokens
        free = max_tokens - self._upper(*self._remaining_and_added(messages))
        return math.floor(round(free / margin, _DIGITS))

    def _upper(self, remaining: int, added: int) -> float:
        """Return the lower of two upper bounds, plus the added tokens with their margin.

        The first bound assumes that the remaining messages count more than estimated. The second
        assumes that the removed messages count less; if nothing was removed, it is the
        provider's count.
        """
        margin, removed = self.count.margin, self.anchored_tokens - remaining
        by_remaining = self.overhead_tokens + self.scale * remaining * margin
        by_removed = self.anchor_tokens - self.scale * removed / margin
        return min(by_remaining, by_removed) + added * margin

    def _remaining_and_added(self, messages: Messages) -> tuple[int, int]:
        """Return our count of the messages that the provider counted, and of all other content."""
        total = self.count.messages(messages)
        added = sum(map(self._added_tokens, messages))
        return total - added, added

    def _added_tokens(self, message: Message) -> int:
        if id(message) in self.anchored_messages:
            return 0
        if message.index is None:
            return self.count.message(message)
        new = [block for block in message.blocks if id(block) not in self.anchored_blocks]
        is_new_message = len(new) == len(message.blocks)
        return sum(map(self.count.block, new)) + (MESSAGE_TOKENS if is_new_message else 0)


def request_count(
    messages: Messages, count: MessageCounter, *, overhead_tokens: int, anchor: UsageAnchor | None
) -> RequestCount:
    """Return the count of the requests that `messages` can become.

    Args:
        messages: The caller's message list.
        count: The counter.
        overhead_tokens: Our count of the system prompt and the tools.
        anchor: The provider's count of the list up to one of its messages.
    """
    if anchor is None:
        return RequestCount(count, overhead_tokens)
    anchored = messages[: anchor.message_index + 1]
    anchored_tokens = count.messages(anchored)
    expected_tokens = anchored_tokens + overhead_tokens
    if anchor.total_tokens < MIN_PLAUSIBLE_SHARE * expected_tokens:
        warning = (
            f"`usage` reports {anchor.total_tokens:,} tokens, but the list has about "
            f"{expected_tokens:,}. The report was not used. Pass the complete usage object of the "
            "request, including the tokens that were read from and written to the cache."
        )
        return RequestCount(count, overhead_tokens, warnings=(warning,))
    # If the provider counted less than we did, it did so for the overhead as well.
    scale = min(1.0, anchor.total_tokens / expected_tokens)
    if scale == 1.0:
        overhead_tokens = max(0, anchor.total_tokens - anchored_tokens)
    else:
        overhead_tokens = math.ceil(overhead_tokens * scale)
    return RequestCount(
        count,
        overhead_tokens,
        anchor.total_tokens,
        anchored_tokens,
        scale,
        frozenset(map(id, anchored)),
        frozenset(id(block) for message in anchored for block in message.blocks),
    )
