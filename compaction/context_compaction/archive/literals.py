"""What a regular expression cannot match without, so that an index can find the texts to read."""

import re
from collections.abc import Iterator

# Alternatives, inline flags, sets within sets and repeated groups: then nothing is required. The
# rest is read as literal characters and unknown ones, and every doubt makes a character unknown.
_TOO_HARD = re.compile(r"\||\(\?|\[\[|\][^\]]*\]|\)[?*{]|\\[^\W_a-zA-Z]|\\[pPNxuULgkKRX]")
_PIECE = re.compile(
    r"(?P<boundary>\\b)|\\[ntr](?![?*{])|\\(?P<escaped>\W)(?![?*{])|\\."
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\\?\Z))|(?P<group>[()])|(?P<anchor>[\^$])"
    r"|(?P<literal>[^\\\[\](){}?*+.^$|])(?![?*{])|(?P<rest>.)",
    re.DOTALL,
)
_UNKNOWN = "\0"
_EDGE = "\n"  # stands for any character that is no part of a word
_WORD = re.compile(r"[A-Za-z0-9]+")


def required_words(pattern: str) -> Iterator[str]:
    """Words of every text that `pattern` matches, not all of them; `word*` where it may go on.

    A word counts only where what stands before it, in the pattern, ends any word before.
    """
    if _TOO_HARD.search(pattern):
        return
    text = _UNKNOWN + "".join(_pieces(pattern)) + _UNKNOWN
    for word in _WORD.finditer(text):
        before, after = text[word.start() - 1], text[word.end()]
        if _ends_words(before):
            yield word[0] if _ends_words(after) else f"{word[0]}*"


def _pieces(pattern: str) -> Iterator[str]:
    for match in _PIECE.finditer(pattern):
        kind = match.lastgroup
        if kind == "group":
            continue
        if kind == "boundary":
            yield _EDGE
        elif kind in {"literal", "escaped"}:
            yield match[kind]
            if pattern[match.end() : match.end() + 1] == "+":
                yield _UNKNOWN
        else:
            yield _UNKNOWN


def _ends_words(character: str) -> bool:
    return character != _UNKNOWN and (character == "_" or not character.isalnum())
