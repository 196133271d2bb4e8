"""Write the request to a model: the conversation as escaped data inside the prompt files.

A short conversation is shown whole. A longer one is shown with all texts, and with results and
calls cut so that they fit. The longest ones are shown as their newest part and extracts of
everything. With the rule "drop_oldest", a long conversation is shown without its oldest groups of
messages, as in Claude Code.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from context_compaction.activity.calls import brings_report, classify
from context_compaction.activity.outcome import is_failed, without_reminder
from context_compaction.messages.model import (
    Author,
    Block,
    Document,
    Image,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    named_arguments,
)
from context_compaction.messages.speakers import passages_of
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.request import SummaryOutline, TooLongRule
from context_compaction.summarizers.llm.model import Conversation, ModelPrompt, answer_tokens
from context_compaction.tokens.counter import MessageCounter

# Versions of a long conversation, each with results nine tenths as long as in the previous version.
# If results would be shorter than the minimum, the oldest work is dropped instead. The last version
# shows a fiftieth of the work.
_VERSIONS = 90
_MIN_RESULT_CHARS = 150
# Tools whose result adds nothing to the call unless it failed.
_CHANGING_KINDS = ("write", "edit", "notebook")
# The prompts' names of authors. Other authors have their own names.
_SPEAKERS: Mapping[Author, str] = {"agent": "assistant"}


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A text, call or result of a message.

    Attributes:
        number: The message's number in the transcript, if known.
        speaker: The author, as the prompts name it.
        text: The whole text. For a call, its name and arguments.
        call: The call, if the part is one.
    """

    number: int | None
    speaker: str
    text: str
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """The input and the settings of a model's summary.

    Attributes:
        record: The parts to summarize, from the original messages.
        previous: The text of earlier summaries. "" without earlier summaries.
        has_originals: Whether `record` contains everything that `previous` summarizes.
        max_tokens: Token limit of the model's text.
        extracts: Returns extracts of the conversation, made without a model.
        kept: The parts that stay in full after the summary.
        pinned: Verbatim texts next to the summary, each with the number of its message.
        instructions: The subjects that the user wants emphasized.
        outline: The headings of the summary, which name a file in `prompts`.
        too_long: How the conversation is shortened for a model.
        retries: How often a model may be asked again with a shorter version.
        conversation: The conversation, if its own model writes. Otherwise the model gets `record`.
        kept_messages: Number of messages of the conversation that stay after the summary.
        max_clipped_tokens: Token limit of the conversation in the prompt under the rule "clip", for
            windows of any size. With half as much, readers missed what long files and results of a
            session of 110,000 tokens said.
    """

    record: Sequence[PromptPart]
    previous: str
    has_originals: bool
    max_tokens: int
    extracts: Callable[[], str] = str
    kept: Sequence[PromptPart] = ()
    pinned: tuple[str, ...] = ()
    instructions: str = ""
    outline: SummaryOutline = "summary"
    too_long: TooLongRule = "clip"
    retries: int = 5
    conversation: Conversation | None = None
    kept_messages: int = 0
    max_clipped_tokens: int = 128_000

    def room_tokens(self, window_tokens: int, count: MessageCounter) -> int:
        """Return the token limit of the conversation in a request to a window of that size."""
        frame = _prompt(self, "", "", "")
        frame_tokens = int(count.text(f"{frame.system}{frame.user}") * 1.1)
        answer = answer_tokens(self.max_tokens, window_tokens)
        room = max(0, window_tokens - answer - frame_tokens)
        return min(room, self.max_clipped_tokens) if self.too_long == "clip" else room


@dataclass(frozen=True, slots=True)
class Version:
    """A request that shows the conversation in one of several lengths.

    Attributes:
        name: How the conversation was shortened, for receipts.
        prompt: The request.
        tokens: Upper estimate of the conversation's tokens in the request.
    """

    name: str
    prompt: ModelPrompt
    tokens: int


