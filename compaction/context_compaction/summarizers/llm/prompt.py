"""The request to a model: the record as escaped data, in our prompt files, as short as it must be.

A record that is short is shown whole. Of a longer one the model gets all that was said, with
results and calls cut down step by step until it fits; of the longest the newest part, and the log
and the facts that the writer without a model makes; or, as Claude Code does, the originals without
their oldest groups of messages. Pure; the prompt files are read once.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from context_compaction.activity.digest import is_failed
from context_compaction.activity.error_line import error_lines
from context_compaction.activity.outline import outline
from context_compaction.activity.shown_text import without_reminder
from context_compaction.activity.tool_kinds import classify
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
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.settings import SummaryOutline, TooLongRule
from context_compaction.summarizers.llm.model import ModelPrompt
from context_compaction.tokens.counter import MessageCounter

# Prose may take this part of a summary's room; the rest is for extracts from the record.
PROSE_SHARE = 0.75
# Characters of each result, and of each call, once the whole record is too long: of the oldest half
# as many, of the newest half as many again. What was said is a tenth of a record and tells the most
# of it: it is cut last.
_CLIPPED_CHARS = (
    (4_000, 4_000),
    (2_000, 2_000),
    (1_000, 1_000),
    (500, 700),
    (300, 500),
    (150, 300),
)
_SAID_CHARS = (8_000, 1_500)
# Then so much of what is not the user's goes, the oldest first: log and facts tell of it.
_DROPPED_SHARES = (0.5, 0.75, 0.9, 0.97)
# A result this long that came before is named, not shown again.
_SAME_CHARS = 200
# Of what stays after the summary the writer sees the newest parts, each so long at most.
_KEPT_PARTS = 40
_KEPT_CHARS = 1_000
# Claude Code leaves out a fifth of the groups where it does not know how much is too much.
_DROPPED_GROUPS = (0.2, 0.4, 0.6, 0.8, 1.0)
# However large a window is: what more of long results would tell is not worth its price. Of half as
# much, decisions of a day's session were no longer told.
_MAX_RECORD_TOKENS = 64_000
# ... and where originals are asked for, the middle of more than this is read badly.
_MAX_ORIGINALS_TOKENS = 200_000
# Newer models think before they write, unasked, and that counts as output.
_THINKING_TOKENS = 4_000
# The frame of a prompt, in tokens, beside its record; and what our count may be short of.
_FRAME_TOKENS = 1_500
_COUNT_MARGIN = 1.1
# An English word takes about so many tokens of the newest tokenizers.
_TOKENS_PER_WORD = 2.0
# A signature goes on where its bracket is open.
_BROKEN_LINE = re.compile(r"(?<=[(,])\n[ \t]+|\n[ \t]*(?=\))")
# What a patch takes away is not defined any more.
_PATCH_MARK = re.compile(r"\n(?:\+|-[^\n]*)")
_ANY_CODE = "code.any"
_NAMED_CHARS = 600
_FAILED = "[failed] "
_TOLD_BY_CALL = ("write", "edit", "notebook")
# As the prompts call them; the others have their own names.
_SPEAKERS: Mapping[Author, str] = {"agent": "assistant"}
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """The input and the settings of a model's summary.

    Attributes:
        messages: The originals of all that the summary replaces.
        numbers: The number of each of these in the transcript; None for one without.
        extracts: Makes log and facts of them without a model.
        kept: The messages that stay in full after the summary ...
        kept_numbers: ... and their numbers.
        previous: The text of the earlier summaries; empty where there were none.
        has_originals: Whether `messages` contains all that `previous` summarises.
        max_tokens: Most tokens of the prose.
        pinned: Texts that are kept verbatim beside it, each with when it was said.
        instructions: The subjects that the user wants weighed most.
        is_turn_prefix: Whether it is the beginning of the running turn.
        outline: Which headings it has: "summary" or "nine_sections", a file of `prompts/`.
        too_long: How the record is made shorter for a model that it is too long for ...
        retries: ... and how many times more that model is asked.
    """

    messages: Messages
    previous: str
    has_originals: bool
    max_tokens: int
    numbers: tuple[int | None, ...] = ()
    extracts: Callable[[], str] = str
    kept: Messages = ()
    kept_numbers: tuple[int | None, ...] = ()
    pinned: tuple[str, ...] = ()
    instructions: str = ""
    is_turn_prefix: bool = False
    outline: SummaryOutline = "summary"
    too_long: TooLongRule = "clip"
    retries: int = 5


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A text, call or result of a message, with the message's number and the speaker.

    Of a call `text` is all of it, and `call` the call itself.
    """

    number: int | None
    speaker: str
    text: str
    call: ToolCall | None = None


def repair_prompt(assignment: SummaryJob, draft: str, problem: str) -> ModelPrompt:
    """The request for a shorter draft. The record need not be read again."""
    values = {"draft": escaped(draft), "problem": problem, **_length(assignment)}
    user = _filled("repair_request.md", values)
    return ModelPrompt(_system(assignment), user, assignment.max_tokens)


