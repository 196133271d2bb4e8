"""The request to a model: the record as escaped data, in our prompt files, as short as it must be.

A record that is short is shown whole. Of a longer one the model gets all that was said, with
results and calls cut down step by step until it fits; of the longest the newest part, and the log
and the facts that the writer without a model makes; or, as Claude Code does, the originals without
their oldest groups of messages. Pure; the prompt files are read once.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from context_compaction.messages.model import Messages
from context_compaction.settings import SummaryOutline, TooLongRule
from context_compaction.summarizers.llm.model import ModelPrompt
from context_compaction.summarizers.llm.record import (
    PromptPart,
    clip,
    each_result_once,
    escaped,
    groups_of,
    parts_of,
    render_messages,
    without_oldest_work,
)
from context_compaction.tokens.counter import MessageCounter

# Prose may take this part of a summary's room, the rest is for what the user said and extracts ...
PROSE_SHARE = 0.75
# ... and so much where the user said little.
MOST_PROSE_SHARE = 0.9
# Characters of each result once the whole record is too long: of the oldest half as many, of the
# newest half as many again; of each call a little more, for it may be an edit. What was said is a
# tenth of a record and tells the most of it: it is cut last.
_RESULT_CHARS = (4_000, 2_800, 2_000, 1_400, 1_000, 700, 500, 350, 250, 150)
_MORE_OF_CALL_CHARS = 150
_SAID_CHARS = (8_000, 1_500)
# Then so much of what is not the user's goes, the oldest first: log and facts tell of it.
_DROPPED_SHARES = (0.5, 0.75, 0.9, 0.97)
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
    outline: SummaryOutline = "summary"
    too_long: TooLongRule = "clip"
    retries: int = 5


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
    for chars in _RESULT_CHARS:
        shown = clip(once, chars, chars + _MORE_OF_CALL_CHARS, whole)
        yield f"results of {chars} characters", shown, before, ""
    least = _RESULT_CHARS[-1]
    shown = clip(once, least, least + _MORE_OF_CALL_CHARS, short)
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
    return _file(f"{assignment.outline}_system.md")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template, filled in one pass: values are not searched for slots."""
    return _SLOT.sub(lambda slot: values[slot[1]], _file(template)).strip()


@cache
def _file(name: str) -> str:
    folder = files(__package__ or "") / "prompts"
    return (folder / name).read_text(encoding="utf-8").strip()
