"""A record as a model reads it: its parts, cut where it is too long, as escaped data. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from context_compaction.activity.calls import brings_report, classify
from context_compaction.activity.outcome import is_failed
from context_compaction.activity.shown import without_reminder
from context_compaction.messages.model import (
    Author,
    Block,
    Document,
    Image,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    named_arguments,
)
from context_compaction.messages.speakers import passages_of
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids

_FAILED = "[failed] "
_TOLD_BY_CALL = ("write", "edit", "notebook")
# Who says what a tool brings of another agent: words, cut like those of others.
_REPORTS = "another agent"
# As the prompts call them; the others have their own names.
_SPEAKERS: Mapping[Author, str] = {"agent": "assistant"}


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A text, call or result of a message, with the message's number and the speaker.

    Of a call `text` is all of it, and `call` the call itself.
    """

    number: int | None
    speaker: str
    text: str
    call: ToolCall | None = None


def parts_of(messages: Messages, numbers: Sequence[int | None] = ()) -> list[PromptPart]:
    """The parts of the messages; thinking is left out, pictures and documents are named.

    What an edit or a write answers is left out where it did not fail: the call says it all. Without
    `numbers` the messages are numbered by position.
    """
    messages = with_unique_call_ids(messages)
    calls = index_calls(messages).calls
    parts: list[PromptPart] = []
    for number, message in zip(numbers or range(len(messages)), messages, strict=True):
        for block in message.blocks:
            told = _block_text(block)
            match block:
                case Text():
                    said = passages_of(message, block)
                    parts += [PromptPart(number, _SPEAKERS.get(by, by), text) for by, text in said]
                case ToolResult():
                    call = calls.get(block.call_id)
                    if not call or classify(call).kind not in _TOLD_BY_CALL or is_failed(block):
                        is_report = call is not None and brings_report(call.name)
                        parts.append(PromptPart(number, _REPORTS if is_report else "tool", told))
                case ToolCall():
                    parts.append(PromptPart(number, message.role, told, block))
                case _:
                    parts.append(PromptPart(number, message.role, told))
    return [part for part in parts if part.text]


def clip(parts: Sequence[PromptPart], result_chars: int, said_chars: int) -> list[PromptPart]:
    """The parts cut to their two ends, with the number of characters left out between.

    Of a result or a call in the middle of the record `result_chars` stay; of the oldest half as
    much, of the newest half as much again.
    """
    shown: list[PromptPart] = []
    for at, part in enumerate(parts):
        nearness = 0.5 + at / len(parts)
        if part.speaker == "tool":
            text = _ends(part.text, int(result_chars * nearness))
        elif part.call is not None:
            text = _call_text(part.call, int(result_chars * nearness))
        else:
            text = _ends(part.text, said_chars)
        shown.append(replace(part, text=text))
    return shown


def without_oldest_work(parts: Sequence[PromptPart], share: float) -> list[PromptPart]:
    """The parts without the oldest `share` of those that are not the user's."""
    others = [at for at, part in enumerate(parts) if part.speaker != "user"]
    dropped = set(others[: int(len(others) * share)])
    return [part for at, part in enumerate(parts) if at not in dropped]


def rendered(parts: Sequence[PromptPart]) -> str:
    """The parts as escaped data, each tagged with its number and speaker."""
    return "\n".join(
        f'<part n="{"" if part.number is None else part.number}" from="{part.speaker}">'
        f"{escaped(part.text)}</part>"
        for part in parts
    )


def escaped(text: str) -> str:
    """`text` so that nothing in it can close or open a tag of the prompt."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def groups_of(parts: Sequence[PromptPart]) -> list[int]:
    """The position of the first part of each group: what the model says, and what follows it."""
    return [
        at
        for at, part in enumerate(parts)
        if at == 0 or (part.speaker == "assistant" and parts[at - 1].speaker != "assistant")
    ]


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return _call_text(block)
        case ToolResult():
            text = without_reminder("\n".join(filter(None, map(_block_text, block.content))))
            return f"{_FAILED}{text}" if is_failed(block) else text
        case Image() | Document():
            return f"[{type(block).__name__.lower()}: {block.media_type}]"
        case Opaque():
            return f"[{block.kind}]"
        case Thinking():
            return ""


def _call_text(call: ToolCall, max_chars: int = 0) -> str:
    """The call with its arguments, of at most about `max_chars` if those are given.

    Each long text among them is cut by itself: of an edit, what it takes out and what it puts in.
    """
    told = _json(call.arguments)
    if max_chars and len(told) > max_chars:
        texts = {name: _json(value) for name, value in named_arguments(call).items()}
        each_chars = max_chars // max(1, sum(len(text) > max_chars // 4 for text in texts.values()))
        shown = {name: _ends(text, each_chars) for name, text in texts.items()}
        told = _json(shown) if shown else _ends(told, max_chars)
    return f"[calls {call.name} with {told}]"


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ends(text: str, max_chars: int) -> str:
    """The two ends of `text`, with the number of characters left out between."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 3 // 4, max_chars // 4
    left_out = len(text) - head - tail
    return f"{text[:head]} [… {left_out} characters left out …] {text[-tail:]}"
