"""The request to a model: the record as escaped data, in our prompt files, as short as it must be.

A record that is short is shown whole. Of a longer one the model gets all that was said, with
results and calls cut down step by step until it fits; of the longest the newest part, and the log
and the facts that the writer without a model makes; or, as Claude Code does, the originals without
their oldest groups of messages. Pure; the prompt files are read once.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from context_compaction.settings import SummaryOutline, TooLongRule
from context_compaction.summarizers.llm.model import ModelPrompt
from context_compaction.summarizers.llm.record import (
    PromptPart,
    clip,
    each_result_once,
    escaped,
    groups_of,
    rendered,
    without_oldest_work,
)
from context_compaction.tokens.counter import MessageCounter

# Prose may take this part of a summary's room, the rest is for what the user said and extracts ...
PROSE_SHARE = 0.75
# ... and so much where the user said little.
MOST_PROSE_SHARE = 0.9
# Characters of each result once the whole record is too long. What was said is a tenth of a record
# and tells the most of it: it is cut last.
_RESULT_CHARS = (4_000, 2_800, 2_000, 1_400, 1_000, 700, 500, 350, 250, 150)
_SAID_CHARS, _LEAST_SAID_CHARS = 8_000, 1_500
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
        record: All that the summary is to tell of, the originals of it.
        previous: The text of the earlier summaries; empty where there were none.
        has_originals: Whether `record` contains all that `previous` summarises.
        max_tokens: Most tokens of the prose.
        extracts: Makes log and facts of the record without a model.
        kept: What stays in full after the summary.
        pinned: Texts that are kept verbatim beside it, each with when it was said.
        instructions: The subjects that the user wants weighed most.
        outline: Which headings it has: "summary" or "nine_sections", a file of `prompts/`.
        too_long: How the record is made shorter for a model that it is too long for ...
        retries: ... and how many times more that model is asked.
    """

    record: Sequence[PromptPart]
    previous: str
    has_originals: bool
    max_tokens: int
    extracts: Callable[[], str] = str
    kept: Sequence[PromptPart] = ()
    pinned: tuple[str, ...] = ()
    instructions: str = ""
    outline: SummaryOutline = "summary"
    too_long: TooLongRule = "clip"
    retries: int = 5

    def room_tokens(self, window_tokens: int) -> int:
        """Most tokens of the record in one request to a window that holds the answer as well."""
        most = _MAX_RECORD_TOKENS if self.too_long == "clip" else _MAX_ORIGINALS_TOKENS
        room = window_tokens - answer_tokens(self.max_tokens) - _FRAME_TOKENS
        return max(0, min(room, most))


@dataclass(frozen=True, slots=True)
class Version:
    """A request that shows the record in one way.

    Attributes:
        name: The way, for receipts.
        prompt: The request.
        tokens: An upper estimate of the record in it.
    """

    name: str
    prompt: ModelPrompt
    tokens: int


def versions(job: SummaryJob, count: MessageCounter) -> Iterator[Version]:
    """The requests for a summary, the fullest first; each is made only when it is asked for."""
    for name, parts, previous, extracts in _ways(job):
        record = rendered(parts)
        tokens = int(count.text(f"{record}{previous}{extracts}") * _COUNT_MARGIN)
        yield Version(name, _prompt(job, record, previous, extracts), tokens)


def fullest_prompt(job: SummaryJob, count: MessageCounter, window_tokens: int) -> ModelPrompt:
    """The fullest request that is not too long, for a model that can't report that it is.

    Where all are, it is the shortest.
    """
    job = replace(job, too_long="clip")
    room_tokens = job.room_tokens(window_tokens)
    prompt = ModelPrompt("", "", 0)
    for version in versions(job, count):
        prompt = version.prompt
        if version.tokens <= room_tokens:
            break
    return prompt


def repair_prompt(job: SummaryJob, draft: str, problem: str) -> ModelPrompt:
    """The request for a shorter draft. The record need not be read again."""
    return _filled(job, "repair_request.md", draft=escaped(draft), problem=problem)


def answer_tokens(max_tokens: int) -> int:
    """Most tokens of an answer: twice what was asked, and the model's thinking before it."""
    return max_tokens * 2 + _THINKING_TOKENS


def _ways(job: SummaryJob) -> Iterator[tuple[str, Sequence[PromptPart], str, str]]:
    """Name, parts, previous summary and extracts of each way to show the record, fullest first."""
    # Where originals say all that a previous summary says, they speak: so facts do not erode.
    before = "" if job.has_originals else job.previous
    if job.too_long == "drop_oldest":
        yield "whole", job.record, before, ""
        starts = groups_of(job.record)
        for share in _DROPPED_GROUPS:
            left_out = min(math.ceil(len(starts) * share), len(starts) - 1)
            if left_out > 0:
                name = f"without the oldest {left_out} of {len(starts)} groups of messages"
                yield name, job.record[starts[left_out] :], job.previous, ""
        return
    once = each_result_once(job.record)
    yield "whole", once, before, ""
    for chars in _RESULT_CHARS:
        yield f"results of {chars} characters", clip(once, chars, _SAID_CHARS), before, ""
    shortest, extracts = clip(once, _RESULT_CHARS[-1], _LEAST_SAID_CHARS), job.extracts()
    for share in _DROPPED_SHARES:
        name = f"extracts, without the oldest {share:.0%} of the work"
        yield name, without_oldest_work(shortest, share), before, extracts


def _prompt(job: SummaryJob, record: str, previous: str, extracts: str) -> ModelPrompt:
    """The request for a summary of `record`, which is escaped already."""
    kept = clip(job.kept[-_KEPT_PARTS:], _KEPT_CHARS // 3, _KEPT_CHARS)
    return _filled(
        job,
        "summary_request.md",
        pinned=escaped("\n".join(job.pinned)) or "(none)",
        previous=escaped(previous) or "(none)",
        focus=escaped(job.instructions) or "(none)",
        extracts=escaped(extracts) or "(none)",
        transcript=record,
        kept=rendered(kept) or "(none)",
    )


def _filled(job: SummaryJob, template: str, **values: str) -> ModelPrompt:
    """The request by a template, filled in one pass: values are not searched for slots."""
    values["max_tokens"] = str(job.max_tokens)
    values["max_words"] = str(max(20, int(job.max_tokens / _TOKENS_PER_WORD)))
    user = _SLOT.sub(lambda slot: values[slot[1]], _file(template)).strip()
    return ModelPrompt(_file(f"{job.outline}_system.md"), user, job.max_tokens)


@cache
def _file(name: str) -> str:
    folder = files(__package__ or "") / "prompts"
    return (folder / name).read_text(encoding="utf-8").strip()
