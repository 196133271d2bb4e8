"""The thrash guard: when what a compaction freed is full again at once, say what fills it.

Claude Code stops where "the context refilled to the limit within 3 turns of the previous compact,
3 times in a row" (its issues 41796, 60600 and 82131), and its users had to guess at the cause.
We never stop; we name the cause. A turn is an answer of the model here, as it is there: one
request of the user may lead to many.

The state is what earlier calls left, so every process sees the same. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from context_compaction.activity.tool_kinds import classify
from context_compaction.messages.model import JsonObject, Message, Messages, ToolCall, ToolResult
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.session.state import SessionState
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

_MAX_SOURCES = 5
_NAMED_SOURCES = 3
_TARGET_CHARS = 80


@dataclass(frozen=True, slots=True)
class FillSource:
    """A part of what came since the last compaction.

    Attributes:
        name: The tool and the file or command it was called for, or who spoke.
        tokens: What that came to.
        count: Results or messages.
    """

    name: str
    tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class RefillStats:
    """How the context got to its trigger again.

    Attributes:
        turns: Answers of the model since the last compaction; None where there was none.
        tokens: What came since ...
        room_tokens: ... and what that compaction had left free below the trigger.
        streak: How many times in a row it took `thrash_turns` or fewer, this time included.
        sources: What came, largest first.
    """

    turns: int | None
    tokens: int
    room_tokens: int
    streak: int
    sources: tuple[FillSource, ...]

    def as_json(self) -> JsonObject:
        """As the receipt has it."""
        return {**asdict(self), "sources": [asdict(source) for source in self.sources]}


def refill_stats(
    messages: Messages,
    seqs: Sequence[int],
    states: Sequence[SessionState],
    *,
    count: MessageCounter,
    settings: Settings,
) -> RefillStats:
    """What has come since the newest compaction that found the context above its trigger.

    Args:
        messages: The list that came in, now above the trigger again.
        seqs: For each position of the list that came in, its number in the transcript.
        states: What the calls with shorter lists than this one left, oldest first.
        count: The token counter.
        settings: `thrash_turns`, and `tool_kinds` to name what was read.
    """
    last = next((state for state in reversed(states) if state.filling is not None), None)
    if last is None or last.filling is None:
        return RefillStats(None, 0, 0, 0, ())
    stop_seq = last.stop_seq
    since = [at for at, m in enumerate(messages) if m.index is not None if seqs[m.index] > stop_seq]
    turns = sum(1 for at in since if _begins_answer(messages, at))
    is_soon = turns <= settings.thrash_turns
    sources = _sources([messages[at] for at in since], index_calls(messages), count, settings)
    return RefillStats(
        turns,
        sum(source.tokens for source in sources),
        last.filling.free_tokens,
        last.filling.streak + 1 if is_soon else 0,
        sources[:_MAX_SOURCES],
    )


def thrash_warning(refill: RefillStats, settings: Settings) -> str | None:
    """What to tell the caller; None while the context does not thrash.

    Args:
        refill: How it got to the trigger.
        settings: `thrash_times`: so many times in a row are too many; 0 is never.
    """
    if not settings.thrash_times or refill.streak < settings.thrash_times:
        return None
    turns = max(1, refill.turns or 0)
    named = ", ".join(
        f"{source.name} ({source.tokens // turns} tokens a turn)"
        for source in refill.sources[:_NAMED_SOURCES]
    )
    return (
        f"Thrashing: {refill.streak} times in a row the context was full again within "
        f"{settings.thrash_turns} turns of a compaction; this time {refill.tokens} tokens came in "
        f"{refill.turns} turns, where {max(0, refill.room_tokens)} were free. "
        f"What fills it: {named}. Ask these for less (a range, a filter, a limit), pass what is "
        "large through persist_large_output, lower persist_result_tokens, give the work to a "
        "sub-agent, or take a larger window."
    )


def _begins_answer(messages: Messages, at: int) -> bool:
    """Whether the model begins to speak here; adjacent messages of its are one answer."""
    return messages[at].role == "assistant" and (at == 0 or messages[at - 1].role != "assistant")


def _sources(
    messages: Sequence[Message], index: CallIndex, count: MessageCounter, settings: Settings
) -> tuple[FillSource, ...]:
    tokens: dict[str, int] = {}
    counts: dict[str, int] = {}
    for message in messages:
        rest = count.message(message)
        for block in message.blocks:
            if isinstance(block, ToolResult):
                call = index.calls.get(block.call_id)
                name = _name_of(call, settings.tool_kinds) if call else index.name_of(block)
                size = count.block(block)
                rest -= size
                tokens[name] = tokens.get(name, 0) + size
                counts[name] = counts.get(name, 0) + 1
        if any(not isinstance(block, ToolResult) for block in message.blocks):
            name = f"messages of the {message.role}"
            tokens[name] = tokens.get(name, 0) + rest
            counts[name] = counts.get(name, 0) + 1
    found = (FillSource(name, tokens[name], counts[name]) for name in tokens)
    return tuple(sorted(found, key=lambda source: (-source.tokens, source.name)))


def _name_of(call: ToolCall, extra_kinds: Mapping[str, str]) -> str:
    """The tool with its file or command, on one line and bounded: both are the model's text."""
    use = classify(call, extra_kinds)
    target = " ".join((use.path or use.command or "").split())
    if len(target) > _TARGET_CHARS:
        target = f"{target[:_TARGET_CHARS]}…"
    name = call.name[:_TARGET_CHARS]
    return f"{name} {target}" if target else name
