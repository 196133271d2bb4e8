"""Quotations in a summary that nobody said, and words that are falsely given as the user's.

Models invent consent ("the user said: go ahead and delete it"), and quote a tool's words as the
user's. A line with such a quotation is removed as a whole, because the claim around it is as wrong.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

_QUOTATION = re.compile(
    r"“([^“”\n]+)”|„([^„“”\n]+)[“”]|„([^„\"\n]+)\"|«([^«»\n]+)»|「([^「」\n]+)」|『([^『』\n]+)』"
    r"|\"([^\"\n]+)\"|‘([^‘’\n]+)’|(?<!\w)'([^'\n]{12,})'(?!\w)"
)
# A quotation mark in code quotes nothing.
_CODE = re.compile(r"`[^`\n]*`")
_MARK = re.compile(r"[“”„«»「」『』\"‘’']")
_BLOCK_QUOTE = re.compile(r"^\s*(?:[-*] )?> ?(.+)$")
_GAP = re.compile(r"\[[^\]]{0,40}\]|…|\.\.\.")
_HEADING = re.compile(r"^#{1,4} ")
# Under these headings of our prompts a line that is a quotation is the user's.
_FIRST_HAND = re.compile(
    r"^#{1,4} +.*(?:goal|request|user message|standing rule|constraint|preference)", re.IGNORECASE
)
_SAYS_USER = re.compile(
    r"\b(?:user|usuari[oa]|utilisateur|utente|nutzer|benutzer|anwender|пользовател\w*)\b"
    r"|用户|用戶|ユーザー|사용자",
    re.IGNORECASE,
)
# So far before a quotation, or behind it, stands whose it is: "the user said", "as the user asks".
_SPEAKER_CHARS = (60, 20)
_SENTENCE_END = re.compile(r"[.;!?]\s|[。！？]")
# ... unless it is a name: "committed by the user as".
_NAMED = re.compile(r"\b(?:as|als)\W*\Z", re.IGNORECASE)
# A quotation of a word or two is a name; in a script without spaces, one of a few characters.
_MIN_WORDS = 3
_MIN_DENSE_CHARS = 8
_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
_NOT_SPOKEN = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class SpokenText:
    """The texts of the user and those of anybody, folded for comparison."""

    user: str
    anybody: str


def without_false_quotations(text: str, said: SpokenText) -> tuple[str, tuple[str, ...]]:
    """`text` without the lines that quote what was not said, and those lines."""
    kept: list[str] = []
    removed: list[str] = []
    is_first_hand = False
    for line in text.splitlines():
        if _HEADING.match(line):
            is_first_hand = bool(_FIRST_HAND.match(line))
        found = _quotations(line, is_first_hand=is_first_hand)
        if all(_is_said(text, said.user if is_users else said.anybody) for text, is_users in found):
            kept.append(line)
        else:
            removed.append(line.strip())
    return "\n".join(kept).strip(), tuple(removed)


def folded(text: str) -> str:
    """`text` for comparison: letters and digits, small, with single spaces between them."""
    return _NOT_SPOKEN.sub(" ", html.unescape(text).casefold()).strip()


def _quotations(line: str, *, is_first_hand: bool) -> Iterator[tuple[str, bool]]:
    """The quotations of a line, and whether it gives each as the user's."""
    line = _CODE.sub(lambda code: _MARK.sub(" ", code[0]), line)
    if block := _BLOCK_QUOTE.match(line):
        yield block[1], is_first_hand
    for found in _QUOTATION.finditer(line):
        text = next(filter(None, found.groups()))
        if _is_utterance(text):
            before, after = line[: found.start()], line[found.end() :]
            leads = is_first_hand and not re.search(r"[^\W\d]", before)
            yield text, leads or _is_of_user(before, after)


def _is_of_user(before: str, after: str) -> bool:
    """Whether a quotation between these is given as the user's."""
    far, near = _SPEAKER_CHARS
    lead = _SENTENCE_END.split(_QUOTATION.split(before)[-1])[-1][-far:]
    named = _SAYS_USER.search(lead)
    if named is not None:
        return not _NAMED.search(lead)
    return _SAYS_USER.search(after[:near]) is not None


def _is_utterance(text: str) -> bool:
    return len(text.split()) >= _MIN_WORDS or len(_DENSE.findall(text)) >= _MIN_DENSE_CHARS


def _is_said(quotation: str, said: str) -> bool:
    """Whether `said` contains every part of `quotation` between its gaps, punctuation aside."""
    return all(folded(part) in said for part in _GAP.split(quotation))