def versions(
    assignment: SummaryJob, count: MessageCounter
) -> Iterator[tuple[str, ModelPrompt, int]]:
    """Single requests for the whole record, the fullest first: name, request, tokens of the record.

    Each is made only when it is asked for.
    """
    for name, parts, previous, extracts in _versions(assignment):
        record = render_messages(parts)
        tokens = sum(tokens_of(text, count) for text in (record, previous, extracts))
        yield name, _prompt(assignment, record, previous, extracts), tokens


def fullest_prompt(
    assignment: SummaryJob, count: MessageCounter, window_tokens: int
) -> ModelPrompt:
    """The fullest request that is not too long, for a model that can't report that it is.

    Where all are, it is the shortest.
    """
    assignment = replace(assignment, too_long="clip")
    room_tokens = room_for_record(assignment, window_tokens)
    shortest: ModelPrompt | None = None
    for _, prompt, tokens in versions(assignment, count):
        shortest = prompt
        if tokens <= room_tokens:
            break
    assert shortest is not None  # noqa: S101  # the whole record is always a version
    return shortest


def room_for_record(assignment: SummaryJob, window_tokens: int) -> int:
    """Most tokens of a record in one request to a window that holds the answer as well."""
    room = window_tokens - answer_tokens(assignment.max_tokens) - _FRAME_TOKENS
    return max(0, min(room, _most_tokens(assignment)))


def answer_tokens(max_tokens: int) -> int:
    """Most tokens of an answer: twice what was asked, and the model's thinking before it."""
    return max_tokens * 2 + _THINKING_TOKENS


def parts_of(messages: Messages, numbers: Sequence[int | None] = ()) -> list[PromptPart]:
    """The parts of the messages; thinking is left out, pictures and documents are named.

    What an edit or a write answers is left out where it did not fail: the call says it all.

    Args:
        messages: The messages.
        numbers: Their numbers; by position where there are none.
    """
    calls = index_calls(messages).calls
    parts: list[PromptPart] = []
    for number, message in zip(numbers or range(len(messages)), messages, strict=True):
        for block in message.blocks:
            if isinstance(block, Text):
                found = passages_of(message, block)
                parts += [
                    PromptPart(number, _SPEAKERS.get(author, author), text)
                    for author, text in found
                ]
                continue
            if isinstance(block, ToolResult):
                asked = calls.get(block.call_id)
                if asked and classify(asked).kind in _TOLD_BY_CALL and not is_failed(block):
                    continue
            speaker = "tool" if isinstance(block, ToolResult) else message.role
            call = block if isinstance(block, ToolCall) else None
            parts.append(PromptPart(number, speaker, _block_text(block), call))
    return [part for part in parts if part.text]


def clip(
    parts: Sequence[PromptPart], result_chars: int, call_chars: int, said_chars: int
) -> list[PromptPart]:
    """The parts cut to their two ends, with the number of characters left out between.

    Older results and calls are cut more. Of what is between, the errors of a failed result and the
    signatures of a call are named: an edit may be in no other place.

    Args:
        parts: The parts.
        result_chars: Most characters of a result in the middle of the record.
        call_chars: Most characters of a call there.
        said_chars: Most characters of each text.
    """
    shown: list[PromptPart] = []
    for at, part in enumerate(parts):
        nearness = 0.5 + at / len(parts)
        if part.speaker == "tool":
            errors = error_lines if part.text.startswith(_FAILED) else None
            text = _ends(part.text, int(result_chars * nearness), errors)
        elif part.call is not None:
            text = _call_text(part.call, int(call_chars * nearness))
        else:
            text = _ends(part.text, said_chars)
        shown.append(replace(part, text=text))
    return shown


def each_result_once(parts: Sequence[PromptPart]) -> list[PromptPart]:
    """The parts; a long result that repeats one is replaced by the number of the first."""
    first: dict[str, int | None] = {}
    shown: list[PromptPart] = []
    for part in parts:
        if part.speaker == "tool" and len(part.text) >= _SAME_CHARS:
            if part.text in first:
                shown.append(replace(part, text=f"[the same as in message {first[part.text]}]"))
                continue
            first[part.text] = part.number
        shown.append(part)
    return shown


def without_oldest_work(parts: Sequence[PromptPart], share: float) -> list[PromptPart]:
    """The parts without the oldest `share` of those that are not the user's."""
    others = [at for at, part in enumerate(parts) if part.speaker != "user"]
    dropped = set(others[: int(len(others) * share)])
    return [part for at, part in enumerate(parts) if at not in dropped]


def render_messages(parts: Sequence[PromptPart]) -> str:
    """The parts as escaped data, each tagged with its number and speaker."""
    return "\n".join(
        f'<part n="{"" if part.number is None else part.number}" from="{part.speaker}">'
        f"{escaped(part.text)}</part>"
        for part in parts
    )


