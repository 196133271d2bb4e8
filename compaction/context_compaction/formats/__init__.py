"""Message formats: the only code that reads or writes a provider's JSON.

Each format is one module. This file detects the format of a message list and parses and renders the
list. `session_files` reads and writes files of known hosts. `convert` converts between formats.

A host passes almost the same list at every call, so parsed lists and messages are cached by their
content. They are parsed from private copies: a caller that later changes its list or a result does
not change the cache. `as_given` puts the caller's own objects into a result.
"""

import marshal
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NoReturn, TypeVar

from context_compaction.errors import InvalidMessageError, UnknownFormatError
from context_compaction.formats import base
from context_compaction.formats.anthropic import FORMAT as ANTHROPIC
from context_compaction.formats.base import MessageFormat
from context_compaction.formats.bedrock_converse import FORMAT as BEDROCK_CONVERSE
from context_compaction.formats.gemini import FORMAT as GEMINI
from context_compaction.formats.openai_chat import FORMAT as OPENAI_CHAT
from context_compaction.formats.openai_responses import FORMAT as OPENAI_RESPONSES
from context_compaction.formats.pi import FORMAT as PI
from context_compaction.messages.cache import RecentCache, bytes_key
from context_compaction.messages.model import JsonObject, Message, Messages, Role, Text
from context_compaction.messages.raw import hide_private
from context_compaction.messages.tool_pairs import ProviderRules

__all__ = ["FORMATS", "MessageFormat", "ProviderRules", "detect", "parse", "render"]


FORMATS: Mapping[str, MessageFormat] = {
    wire_format.name: wire_format
    for wire_format in (ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI, PI, BEDROCK_CONVERSE)
}

# A message has some hundred tokens on average, so this is far beyond any context window. Without a
# limit, one megabyte of gzip with 15 million messages keeps a core busy for an hour.
MAX_MESSAGES = 200_000

# A damaged message list still has a format if that format fits this share of its messages.
_MIN_READABLE_SHARE = 0.25

_TOO_MANY = (
    f"it is one more than the {MAX_MESSAGES} messages that a list may have",
    "Give a part of the conversation.",
)
_TOO_DEEP = ("it nests too deeply to be written as JSON", "Give it with less nesting.")


def detect(payload: Sequence[JsonObject]) -> str:
    """Return the name of the format that fits every message of `payload`.

    If several formats fit equally, the first of `FORMATS` is returned, which is "anthropic".

    Raises:
        InvalidMessageError: See `fitting_formats`.
        UnknownFormatError: See `fitting_formats`.
    """
    return fitting_formats(payload)[0]


def fitting_formats(payload: Sequence[JsonObject]) -> tuple[str, ...]:
    """Return the formats that fit every message of `payload` and have the highest score.

    Several formats can tie, because plain strings of user and assistant are equal in three formats.

    Raises:
        InvalidMessageError: A message is not a JSON object, or it is malformed in the only
            format that fits the messages before it.
        UnknownFormatError: No format fits, a message belongs to an agent library (the error says
            how to convert it), or the list is empty.
    """
    if not payload:
        raise UnknownFormatError(
            "The message list is empty, so its format cannot be detected. Give at least one "
            "message, or name the format."
        )
    check_count(len(payload))
    scores = dict.fromkeys(FORMATS, 0)
    # A message with only a role and a text fits the same formats as the last one with that role.
    plain_fits: dict[str, Mapping[str, int]] = {}
    for index, raw in enumerate(payload):
        raw = base.require_object(raw, index, "the message", base.MESSAGE_REMEDY)
        role = _plain_role(raw)
        fits = plain_fits.get(role)
        if fits is None:
            fits = _fits_of(raw, index, scores)
            if role:
                plain_fits[role] = fits
        fits = {name: fits[name] for name in scores}
        remaining = {name: scores[name] + fit for name, fit in fits.items() if fit}
        if not remaining:
            _refuse_message(raw, index, max(scores, key=scores.__getitem__))
        scores = remaining
    highest = max(scores.values())
    return tuple(name for name, score in scores.items() if score == highest)


