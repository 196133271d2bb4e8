"""What a model is asked: the record as escaped data, in our prompt files, as short as it must be.

A record that is too long for a model is made shorter step by step: whole, with its tool results
clipped, with results left out from the middle outwards, and at last in chunks whose summaries are
merged; or, as Claude Code does, without its oldest groups of messages. Pure; the prompt files are
read once.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

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
)
from context_compaction.messages.speakers import passages_of
from context_compaction.settings import SummaryOutline, TooLongRule
from context_compaction.summarizers.llm.model import ModelPrompt
from context_compaction.tokens.counter import MessageCounter

# Prose may take this part of a summary's room; the rest is for extracts from the record.
PROSE_SHARE = 0.7


# Of each tool result once the whole record is too long; pi, opencode and ADK cut at this length.
RESULT_CHARS = 2_000


# Then so much of all results goes, from the middle outwards (Goose goes in such steps, to all of
# them: the chunks that come next here read every result).
_DROPPED_SHARES = (0.25, 0.5, 0.75)


# Claude Code leaves out a fifth of the groups where it does not know how much is too much.
_DROPPED_GROUPS = (0.2, 0.4, 0.6, 0.8, 1.0)


# However large a window is: more takes minutes, costs more than the summary is worth, and the
# middle of it is read badly.
_MAX_RECORD_TOKENS = 200_000


# Newer models think before they write, unasked, and that counts as output.
_THINKING_TOKENS = 4_000


# The frame of a prompt, in tokens, beside its record; and what our count may be short of.
_FRAME_TOKENS = 1_500
_COUNT_MARGIN = 1.1


# An English word takes about so many tokens of the newest tokenizers.
_TOKENS_PER_WORD = 2.0


# As the prompts call them; the others have their own names.
_SPEAKERS: Mapping[Author, str] = {"agent": "assistant"}
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """What a model is to summarise.

    Attributes:
        messages: The originals of all that the summary stands for.
        since: Those of them that no earlier summary stood for.
        previous: The text of the earlier summaries; empty where there were none.
        has_originals: Whether `messages` says all that `previous` says.
        max_tokens: What the prose may count.
        pinned: Texts that are kept verbatim beside it.
        instructions: What the user wants it to dwell on.
        language: The language that the user writes in, where that is plain.
        is_turn_prefix: Whether it is the beginning of the running turn.
        outline: Which headings it has: "summary" or "nine_sections", a file of `prompts/`.
        too_long: How the record is made shorter for a model that it is too long for ...
        retries: ... and how many times more that model is asked.
    """

    messages: Messages
    since: Messages
    previous: str
    has_originals: bool
    max_tokens: int
    pinned: tuple[str, ...] = ()
    instructions: str = ""
    language: str | None = None
    is_turn_prefix: bool = False
    outline: SummaryOutline = "summary"
    too_long: TooLongRule = "clip"
    retries: int = 5


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One thing that was said, with its place in the record and who said it."""

    number: int
    speaker: str
    text: str


def summary_prompt(assignment: SummaryJob, record: str, previous: str) -> ModelPrompt:
    """The request for a summary of `record`, which is escaped already, and of `previous`."""
    return _prompt(assignment, "summary_request.md", record, previous)


def merge_prompt(assignment: SummaryJob, summaries: Sequence[str], previous: str) -> ModelPrompt:
    """The request for one summary made of the summaries of the record's chunks."""
    parts = [PromptPart(at, "summary", text) for at, text in enumerate(summaries)]
    return _prompt(assignment, "merge_request.md", render_messages(parts), previous)


def repair_prompt(
    assignment: SummaryJob, draft: str, problems: Sequence[str], lines: Sequence[str]
) -> ModelPrompt:
    """The request for a better draft. The record need not be read again: `lines` come from it."""
    user = _filled(
        "repair_request.md",
        {
            "draft": escaped(draft),
            "problems": "\n".join(f"- {escaped(problem)}" for problem in problems),
            "lines": "\n".join(f"- {escaped(line)}" for line in lines) or "(none)",
            **_length_and_language(assignment),
        },
    )
    return ModelPrompt(_system(assignment), user, assignment.max_tokens)


