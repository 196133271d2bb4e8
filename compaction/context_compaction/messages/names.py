"""Names in a text, their kinds, and words that name nothing.

A name is a string that people copy and search for: a URL, a path, an identifier or a number.
"""

import re
from collections.abc import Iterator
from typing import Literal, TypeAlias, cast

NameKind: TypeAlias = Literal["url", "path", "identifier", "number"]

# A longer string is data, not a name.
MAX_NAME_CHARS = 100
_NAME = re.compile(r"https?://[^\s\"'<>()\[\]{}\\,;`]+|[~/.]?\w[\w./:@#+-]*\w", re.ASCII)
# A path contains a folder or ends in one of these; `lines.push` is not a path.
_ENDINGS = (
    "[chm]|[cm]?[jt]sx?|cc|cfg|conf|cpp|cs|css|csv|db|env|go|gz|hpp|html?|ini|ipynb|java|jsonl?|kt|"
    "lock|log|lua|md|pdf|php|png|pyi?|rb|rs|rst|scss|sh|sql|sqlite|svg|swift|toml|txt|vue|xml|"
    "ya?ml|zip"
)
# The first group excludes pointers of this library.
_KIND = re.compile(
    r"(?!(?:o_[0-9a-f]{24}|transcript:.*|p_[0-9a-f]{8})\Z)(?:(?P<url>https?://\w.*)"
    r"|(?P<number>(?=(?:\D*\d){3})[\d.,:]+)"
    rf"|(?P<path>(?=.*[A-Za-z]{{2}})(?:[~/.]*[\w@+.-]+(?:/[\w@+.-]+)+|[\w.-]+\.(?:{_ENDINGS})))"
    r"|(?P<identifier>(?=.*[A-Za-z]{2})(?=.*(?:[a-z][A-Z]|[_\d#]|::))[A-Za-z_][\w.:#-]*))",
    re.ASCII,
)

# English words that do not indicate the topic of a text.
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
    """Yield strings in `text` that may be names, in order. Line numbers of paths are removed."""
    for name in _NAME.findall(text):
        if len(name) <= MAX_NAME_CHARS and may_hold_name(name):
            yield _without_line_number(name) if ":" in name else name


def _without_line_number(name: str) -> str:
    """Return `name` without a line and column number, as in src/main.py:17:3."""
    for _ in range(2):
        path, colon, number = name.rpartition(":")
        if not (colon and number.isdecimal()):
            break
        name = path
    return name


def kind_of(name: str) -> NameKind | None:
    """Return the kind of `name`; None if it is not a name."""
    match = _KIND.fullmatch(name)
    return cast("NameKind", match.lastgroup) if match else None


def may_hold_name(word: str) -> bool:
    """Whether `word` is more than a plain word."""
    return not word.isalpha() or not (word.islower() or word.istitle() or word.isupper())