def escaped(text: str) -> str:
    """`text` so that nothing in it can close or open a tag of the prompt."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def tokens_of(text: str, count: MessageCounter) -> int:
    """An upper estimate of the tokens of `text`."""
    return int(count.text(text) * _COUNT_MARGIN) if text else 0


def _versions(assignment: SummaryJob) -> Iterator[tuple[str, list[PromptPart], str, str]]:
    """Name, parts, previous summary and extracts of each way to show the record, fullest first."""
    # Where originals say all that a previous summary says, they speak: so facts do not erode.
    before = "" if assignment.has_originals else assignment.previous
    originals = parts_of(assignment.messages, assignment.numbers)
    if assignment.too_long == "drop_oldest":
        yield "whole", originals, before, ""
        yield from _without_oldest(assignment)
        return
    once = each_result_once(originals)
    yield "whole", once, before, ""
    whole, short = _SAID_CHARS
    for result_chars, call_chars in _CLIPPED_CHARS:
        shown = clip(once, result_chars, call_chars, whole)
        yield f"results of {result_chars} characters", shown, before, ""
    shown = clip(once, *_CLIPPED_CHARS[-1], short)
    extracts = assignment.extracts()
    for share in _DROPPED_SHARES:
        name = f"extracts, without the oldest {share:.0%} of the work"
        yield name, without_oldest_work(shown, share), before, extracts


def _without_oldest(
    assignment: SummaryJob,
) -> Iterator[tuple[str, list[PromptPart], str, str]]:
    """The record without its oldest groups of messages, more of them each time, the newest never.

    The previous summary replaces them.
    """
    messages, numbers = assignment.messages, assignment.numbers
    starts = groups_of(messages)
    for share in _DROPPED_GROUPS:
        left_out = min(math.ceil(len(starts) * share), len(starts) - 1)
        if left_out > 0:
            at = starts[left_out]
            yield (
                f"without the oldest {left_out} of {len(starts)} groups of messages",
                parts_of(messages[at:], numbers[at:] or range(at, len(messages))),
                assignment.previous,
                "",
            )


def groups_of(messages: Messages) -> list[int]:
    """The position of the first message of each group: the model's answer and what follows it."""
    return [
        at
        for at, message in enumerate(messages)
        if at == 0 or (message.role == "assistant" and messages[at - 1].role != "assistant")
    ]


def _prompt(assignment: SummaryJob, record: str, previous: str, extracts: str) -> ModelPrompt:
    """The request for a summary of `record`, which is escaped already."""
    parts = parts_of(assignment.kept, assignment.kept_numbers)[-_KEPT_PARTS:]
    kept = clip(parts, _KEPT_CHARS // 2, _KEPT_CHARS // 4, _KEPT_CHARS)
    user = _filled(
        "summary_request.md",
        {
            "pinned": escaped("\n".join(assignment.pinned)) or "(none)",
            "previous": escaped(previous) or "(none)",
            "focus": escaped(assignment.instructions) or "(none)",
            "extracts": escaped(extracts) or "(none)",
            "transcript": record,
            "kept": render_messages(kept) or "(none)",
            **_length(assignment),
        },
    )
    return ModelPrompt(_system(assignment), user, assignment.max_tokens)


def _most_tokens(assignment: SummaryJob) -> int:
    is_original = assignment.too_long == "drop_oldest"
    return _MAX_ORIGINALS_TOKENS if is_original else _MAX_RECORD_TOKENS


def _length(assignment: SummaryJob) -> dict[str, str]:
    return {
        "max_tokens": str(assignment.max_tokens),
        "max_words": str(max(20, int(assignment.max_tokens / _TOKENS_PER_WORD))),
    }


def _system(assignment: SummaryJob) -> str:
    name = "turn_prefix" if assignment.is_turn_prefix else assignment.outline
    return _file(f"{name}_system.md")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template, filled in one pass: values are not searched for slots."""
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
    arguments = call.arguments
    texts = [value for value in named_arguments(call).values() if isinstance(value, str)]
    if max_chars and len(_json(arguments)) > max_chars:
        long = sum(len(text) > max_chars // 4 for text in texts)
        each_chars = max_chars // max(1, long)
        arguments = {
            name: _ends(value if isinstance(value, str) else _json(value), each_chars, _definitions)
            for name, value in named_arguments(call).items()
        } or _ends(_json(arguments), max_chars, _definitions)
    return f"[calls {call.name} with {_json(arguments)}]"


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ends(text: str, max_chars: int, named_in: Callable[[str], str] | None = None) -> str:
    """The two ends of `text`, and what is named in between."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 3 // 4, max_chars // 4
    middle = text[head : len(text) - tail]
    told = f"{len(middle)} characters left out"
    if named_in is not None and (found := named_in(middle)[:_NAMED_CHARS]):
        told += f", in them: {found}"
    return f"{text[:head]} [… {told} …] {text[-tail:]}"


def _definitions(code: str) -> str:
    """What `code` defines, a patch or a text inside a string of JSON as well."""
    plain = _BROKEN_LINE.sub(" ", _PATCH_MARK.sub("\n", code.replace("\\n", "\n")))
    rows = (row.partition(": ")[2].strip() for row in outline(plain, _ANY_CODE).splitlines())
    return "; ".join(dict.fromkeys(rows))
