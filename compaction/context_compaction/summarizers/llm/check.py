"""Is what a model wrote a summary? And does it agree with the record?

A model's text is never trusted: it may be empty, a refusal, an error message, or quote what nobody
said. What can be mended by leaving it out is left out; else the deterministic writer takes over.
Pure.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from context_compaction.errors import SummaryError
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Message,
    Messages,
    ToolCall,
    ToolResult,
    named_arguments,
    text_of,
)
from context_compaction.messages.speakers import passages, user_text
from context_compaction.summarizers.extractive.parse import without_titles
from context_compaction.summarizers.llm.quotations import (
    SpokenText,
    folded,
    without_false_quotations,
)
from context_compaction.summarizers.llm.references import without_false_numbers

_ANALYSIS = re.compile(r"<analysis>.*?(?:</analysis>|\Z)", re.DOTALL | re.IGNORECASE)
_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)
_HEADING = re.compile(r"^#{1,4} +\S", re.MULTILINE)
_EMPTY_LINE = re.compile(r"^\W*(?:none|n/a|nothing)?\W*$", re.IGNORECASE)
# A summary has eight headings, the first part of a turn four; an apology or an error has none.
_MIN_HEADINGS = 2
_SHOWN_CHARS = 200
_REFUSAL = re.compile(
    r"\A\W*(?:i['’]?m sorry|i am sorry|sorry|unfortunately|i apologi[sz]e|i can(?:['’]t|not)\b"
    r"|i(?:['’]m| am) (?:unable|not able)|i won['’]t|as an ai\b|api error|error\b|type\W+error"
    r"|internal server error|overloaded|rate limit|抱歉|对不起|很抱歉|申し訳|lo siento|désolé"
    r"|es tut mir leid|к сожалению|извините)",
    re.IGNORECASE,
)
# Claude Code's words for a call that the user refuses; the user's own words follow.
_REFUSED_CALL = re.compile(
    r"The user doesn't want to (?:proceed with|take) this.{0,400}?the user said:\s*(.+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class GroundingSource:
    """What a summary is checked against, made once for all its drafts.

    Attributes:
        said: The texts of the user (pinned text, instructions and the previous summary count as
            the user's), and those of anybody.
        numbers: The messages that may be named by number; none where numbers are not checked.
    """

    said: SpokenText
    numbers: frozenset[int]


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A model's text after it was cleaned.

    Attributes:
        text: The text without thinking aloud and without quotations that nobody said.
        removed: The lines that were taken out for their quotations.
        misnumbered: The lines out of which numbers of messages were taken.
    """

    text: str
    removed: tuple[str, ...]
    misnumbered: tuple[str, ...]


def source_of(
    messages: Messages,
    *,
    user_texts: Sequence[str] = (),
    previous: str = "",
    beside: Messages = (),
    numbers: Collection[int] = (),
) -> GroundingSource:
    """The texts and numbers of the record that drafts are checked against.

    Args:
        messages: The record.
        user_texts: The user's texts beside it: of what stays, pinned text, instructions.
        previous: The text of the previous summary.
        beside: The messages that stay: they may be quoted too.
        numbers: Those of all messages that a summary may name; without them none is checked.
    """
    requests = [text for message in messages if (text := user_text(message))]
    refusals = _said_in_refusing((*messages, *beside))
    user = "\n".join((*requests, *refusals, *user_texts, previous))
    anybody = "\n".join((user, *_other_texts((*messages, *beside))))
    said = SpokenText(folded(user), folded(anybody))
    return GroundingSource(said, frozenset(numbers))


def draft_of(answer: str, source: GroundingSource, *, needs_headings: bool = True) -> CheckedDraft:
    """`answer` cleaned and checked against the record.

    Args:
        answer: The text that was written.
        source: The record.
        needs_headings: Whether a text without headings is refused.

    Raises:
        SummaryError: It is empty, a refusal or an error message, or no summary, or only false
            quotations.
    """
    # A model's text is cut into pieces on its way, between the halves of a surrogate pair too.
    answer = answer.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = cleaned(answer)
    if not text:
        raise SummaryError("Nothing was written")
    if is_refusal(text):
        raise SummaryError(f"What was written is no summary but: {_shown(text)}")
    if needs_headings and not has_headings(text):
        raise SummaryError(f"What was written has not the form of a summary: {_shown(text)}")
    kept, removed = without_false_quotations(text, source.said)
    kept, misnumbered = without_false_numbers(kept, source.numbers)
    if not _has_content(kept):
        raise SummaryError("Nothing of what was written can be found in the record")
    return CheckedDraft(kept, removed, misnumbered)


def cleaned(answer: str) -> str:
    """The summary in `answer`: without its analysis, tags and fence."""
    text = _ANALYSIS.sub("", answer).strip()
    found = _SUMMARY.search(text)
    text = found[1].strip() if found else text
    fenced = _FENCE.match(text)
    return without_titles(placeholders.quoted(fenced[1].strip() if fenced else text))


def has_headings(text: str) -> bool:
    """Whether `text` has the form that was asked for, roughly."""
    return len(_HEADING.findall(text)) >= _MIN_HEADINGS


def is_refusal(text: str) -> bool:
    """Whether `text` begins like an apology or an error message and has no headings."""
    return bool(_REFUSAL.match(text)) and not has_headings(text)


def _shown(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN_CHARS else f"{flat[: _SHOWN_CHARS - 1]}…"


def _has_content(text: str) -> bool:
    """Whether `text` contains more than headings and empty lines."""
    lines = (line for line in text.splitlines() if not _HEADING.match(line))
    return any(not _EMPTY_LINE.match(line) for line in lines)


def _said_in_refusing(messages: Messages) -> Iterator[str]:
    """The words of the user that a host hands over as the result of a call that they refused."""
    for message in messages:
        for block in message.blocks:
            if not isinstance(block, ToolResult) or not block.is_error:
                continue
            if found := _REFUSED_CALL.match(text_of(block.content)):
                yield found[1]


def _other_texts(messages: Messages) -> Iterator[str]:
    for message in messages:
        yield from (text for author, text in passages(message) if author != "user")
        yield from _tool_texts(message)


def _tool_texts(message: Message) -> Iterator[str]:
    for block in message.blocks:
        if isinstance(block, ToolCall):
            yield from map(str, named_arguments(block).values())
        elif isinstance(block, ToolResult):
            yield text_of(block.content)
