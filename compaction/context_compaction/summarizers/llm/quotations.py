"""Quotations in a summary that nobody said, and words that are falsely given as the user's.

Models invent consent ("the user said: go ahead and delete it"), and quote a tool's words as the
user's. A line with such a quotation is removed as a whole, because the claim around it is as wrong.
"""

import html
import re
from dataclasses import dataclass

_QUOTATION = re.compile(
    r"“([^“”\n]+)”|„([^„“”\n]+)[“”]|«([^«»\n]+)»|「([^「」\n]+)」|『([^『』\n]+)』|\"([^\"\n]+)\""
    r"|‘([^‘’\n]+)’|(?<!\w)'([^'\n]{12,})'(?!\w)"
)
_BLOCK_QUOTE = re.compile(r"^\s*(?:[-*] )?> ?(.+)$")
_GAP = re.compile(r"\[[^\]]{0,40}\]|…|\.\.\.")
_HEADING = re.compile(r"^#{1,4} ")
# Under these headings of our prompt the user speaks, whether a line says so or not.
_FIRST_HAND = re.compile(
    r"^#{1,4} +.*(?:goal|request|standing rule|constraint|preference)", re.IGNORECASE
)
_SAYS_USER = re.compile(
    r"\b(?:user|usuari[oa]|utilisateur|utente|nutzer|benutzer|anwender|пользовател\w*)\b"
    r"|用户|用戶|ユーザー|사용자",
    re.IGNORECASE,
)
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
        speaker = said.user if is_first_hand or _SAYS_USER.search(line) else said.anybody
        if all(_is_said(quotation, speaker) for quotation in _quotations(line)):
            kept.append(line)
        else:
            removed.append(line.strip())
    return "\n".join(kept).strip(), tuple(removed)


def without_quotations(text: str) -> str:
    """`text` without anything in quotation marks: the writer's own words."""
    return _QUOTATION.sub(" ", text)


def folded(text: str) -> str:
    """`text` for comparison: letters and digits, small, with single spaces between them."""
    return _NOT_SPOKEN.sub(" ", html.unescape(text).casefold()).strip()


def _quotations(line: str) -> list[str]:
    block = _BLOCK_QUOTE.match(line)
    found: list[str] = [block[1]] if block else []
    for groups in _QUOTATION.findall(line):
        found.extend(text for text in groups if text)
    return [text for text in found if _is_utterance(text)]


def _is_utterance(text: str) -> bool:
    return len(text.split()) >= _MIN_WORDS or len(_DENSE.findall(text)) >= _MIN_DENSE_CHARS


def _is_said(quotation: str, said: str) -> bool:
    """Whether `said` contains every part of `quotation` between its gaps, punctuation aside."""
    return all(folded(part) in said for part in _GAP.split(quotation))