def fullest_version(job: SummaryJob, room_tokens: int, count: MessageCounter) -> Version:
    """Return the longest version within `room_tokens`. If none fits, return the shortest."""

    def version(number: int) -> Version:
        name, parts, previous, extracts = _shortened(job, number)
        record = _rendered(parts)
        tokens = int(count.text(f"{record}{previous}{extracts}") * 1.1)  # the count may be low
        return Version(name, _prompt(job, record, previous, extracts), tokens)

    last = _VERSIONS if job.too_long == "clip" else len(_group_starts(job.record)) - 1
    whole = version(0)
    if whole.tokens <= room_tokens or last < 1:
        return whole
    numbers = range(1, last)
    index = bisect_left(numbers, -room_tokens, key=lambda number: -version(number).tokens)
    return version(1 + index)


def conversation_prompt(job: SummaryJob) -> ModelPrompt:
    """Return the request to the conversation's own model: one message after the conversation."""
    prompt = _filled(
        job,
        "conversation_request.md",
        rules=_file(f"{job.outline}_system.md"),
        pinned=escaped("\n".join(job.pinned)) or "(none)",
        focus=escaped(job.instructions) or "(none)",
        kept_messages=str(job.kept_messages),
    )
    return replace(prompt, system="", conversation=job.conversation)


def repair_prompt(job: SummaryJob, draft: str, problem: str) -> ModelPrompt:
    """Return the request for a better draft, without the conversation."""
    return _filled(job, "repair_request.md", draft=escaped(draft), problem=escaped(problem))


def again(prompt: ModelPrompt, problem: str) -> ModelPrompt:
    """Return the request again, with the problem of an answer from which nothing can be made."""
    problem = escaped(problem)
    note = f"Your last answer could not be used: {problem}. Answer with the whole summary, as text."
    return replace(prompt, user=f"{prompt.user}\n\n{note}")


def parts_of(messages: Messages, numbers: Sequence[int | None] = ()) -> list[PromptPart]:
    """Return the parts of `messages`, without thinking, and with images and documents named.

    A result of a write or an edit is omitted unless it failed, because its call is enough. Without
    `numbers`, the messages are numbered by position.
    """
    messages = with_unique_call_ids(messages)
    calls = index_calls(messages).calls
    parts: list[PromptPart] = []
    for number, message in zip(numbers or range(len(messages)), messages, strict=True):
        for block in message.blocks:
            match block:
                case Text():
                    passages = passages_of(message, block)
                    parts += [PromptPart(number, _SPEAKERS.get(a, a), text) for a, text in passages]
                case ToolResult():
                    call = calls.get(block.call_id)
                    if not call or classify(call).kind not in _CHANGING_KINDS or is_failed(block):
                        is_report = call is not None and brings_report(call.name)
                        speaker = "another agent" if is_report else "tool"
                        parts.append(PromptPart(number, speaker, _block_text(block)))
                case ToolCall():
                    parts.append(PromptPart(number, message.role, _block_text(block), block))
                case _:
                    parts.append(PromptPart(number, message.role, _block_text(block)))
    return [part for part in parts if part.text]


def escaped(text: str) -> str:
    """Return `text` with &, < and > escaped, so that it cannot open or close a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _shortened(job: SummaryJob, number: int) -> tuple[str, Sequence[PromptPart], str, str]:
    """Return name, parts, previous summary and extracts of a version. 0 is the longest one."""
    # Originals replace the previous summary if they contain all of it, so that facts do not erode.
    previous = "" if job.has_originals else job.previous
    record = job.record
    if not number:
        return "whole", record, previous, ""
    if job.too_long == "drop_oldest":
        starts = _group_starts(record)
        name = f"without the oldest {number} of {len(starts)} groups of messages"
        return name, record[starts[number] :], job.previous, ""
    result_chars = int(64_000 * 0.9**number)
    # Texts are a tenth of a conversation and its most informative part, so they are cut last.
    if result_chars >= _MIN_RESULT_CHARS:
        name = f"results of {result_chars} characters"
        return name, _clipped(record, result_chars, 8_000), previous, ""
    share = 1 - result_chars / _MIN_RESULT_CHARS
    parts = _clipped(record, _MIN_RESULT_CHARS, 1_500)
    work = [index for index, part in enumerate(parts) if part.speaker != "user"]
    dropped = set(work[: int(len(work) * share)])
    parts = [part for index, part in enumerate(parts) if index not in dropped]
    name = f"extracts, without the oldest {share:.0%} of the work"
    return name, parts, previous, job.extracts()


def _clipped(parts: Sequence[PromptPart], result_chars: int, text_chars: int) -> list[PromptPart]:
    """Return the parts cut to both ends, with the number of omitted characters between.

    A result or call in the middle of the conversation keeps `result_chars`, the oldest one half as
    many, the newest one half as many again. Other texts keep `text_chars`.
    """
    clipped: list[PromptPart] = []
    for index, part in enumerate(parts):
        chars = int(result_chars * (0.5 + index / len(parts)))
        if part.speaker == "tool":
            text = _ends(part.text, chars)
        elif part.call is not None:
            text = _call_text(part.call, chars)
        else:
            text = _ends(part.text, text_chars)
        clipped.append(replace(part, text=text))
    return clipped


def _group_starts(parts: Sequence[PromptPart]) -> list[int]:
    """Return where each group of parts starts: the model's words and all that follows them."""
    return [
        index
        for index, part in enumerate(parts)
        if index == 0 or (part.speaker == "assistant" and parts[index - 1].speaker != "assistant")
    ]


