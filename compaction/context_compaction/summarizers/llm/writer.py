"""Ask a model for a summary: a first draft, checks, and at most one repair request.

Every failure raises a `SummaryError` with its reason, from a missing answer to an answer that is
not a summary. The caller then uses verbatim extracts. This module writes no summary text itself.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
from anyio import to_thread

from context_compaction.errors import PromptTooLongError, SummaryError
from context_compaction.summarizers.llm import check
from context_compaction.summarizers.llm.model import (
    Conversation,
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SummaryModel,
    TellChars,
)
from context_compaction.summarizers.llm.prompt import (
    SummaryJob,
    Version,
    again,
    conversation_prompt,
    fullest_version,
    repair_prompt,
)
from context_compaction.tokens.counter import MessageCounter

_logger = logging.getLogger(__name__)

MIN_PROSE_TOKENS = 200
"""A model is asked only for texts of at least this length, because shorter ones say less than
extracts."""
LENGTH_TOLERANCE = 1.05
"""A text may exceed its limit by this factor, because models keep to a length only roughly."""
# No summary is as long. A server that never ends its answer must not fill the memory.
_MAX_ANSWER_CHARS = 500_000


@dataclass(frozen=True, slots=True)
class Prose:
    """A summary that passed the checks.

    Attributes:
        text: The summary.
        warnings: What a reader should know about it, as sentences.
        route: How the writer saw the conversation: "conversation" (itself), "whole", "results of
            500 characters" …; "host" if a host's model wrote the text.
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
        redact: Applied to the material of the conversation in each prompt. It may remove secrets.
    """

    def __init__(self, model: SummaryModel, tell: TellChars, redact: Callable[[Any], Any]) -> None:
        self.model: SummaryModel = model
        self.usage: ModelUsage = ModelUsage()
        self._tell_chars, self._redact, self._chars = tell, redact, 0
        self._deadline = anyio.current_time() + model.timeout_seconds

    async def _tell(self, chars: int) -> None:
        self._chars += chars
        if self._chars > _MAX_ANSWER_CHARS:
            raise SummaryError(f"{self.model.model} does not end its answer")
        await self._tell_chars(chars)

    async def write(self, prompt: ModelPrompt) -> ModelAnswer:
        """Return the model's answer, which may be unusable.

        Raises:
            SummaryError: There is no answer, or none within the time limit. `PromptTooLongError`
                if the prompt is too long for the model.
        """
        given = prompt.conversation
        if given is not None:
            values = [list(given.messages), given.left_tokens, given.system, given.tools]
            given = Conversation(*self._redact(values))
        prompt = replace(prompt, user=self._redact(prompt.user), conversation=given)
        try:
            with anyio.move_on_after(max(0.0, self._deadline - anyio.current_time())):
                answer = await self.model.write(prompt, self._tell)
                self.usage += answer.usage
                return answer
        except SummaryError:
            raise
        # A caller's own model class may raise anything, and its bug must not end a compaction. An
        # extension in Rust reports its bugs by an exception that is no `Exception`.
        except BaseException as error:
            if _ends_the_program(error):
                raise
            _logger.warning("The model %s failed.", self.model.model, exc_info=True)
            raise SummaryError(
                f"{self.model.model} failed: {type(error).__name__}: {_message_of(error)}"
            ) from error
        raise SummaryError(
            f"{self.model.model} did not finish within {self.model.timeout_seconds:g} seconds"
        )


def _ends_the_program(error: BaseException) -> bool:
    """Whether somebody cancels the call or stops the program, so that `error` is no fault."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return any(map(_ends_the_program, group.exceptions))
    cancelled = anyio.get_cancelled_exc_class()
    return isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, cancelled))


def _message_of(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:  # noqa: BLE001 - the model's class makes this text, too
        return "it has no readable text"


async def write_prose(
    job: SummaryJob, source: check.GroundingSource, calls: ModelCalls, count: MessageCounter
) -> Prose:
    """Return the model's summary, checked.

    Raises:
        SummaryError: There is no usable summary. The text names the reason.
    """
    version, answer = await _first_answer(job, calls, count)
    draft, flaw = await _draft_and_flaw(answer, job, source, count)
    if draft and not flaw:
        return _prose_of(draft, version.name, source)
    repair = repair_prompt(job, draft.text, flaw) if draft else again(version.prompt, flaw)
    try:
        answer = await calls.write(repair)
    except SummaryError as error:
        raise SummaryError(f"{flaw}, and the repair request failed: {error}") from error
    second_draft, second_flaw = await _draft_and_flaw(answer, job, source, count)
    if second_draft is None or second_flaw:
        raise SummaryError(f"{flaw}. The second text is not usable either: {second_flaw}")
    removed = tuple(dict.fromkeys((*(draft.removed if draft else ()), *second_draft.removed)))
    second_draft = replace(second_draft, removed=removed)
    return _prose_of(second_draft, version.name, source, was_repaired=True)


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
            f"The summary has {tokens} tokens, but the limit is {max_tokens}: give a shorter one"
        )
    return _prose_of(draft, "host", source)