def _plain_role(raw: JsonObject) -> str:
    """Return the role of a message that has nothing but a role and a text; else ""."""
    is_plain = len(raw) == 2 and isinstance(raw.get("content"), str)
    return base.text_or_none(raw.get("role") if is_plain else None) or ""


def _fits_of(raw: JsonObject, index: int, scores: Mapping[str, int]) -> Mapping[str, int]:
    """Return how well a message fits the formats in `scores`; see `fitting_formats`."""
    if _has_number(raw):
        likely = "gemini" if "parts" in raw else max(scores, key=scores.__getitem__)
        _refuse_message(raw, index, likely)
    conversion = conversion_of(raw)
    if conversion is not None:
        raise UnknownFormatError(f"Message {index} is in no provider's format: it is {conversion}.")
    return {name: FORMATS[name].recognises(raw) for name in scores}


def _has_number(raw: JsonObject) -> bool:
    """Whether a block of a message is a number, which no format allows.

    This stops at the first of millions of numbers, while each format would look at all of them.
    """
    blocks = (base.list_or_none(raw.get(key)) or () for key in ("content", "parts"))
    return any(isinstance(block, int | float) for each in blocks for block in each)


def check_count(count: int) -> None:
    """Refuse a list that is longer than `MAX_MESSAGES`; raises `InvalidMessageError`."""
    if count > MAX_MESSAGES:
        raise InvalidMessageError(MAX_MESSAGES, *_TOO_MANY)


def _refuse_message(raw: JsonObject, index: int, likely: str) -> NoReturn:
    """Raise the error for a message that does not fit the format of the messages before it.

    The error of the likeliest format says best what is wrong. If that format can parse the message,
    the message is in another format.
    """
    if index or "role" in raw:
        FORMATS[likely].parse_message(raw, index)
    before = f" that fits the messages before it ({likely})" if index else ""
    raise UnknownFormatError(
        f"Message {index} fits no format{before}; its fields are {sorted(map(str, raw))}. Give all "
        f"messages in one of these formats, and name it if in doubt: {', '.join(FORMATS)}."
    )


def fits_format(payload: Sequence[JsonObject], format: str) -> bool:
    """Whether every message of `payload` can be in the format `format`."""
    recognises = FORMATS[format].recognises
    return all(
        base.object_or_none(raw) is not None and recognises(raw) and conversion_of(raw) is None
        for raw in payload
    )


def parse(payload: Sequence[JsonObject], *, format: str | None = None) -> Messages:
    """Return the messages of `payload`, each with its index and its host object as `source`.

    Raises:
        InvalidMessageError: Names the first malformed message, its problem and a remedy.
        UnknownFormatError: `format` is unknown, or was not given and cannot be detected.
    """
    if format is None and not payload:
        return ()
    check_count(len(payload))
    wire_format = format_named(detect(payload) if format is None else format)
    parsed = tuple(parse_message(raw, n, wire_format.name) for n, raw in enumerate(payload))
    return parsed if wire_format.link is None else wire_format.link(parsed)


def likely_format(payload: Sequence[JsonObject]) -> str | None:
    """Return the format that fits most messages of a damaged list.

    None if it fits too few messages, or if the list belongs to an agent library.
    """
    counts = {
        name: sum(bool(wire_format.recognises(raw)) for raw in payload)
        for name, wire_format in FORMATS.items()
    }
    likely = max(counts, key=counts.__getitem__)
    is_conversation = counts[likely] >= _MIN_READABLE_SHARE * len(payload)
    return likely if is_conversation and not any(map(conversion_of, payload)) else None


def parse_damaged(payload: Sequence[JsonObject]) -> tuple[str, Messages] | None:
    """Return a format and messages for a list that no format fits.

    A message that the format cannot parse becomes one text of the host, with the caller's object as
    `source`. None if the list must be refused, because it belongs to an agent library or a message
    has no text.
    """
    check_count(len(payload))
    if not all(map(_has_text, payload)) or any(map(conversion_of, payload)):
        return None
    wire_format = FORMATS[likely_format(payload) or "openai-chat"]
    parsed = tuple(_parse_or_text(raw, n, wire_format.name) for n, raw in enumerate(payload))
    return wire_format.name, parsed if wire_format.link is None else wire_format.link(parsed)