def versions(
    assignment: SummaryJob, count: MessageCounter
) -> Iterator[tuple[str, ModelPrompt, int]]:
    """Single requests for the whole record, the fullest first: name, request, tokens of the record.

    Each is made only when it is asked for.
    """
    for name, parts, previous in _versions(assignment):
        record = render_messages(parts)
        tokens = tokens_of(record, count) + tokens_of(previous, count)
        yield name, summary_prompt(assignment, record, previous), tokens


def room_for_record(assignment: SummaryJob, window_tokens: int) -> int:
    """What a record may count in one request to a window that holds the answer as well."""
    room = window_tokens - answer_tokens(assignment.max_tokens) - _FRAME_TOKENS
    return max(0, min(room, _MAX_RECORD_TOKENS))


def answer_tokens(max_tokens: int) -> int:
    """What an answer may count at most: twice what was asked, and what the model thinks before."""
    return max_tokens * 2 + _THINKING_TOKENS


def chunks(
    assignment: SummaryJob, limit_tokens: int, count: MessageCounter
) -> tuple[list[str], str]:
    """The record with clipped results in pieces of at most `limit_tokens`, and what was before."""
    messages, previous = assignment.messages, ""
    if assignment.previous:
        messages, previous = assignment.since, assignment.previous
    pieces: list[str] = []
    current: list[PromptPart] = []
    left = limit_tokens
    for part in _split(clip(parts_of(messages)), limit_tokens, count):
        cost = tokens_of(render_messages([part]), count)
        if cost > left and current:
            pieces.append(render_messages(current))
            current, left = [], limit_tokens
        current.append(part)
        left -= cost
    return ([*pieces, render_messages(current)] if current else pieces), previous


def parts_of(messages: Messages) -> list[PromptPart]:
    """What the messages say; thinking is left out, pictures and documents are named."""
    parts: list[PromptPart] = []
    for at, message in enumerate(messages):
        for block in message.blocks:
            if isinstance(block, Text):
                found = passages_of(message, block)
                parts += [
                    PromptPart(at, _SPEAKERS.get(author, author), text) for author, text in found
                ]
            elif text := _block_text(block):
                speaker = "tool" if isinstance(block, ToolResult) else message.role
                parts.append(PromptPart(at, speaker, text))
    return parts


def clip(parts: Sequence[PromptPart], max_chars: int = RESULT_CHARS) -> list[PromptPart]:
    """The parts with long tool results cut to their two ends, saying how much is left out."""
    return [
        replace(part, text=_ends(part.text, max_chars)) if part.speaker == "tool" else part
        for part in parts
    ]


def without_results(parts: Sequence[PromptPart], share: float) -> list[PromptPart]:
    """The parts without `share` of the tool results, those in the middle first."""
    results = [at for at, part in enumerate(parts) if part.speaker == "tool"]
    middle = (len(results) - 1) / 2
    outwards = sorted(range(len(results)), key=lambda at: (abs(at - middle), at))
    dropped = {results[at] for at in outwards[: round(len(results) * share)]}
    return [
        replace(part, text=f"[result of {len(part.text)} characters left out]")
        if at in dropped
        else part
        for at, part in enumerate(parts)
    ]


def render_messages(parts: Sequence[PromptPart]) -> str:
    """The parts as escaped data, each tagged with who speaks."""
    return "\n".join(
        f'<part n="{part.number}" from="{part.speaker}">{escaped(part.text)}</part>'
        for part in parts
    )


