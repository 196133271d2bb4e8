"""Count the tokens and bytes of messages for a model, by block type.

Every figure names its method, for example "o200k*1.50/claude": the tokenizer, the factor of the
model family, and the family. Images and documents count by size, never as base64 text.
"""

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
from context_compaction.messages.private import hide_private
from context_compaction.settings import EstimatorName
from context_compaction.tokens.media import (
    ImageRule,
    base64_tokens,
    decode_base64_text,
    document_tokens,
    encrypted_tokens,
    image_tokens,
)
from context_compaction.tokens.models import profile_for
from context_compaction.tokens.tokenizers import CharsCounter, ModelCounter, TokenCounter
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
        tokens: Token counts of the messages, lists and blocks of one call; see `with_own_caches`.
        sizes: Sizes of the messages of one call, in bytes.
    """

    counter: TokenCounter
    image: ImageRule
    margin: float
    cache: CountCache = field(default_factory=CountCache)
    tokens: ObjectCache | None = None
    sizes: ObjectCache | None = None

    @property
    def method(self) -> str:
        """Name of the counting method, for example "o200k*1.50/claude"."""
        return self.counter.name

    def with_own_caches(self) -> "MessageCounter":
        """Return this counter with its own cache of message and block counts, for one call."""
        return replace(self, tokens=ObjectCache(self.tokens), sizes=ObjectCache(self.sizes))

    def learn(self, message: Message, tokens: int, size_bytes: int) -> None:
        """Cache the counts of a message, known from an equal message of an earlier call."""
        if self.tokens is not None and self.sizes is not None:
            self.tokens.learn(message, tokens)
            self.sizes.learn(message, size_bytes)

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.cache.get_or_compute(text_key(text), lambda: self.counter.count(text))

    def block(self, block: Block) -> int:
        """Return the tokens of a block."""
        if self.tokens is None:
            return self._block(block)
        return self.tokens.get_or_compute(block, self._block)

    def _block(self, block: Block) -> int:
        match block:
            case Text():
                return self.text(block.text)
            case ToolCall():
                return self._tool_call(block)
            case ToolResult():
                return TOOL_RESULT_TOKENS + sum(map(self.block, block.content))
            case Thinking():
                return self._thinking(block)
            case Image():
                return image_tokens(block.data or block.url, self.image)
            case Document():
                return self._document(block)
            case Opaque():
                return self._json(block.source)

    def message(self, message: Message) -> int:
        """Return the tokens of a message, including the tokens that the provider adds to it."""
        return self.total((message,))

    def total(self, messages: Sequence[Message]) -> int:
        """Return the sum of the tokens of messages, without `BASE_TOKENS`."""
        if self.tokens is None:
            return sum(map(self._message, messages))
        return self.tokens.total(messages, self._message)

    def messages(self, messages: Messages) -> int:
        """Return the tokens of a message list: `BASE_TOKENS` plus the tokens of its messages."""
        if self.tokens is None:
            return self._messages(messages)
        return self.tokens.get_or_compute(messages, self._messages)

    def request_bytes(self, messages: Sequence[Message]) -> int:
        """Return the bytes of messages in a request, for the provider's size limit."""
        if self.sizes is None:
            return sum(map(message_bytes, messages))
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

    def _tool_call(self, call: ToolCall) -> int:
        arguments = call.arguments
        text = arguments if isinstance(arguments, str) else compact_json(arguments)
        return TOOL_CALL_TOKENS + self.text(f"{call.name} {text}")

    def _thinking(self, thinking: Thinking) -> int:
        if thinking.text:
            return self.text(thinking.text)
        return encrypted_tokens(thinking.signature or "")

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
    profile = profile_for(model)
    if estimator in {"chars/4", "chars/3"}:
        by_chars = CharsCounter(4 if estimator == "chars/4" else 3)
        return MessageCounter(by_chars, profile.image, margin=1.0)
    if estimator != "auto":
        raise SettingsError(f"`estimator` is {estimator!r}. Pass 'auto', 'chars/4' or 'chars/3'.")
    load_o200k()
    counter = ModelCounter(profile)
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