def _rendered(parts: Sequence[PromptPart]) -> str:
    """Return the parts as escaped data, each in a tag with its number and speaker."""
    return "\n".join(
        f'<part n="{"" if part.number is None else part.number}" from="{part.speaker}">'
        f"{escaped(part.text)}</part>"
        for part in parts
    )


def _prompt(job: SummaryJob, record: str, previous: str, extracts: str) -> ModelPrompt:
    """Return the request for a summary of `record`, which is escaped already."""
    kept = _clipped(job.kept[-40:], 300, 1_000)
    return _filled(
        job,
        "summary_request.md",
        pinned=escaped("\n".join(job.pinned)) or "(none)",
        previous=escaped(previous) or "(none)",
        focus=escaped(job.instructions) or "(none)",
        extracts=escaped(extracts) or "(none)",
        transcript=record,
        kept=_rendered(kept) or "(none)",
    )


def _filled(job: SummaryJob, template: str, **values: str) -> ModelPrompt:
    # An English word takes about two tokens of the newest tokenizers. A minimum is given as well,
    # because models that get only a limit stay a fifth to a third below it.
    max_words = max(20, job.max_tokens // 2)
    values["least_words"] = str(max_words * 19 // 20)
    user = _file(template).format(max_tokens=job.max_tokens, max_words=max_words, **values)
    return ModelPrompt(_file(f"{job.outline}_system.md"), user.strip(), job.max_tokens)


@cache
def _file(name: str) -> str:
    folder = files(__package__ or "") / "prompts"
    return (folder / name).read_text(encoding="utf-8").strip()


def _block_text(block: Block) -> str:
    match block:
        case Text():
            return block.text
        case ToolCall():
            return _call_text(block)
        case ToolResult():
            text = without_reminder("\n".join(filter(None, map(_block_text, block.content))))
            return f"[failed] {text}" if is_failed(block) else text
        case Image() | Document():
            return f"[{type(block).__name__.lower()}: {block.media_type}]"
        case Opaque():
            return f"[{block.kind}]"
        case Thinking():
            return ""


def _call_text(call: ToolCall, max_chars: int = 0) -> str:
    """Return the call with its arguments, of about `max_chars` at most. 0 is no limit.

    Each long argument is cut by itself: of an edit, both the old and the new text.
    """
    arguments = _as_text(call.arguments)
    if max_chars and len(arguments) > max_chars:
        texts = {name: _as_text(value) for name, value in named_arguments(call).items()}
        long_texts = sum(len(text) > max_chars // 4 for text in texts.values())
        text_chars = max_chars // max(1, long_texts)
        cut = {name: _ends(text, text_chars) for name, text in texts.items()}
        arguments = _as_text(cut) if cut else _ends(arguments, max_chars)
    return f"[calls {call.name} with {arguments}]"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _ends(text: str, max_chars: int) -> str:
    """Return both ends of `text`, with the number of omitted characters between them."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 3 // 4, max_chars // 4
    omitted = len(text) - head - tail
    return f"{text[:head]} [… {omitted} characters omitted …] {text[-tail:]}"
