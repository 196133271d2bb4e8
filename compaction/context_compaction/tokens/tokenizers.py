"""Counters of plain text. Each has a name, and a method `count` that accepts any string.

The counter for a model is o200k_base times a factor, which depends on the model family and on the
scripts in the text.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Literal, Protocol

from context_compaction.tokens.models import Profile
from context_compaction.tokens.vocabulary import o200k_tokens

# tiktoken's regular expression engine fails on a million consecutive white space characters. Pieces
# of this size are safe. They are cut at a newline if possible, because few tokens contain one.
PIECE_CHARS = 100_000


class TokenCounter(Protocol):
    """A counter of text. Counters with different results have different names."""

    @property
    def name(self) -> str:
        """Name of the method, as reports show it."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of any `text`, even with lone surrogates or control tokens."""
        ...


@dataclass(frozen=True, slots=True)
class CharsCounter:
    """A count by characters, which is far too low for Claude.

    The papers use characters / 4, rounded down. Claude Code uses characters / 3, rounded to the
    nearest.

    Attributes:
        chars_per_token: Characters of one token.
    """

    chars_per_token: Literal[3, 4]

    @property
    def name(self) -> str:
        """Name of the method, for example "chars/4"."""
        return f"chars/{self.chars_per_token}"

    def count(self, text: str) -> int:
        """Return the characters of `text` divided by `chars_per_token`."""
        return len(text) // 4 if self.chars_per_token == 4 else round(len(text) / 3)


@dataclass(frozen=True, slots=True)
class ModelCounter:
    """A count by o200k_base times the factor of a model family, rounded up for each text.

    Attributes:
        profile: Profile of the model family.
    """

    profile: Profile

    @property
    def name(self) -> str:
        """Name of the method, for example "o200k*1.50/claude"."""
        return f"o200k*{self.profile.factor:.2f}/{self.profile.name}"

    def count(self, text: str) -> int:
        """Return the tokens of `text` for the model family."""
        return math.ceil(o200k_count(text) * script_token_factor(self.profile, text))


def o200k_count(text: str) -> int:
    """Return the tokens of `text` in o200k_base, the vocabulary of OpenAI's models since gpt-4o.

    Control tokens such as `<|endoftext|>` count as plain text, which they are inside a message.
    """
    if len(text) <= PIECE_CHARS:
        return o200k_tokens(text)
    return sum(map(o200k_tokens, split_pieces(text)))


def split_pieces(text: str) -> list[str]:
    """Return `text` in pieces of at most `PIECE_CHARS`, cut after a newline if one is near."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > PIECE_CHARS:
        stop = start + PIECE_CHARS
        newline = text.rfind("\n", stop - 4_096, stop)
        stop = stop if newline < 0 else newline + 1
        pieces.append(text[start:stop])
        start = stop
    pieces.append(text[start:])
    return pieces


# Claude's tokens per token of o200k_base, by the first code point of a range. The factors were
# measured with count_tokens on the Universal Declaration of Human Rights and are equal for both of
# Claude's tokenizers. None counts like the surrounding text (signs, arrows, emoji, box drawing).
_SCRIPTS: tuple[tuple[int, float | None], ...] = (
    (0x0000, None),
    (0x0370, 1.55),  # Greek, Cyrillic (measured), Armenian
    (0x0590, 2.10),  # Hebrew, Arabic (measured) and related scripts
    (0x0900, 2.45),  # Devanagari (measured) and the other scripts of India
    (0x0E00, 2.05),  # Thai (measured), Lao, Tibetan, Burmese
    (0x10A0, 1.55),  # Georgian
    (0x1100, 1.80),  # Hangul letters
    (0x1200, 2.45),  # Ethiopic and others, not measured: the highest measured factor
    (0x1E00, None),  # Latin with more accents (Vietnamese), signs
    (0x2E80, 1.50),  # CJK radicals
    (0x3040, 1.20),  # Japanese kana
    (0x3100, 1.50),  # Han (measured)
    (0xAC00, 1.80),  # Hangul syllables (measured)
    (0xD7B0, None),
    (0xF900, 1.50),  # Han, compatibility
    (0xFB00, None),
    (0xFB50, 2.10),  # Arabic presentation forms
    (0xFE00, None),
    (0x20000, 1.50),  # Han, extensions
    (0x32000, None),
)
_STARTS = tuple(start for start, _ in _SCRIPTS)
_ASCII = re.compile(r"[\x00-\x7f]+")


def script_token_factor(profile: Profile, text: str) -> float:
    """Return the factor for the o200k_base tokens of `text`, by its scripts.

    Each script is weighted by its UTF-8 bytes, which match tokens better than characters do. Text
    with less than 1 % of non-ASCII characters counts as ASCII.
    """
    if not profile.weighs_scripts or text.isascii():
        return profile.factor
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if (size_bytes - len(text)) * 100 < len(text):  # cheaper than the exact check
        return profile.factor
    non_ascii = _ASCII.sub("", text)
    if len(non_ascii) * 100 < len(text):
        return profile.factor
    accented = vietnamese = 0
    weighted = 0.0
    weighted_bytes = 0
    for character, count in Counter(non_ascii).items():
        code = ord(character)
        weight = _SCRIPTS[bisect_right(_STARTS, code) - 1][1]
        if weight is not None:
            script_bytes = count * len(character.encode("utf-8", "surrogatepass"))
            weighted += weight * script_bytes
            weighted_bytes += script_bytes
        elif code <= 0x24F:
            accented += count
        elif 0x1EA0 <= code < 0x1F00:
            vietnamese += count
    latin = _latin_factor(profile, accented, vietnamese, len(text))
    rest_bytes = size_bytes - weighted_bytes
    return (weighted + latin * rest_bytes) / (weighted_bytes + rest_bytes)


def _latin_factor(profile: Profile, accented: int, vietnamese: int, length_chars: int) -> float:
    if vietnamese * 50 >= length_chars:
        return 1.0  # Vietnamese, measured as 0.79 to 0.84
    return profile.accented_factor if accented * 100 >= length_chars else profile.factor
