"""Gets the words of a summary: the originals for the writer, the writer, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from context_compaction import markers, wire
from context_compaction.archive import Archive
from context_compaction.attempts import Shape, Task
from context_compaction.compaction import CompactRequest, SummaryPrompt
from context_compaction.cut_point import history_of, turn_prefix_of
from context_compaction.digest import digest
from context_compaction.errors import NotFoundError
from context_compaction.messages import (
    Document,
    Image,
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
)
from context_compaction.summarizers import SummaryRequest, extractive, ledger

# Of each tool result in a model's prompt; pi, opencode and ADK cut at the same length.
_PROMPT_RESULT_CHARS = 2_000
# Prose of a model may take this part of a summary's budget; the rest is for the machine's ledger.
_PROSE_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Sources:
    """What a writer reads: history and the running turn's beginning, in their original words.

    Attributes:
        history: What the summary stands for.
        prefix: What the checkpoint stands for.
        previous: Text of earlier summaries whose originals are not in the archive.
    """

    history: Messages
    prefix: Messages
    previous: str


@dataclass(frozen=True, slots=True)
class Words:
    """The texts of a summary and of a checkpoint, who wrote them, and what to know about it."""

    summary: str
    checkpoint: str
    writer: str
    warnings: tuple[str, ...] = ()


async def sources_of(
    task: Task, shape: Shape, parsed: Messages, archive: Archive, format: str
) -> Sources:
    """The originals of what `shape` replaces.

    Results that the clearing layers replaced are taken from the list that came in, and what an
    earlier summary of ours stands for from the archive, so that facts do not erode.
    """
    if shape.cut is None:
        return Sources((), (), "")
    previous: list[str] = []

    async def originals(messages: Messages) -> Messages:
        out: list[Message] = []
        for message in messages:
            span = markers.span_of(message)
            if span is None:
                out.append(parsed[message.index] if message.index is not None else message)
                continue
            found = await _archived(span, task.session_id, archive, format)
            if not found:
                previous.append(markers.summary_text(message) or "")
            out.extend(found)
        return tuple(out)

    history = await originals(history_of(shape.draft.messages, shape.cut))
    prefix = await originals(turn_prefix_of(shape.draft.messages, shape.cut))
    return Sources(history, prefix, "\n".join(previous))


def write_words(task: Task, shape: Shape, sources: Sources, request: CompactRequest) -> Words:
    """The words for `shape`: the host's where it gave some that fit, else verbatim extracts."""
    checkpoint = _extract(task, sources.prefix, shape.checkpoint_tokens, "", is_prefix=True)
    extracted = _extract(task, sources.history, shape.summary_tokens, sources.previous)
    if not request.summary or not shape.summary_tokens:
        return Words(extracted, checkpoint, "extractive")
    prose = request.summary.strip()
    prose_tokens = task.count.text(prose)
    if not prose or prose_tokens > shape.summary_tokens:
        warning = (
            f"The summary that was given has {prose_tokens} tokens where {shape.summary_tokens} "
            "fit, so verbatim extracts were used instead. Give a shorter one."
        )
        return Words(extracted, checkpoint, "extractive", (warning,))
    record = ledger.within(
        ledger.lines(digest(sources.history, task.settings.tool_kinds)),
        shape.summary_tokens - prose_tokens - 12,
        task.count,
    )
    parts = [prose, "## Files, commands, plan (from the record)", *record] if record else [prose]
    return Words("\n".join(parts), checkpoint, "host")


def prompt_for(sources: Sources, shape: Shape, request: CompactRequest) -> SummaryPrompt:
    """What a host's model needs to write the summary of `shape`."""
    folder = files("context_compaction") / "prompts"
    template = (folder / "summary_request.md").read_text(encoding="utf-8")
    pinned = "\n".join(request.pinned) or "(none)"
    user = (
        template
        .replace("{pinned}", _escaped(pinned))
        .replace("{previous}", _escaped(sources.previous) or "(none)")
        .replace("{focus}", _escaped(request.instructions) or "(none)")
        .replace("{transcript}", "\n".join(_transcript(sources.history)))
    )
    system = (folder / "summary_system.md").read_text(encoding="utf-8").strip()
    return SummaryPrompt(system, user, max(1, int(shape.summary_tokens * _PROSE_SHARE)))


async def _archived(span: markers.Span, session_id: str, archive: Archive, format: str) -> Messages:
    if span.session_id != session_id:
        return ()
    try:
        found = await archive.read_messages(session_id, span.start_seq, span.stop_seq)
    except NotFoundError:
        return ()
    return wire.parse([item.raw for item in found if item.format == format], format=format)


def _extract(
    task: Task, messages: Messages, max_tokens: int, previous: str, *, is_prefix: bool = False
) -> str:
    if max_tokens <= 0 or not (messages or previous):
        return ""
    inventory = digest(messages, task.settings.tool_kinds)
    asked = SummaryRequest(
        messages, inventory, max_tokens, previous=previous, is_turn_prefix=is_prefix
    )
    return extractive.write(asked, task.count)


def _transcript(messages: Messages) -> Sequence[str]:
    """The messages as escaped data, each block tagged with who speaks; thinking is left out."""
    lines: list[str] = []
    for at, message in enumerate(messages):
        for block in message.blocks:
            text = _block_text(block)
            if text:
                speaker = "tool" if isinstance(block, ToolResult) else message.role
                lines.append(f'<part n="{at}" from="{speaker}">{_escaped(text)}</part>')
    return lines


def _block_text(block: object) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return f"[calls {block.name} with {block.arguments}]"
        case ToolResult():
            text = "\n".join(_block_text(part) for part in block.content)
            if len(text) > _PROMPT_RESULT_CHARS:
                left_out = len(text) - _PROMPT_RESULT_CHARS
                text = f"{text[:_PROMPT_RESULT_CHARS]} [… {left_out} chars left out]"
            return text
        case Image() | Document():
            return f"[{type(block).__name__.lower()}: {block.media_type}]"
        case _:
            return ""


def _escaped(text: str) -> str:
    """`text` so that nothing in it can close a tag of the prompt."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
