"""Secrets in text are counted, and replaced where that is wanted."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, cast

from context_compaction.errors import InvalidMessageError, SettingsError
from context_compaction.find_secrets import find_secrets
from context_compaction.messages.cache import RecentCache, json_key
from context_compaction.messages.edits import Blob
from context_compaction.messages.model import (
    Block,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    is_list,
    is_object,
)

RedactionMode: TypeAlias = Literal["off", "warn", "on"]
REDACTION_MODES: tuple[RedactionMode, ...] = ("off", "warn", "on")

_AnyBlock = TypeVar("_AnyBlock", bound=Block | Part)

# What providers sign, and would not take back changed.
_SIGNED_KEYS = frozenset({
    "encrypted_content",
    "signature",
    "textSignature",
    "thinkingSignature",
    "thoughtSignature",
    "thought_signature",
})
# What providers name: calls and results are paired by it, so that it cannot be changed either.
_ID_KEYS = frozenset({"call_id", "id", "itemId", "toolCallId", "tool_call_id", "tool_use_id"})
# Below these a tool's own names begin, which mean nothing to a provider.
_TOOL_VALUES = frozenset({"args", "arguments", "details", "input", "json", "response"})

# Beside `data` these say that it is media, or what a provider encrypted; else it is text like any
# other: an argument of a tool's call, a document that was given as text.
_DATA_KINDS = ("type", "media_type", "mimeType", "mime_type", "format")


@dataclass(frozen=True, slots=True)
class Gates:
    """The redaction mode of one call, and the secrets of its conversation.

    Attributes:
        mode: What is done with secrets.
        secrets: Those of the conversation with their kinds, where they are replaced; looked for
            when there is something to replace them in.
    """

    mode: RedactionMode
    secrets: Callable[[], Mapping[str, str]] = field(default=dict[str, str], repr=False)

    def json(self, value: Any) -> Any:
        """A JSON value of ours as it may be shown, written or kept."""
        return without(value, self.secrets()) if self.mode == "on" and value else value


def gates_of(mode: RedactionMode, messages: Sequence[Message]) -> Gates:
    """The gates of a call with this list."""
    if mode != "on":
        return Gates(mode)

    @cache
    def secrets() -> Mapping[str, str]:
        return dict(pair for m in messages for pair in secret_values(m.source).items())

    return Gates(mode, secrets)


def redact(text: str) -> str:
    """`text` with each secret replaced by a mark; the same object where there is none."""
    secrets = find_secrets(text)
    if not secrets:
        return text
    parts: list[str] = []
    at = 0
    for secret in secrets:
        parts += (text[at : secret.start], f"[redacted: {secret.kind}]")
        at = secret.stop
    return "".join((*parts, text[at:]))


def redact_json(value: Any) -> Any:
    """`value` with every string redacted, but for signatures and media; equal parts stay."""
    # A list comes again at every turn, nearly all of it as before, and clean.
    if _clean.get_or_compute(json_key(value), lambda: _mapped(value, redact) == value):
        return value
    return _mapped(value, redact)


_clean: RecentCache[bool] = RecentCache(10_000)


def redact_source(index: int, source: Any) -> Any:
    """The host's message at `index` redacted.

    Raises:
        InvalidMessageError: One of its ids holds a secret.
    """
    for found in find_secrets("\n".join(_ids_of(source))):
        raise InvalidMessageError(
            index,
            f"an id in it holds what looks like a secret ({found.kind}), and ids, by which calls "
            "and results are paired, are kept as they are",
            "Give it another id, or turn redaction off.",
        )
    return redact_json(source)


def check_no_secret(session_id: str) -> None:
    """Refuse an id with a secret: it is kept as it is, names a folder, and stands in pointers.

    Raises:
        SettingsError: It holds one.
    """
    for found in find_secrets(session_id):
        raise SettingsError(
            f"The session's id holds what looks like a secret ({found.kind}), and ids are kept as "
            "they are. Name the session otherwise, or turn redaction off."
        )


def _ids_of(value: Any) -> Iterator[str]:
    if is_object(value):
        yield from (value[key] for key in _ID_KEYS & value.keys() if isinstance(value[key], str))
        for key, item in value.items():
            if key not in _TOOL_VALUES:
                yield from _ids_of(item)
    elif is_list(value):
        for item in value:
            yield from _ids_of(item)


def redact_blob(blob: Blob) -> Blob:
    """A blob with its text redacted, under the id that its marker already has."""
    try:
        text = blob.data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return blob
    clean = redact(text)
    return blob if clean is text else replace(blob, data=clean.encode("utf-8", "surrogatepass"))


def redact_message(message: Message, clean: Callable[[Any], Any]) -> Message:
    """A message that we wrote or edited with its text made `clean`; the host's own as it is."""
    if message.source is not None and not message.edited:
        return message
    blocks = tuple(_cleaned(block, clean) for block in message.blocks)
    changed = any(new is not old for new, old in zip(blocks, message.blocks, strict=True))
    return replace(message, blocks=blocks) if changed else message


