"""Ask a model for a summary: a first draft, checks, and at most one repair request.

Every failure raises a `SummaryError` with its reason, from a missing answer to an answer that is
not a summary. The caller then uses verbatim extracts. This module writes no summary text itself.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio
from anyio import to_thread

from context_compaction.errors import PromptTooLongError, SummaryError
from context_compaction.summarizers.llm import check
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

MIN_PROSE_TOKENS = 200
"""A model is asked only for texts of at least this length, because shorter ones say less than
extracts."""
LENGTH_TOLERANCE = 1.2
"""A text may exceed its limit by this factor, because models keep to a length only roughly."""


@dataclass(frozen=True, slots=True)
class Prose:
    """A summary that passed the checks.

    Attributes:
        text: The summary.
        warnings: What a reader should know about it, as sentences.
        route: How the conversation was shown: "whole", "results of 500 characters" …
        was_repaired: Whether it is the answer to a repair request.
    """

    text: str
    warnings: tuple[str, ...]
    route: str
    was_repaired: bool


class ModelCalls:
    """The requests of one compaction to its model, with one time limit and the total usage.

    Args:
        model: The model.
        tell: Receives the number of characters in each new piece of an answer.
        redact: Applied to all material that the model gets. It may remove secrets.
    """

    def __init__(
        self, model: SummaryModel, tell: TellChars, redact: Callable[[str], str] = str
    ) -> None:
        self.model: SummaryModel = model
        self.usage: ModelUsage = ModelUsage()
        self._tell, self._redact = tell, redact
        self._deadline = anyio.current_time() + model.timeout_seconds

    async def write(self, prompt: ModelPrompt) -> ModelAnswer:
        """Return the model's answer.

        Raises:
            SummaryError: There is no answer, or none within the time limit.
        """
        prompt = replace(prompt, user=self._redact(prompt.user))
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
        except Exception as error:  # any program can pass a model, and its bug must not end a call
            _logger.warning("The model %s failed.", self.model.model, exc_info=True)
            raise SummaryError(
                f"{self.model.model} failed: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        if answer.failure:
            raise SummaryError(answer.failure)
        return answer


async def write_prose(
    job: SummaryJob, source: check.GroundingSource, calls: ModelCalls, count: MessageCounter
) -> Prose:
    """Return the model's summary, checked.

    Raises:
        SummaryError: There is no usable summary. The text names the reason.
    """
    answer, route = await _first_answer(job, calls, count)
    draft, flaw = await _draft_and_flaw(answer, job, source, count)
    if not flaw:
        return _prose_of(draft, route, source)
    try:
        answer = await calls.write(repair_prompt(job, draft.text, flaw))
        repaired, second_flaw = await _draft_and_flaw(answer, job, source, count)
    except SummaryError as error:
        raise SummaryError(f"{flaw}, and the repair request failed: {error}") from error
    if second_flaw:
        raise SummaryError(f"{flaw}, and the repaired text has a flaw: {second_flaw}")
    removed = tuple(dict.fromkeys((*draft.removed, *repaired.removed)))
    return _prose_of(replace(repaired, removed=removed), route, source, was_repaired=True)


def accepted(
    text: str, source: check.GroundingSource, max_tokens: int, count: MessageCounter
) -> Prose:
    """Return the summary that a host's own model wrote, checked. It needs no headings.

    Raises:
        SummaryError: It is empty, a refusal or an error message, or exceeds `max_tokens`.
    """
    draft = check.draft_of(text, source, min_headings=0)
    tokens = count.text(draft.text)
    if tokens > max_tokens:
        raise SummaryError(
            f"It has {tokens} tokens, but the limit is {max_tokens}: give a shorter one"
        )
    return _prose_of(draft, "host", source)


def _prose_of(
    draft: check.CheckedDraft,
    route: str,
    source: check.GroundingSource,
    *,
    was_repaired: bool = False,
) -> Prose:
    """Return the draft with warnings about its language and its removed and repaired lines."""
    changes = (
        (f"{len(draft.removed)} lines of the summary were removed, because they attribute words "
         "to the user that the user did not say", draft.removed),
        (f"{len(draft.repaired)} lines of the summary lost numbers of messages that do not exist, "
         "or the marks of false quotations", draft.repaired),
    )  # fmt: skip
    warnings = [
        f"{change}: {'; '.join(line[:120] for line in lines[:3])}"
        for change, lines in changes
        if lines
    ]
    language = check.language_of(draft.text)
    if source.language and language and language != source.language:
        warnings.append(
            f"The summary is in {language}, but the user writes {source.language}. Ask for a "
            "summary in the language of the user."
        )
    return Prose(draft.text, tuple(warnings), route, was_repaired)


async def _first_answer(
    job: SummaryJob, calls: ModelCalls, count: MessageCounter
) -> tuple[ModelAnswer, str]:
    """Return the answer to the longest version that the model accepts, and the version's name."""
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
            room_tokens = int(version.tokens * 0.6)  # so that no version is sent twice
    reason = refusal or f"The conversation is too long for {calls.model.model}"
    raise SummaryError(f"{reason}, and so is each shorter version that was tried") from refusal


async def _draft_and_flaw(
    answer: ModelAnswer,
    job: SummaryJob,
    source: check.GroundingSource,
    count: MessageCounter,
) -> tuple[check.CheckedDraft, str]:
    """Return the draft in an answer, and why it cannot be used, as a sentence for the model.

    The second value is "" for a usable draft.

    Raises:
        SummaryError: The answer has no draft.
    """
    draft = await to_thread.run_sync(check.draft_of, answer.text, source)
    if answer.is_cut_off:
        return draft, "The summary is too long and was cut off at its end"
    if count.text(draft.text) > job.max_tokens * LENGTH_TOLERANCE:
        return draft, f"The summary is longer than its limit of {job.max_tokens} tokens"
    return draft, ""
