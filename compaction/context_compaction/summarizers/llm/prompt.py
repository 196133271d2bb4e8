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
# Versions of a record that is too long, each with results nine tenths as long as in the one before.
# Those whose results would be too short leave out the oldest work instead: log and facts tell of
# it. The last shows a fiftieth of it.
_VERSIONS = 90
_LEAST_RESULT_CHARS = 150


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
    # However large a window is: what more of long results would tell is not worth its price. Of
    # half as much, decisions of a day's session were no longer told.
    max_clipped_tokens: int = 64_000
    frame_tokens: int = 1_500  # of a request, in addition to its record

    def room_tokens(self, window_tokens: int) -> int:
        """Most tokens of the record in one request to a window that holds the answer as well."""
        room = max(0, window_tokens - answer_tokens(self.max_tokens) - self.frame_tokens)
        return min(room, self.max_clipped_tokens) if self.too_long == "clip" else room


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
        tokens = int(count.text(f"{record}{previous}{extracts}") * 1.1)  # our count may be short
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


def answer_tokens(max_tokens: int, *, thinking_tokens: int = 4_000) -> int:
    """Most tokens of an answer: twice what was asked, and the thinking of newer models before it.

    These think unasked, and that counts as output.
    """
    return max_tokens * 2 + thinking_tokens


def _shown(job: SummaryJob, number: int) -> tuple[str, Sequence[PromptPart], str, str]:
    """Name, parts, previous summary and extracts of a version, from 0 on each shorter."""
    # Where originals say all that a previous summary says, they speak: so facts do not erode.
    before = "" if job.has_originals else job.previous
    record = job.record
    if not number:
        return "whole", record, before, ""
    if job.too_long == "drop_oldest":
        starts = groups_of(record)
        name = f"without the oldest {number} of {len(starts)} groups of messages"
        return name, record[starts[number] :], job.previous, ""
    chars = int(64_000 * 0.9**number)
    # What was said is a tenth of a record and tells the most of it: it is cut last.
    if chars >= _LEAST_RESULT_CHARS:
        return f"results of {chars} characters", clip(record, chars, 8_000), before, ""
    share = 1 - chars / _LEAST_RESULT_CHARS
    shortest = clip(record, _LEAST_RESULT_CHARS, 1_500)
    name = f"extracts, without the oldest {share:.0%} of the work"
    return name, without_oldest_work(shortest, share), before, job.extracts()


def _prompt(job: SummaryJob, record: str, previous: str, extracts: str) -> ModelPrompt:
    """The request for a summary of `record`, which is escaped already."""
    kept = clip(job.kept[-40:], result_chars=300, said_chars=1_000)
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
    # An English word takes about two tokens of the newest tokenizers. Who is given a most alone
    # stays a fifth to a third below it, and that room stays empty.
    max_words = max(20, job.max_tokens // 2)
    values["least_words"] = str(max_words * 9 // 10)
    user = _file(template).format(max_tokens=job.max_tokens, max_words=max_words, **values)
    return ModelPrompt(_file(f"{job.outline}_system.md"), user.strip(), job.max_tokens)


@cache
def _file(name: str) -> str:
    folder = files(__package__ or "") / "prompts"
    return (folder / name).read_text(encoding="utf-8").strip()
