"""What is a name in a text, of what pieces it is made, and which words name nothing.

A name is what somebody copies rather than says, and may look for again: a URL, a path, an
identifier, a number. Pure.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, cast

NameKind: TypeAlias = Literal["url", "path", "identifier", "number"]

# What is longer is data, not a name.
MAX_NAME_CHARS = 100
_NAME = re.compile(r"https?://[^\s\"'<>()\[\]{}\\,;`]+|[~/.]?\w[\w./:@#+-]*\w", re.ASCII)
_PLACE = re.compile(r":\d+(?::\d+)?\Z")  # src/main.py:17:3
# A path has a folder, or an ending of its own: `lines.push` is none.
_ENDINGS = (
    "[chm]|[cm]?[jt]sx?|cc|cfg|conf|cpp|cs|css|csv|db|env|go|gz|hpp|html?|ini|ipynb|java|jsonl?|kt|"
    "lock|log|lua|md|pdf|php|png|pyi?|rb|rs|rst|scss|sh|sql|sqlite|svg|swift|toml|txt|vue|xml|"
    "ya?ml|zip"
)
# Our own pointers are none.
_KIND = re.compile(
    r"(?!(?:o_[0-9a-f]{24}|transcript:.*|p_[0-9a-f]{8})\Z)(?:(?P<url>https?://\w.*)"
    r"|(?P<number>(?=(?:\D*\d){3})[\d.,:]+)"
    rf"|(?P<path>(?=.*[A-Za-z]{{2}})(?:[~/.]*[\w@+.-]+(?:/[\w@+.-]+)+|[\w.-]+\.(?:{_ENDINGS})))"
    r"|(?P<identifier>(?=.*[A-Za-z]{2})(?=.*(?:[a-z][A-Z]|[_\d#]|::))[A-Za-z_][\w.:#-]*))",
    re.ASCII,
)
# The pieces of a name in camelCase or with figures.
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")

# English words that say nothing of what a text is about.
_STOP_WORDS = (
    "a about after all also am an and any are as at be because been before being between but "
    "by can could did do does doing done for from get got had has have having he her here him "
    "his how i if in into is it its just let like made make may me might more most my no not "
    "now of off on one or our out over own said same say see she should so some such than "
    "that the their them then there these they this those through to too under up us use used "
    "using very want was we were what when where which while who whom why will with would you "
    "your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())


def names_in(text: str) -> Iterator[str]:
    """What may be names in `text`, in order, without the line number behind a path."""
    for name in _NAME.findall(text):
        if len(name) <= MAX_NAME_CHARS and may_hold_name(name):
            yield _PLACE.sub("", name) if ":" in name else name


def kind_of(name: str) -> NameKind | None:
    """The kind of name that `name` is, None where it is none."""
    found = _KIND.fullmatch(name)
    return cast("NameKind", found.lastgroup) if found else None


def may_hold_name(word: str) -> bool:
    """Whether `word` is more than a word of a language."""
    return not word.isalpha() or not (word.islower() or word.istitle() or word.isupper())


def pieces_of(name: str) -> list[str]:
    """The pieces of a name: `parseHTML5` gives `parse`, `HTML` and `5`."""
    return _PIECE.findall(name)