def _has_text(raw: object) -> bool:
    """Whether a message is an object with a text other than its role, type or ID."""
    message = base.object_or_none(raw)
    if message is None or base.nests_too_deep(message) or _has_number(message):
        return False
    return any(
        isinstance(leaf, str) and not leaf.isspace() and name not in {"role", "type", "id"}
        for name, leaf in base.leaves(message)
    )


def _parse_or_text(raw: JsonObject, index: int, format: str) -> Message:
    try:
        return parse_message(raw, index, format)
    except InvalidMessageError:
        role: Role = "assistant" if raw.get("role") in ("assistant", "model") else "user"
        text = Text(base.plain_text(hide_private(raw)), author="host")
        return Message(role, (text,), source=raw, index=index)


def parse_message(raw: JsonObject, index: int, format: str) -> Message:
    """Parse the message at `index` of a list without linking it; raises what `parse` raises."""
    raw = base.require_object(raw, index, "the message", base.MESSAGE_REMEDY)
    if base.nests_too_deep(raw):
        raise InvalidMessageError(index, *_TOO_DEEP)
    try:
        public = hide_private(raw)
        message = FORMATS[format].parse_message(public, index)
    except RecursionError:
        raise InvalidMessageError(index, *_TOO_DEEP) from None
    # Only the model sees private text, which is returned with the host's own message.
    return message if public is raw else replace(message, source=raw)


def render(messages: Messages, *, format: str) -> list[JsonObject]:
    """Return the list for the provider; messages without edits are the host's own objects.

    Raises:
        InvalidMessageError: An edited message is nested too deeply to be written as JSON.
        UnknownFormatError: `format` is unknown.
    """
    wire_format = format_named(format)
    rendered: list[JsonObject] = []
    for index, message in enumerate(messages):
        try:
            rendered.extend(wire_format.render_message(message))
        except RecursionError:
            raise InvalidMessageError(index, *_TOO_DEEP) from None
    return rendered


def format_named(name: str) -> MessageFormat:
    """Return the format of this name; raises `UnknownFormatError`."""
    wire_format = FORMATS.get(name)
    if wire_format is None:
        raise UnknownFormatError(
            f"The format {name!r} is unknown. Name one of: {', '.join(FORMATS)}."
        )
    return wire_format


# For each library a phrase that says whose list it is and how to convert it.
_PYDANTIC_AI = (
    "pydantic-ai's own (ModelMessagesTypeAdapter dumps it). Give the messages that it sends to a "
    "provider: what `_map_messages` of the model's class, such as OpenAIChatModel, makes of them"
)
_LANGCHAIN = (
    "LangChain's own. Convert the list with langchain_core.messages.convert_to_openai_messages, "
    "and the answer back with convert_to_messages"
)
_VERCEL = (
    "the Vercel AI SDK's own. Give its parts as a provider's blocks: text as text, tool-call as "
    "tool_use, tool-result as tool_result"
)
_HAYSTACK = "Haystack's own. Convert each message with ChatMessage.to_openai_dict_format()"
_LLAMA_INDEX = (
    "LlamaIndex's own. Convert the list with llama_index.llms.openai.utils.to_openai_message_dicts"
)


def conversion_of(message: JsonObject) -> str | None:
    """Return whose message an agent library's `message` is and how to convert it; else None."""
    parts, blocks = base.objects_in(message.get("parts")), base.objects_in(message.get("content"))
    if any("part_kind" in part for part in parts):
        return _PYDANTIC_AI
    if "role" not in message:
        is_typed = base.text_or_none(message.get("type")) in {"human", "ai"}
        is_dumped = is_typed and ("data" in message or "content" in message)
        is_built = "additional_kwargs" in message or {"lc", "kwargs"} <= message.keys()
        return _LANGCHAIN if is_dumped or is_built else None
    kinds = {base.text_or_none(block.get("type")) for block in blocks}
    if any(isinstance(part.get("type"), str) for part in parts) or kinds & {
        "tool-call",
        "tool-result",
    }:
        return _VERCEL
    if "meta" in message and blocks and not any("type" in block for block in blocks):
        return _HAYSTACK
    if any("block_type" in block for block in base.objects_in(message.get("blocks"))):
        return _LLAMA_INDEX
    return None


