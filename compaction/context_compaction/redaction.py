"""Count the secrets in texts and messages, and replace them if the archive redacts."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, cast

from context_compaction.errors import InvalidMessageError, SettingsError
from context_compaction.find_secrets import find_secrets
from context_compaction.messages import model
from context_compaction.messages.cache import RecentCache, json_key

RedactionMode: TypeAlias = Literal["off", "warn", "on"]
REDACTION_MODES: tuple[RedactionMode, ...] = ("off", "warn", "on")

# Up to this number, searching for each mark is faster than listing all parts of a text.
_FEW_MARKS = 500

_AnyBlock = TypeVar("_AnyBlock", bound=model.Block | model.Part)

# Values that providers sign and reject if they are changed.
_SIGNED_KEYS = frozenset({
    "encrypted_content",
    "signature",
    "textSignature",
    "thinkingSignature",
    "thoughtSignature",
    "thought_signature",
})
# IDs of providers. They connect calls with results, so they cannot change either.
_ID_KEYS = frozenset({"call_id", "id", "itemId", "toolCallId", "tool_call_id", "tool_use_id"})
# Under these keys a tool's own keys begin, which mean nothing to a provider.
_TOOL_VALUES = frozenset({"args", "arguments", "details", "input", "json", "response"})
# Keys next to `data` that mark it as media or as encrypted. Without them `data` is plain text, such
# as an argument of a tool call or a text document.
_DATA_KINDS = ("type", "media_type", "mimeType", "mime_type", "format")


@dataclass(frozen=True)
class Gates:
    """The redaction of everything that one call shows or writes.

    Attributes:
        mode: What happens to secrets.
        messages: The messages of the conversation.
    """

    mode: RedactionMode
    messages: Sequence[model.Message] = field(repr=False)

    @cached_property
    def _clean(self) -> Callable[[str], str]:
        found = dict(pair for m in self.messages for pair in secret_values(m.source).items())
        return _cleaner_of(found)

    def json(self, value: Any) -> Any:
        """Return a JSON value of this library without secrets of the conversation."""
        return _mapped(value, self._clean) if self.mode == "on" and value else value


def redact(text: str) -> str:
    """Return `text` with a mark in place of each secret; the same object if it has no secret."""
    secrets = find_secrets(text)
    if not secrets:
        return text
    parts: list[str] = []
    start = 0
    for secret in secrets:
        parts += (text[start : secret.start], f"[redacted: {secret.kind}]")
        start = secret.stop
    return "".join((*parts, text[start:]))


def redact_json(value: Any) -> Any:
    """Return a JSON value with all strings redacted, except signatures and media.

    A value without secrets is returned as the same object.
    """
    # A message list is passed again at every turn, and most of its messages are known and clean.
    if _clean.get_or_compute(json_key(value), lambda: _mapped(value, redact) == value):
        return value
    return _mapped(value, redact)


_clean: RecentCache[bool] = RecentCache(10_000)


def redact_source(index: int, source: Any) -> Any:
    """Return the host's message at `index`, redacted.

    Raises:
        InvalidMessageError: One of its IDs contains a secret.
    """
    for secret in find_secrets("\n".join(_ids_of(source))):
        raise InvalidMessageError(
            index,
            f"one of its IDs contains a possible secret ({secret.kind}), and IDs are not redacted "
            "because they connect calls with results",
            "Use another ID, or turn redaction off.",
        )
    return redact_json(source)


def check_no_secret(session_id: str) -> None:
    """Check that a session ID contains no secret, because pointers and file names contain it.

    Raises:
        SettingsError: The ID contains a secret.
    """
    for secret in find_secrets(session_id):
        raise SettingsError(
            f"The session ID contains a possible secret ({secret.kind}), and IDs are not redacted. "
            "Use another session ID, or turn redaction off."
        )


def _ids_of(value: Any) -> Iterator[str]:
    if model.is_object(value):
        yield from (value[key] for key in _ID_KEYS & value.keys() if isinstance(value[key], str))
        for key, item in value.items():
            if key not in _TOOL_VALUES:
                yield from _ids_of(item)
    elif model.is_list(value):
        for item in value:
            yield from _ids_of(item)


def redact_blob(blob: model.Blob) -> model.Blob:
    """Return a blob with its text redacted. Its ID stays, because a marker already contains it."""
    try:
        text = blob.data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return blob
    clean = redact(text)
    return blob if clean is text else replace(blob, data=clean.encode("utf-8", "surrogatepass"))


def redact_message(message: model.Message, clean: Callable[[Any], Any]) -> model.Message:
    """Apply `clean` to the texts of a message that this library wrote or edited."""
    if message.source is not None and not message.edited:
        return message
    blocks = tuple(_cleaned(block, clean) for block in message.blocks)
    changed = any(new is not old for new, old in zip(blocks, message.blocks, strict=True))
    return replace(message, blocks=blocks) if changed else message


def _cleaned(block: _AnyBlock, clean: Callable[[Any], Any]) -> _AnyBlock:
    match block:
        case model.Text(text=text):
            cleaned = clean(text)
            return block if cleaned == text else replace(block, text=cleaned, edited=True)
        case model.ToolResult(content=content):
            parts = tuple(_cleaned(part, clean) for part in content)
            return block if parts == content else replace(block, content=parts, edited=True)
        case model.ToolCall(arguments=arguments, edited=True):
            fields: Any = clean({"arguments": arguments})
            return block if fields["arguments"] == arguments else replace(block, **fields)
        case _:
            return block


def secret_values(value: Any) -> Mapping[str, str]:
    """Return the secrets in a JSON value, and the kind of each.

    With them a secret is found again in places where no name precedes it.
    """
    return _values.get_or_compute(json_key(value), lambda: _secret_values(value))


def _secret_values(value: Any) -> Mapping[str, str]:
    return {
        text[secret.start : secret.stop]: secret.kind
        for text in strings_of(value)
        for secret in find_secrets(text)
    }


_values: RecentCache[Mapping[str, str]] = RecentCache(10_000)


def _cleaner_of(secrets: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that puts a mark in place of each of `secrets` and of all other secrets.

    Each half of a secret is replaced as well, because a cut can leave a half that no rule finds.
    """
    marks: dict[str, str] = {}
    for secret, kind in sorted(secrets.items(), key=lambda item: -len(item[0])):
        half = max(8, (len(secret) + 1) // 2)
        marks |= dict.fromkeys((secret, secret[:half], secret[-half:]), f"[redacted: {kind}]")
    size_chars = min(map(len, marks), default=1)
    by_start: dict[str, list[tuple[int, str, str]]] = {}
    for number, (piece, mark) in enumerate(marks.items()):
        by_start.setdefault(piece[:size_chars], []).append((number, piece, mark))

    def may_contain(text: str) -> Iterable[tuple[str, str]]:
        if len(marks) <= _FEW_MARKS:
            return marks.items()
        # One long result may have thousands of secrets, of which most texts have none.
        parts = {text[at : at + size_chars] for at in range(len(text))}
        found = [entry for start in parts & by_start.keys() for entry in by_start[start]]
        return [(piece, mark) for _, piece, mark in sorted(found)]

    def clean(text: str) -> str:
        for piece, mark in may_contain(text):
            text = text.replace(piece, mark)
        return redact(text)

    return clean


def count_secrets(texts: Iterable[str]) -> Mapping[str, int]:
    """Return the number of secrets of each kind."""
    return Counter(secret.kind for text in texts for secret in find_secrets(text))


def strings_of(value: Any) -> list[str]:
    """Return every string of a JSON value that can contain a secret."""
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    _mapped(value, keep)
    return texts


def _mapped(value: Any, change: Callable[[str], str], *, of_tool: bool = False) -> Any:
    """Return `value` with `change` applied to strings and keys.

    `of_tool` says that `value` belongs to the arguments or the result of a tool.
    """
    if isinstance(value, str):
        return change(value)
    if model.is_object(value):
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
        # Longer keys can be secrets.
        name = unused_name = key if key.isidentifier() and len(key) < 20 else change(key)
        while unused_name in out:  # redaction can make two keys equal
            unused_name += "_"
        if _is_media(key, value) or (key in _SIGNED_KEYS and not of_tool):
            out[unused_name] = item
        elif name == "name" and isinstance(item, str) and not of_tool:
            out[unused_name] = _as_name(item, change(item))
        else:
            out[unused_name] = _mapped(item, change, of_tool=of_tool or key in _TOOL_VALUES)
    return out


def _as_name(name: str, changed: str) -> str:
    """Return a redacted name of a tool or an author, in characters that providers accept."""
    return name if changed == name else re.sub(r"[^\w-]+", "_", changed, flags=re.ASCII)


def _is_media(key: str, holder: Mapping[str, Any]) -> bool:
    if key != "data":
        return False
    kinds = [str(holder[name]) for name in _DATA_KINDS if name in holder]
    is_speech = "transcript" in holder  # audio responses of OpenAI
    return is_speech or (bool(kinds) and not any(kind.startswith("text") for kind in kinds))