def _cleaned(block: _AnyBlock, clean: Callable[[Any], Any]) -> _AnyBlock:
    match block:
        case Text(text=text):
            said = clean(text)
            return block if said == text else replace(block, text=said, edited=True)
        case ToolResult(content=content):
            parts = tuple(_cleaned(part, clean) for part in content)
            return block if parts == content else replace(block, content=parts, edited=True)
        case ToolCall(arguments=arguments, edited=True):
            safe: Any = clean({"arguments": arguments})
            return block if safe["arguments"] == arguments else replace(block, **safe)
        case _:
            return block


def secret_values(value: Any) -> Mapping[str, str]:
    """The secrets in a JSON value with their kinds, to find them where nothing beside marks them.

    A password is known by the name before it; in a list of names it is one of them.
    """
    return _values.get_or_compute(json_key(value), lambda: _secret_values(value))


def _secret_values(value: Any) -> Mapping[str, str]:
    return {
        text[secret.start : secret.stop]: secret.kind
        for text in strings_of(value)
        for secret in find_secrets(text)
    }


_values: RecentCache[Mapping[str, str]] = RecentCache(10_000)


def without(value: Any, secrets: Mapping[str, str]) -> Any:
    """A JSON value with each of `secrets`, and what is one by itself, replaced by a mark.

    So is either half of one, which a cut may have left: no rule finds that.
    """
    marks: dict[str, str] = {}
    for secret, kind in sorted(secrets.items(), key=lambda item: -len(item[0])):
        half = max(8, (len(secret) + 1) // 2)
        marks |= dict.fromkeys((secret, secret[:half], secret[-half:]), f"[redacted: {kind}]")

    def clean(text: str) -> str:
        for piece, mark in marks.items():
            text = text.replace(piece, mark)
        return redact(text)

    return _mapped(value, clean)


def count_secrets(texts: Iterable[str]) -> Mapping[str, int]:
    """How many secrets of each kind there are."""
    return Counter(secret.kind for text in texts for secret in find_secrets(text))


def strings_of(value: Any) -> Iterator[str]:
    """Every string of a JSON value that may hold a secret."""
    found: list[str] = []

    def keep(text: str) -> str:
        found.append(text)
        return text

    _mapped(value, keep)
    yield from found


def _mapped(value: Any, change: Callable[[str], str], *, of_tool: bool = False) -> Any:
    """`value` with its strings and keys changed; `of_tool`: it is what a tool was told or said."""
    if isinstance(value, str):
        return change(value)
    if is_object(value):
        return _mapped_object(value, change, of_tool=of_tool)
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return [_mapped(item, change, of_tool=of_tool) for item in items]
    return value


def _mapped_object(
    value: Mapping[str, Any], change: Callable[[str], str], *, of_tool: bool
) -> Mapping[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        # Longer ones may be secrets.
        name = free = key if key.isidentifier() and len(key) < 20 else change(key)
        while free in out:  # two names may become one
            free += "_"
        if _is_media(key, value) or (key in _SIGNED_KEYS and not of_tool):
            out[free] = item
        elif name == "name" and isinstance(item, str) and not of_tool:
            out[free] = _as_name(item, change(item))
        else:
            out[free] = _mapped(item, change, of_tool=of_tool or key in _TOOL_VALUES)
    return out


def _as_name(name: str, changed: str) -> str:
    """A changed name of a tool or a speaker in characters that providers take."""
    return name if changed == name else re.sub(r"[^\w-]+", "_", changed, flags=re.ASCII)


def _is_media(key: str, holder: Mapping[str, Any]) -> bool:
    if key != "data":
        return False
    kinds = [str(holder[name]) for name in _DATA_KINDS if name in holder]
    is_speech = "transcript" in holder  # OpenAI's answers
    return is_speech or (bool(kinds) and not any(kind.startswith("text") for kind in kinds))
