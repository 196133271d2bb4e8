"""Counting conversations: tokens by block type, for a model, with an upper estimate.

Every figure names its method, such as "o200k*1.50/claude": the counter, the factor for the model
family, and the family. Pictures and documents are charged by size, never as text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from context_compaction.errors import SettingsError
from context_compaction.messages.cache import (
    CountCache,
    ObjectCache,
    cache_for,
    text_key,
)
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

# Keys, braces and type names around a block or message of our own making, in the longest format.
BLOCK_FRAME_BYTES = 200
MESSAGE_FRAME_BYTES = 100


def message_bytes(message: Message) -> int:
    """Bytes of the JSON that `message` adds to a request.

    Exact for a message that nobody edited, as the providers' SDKs write it: UTF-8, no white space
    (a client that escapes every non-ASCII character sends more). Else a close upper estimate.
    Media data is included.
    """
    if message.source is not None and not message.edited:
        return json_bytes(message.source)
    return MESSAGE_FRAME_BYTES + sum(_block_bytes(block) for block in message.blocks)


def json_bytes(value: Any) -> int:
    """Bytes of a JSON value as UTF-8 without white space."""
    return len(utf8_json(value))


def _block_bytes(block: Block) -> int:
    if block.source is not None and not block.edited:
        return json_bytes(block.source)
    match block:
        case ToolCall():
            # Some formats write the arguments as JSON inside a JSON string.
            content = json_bytes([block.call_id, block.name, compact_json(block.arguments)])
        case ToolResult():
            content = json_bytes([block.call_id, block.name])
            content += sum(map(_block_bytes, block.content))
        case Opaque():
            content = json_bytes(block.source)
        case _:
            said = ("text", "signature", "data", "url")
            content = json_bytes([getattr(block, name, None) for name in said])
    return BLOCK_FRAME_BYTES + content


BASE_TOKENS = 10
MESSAGE_TOKENS = 4
TOOL_CALL_TOKENS = 20
TOOL_RESULT_TOKENS = 8


# What a provider adds for tools (a public calibration of Claude 3.7 and 4.5: 366 to 549, 53 each).
TOOLS_BASE_TOKENS = 550
TOOL_TOKENS = 55


_TEXT_TYPES = ("text/", "application/json", "application/xml")
_LONG_BASE64 = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\-\r\n]{256,}={0,2}")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A count of tokens, with the figure that it will hardly exceed and how it was made."""

    tokens: int
    upper: int
    method: str