def format_of_tools(tools: object) -> str | None:
    """Return the format of tool definitions by the shape of the first; None if it is unknown."""
    listed = base.list_or_none(tools)
    first = (base.object_or_none(listed[0]) if listed else None) or {}
    return next((name for field, name in _TOOL_FIELDS if field in first), None)


_TOOL_FIELDS = (
    ("input_schema", "anthropic"),
    ("function", "openai-chat"),
    ("parameters", "openai-responses"),
)


MAX_CACHE_BYTES = 64 * 1024 * 1024
_T = TypeVar("_T")


@dataclass(eq=False, slots=True)
class CachedList:
    """A parsed message list with values that were computed from it.

    Attributes:
        messages: The parsed messages.
        computed: By name, the inputs of the newest computation and its value.
    """

    messages: Messages
    computed: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])

    def once(self, name: str, inputs: Any, compute: Callable[[], _T]) -> _T:
        """Return the value of `compute`, which is called again only if `inputs` changed."""
        cached = self.computed.get(name)
        if cached is None or cached[0] != inputs:
            cached = self.computed[name] = inputs, compute()
        return cached[1]


class ListCache:
    """Parsed lists and messages by content.

    Args:
        max_bytes: Size of the cache in bytes.
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._messages: RecentCache[Message] = RecentCache(max_bytes // 2)
        self._lists: RecentCache[CachedList] = RecentCache(max_bytes // 2)

    def read(self, payload: Sequence[JsonObject], format: str) -> CachedList:
        """Return the parsed list; raises what `formats.parse` raises."""
        check_count(len(payload))
        link = format_named(format).link

        def parse() -> CachedList:
            # Parsed from `data`, because another thread may have changed `payload` since.
            raws = marshal.loads(data) if data else payload  # noqa: S302 - made here
            is_copy = bool(data)
            messages = tuple(self._message(raw, n, format, is_copy) for n, raw in enumerate(raws))
            return CachedList(messages if link is None else link(messages))

        # One hash of the whole list is cheaper than one of each message, and most lists are cached.
        data = _bytes(list(payload))
        if not data:
            return parse()
        name = blake2b(data, digest_size=16, key=format.encode()).digest()
        # A list keeps its messages alive, so their size is part of its size.
        return self._lists.get_or_compute(name, parse, len(data) + 300 * len(payload))

    def _message(self, raw: JsonObject, index: int, format: str, is_copy: bool) -> Message:
        data = _bytes(raw)
        if not data:
            return parse_message(raw, index, format)
        key = bytes_key(data)

        def parse() -> Message:
            copy = raw if is_copy else marshal.loads(data)  # noqa: S302 - made here
            message = parse_message(copy, index, format)
            # Nothing else has the message yet. A copy with the key would take much longer.
            object.__setattr__(message, "key", key)
            return message

        # A parsed message takes about 1,000 bytes in addition to its text.
        return self._messages.get_or_compute((format, index, key), parse, len(data) + 1_000)


LIST_CACHE = ListCache()


def as_given(
    message: Message, rendered: list[JsonObject], payload: Sequence[JsonObject]
) -> list[JsonObject]:
    """Return a rendered message without any part of the private copies of the cache.

    Args:
        message: A message of the list `payload`.
        rendered: What it renders as.
        payload: The caller's list.
    """
    if message.index is None:
        return rendered
    if not message.edited and len(rendered) == 1 and rendered[0] is message.source:
        return [payload[message.index]]
    return deepcopy(rendered)


def _bytes(value: Any) -> bytes:
    """Return bytes that are equal only for equal JSON values; empty if that is not certain."""
    try:
        return marshal.dumps(value, 0)
    except ValueError:  # A subclass such as OrderedDict, or too deep nesting
        return b""
