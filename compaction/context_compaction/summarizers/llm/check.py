"""Is what a model wrote a summary? And does it agree with the record?

A model's text is never trusted: it may be empty, a refusal, an error message, invent consent ("the
user said: go ahead and delete it"), or give a tool's words as the user's. A line that quotes the
user with words that the user did not say is removed as a whole, because the claim around it is as
wrong, and so is a line that introduces words like speech that nobody said. Any other quotation that
occurs nowhere only loses its marks, and a reference to a message that does not exist is removed:
such lines tell the truth in other words. Nothing else of a line is changed. If nothing remains, the
deterministic writer takes over. Pure.

Whether a message says what a line says of it is not asked. Where a name of the line had to be near
it, one reference in six of good summaries was removed, and no false one.
"""

import html
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from context_compaction.activity.calls import is_question
from context_compaction.activity.digest import one_line
from context_compaction.errors import SummaryError
from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, tool_results
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.messages.tool_results import refusal_comment, result_text
from context_compaction.summarizers.extractive.render import unforged
from context_compaction.summarizers.llm.language import common_language
from context_compaction.summarizers.llm.record import parts_of

_ANALYSIS = re.compile(r"<analysis>.*?(?:</analysis>|\Z)", re.DOTALL | re.IGNORECASE)
_HEADING = re.compile(r"^#{1,4} +\S", re.MULTILINE)
# With what a program prints for nothing, and a place of a template that nobody filled.
_EMPTY_LINE = re.compile(
    r"^\W*(?:none|n/a|nothing|null|undefined|object object|tbd|todo)?\W*$"
    r"|^[-*\s]*(?:\[[^\]]*\]|<[^>]*>|\{[^}]*\}+)\s*$",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\A<(?:!doctype|html)\b|\A[\[{]\s*[\"{]"
    r"|\A\W*(?:i['’]?m sorry|i am sorry|sorry|unfortunately|i apologi[sz]e"
    r"|i can(?:['’]t|not)\b"
    r"|i(?:['’]m| am) (?:unable|not able)|i won['’]t|as an ai\b|api error|error\b|type\W+error"
    r"|internal server error|overloaded|rate limit|抱歉|对不起|很抱歉|申し訳|lo siento|désolé"
    r"|es tut mir leid|к сожалению|извините)",
    re.IGNORECASE,
)
# A line that quotes a block, code, or a quotation. Code quotes nothing. Marks without anything
# between them are a pair too, so that the marks behind them stay paired.
_QUOTATION = re.compile(
    r"\A\s*(?:[-*] )?> ?(.+)|`[^`\n]*`"
    r"|“([^“”\n]*)”|„([^„“”\n]*)[“”]|„([^„\"\n]*)\"|«([^«»\n]*)»|「([^「」\n]*)」|『([^『』\n]*)』"
    r"|\"([^\"\n]*)\"|‘([^‘’\n]*)’|(?<!\w)'([^'\n]{12,})'(?!\w)"
)
_GAP = re.compile(r"\[[^\]]{0,40}\]|…|\.\.\.")
# Under these headings of our prompts a line that is a quotation is the user's.
_USERS_HEADINGS = ("goal", "request", "user message", "rule", "constraint", "preference")
_USER = (
    r"(?:(?<!\bto the )\b(?:user|usuari[oa]|utilisateur|utente|nutzer|benutzer|anwender"
    r"|пользовател\w*)\b|用户|用戶|ユーザー|사용자)"
)
# Whose a quotation is precedes it in its sentence ("the user said"), unless it is a name
# ("committed by the user as"), or follows it: "(user [12])", ", the user said". What "User:"
# introduces is the next quotation.
_USER_BEFORE = re.compile(
    rf"{_USER}(?:[^.;!?。！？]|[.;!?](?!\s)){{0,60}}(?<!\bas )(?<!\bals )\Z", re.IGNORECASE
)
_USER_BEHIND = re.compile(
    rf"[^\w.;!?。！？]{{0,9}}(?:\w{{1,4}} )?{_USER}(?!\s*[:：])", re.IGNORECASE
)
# Compared as a space. A line break may be written as such in a quotation, or in a script.
_NOT_SPOKEN = re.compile(r"(?:\\[nrt]|[\W_])+")
# Added under a heading of the user's, behind a quotation of somebody else.
_NOT_THE_USERS = "(not the user's words)"
# Numbers of messages with the space before them; not an index, and not in code.
_REFERENCE = re.compile(r"`[^`\n]*`|(?<! ) *+(?<![\w\])}])\[(\d(?:[\d ,;–-]|and){0,400})\]")


@dataclass(frozen=True, slots=True)
class GroundingSource:
    """What a summary is checked against, made once for all its drafts."""

    user: str  # the texts of the user, folded for comparison ...
    anybody: str  # ... and those of anybody
    numbers: frozenset[int]  # the messages that may be named; none where that is not checked
    language: str  # of the user; "" where it is not clear


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A model's text after it was cleaned."""

    text: str  # without thinking aloud, and without quotations that nobody said
    removed: tuple[str, ...]  # the lines that went for what they give as the user's
    mended: tuple[str, ...]  # those that lost marks of quotations or numbers of messages


def source_of(
    messages: Messages, *, user_texts: Sequence[str] = (), numbers: Collection[int] = ()
) -> GroundingSource:
    """The record that drafts are checked against, with what stays after it.

    What else counts as the user's, as pinned text and instructions do, is in `user_texts`; without
    the `numbers` of all messages that a summary may name none is checked.
    """
    parts = parts_of(messages)
    said = [part.text for part in parts if part.speaker == "user"]
    user = _folded("\n".join((*user_texts, *said, *_said_through_tools(messages))))
    anybody = _folded("\n".join((user, *(part.text for part in parts))))
    return GroundingSource(user, anybody, frozenset(numbers), common_language(said))


def _said_through_tools(messages: Messages) -> list[str]:
    """What the user answered to a tool that asks, and said in refusing a call."""
    messages = with_unique_call_ids(messages)
    names = index_calls(messages)
    said: list[str] = []
    for result in (result for message in messages for result in tool_results(message)):
        refused = refusal_comment(result)
        if refused is not None:
            said.append(refused)
        elif is_question(names.name_of(result)):
            said.append(result_text(result))
    return said


def draft_of(answer: str, source: GroundingSource, *, min_headings: int = 2) -> CheckedDraft:
    """`answer` cleaned and checked against the record.

    A summary by our prompts has seven headings or nine; an apology or an error has none. With 0
    `min_headings` a text is only refused if it begins like one of these.

    Raises:
        SummaryError: It is empty, a refusal or an error message, or no summary, or only false
            quotations.
    """
    text = _cleaned(answer)
    if not text:
        raise SummaryError("Nothing was written")
    headings = len(_HEADING.findall(text))
    if headings < min_headings or (not headings and _REFUSAL.match(text)):
        raise SummaryError(f"What was written is no summary but: {one_line(text)}")
    draft = _checked(text, source)
    lines = (line for line in draft.text.splitlines() if not _HEADING.match(line))
    if all(map(_EMPTY_LINE.match, lines)):
        raise SummaryError("Nothing of what was written can be found in the record")
    return draft


def _cleaned(answer: str) -> str:
    """The summary in `answer`: without its analysis, tags and fence."""
    # A model's text is cut into pieces on its way, between the halves of a surrogate pair too.
    answer = answer.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = _ANALYSIS.sub("", answer).strip().removeprefix("\ufeff")
    before, tag, summary = text.partition("<summary>")
    text = summary.partition("</summary>")[0].strip() if tag else before
    return unforged(placeholders.quoted(_without_fence(text)))


def _without_fence(text: str) -> str:
    """What one fence around the whole of `text` contains; else `text`."""
    first, _, rest = text.partition("\n")
    is_fenced = first.startswith("```") and " " not in first and rest.endswith("\n```")
    return rest.removesuffix("\n```").strip() if is_fenced else text


def _checked(text: str, source: GroundingSource) -> CheckedDraft:
    """`text` without what was not said, and without false numbers."""
    kept: list[str] = []
    removed: list[str] = []
    mended: list[str] = []
    is_first_hand = False
    for line in text.splitlines():
        if _HEADING.match(line):
            is_first_hand = any(name in line.casefold() for name in _USERS_HEADINGS)
        shown = _shown(line, source, is_first_hand=is_first_hand)
        if shown != line:
            (removed if shown is None else mended).append(line.strip())
        kept += [] if shown is None else [shown]
    return CheckedDraft("\n".join(kept).strip(), tuple(removed), tuple(mended))


def _shown(line: str, source: GroundingSource, *, is_first_hand: bool) -> str | None:
    """`line` without marks and numbers that are wrong; None where it goes as a whole."""
    shown, start = "", 0
    for found in _QUOTATION.finditer(line):
        lead = line[start : found.start()]
        quotation = _as_told(found, lead, source, is_first_hand=is_first_hand)
        if quotation is None:
            return None
        shown, start = f"{shown}{lead}{quotation}", found.end()
    shown = f"{shown}{line[start:]}"
    return _with_known(shown, source.numbers) if source.numbers else shown


def _as_told(
    found: re.Match[str], lead: str, source: GroundingSource, *, is_first_hand: bool
) -> str | None:
    """A quotation as it may stand; None where it gives as the user's, or as speech, what is false.

    Where nobody said it, it loses its marks. Between the one before and it stands `lead`.
    """
    text = next(filter(None, found.groups()), "")
    # A word or two are a name; in a script without spaces these are a few characters.
    is_name = len(text.split()) < 3 and (text.isascii() or len(text) < 8)
    if is_name or _is_said(text, source.user):
        return found[0]
    is_first = found.start() == len(lead) and not any(map(str.isalpha, lead))
    leads = is_first and (is_first_hand or found[1] is not None)
    is_speech = leads or lead.rstrip(" *_").endswith((":", "："))
    is_told = _is_said(text, source.anybody)
    is_of_user = _USER_BEFORE.search(lead) or _USER_BEHIND.match(found.string, found.end())
    if is_of_user or (is_speech and not is_told):
        return None
    if leads and is_first_hand:
        return f"{found[0]} {_NOT_THE_USERS}"
    return found[0] if is_told else text


def _is_said(quotation: str, said: str) -> bool:
    """Whether `said` contains every part of `quotation` between its gaps, punctuation aside."""
    return all(_folded(part) in said for part in _GAP.split(quotation))


def _folded(text: str) -> str:
    """`text` for comparison: letters and digits, small, with single spaces between them."""
    return _NOT_SPOKEN.sub(" ", html.unescape(text).casefold()).strip()


def _with_known(line: str, known: Collection[int]) -> str:
    """`line` without the references that name a message which is not `known`."""

    def shown(found: re.Match[str]) -> str:
        digits = "".join(char if char.isdecimal() else " " for char in found[1] or "")
        return found[0] if all(int(number) in known for number in digits.split()) else ""

    return _REFERENCE.sub(shown, line)
