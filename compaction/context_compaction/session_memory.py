"""Session memory: a summary written earlier stands in for a new one where it reaches the cut.

Every summary that a model or the host writes is kept with the number of the last message that it
stands for; a host may also hand one in while it goes on (mode "record" with `summary`). When
history is replaced later, and such a text reaches up to the cut or nearly, nobody is asked to write
another: extracts tell what lies between. Claude Code compacts by its session memory in the same
way, before it asks a model. Pure: the archive's receipts hold the texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from context_compaction import markers
from context_compaction.assignments import PROSE_SHARE, source_for
from context_compaction.compaction import CompactRequest
from context_compaction.cut_point import history_of
from context_compaction.errors import SummaryError
from context_compaction.extracts import extract_of, extracts, with_extracts
from context_compaction.messages import JsonObject, Message, Messages
from context_compaction.session_state import Memory, SessionState
from context_compaction.sources import Record, Sources
from context_compaction.summarizers import host
from context_compaction.task import Shape, Task, history_span, span_of
from context_compaction.words import Words

_SINCE_TITLE = "# Since that was written, word for word"
# Of the room beside the text, this part is for what came after it; the rest is for all of it.
_SINCE_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Match:
    """A memory that reaches the cut.

    Attributes:
        memory: The memory.
        since: What of the history came after it.
        gap_tokens: Tokens between its end and the cut; negative where it reaches beyond.
    """

    memory: Memory
    since: Messages
    gap_tokens: int


def memory_that_reaches(
    task: Task, shape: Shape, request: CompactRequest, states: Sequence[SessionState]
) -> Match | None:
    """The memory whose end lies nearest to the cut of `shape`; None where none can be used.

    It must stand for the whole history in this very conversation, fit, dwell on what is asked for,
    and leave at most `memory_gap_tokens` before the cut untold.
    """
    if shape.cut is None or not shape.summary_tokens or request.summary is not None:
        return None
    if request.summarizer == "extractive":
        return None
    history = history_of(shape.draft.messages, shape.cut)
    first = span_of(task, history).start_seq
    room_tokens = int(shape.summary_tokens * PROSE_SHARE)
    found = [
        match
        for memory in (state.memory for state in reversed(states))
        if memory is not None
        if memory.start_seq <= first and memory.instructions == request.instructions
        if task.count.text(memory.text) <= room_tokens
        for match in [_match(task, history, shape.draft.messages, memory)]
        if match is not None and match.gap_tokens <= task.settings.memory_gap_tokens
    ]
    return min(found, key=lambda match: abs(match.gap_tokens), default=None)


def memory_words(task: Task, shape: Shape, sources: Sources, match: Match) -> Words:
    """The words for `shape`: the memory, what came after it, and extracts from the record."""
    plain = extracts(task, shape, sources)
    text, room_tokens = match.memory.text, shape.summary_tokens
    numbers = {message.index for message in match.since}
    since = tuple(m for m in sources.history.since if m.index in numbers)
    if since:
        left = room_tokens - task.count.text(f"{text}\n{_SINCE_TITLE}\n") - 2
        told = extract_of(
            task, Record(since, later=sources.history.later), int(left * _SINCE_SHARE)
        )
        text = f"{text}\n{_SINCE_TITLE}\n{told}" if told else text
    text = with_extracts(task, text, sources.history, room_tokens)
    used: JsonObject = {
        "writer": match.memory.writer,
        "at_seconds": match.memory.at_seconds,
        "stop_seq": match.memory.stop_seq,
        "messages_since": len(match.since),
        "tokens_since": max(0, match.gap_tokens),
    }
    return replace(plain, summary=text, writer="memory", memory=used)


def memory_given(task: Task, request: CompactRequest) -> Words:
    """What the host hands in while it goes on, as words that only the archive gets."""
    source = source_for(task, Record(task.messages), request)
    room_tokens = int(task.settings.summary_tokens * PROSE_SHARE)
    try:
        prose = host.accept(request.summary or "", source, room_tokens, task.count)
    except SummaryError as error:
        return Words("", "", warnings=(f"The summary that was given is not kept. {error}.",))
    return Words("", "", "host", prose.warnings, prose=prose.text)


def memory_kept(
    task: Task, shape: Shape, words: Words, request: CompactRequest, now_seconds: float
) -> Memory | None:
    """What is left for later compactions; None where nobody wrote anything."""
    if not words.prose:
        return None
    span = span_of(task, task.messages) if shape.cut is None else history_span(task, shape)
    return Memory(
        words.prose,
        span.start_seq,
        span.stop_seq,
        words.writer,
        request.instructions,
        int(now_seconds),
    )


def _match(task: Task, history: Messages, all_messages: Messages, memory: Memory) -> Match | None:
    """How the end of `memory` lies to the end of `history`; None where it is not in the list."""
    ends = [_end_seq(task, message) for message in history]
    if memory.stop_seq in ends:
        since = history[len(ends) - ends[::-1].index(memory.stop_seq) :]
        return Match(memory, since, sum(map(task.count.message, since)))
    beyond = 0
    for message in all_messages[_position_after(all_messages, history) :]:
        beyond += task.count.message(message)
        if _end_seq(task, message) == memory.stop_seq:
            return Match(memory, (), -beyond)
    return None


def _position_after(messages: Messages, history: Messages) -> int:
    last = history[-1]
    same = (m is last or (m.index is not None and m.index == last.index) for m in messages)
    return next(at for at, is_last in enumerate(same, 1) if is_last)


def _end_seq(task: Task, message: Message) -> int:
    """Number of the last archived message that `message` is or stands for; -1 for none."""
    made = markers.originals_of(message)
    if made is not None:
        return made.stop_seq if made.session_id == task.session_id else -1
    return task.seqs[message.index] if message.index is not None else -1