@dataclass(frozen=True, slots=True)
class MessageCounter:
    """Counts messages for one model family. Get one from `counter_for`.

    Counts are whole tokens, rounded up for each block, and add up exactly: the count of a list is
    `BASE_TOKENS` and the sum of its messages.

    Attributes:
        counter: Counts text; its name is the method.
        image: How pictures are charged.
        margin: The factor from an estimate to its upper estimate; a provider's count has none.
        cache: Counts of earlier calls, of this same counter.
        tokens: Counts of the messages, lists and blocks seen in this call; see `for_one_call`.
        sizes: The same for the bytes of messages.
    """

    counter: TokenCounter
    image: ImageRule
    margin: float
    cache: CountCache = field(default_factory=CountCache)
    tokens: ObjectCache | None = None
    sizes: ObjectCache | None = None

    @property
    def method(self) -> str:
        """How text is counted, as "o200k*1.50/claude"."""
        return self.counter.name

    def for_one_call(self) -> "MessageCounter":
        """The same counter, with a memory of messages and blocks that nobody else adds to."""
        return replace(self, tokens=ObjectCache(self.tokens), sizes=ObjectCache(self.sizes))

    def learn(self, message: Message, tokens: int, size_bytes: int) -> None:
        """Remember the counts of a message, which an equal message had in an earlier call."""
        if self.tokens is not None and self.sizes is not None:
            self.tokens.learn(message, tokens)
            self.sizes.learn(message, size_bytes)

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return self.cache.get_or_compute(text_key(text), lambda: self.counter.count(text))

    def block(self, block: Block) -> int:
        """Tokens of a block."""
        known = self.tokens
        return self._block(block) if known is None else known.get_or_compute(block, self._block)

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
        """Tokens of a message: its blocks and its frame."""
        return self.total((message,))

    def total(self, messages: Sequence[Message]) -> int:
        """Tokens of several messages together, without what a list adds."""
        if self.tokens is None:
            return sum(map(self._message, messages))
        return self.tokens.total(messages, self._message)

    def messages(self, messages: Messages) -> int:
        """Tokens of a list: `BASE_TOKENS` and those of each message."""
        if self.tokens is None:
            return self._messages(messages)
        return self.tokens.get_or_compute(messages, self._messages)

    def request_bytes(self, messages: Sequence[Message]) -> int:
        """Bytes of messages in a request, for the provider's limit on its size."""
        if self.sizes is None:
            return sum(map(message_bytes, messages))
        return self.sizes.total(messages, message_bytes)

    def overhead(self, *, system: Any = None, tools: Sequence[JsonObject] | None = None) -> int:
        """Tokens of the system prompt and the tool definitions.

        Args:
            system: A string, or the prompt in any provider's JSON form.
            tools: The tool definitions as the request carries them.
        """
        tokens = 0
        if system:
            tokens += self.text(system) if isinstance(system, str) else self._json(system)
        if tools:
            tokens += TOOLS_BASE_TOKENS + sum(TOOL_TOKENS + self._json(tool) for tool in tools)
        return tokens

    def _messages(self, messages: Messages) -> int:
        return BASE_TOKENS + self.total(messages)

    def _message(self, message: Message) -> int:
        raw = None if message.edited else message.source
        if raw is not None and hide_private(raw) is not raw:
            return MESSAGE_TOKENS + self._json(raw)  # it goes out with what its blocks lack
        return MESSAGE_TOKENS + sum(map(self.block, message.blocks))

    def _tool_call(self, call: ToolCall) -> int:
        arguments = call.arguments
        written = arguments if isinstance(arguments, str) else compact_json(arguments)
        return TOOL_CALL_TOKENS + self.text(f"{call.name} {written}")

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
        """Tokens of a JSON value; long base64 in it is charged as what it holds, not as text."""
        media: list[str] = []
        plain = _without_base64(value, media)
        return self.text(compact_json(plain)) + sum(
            base64_tokens(data, self.image) for data in media
        )


def counter_for(model: str | None = None, *, estimator: EstimatorName = "auto") -> MessageCounter:
    """The counter for a model.

    Args:
        model: Its name, with or without a provider before it; without one, cautious figures.
        estimator: "auto" counts with the shipped vocabulary, times the factor of the model;
            "chars/4" is the papers' estimator and "chars/3" Claude Code's.

    The first call of a process loads the vocabulary (about 0.4 s of CPU).

    Raises:
        VocabularyError: The shipped vocabulary is missing or damaged.
        SettingsError: There is no such estimator.
    """
    profile = profile_for(model)
    if estimator in {"chars/4", "chars/3"}:
        plain = CharsCounter(4 if estimator == "chars/4" else 3)
        return MessageCounter(plain, profile.image, margin=1.0)
    if estimator != "auto":
        raise SettingsError(f"`estimator` is {estimator!r}. Pass 'auto', 'chars/4' or 'chars/3'.")
    load_o200k()
    counter = ModelCounter(profile)
    return MessageCounter(counter, profile.image, profile.margin, cache_for(counter.name))


def _without_base64(value: Any, found: list[str]) -> Any:
    """A copy of a JSON value with long base64 strings emptied; they are added to `found`."""
    if isinstance(value, str):
        if len(value) >= 256 and _LONG_BASE64.fullmatch(value):
            found.append(value)
            return ""
        return value
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _without_base64(item, found) for key, item in fields.items()}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_without_base64(item, found) for item in items]
    return value


def content_tokens(block: Block, count: MessageCounter) -> int:
    """Tokens of the content of a block, without the frame that stays when a result is cleared."""
    if isinstance(block, ToolResult):
        return sum(count.block(part) for part in block.content)
    return count.block(block)