def _prose_of(
    draft: check.CheckedDraft,
    route: str,
    source: check.GroundingSource,
    *,
    was_repaired: bool = False,
) -> Prose:
    """Return the draft with warnings about its language, and about lines and names in it."""
    changes = (
        (f"{len(draft.removed)} lines of the summary were removed, because they quote words that "
         "nobody said", draft.removed),
        (f"{len(draft.repaired)} lines of the summary were corrected: false quotations, or words "
         "that are not the user's", draft.repaired),
        (f"{len(draft.approvals)} lines of the summary claim an approval that the user did not "
         "give", draft.approvals),
        (f"{len(draft.unknown)} file names and figures of the summary do not occur in the "
         "conversation", draft.unknown),
    )  # fmt: skip
    warnings = [
        f"{change}: {'; '.join(line[:120] for line in lines[:5])}"
        for change, lines in changes
        if lines
    ]
    warnings += filter(None, [_wrong_language(draft, source)])
    return Prose(draft.text, tuple(warnings), route, was_repaired)


def _wrong_language(draft: check.CheckedDraft, source: check.GroundingSource) -> str:
    """Return a sentence if the draft is not in the user's language, or ""."""
    language = check.language_of(draft.text)
    if not language or source.language in ("", language):
        return ""
    return (
        f"The summary is in {language}, but the user writes {source.language}. Write it in the "
        "language of the user"
    )


async def _first_answer(
    job: SummaryJob, calls: ModelCalls, count: MessageCounter
) -> tuple[Version, ModelAnswer]:
    """Return the longest version that the model accepts, and the answer to it."""
    after = ""
    if job.conversation is not None:
        prompt = conversation_prompt(job)
        try:
            answer = await calls.write(prompt)
        except SummaryError as error:
            after = f", after a request in the conversation failed: {error}"
        else:
            if not answer.failure:
                return Version("conversation", prompt, 0), answer
            after = f", after a request in the conversation failed: {answer.failure}"
    room_tokens = job.room_tokens(calls.model.window_tokens, count)
    refusal: PromptTooLongError | None = None
    for _ in range(job.retries + 1):
        version = await to_thread.run_sync(fullest_version, job, room_tokens, count)
        if version.tokens > room_tokens:
            break
        try:
            answer = await calls.write(version.prompt)
            return replace(version, name=f"{version.name}{after}"), answer
        except PromptTooLongError as error:
            refusal = error
            room_tokens = int(version.tokens * 0.6)  # a clearly shorter version is next
    reason = refusal or f"The conversation is too long for {calls.model.model}"
    raise SummaryError(f"{reason}, and so is each shorter version that was tried") from refusal


async def _draft_and_flaw(
    answer: ModelAnswer, job: SummaryJob, source: check.GroundingSource, count: MessageCounter
) -> tuple[check.CheckedDraft | None, str]:
    """Return the draft in an answer, and why it cannot be used, as a sentence for the model.

    The draft is None if there is none that could be improved. The sentence is "" for a usable one.
    """
    if answer.failure:
        return None, answer.failure
    try:
        draft = await to_thread.run_sync(check.draft_of, answer.text, source)
    except SummaryError as error:
        return None, str(error)
    tokens = count.text(draft.text)
    if answer.is_cut_off:
        return draft, "The summary is too long and was cut off at its end"
    if tokens > job.max_tokens * LENGTH_TOLERANCE:
        return draft, f"The summary is longer than its limit of {job.max_tokens} tokens"
    if tokens < min(MIN_PROSE_TOKENS // 2, job.max_tokens // 10):
        return None, f"The summary is far too short: {tokens} of {job.max_tokens} tokens"
    if draft.approvals:
        line = draft.approvals[0][:200]
        return draft, f"The user gave no such approval, so remove the claim: {line}"
    return draft, _wrong_language(draft, source)
