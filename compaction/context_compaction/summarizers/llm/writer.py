"""The writer that asks a model: a first draft, a check, at most one repair, a summary or an error.

Every failure, from no answer to an answer that is no summary, raises a `SummaryError` with its
reason; the caller then uses verbatim extracts. Nothing here writes text of its own.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio
from anyio import to_thread

from context_compaction.errors import PromptTooLongError, SummaryError
from context_compaction.summarizers.llm import check
from context_compaction.summarizers.llm.language import language_of
from context_compaction.summarizers.llm.model import (
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SummaryModel,
    TellChars,
)
from context_compaction.summarizers.llm.prompt import SummaryJob, fullest_version, repair_prompt
from context_compaction.tokens.counter import MessageCounter

_logger = logging.getLogger(__name__)

# Prose of fewer tokens than this says less than extracts of that size do.
MIN_PROSE_TOKENS = 200
# Models keep to a length only roughly; the summary has room for this, beside the machine's record.
LENGTH_TOLERANCE = 1.2


@dataclass(frozen=True, slots=True)
class Prose:
    """A summary that passed the checks."""

    text: str
    warnings: tuple[str, ...]  # what a reader should know of it, as sentences
    route: str  # how the record was shown: "whole", "extracts, results of 500 characters" …
    was_repaired: bool


class ModelCalls:
    """The requests of one compaction to its model: one time limit for all, and total usage.

    What the model is shown has passed through `shown`, which may remove secrets.
    """

    def __init__(
        self, model: SummaryModel, tell: TellChars, shown: Callable[[str], str] = str
    ) -> None:
        self.model: SummaryModel = model
        self.usage: ModelUsage = ModelUsage()
        self._tell, self._shown = tell, shown
        self._deadline = anyio.current_time() + model.timeout_seconds

    async def write(self, prompt: ModelPrompt) -> ModelAnswer:
        """The model's answer.

        Raises:
            SummaryError: There is none, or none in time.
        """
        prompt = replace(prompt, user=self._shown(prompt.user))
        try:
            with anyio.fail_after(max(0.0, self._deadline - anyio.current_time())):
                answer = await self.model.write(prompt, self._tell)
                self.usage += answer.usage
        except TimeoutError:
            raise SummaryError(
                f"{self.model.model} did not finish within {self.model.timeout_seconds:g} seconds"
            ) from None
        except (SummaryError, PromptTooLongError):
            raise
        except Exception as error:  # anybody may write a model, and no fault of one ends a call
            _logger.warning("The writer %s failed.", self.model.model, exc_info=True)
            raise SummaryError(
                f"{self.model.model} failed: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        if answer.failure:
            raise SummaryError(answer.failure)
        return answer


async def write_prose(
    job: SummaryJob, source: check.GroundingSource, calls: ModelCalls, count: MessageCounter
) -> Prose:
    """The model's summary of the job, checked.

    Raises:
        SummaryError: There is none that may be used; the text names the reason.
    """
    answer, route = await _first_answer(job, calls, count)
    draft, flaw = await _read(answer, job, source, count)
    if not flaw:
        return _finished(draft, route, source)
    try:
        answer = await calls.write(repair_prompt(job, draft.text, flaw))
        better, again = await _read(answer, job, source, count)
    except SummaryError as error:
        raise SummaryError(f"{flaw}; writing again did not help: {error}") from error
    if again:
        raise SummaryError(f"{flaw}; writing again did not help: {again}")
    removed = tuple(dict.fromkeys((*draft.removed, *better.removed)))
    return _finished(replace(better, removed=removed), route, source, was_repaired=True)


def accepted(
    text: str, source: check.GroundingSource, max_tokens: int, count: MessageCounter
) -> Prose:
    """The summary that a host's own model wrote, checked like any model's; it needs no headings.

    Raises:
        SummaryError: It is empty, a refusal or an error message, or has more than `max_tokens`.
    """
    draft = check.draft_of(text, source, min_headings=0)
    tokens = count.text(draft.text)
    if tokens > max_tokens:
        raise SummaryError(f"It has {tokens} tokens where {max_tokens} fit: give a shorter one")
    return _finished(draft, "host", source)


def _finished(
    draft: check.CheckedDraft,
    route: str,
    source: check.GroundingSource,
    *,
    was_repaired: bool = False,
) -> Prose:
    """The draft as prose, with warnings about removed and mended lines, and its language."""
    changes = (
        (f"{len(draft.removed)} lines of the summary were taken out, because they give as the "
         "user's what the user did not say", draft.removed),
        (f"Out of {len(draft.mended)} lines of the summary numbers of messages that there are not, "
         "or marks of quotations that nobody said, were taken", draft.mended),
    )  # fmt: skip
    warnings = [
        f"{told}: {'; '.join(line[:120] for line in lines[:3])}" for told, lines in changes if lines
    ]
    language = language_of(draft.text)
    if source.language and language and language != source.language:
        warnings.append(
            f"The summary is in {language}, but the user writes {source.language}. Ask for a "
            "summary in the language of the user."
        )
    return Prose(draft.text, tuple(warnings), route, was_repaired)


async def _first_answer(
    job: SummaryJob, calls: ModelCalls, count: MessageCounter
) -> tuple[ModelAnswer, str]:
    """The answer to the fullest request that the model takes, and the name of that request."""
    room_tokens = job.room_tokens(calls.model.window_tokens)
    refusal: PromptTooLongError | None = None
    for _ in range(job.retries + 1):
        version = await to_thread.run_sync(fullest_version, job, room_tokens, count)
        if version.tokens > room_tokens:
            break
        try:
            return await calls.write(version.prompt), version.name
        except PromptTooLongError as error:
            refusal = error
            room_tokens = int(version.tokens * 0.6)  # never the same again
    why = refusal or f"The record is too long for {calls.model.model}"
    raise SummaryError(f"{why}, and so was each shorter version that was tried") from refusal


async def _read(
    answer: ModelAnswer,
    job: SummaryJob,
    source: check.GroundingSource,
    count: MessageCounter,
) -> tuple[check.CheckedDraft, str]:
    """The draft in an answer, and why it may not be used, as a sentence for the model; "" for none.

    Raises:
        SummaryError: There is none.
    """
    draft = await to_thread.run_sync(check.draft_of, answer.text, source)
    if answer.is_cut_off:
        return draft, "The summary was cut off at its end because it is too long"
    if count.text(draft.text) > job.max_tokens * LENGTH_TOLERANCE:
        return draft, f"The summary is longer than the {job.max_tokens} tokens it may have"
    return draft, ""
