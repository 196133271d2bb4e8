"""The request to a model: the record as escaped data, in our prompt files, as short as it must be.

A record that is short is shown whole. Of a longer one the model gets all that was said, with
results and calls as long as they fit; of the longest the newest part, and the log and the facts
that the writer without a model makes; or, as Claude Code does, the originals without their oldest
groups of messages. Pure; the prompt files are read once.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
# Once the whole record is too long: most and least characters of a result, and how long those of
# the next version are. What was said is a tenth of a record and tells the most of it: it is cut
# last.
_MOST_RESULT_CHARS, _LEAST_RESULT_CHARS, _NEXT_SHARE = 64_000, 150, 0.9
_SAID_CHARS, _LEAST_SAID_CHARS = 8_000, 1_500
# Versions of a record. Those whose results would be too short leave out of what is not the user's
# the oldest instead: log and facts tell of it. The last shows a fiftieth of it.
_VERSIONS = 90
# Of what stays after the summary the writer sees the newest parts, each so long at most.
_KEPT_PARTS = 40
_KEPT_CHARS = 1_000
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
# Who is told a most alone stays a fifth to a third below it, and that room stands empty.
_LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """The input and the settings of a model's summary."""

    record: Sequence[PromptPart]  # all that the summary is to tell of, the originals of it
    previous: str  # the text of the earlier summaries; empty where there were none
    has_originals: bool  # `record` contains all that `previous` summarises
    max_tokens: int  # of the prose
    extracts: Callable[[], str] = str  # makes log and facts of the record without a model
    kept: Sequence[PromptPart] = ()  # what stays in full after the summary
    pinned: tuple[str, ...] = ()  # verbatim texts beside it, each with when it was said
    instructions: str = ""  # the subjects that the user wants weighed most
    outline: SummaryOutline = "summary"  # its headings: a file of `prompts/`
    too_long: TooLongRule = "clip"  # how the record is made shorter for a model ...
    retries: int = 5  # ... and how many times more that model is asked

    def room_tokens(self, window_tokens: int) -> int:
        """Most tokens of the record in one request to a window that holds the answer as well."""
        most = _MAX_RECORD_TOKENS if self.too_long == "clip" else _MAX_ORIGINALS_TOKENS
        room = window_tokens - answer_tokens(self.max_tokens) - _FRAME_TOKENS
        return max(0, min(room, most))


@dataclass(frozen=True, slots=True)
class Version:
    """A request that shows the record in one way."""

    name: str  # the way, for receipts
    prompt: ModelPrompt
    tokens: int  # an upper estimate of the record in it


def fullest_version(job: SummaryJob, room_tokens: int, count: MessageCounter) -> Version:
    """The request that shows most of the record within `room_tokens`; where none does, the last."""

    def version(number: int) -> Version:
        name, parts, previous, extracts = _shown(job, number)
        record = rendered(parts)
        tokens = int(count.text(f"{record}{previous}{extracts}") * _COUNT_MARGIN)
        return Version(name, _prompt(job, record, previous, extracts), tokens)

    last = _VERSIONS if job.too_long == "clip" else len(groups_of(job.record)) - 1
    whole = version(0)
    if whole.tokens <= room_tokens or last < 1:
        return whole
    shorter = range(1, last)
    return version(1 + bisect_left(shorter, -room_tokens, key=lambda at: -version(at).tokens))


def repair_prompt(job: SummaryJob, draft: str, problem: str) -> ModelPrompt:
    """The request for a shorter draft. The record need not be read again."""
    return _filled(job, "repair_request.md", draft=escaped(draft), problem=problem)


def answer_tokens(max_tokens: int) -> int:
    """Most tokens of an answer: twice what was asked, and the model's thinking before it."""
    return max_tokens * 2 + _THINKING_TOKENS


def _shown(job: SummaryJob, number: int) -> tuple[str, Sequence[PromptPart], str, str]:
    """Name, parts, previous summary and extracts of a version, from 0 on each shorter."""
    # Where originals say all that a previous summary says, they speak: so facts do not erode.
    before = "" if job.has_originals else job.previous
    record = each_result_once(job.record) if job.too_long == "clip" else job.record
    if not number:
        return "whole", record, before, ""
    if job.too_long == "drop_oldest":
        starts = groups_of(record)
        name = f"without the oldest {number} of {len(starts)} groups of messages"
        return name, record[starts[number] :], job.previous, ""
    chars = int(_MOST_RESULT_CHARS * _NEXT_SHARE**number)
    if chars >= _LEAST_RESULT_CHARS:
        return f"results of {chars} characters", clip(record, chars, _SAID_CHARS), before, ""
    share = 1 - chars / _LEAST_RESULT_CHARS
    shortest = clip(record, _LEAST_RESULT_CHARS, _LEAST_SAID_CHARS)
    name = f"extracts, without the oldest {share:.0%} of the work"
    return name, without_oldest_work(shortest, share), before, job.extracts()


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
    """The request by a template."""
    max_words = max(20, int(job.max_tokens / _TOKENS_PER_WORD))
    values["least_words"] = str(int(max_words * _LEAST_SHARE))
    user = _file(template).format(max_tokens=job.max_tokens, max_words=max_words, **values)
    return ModelPrompt(_file(f"{job.outline}_system.md"), user.strip(), job.max_tokens)


@cache
def _file(name: str) -> str:
    folder = files(__package__ or "") / "prompts"
    return (folder / name).read_text(encoding="utf-8").strip()
