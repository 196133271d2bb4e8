"""The words of a summary with a model's prose; verbatim extracts where that cannot be had."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from context_compaction.assignments import assignment_of, source_for
from context_compaction.compaction import CompactRequest
from context_compaction.errors import SummaryError
from context_compaction.extracts import extract_of, extracts, with_extracts
from context_compaction.messages import JsonObject
from context_compaction.session_state import SessionState
from context_compaction.sources import Record, Sources
from context_compaction.summarizers import breaker
from context_compaction.summarizers.llm import MIN_PROSE_TOKENS, Calls, Prose, gathered, write_prose
from context_compaction.summarizers.model import SummaryModel, TellChars
from context_compaction.summarizers.prompt import Assignment
from context_compaction.task import Shape, Task
from context_compaction.words import Words


async def model_words(
    task: Task,
    shape: Shape,
    sources: Sources,
    request: CompactRequest,
    model: SummaryModel,
    *,
    states: Sequence[SessionState],
    now_seconds: float,
    tell: TellChars,
) -> Words:
    """The words for `shape` with the prose of `model`; extracts where that fails, and why.

    Args:
        task: The call.
        shape: What is replaced.
        sources: The originals of that.
        request: What the caller wants.
        model: Who writes.
        states: What the session's calls left, oldest first: how the model has done.
        now_seconds: The time.
        tell: Hears of the text's growth.
    """
    jobs = (
        _job(task, sources.history, shape.summary_tokens, False, request),
        _job(task, sources.prefix, shape.checkpoint_tokens, True, request),
    )
    if not any(job.has_room_for_prose for job in jobs):
        return await to_thread.run_sync(extracts, task, shape, sources)
    report: JsonObject = {"writer": model.writer, "name": model.model, "requested": False}
    settings = task.settings
    if wait := breaker.wait_seconds(
        states,
        now_seconds,
        max_failures=settings.breaker_failures,
        cool_down_seconds=settings.breaker_cool_down_seconds,
    ):
        warning = (
            f"Verbatim extracts stand in the summary: {model.model} failed "
            f"{settings.breaker_failures} times in a row and is left alone for {wait:.0f} seconds."
        )
        plain = await to_thread.run_sync(extracts, task, shape, sources, (warning,))
        return replace(plain, model={**report, "waits_seconds": round(wait)})
    calls = Calls(model, tell)
    summary, checkpoint = await gathered([partial(_text, job, calls, task) for job in jobs], 2)
    written = [text.prose for text in (summary, checkpoint) if text.prose is not None]
    failures = [text.failure for text in (summary, checkpoint) if text.failure]
    report |= {
        "requested": True,
        "at_seconds": round(now_seconds),
        "routes": [prose.route for prose in written],
        "was_repaired": any(prose.was_repaired for prose in written),
        "failure": "; ".join(failures) or None,
        **calls.usage.as_json(),
    }
    return Words(
        summary.text,
        checkpoint.text,
        model.writer if written else "extractive",
        (
            *(f"Verbatim extracts stand in the summary, not a model's: {why}." for why in failures),
            *(warning for prose in written for warning in prose.warnings),
        ),
        report,
        summary.prose.text if summary.prose else "",
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """One text that is to be written: the summary, or the checkpoint."""

    record: Record
    max_tokens: int
    is_prefix: bool
    assignment: Assignment
    request: CompactRequest

    @property
    def has_room_for_prose(self) -> bool:
        return self.assignment.max_tokens >= MIN_PROSE_TOKENS


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a job: its text, the prose in it, or why there is none."""

    text: str
    prose: Prose | None = None
    failure: str = ""


def _job(
    task: Task, record: Record, max_tokens: int, is_prefix: bool, request: CompactRequest
) -> _Job:
    assignment = assignment_of(task, record, max_tokens, is_prefix, request)
    return _Job(record, max_tokens, is_prefix, assignment, request)


async def _text(job: _Job, calls: Calls, task: Task) -> _Written:
    """The text of one job: a model's where that can be had, else extracts."""
    failure = ""
    if job.has_room_for_prose:
        source = await to_thread.run_sync(source_for, task, job.record, job.request)
        try:
            prose = await write_prose(job.assignment, source, calls, task.count)
        except SummaryError as error:
            failure = str(error)
        else:
            finish = partial(with_extracts, is_prefix=job.is_prefix)
            text = await to_thread.run_sync(finish, task, prose.text, job.record, job.max_tokens)
            return _Written(text, prose)
    extract = partial(extract_of, is_prefix=job.is_prefix)
    text = await to_thread.run_sync(extract, task, job.record, job.max_tokens)
    return _Written(text, failure=failure)
