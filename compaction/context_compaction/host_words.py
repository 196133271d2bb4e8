"""The words of a summary with the prose that the host wrote: what it is asked, and what it gave."""

from dataclasses import replace

from context_compaction.archive import Archive
from context_compaction.assignments import assignment_of, source_for
from context_compaction.compaction import CompactRequest, SummaryPrompt
from context_compaction.errors import NotFoundError, SummaryError
from context_compaction.extracts import extracts, with_extracts
from context_compaction.markers import Span
from context_compaction.messages import JsonObject
from context_compaction.sources import Sources
from context_compaction.summarizers import continuation, host
from context_compaction.summarizers.prompt import clipped, parts_of, render, summary_prompt
from context_compaction.task import Shape, Task, history_span
from context_compaction.words import Words


def host_words(task: Task, shape: Shape, sources: Sources, request: CompactRequest) -> Words:
    """The words for `shape` with the prose that the host gave, if it may be used."""
    plain = extracts(task, shape, sources)
    if not shape.summary_tokens:
        warning = "The summary that was given is not used: no history had to be replaced."
        return replace(plain, warnings=(warning,))
    source = source_for(task, sources.history, request)
    try:
        prose = host.accept(request.summary or "", source, shape.summary_tokens, task.count)
    except SummaryError as error:
        warning = f"The summary that was given is not used. {error}. Verbatim extracts stand there."
        return replace(plain, warnings=(warning,))
    text = with_extracts(task, prose.text, sources.history, shape.summary_tokens)
    return replace(plain, summary=text, writer="host", warnings=prose.warnings, prose=prose.text)


def prompt_for(
    task: Task, sources: Sources, shape: Shape, request: CompactRequest, token: str
) -> SummaryPrompt:
    """What a host's model needs to write the summary of `shape`."""
    assignment = assignment_of(task, sources.history, shape.summary_tokens, False, request)
    record = render(clipped(parts_of(assignment.messages)))
    prompt = summary_prompt(assignment, record, sources.history.lost)
    return SummaryPrompt(prompt.system, prompt.user, prompt.max_tokens, token)


async def issue_continuation(task: Task, shape: Shape, archive: Archive, now_seconds: float) -> str:
    """The token that ties the host's summary to the history of `shape`."""
    span = history_span(task, shape)
    return continuation.issue(span, await _raws(span, archive), now_seconds)


async def continuation_warnings(
    task: Task, shape: Shape, request: CompactRequest, archive: Archive, now_seconds: float
) -> tuple[str, ...]:
    """What to say of the token that came with the host's summary.

    Raises:
        SettingsError: It is none of ours, has expired, or belongs to another conversation.
    """
    if request.continuation is None:
        return ()
    given = continuation.parse(request.continuation, task.session_id, now_seconds)
    continuation.verify(given, await _raws(given.span, archive))
    stop = history_span(task, shape).stop_seq
    if not shape.summary_tokens or stop <= given.span.stop_seq:
        return ()
    return (
        f"The conversation has grown since the summary was asked for: of messages "
        f"{given.span.stop_seq + 1} to {stop} only verbatim extracts stand in it.",
    )


async def _raws(span: Span, archive: Archive) -> list[JsonObject]:
    try:
        found = await archive.read_messages(
            span.session_id, span.start_seq, span.stop_seq, head=span.head or None
        )
    except NotFoundError:
        return []
    return [item.raw for item in found]