def escaped(text: str) -> str:
    """`text` so that nothing in it can close or open a tag of the prompt."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def tokens_of(text: str, count: MessageCounter) -> int:
    """An upper estimate of the tokens of `text`."""
    return int(count.text(text) * _COUNT_MARGIN) if text else 0


def _versions(assignment: SummaryJob) -> Iterator[tuple[str, list[PromptPart], str]]:
    """Name, parts and previous summary of each way to show the record, the fullest first."""
    originals = parts_of(assignment.messages)
    # Where originals say all that a previous summary says, they speak: so facts do not erode.
    before = "" if assignment.has_originals else assignment.previous
    yield "whole", originals, before
    if assignment.too_long == "drop_oldest":
        yield from _without_oldest(assignment.messages, assignment.previous)
        return
    yield "results clipped", clip(originals), before
    since, previous = originals, before
    if assignment.previous and assignment.since:
        since, previous = parts_of(assignment.since), assignment.previous
        yield "since the summary before", since, previous
        yield "since the summary before, results clipped", clip(since), previous
    for share in _DROPPED_SHARES:
        yield (
            f"{share:.0%} of the results left out",
            without_results(clip(since), share),
            previous,
        )


def _without_oldest(
    messages: Messages, previous: str
) -> Iterator[tuple[str, list[PromptPart], str]]:
    """The record without its oldest groups of messages, more of them each time, the newest never.

    What an earlier summary said of them stands in for them.
    """
    starts = groups_of(messages)
    for share in _DROPPED_GROUPS:
        left_out = min(math.ceil(len(starts) * share), len(starts) - 1)
        if left_out > 0:
            yield (
                f"without the oldest {left_out} of {len(starts)} groups of messages",
                [part for part in parts_of(messages) if part.number >= starts[left_out]],
                previous,
            )


def groups_of(messages: Messages) -> list[int]:
    """Where each group of messages begins: an answer of the model with all that came upon it."""
    return [
        at
        for at, message in enumerate(messages)
        if at == 0 or (message.role == "assistant" and messages[at - 1].role != "assistant")
    ]


def _split(
    parts: Sequence[PromptPart], limit_tokens: int, count: MessageCounter
) -> Iterator[PromptPart]:
    """The parts, each that is larger than a chunk cut into several."""
    for part in parts:
        cost = tokens_of(render_messages([part]), count)
        if cost <= limit_tokens:
            yield part
            continue
        # A little smaller than in proportion, since density differs within a text.
        chars = max(1, int(len(part.text) * limit_tokens / cost * 0.7))
        for start in range(0, len(part.text), chars):
            yield replace(part, text=part.text[start : start + chars])


def _prompt(assignment: SummaryJob, template: str, record: str, previous: str) -> ModelPrompt:
    user = _filled(
        template,
        {
            "pinned": escaped("\n".join(assignment.pinned)) or "(none)",
            "previous": escaped(previous) or "(none)",
            "focus": escaped(assignment.instructions) or "(none)",
            "transcript": record,
            **_length_and_language(assignment),
        },
    )
    return ModelPrompt(_system(assignment), user, assignment.max_tokens)


def _length_and_language(assignment: SummaryJob) -> dict[str, str]:
    language = assignment.language
    return {
        "max_tokens": str(assignment.max_tokens),
        "max_words": str(max(20, int(assignment.max_tokens / _TOKENS_PER_WORD))),
        "language": f"The user writes in {language}: so do you." if language else "",
    }


def _system(assignment: SummaryJob) -> str:
    name = "turn_prefix" if assignment.is_turn_prefix else assignment.outline
    return _file(f"{name}_system.md")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template, filled in one pass: what is put in is not searched for slots."""
    return _SLOT.sub(lambda slot: values[slot[1]], _file(template)).strip()


@cache
def _file(name: str) -> str:
    folder = files(__package__ or "") / "prompts"
    return (folder / name).read_text(encoding="utf-8").strip()


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return f"[calls {block.name} with {_json(block.arguments)}]"
        case ToolResult():
            text = "\n".join(filter(None, map(_block_text, block.content)))
            return f"[failed] {text}" if block.is_error else text
        case Image() | Document():
            return f"[{type(block).__name__.lower()}: {block.media_type}]"
        case Opaque():
            return f"[{block.kind}]"
        case Thinking():
            return ""


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ends(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 3 // 4, max_chars // 4
    left_out = len(text) - head - tail
    return f"{text[:head]} [… {left_out} characters left out …] {text[-tail:]}"
