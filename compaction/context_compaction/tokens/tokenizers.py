"""Counters of plain text: each has a name and `count(text)`, which takes any string at all.

The counter for a model is o200k_base, times the factor of its family, which depends on the scripts
of a text.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from context_compaction.tokens.models import Profile
from context_compaction.tokens.vocabulary import o200k_tokens

# tiktoken's regular expression engine gives up on a million white space characters in a row; a
# piece of this size is safe. Cut at a newline where there is one, as few tokens cross it.
PIECE_CHARS = 100_000

# The heuristic stands in for o200k_base: agent text (code, logs, JSON) has 2.6 to 4.4 ASCII
# characters a token, base64 1.5; of other scripts hardly any has more than a token a character.
# On a real coding session it says 1.24 times o200k_base in all, and at the least 0.89 for a block.
HEURISTIC_ASCII_CHARS_PER_TOKEN = 3.0


class TokenCounter(Protocol):
    """Counts the tokens of a text. Two counters that can differ have different names."""

    @property
    def name(self) -> str:
        """How it counts, as reports show it."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text`. Never raises: lone surrogates, control tokens, any length."""
        ...


@dataclass(frozen=True, slots=True)
class O200kCounter:
    """Exact counts of o200k_base, the tokenizer of OpenAI's models since gpt-4o.

    Control tokens such as `<|endoftext|>` count as the plain text that they are inside a message.
    """

    name: str = "o200k"

    def count(self, text: str) -> int:
        """Tokens of `text`, at most its UTF-8 bytes."""
        if len(text) <= PIECE_CHARS:
            return o200k_tokens(text)
        return sum(map(o200k_tokens, split_pieces(text)))


@dataclass(frozen=True, slots=True)
class Chars4Counter:
    """The published papers' estimator: floor(characters / 4). Far too low for Claude."""

    name: str = "chars/4"

    def count(self, text: str) -> int:
        """A quarter of the characters, rounded down."""
        return len(text) // 4


@dataclass(frozen=True, slots=True)
class Chars3Counter:
    """Claude Code's estimator: that of the papers times 4/3, rounded to the nearest."""

    name: str = "chars/3"

    def count(self, text: str) -> int:
        """A third of the characters, rounded."""
        return round(len(text) / 3)


@dataclass(frozen=True, slots=True)
class HeuristicCounter:
    """A stand-in for o200k_base where the vocabulary cannot be loaded: by kinds of characters."""

    name: str = "heuristic"

    def count(self, text: str) -> int:
        """ASCII characters by a fixed ratio, all others a token each."""
        ascii_chars = len(text.encode("ascii", "ignore"))
        others = len(text) - ascii_chars
        return others + math.ceil(ascii_chars / HEURISTIC_ASCII_CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class ScaledCounter:
    """Another counter times the factor of a model family, rounded up for each text."""

    inner: TokenCounter
    profile: Profile

    @property
    def name(self) -> str:
        """As "o200k*1.50/claude"."""
        return f"{self.inner.name}*{self.profile.factor:.2f}/{self.profile.name}"

    def count(self, text: str) -> int:
        """Tokens of `text` for the model family."""
        return math.ceil(self.inner.count(text) * script_token_factor(self.profile, text))


def split_pieces(text: str) -> list[str]:
    """`text` in pieces of at most `PIECE_CHARS`, cut after a newline near the end of each."""
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


# Claude's tokens for one of o200k_base in other scripts, both tokenizer families alike (Universal
# Declaration of Human Rights against count_tokens). Code point where a range begins, and its
# weight; None stands for "like the text around it" (signs, arrows, emoji, box drawing).
_SCRIPTS: tuple[tuple[int, float | None], ...] = (
    (0x0000, None),
    (0x0370, 1.55),  # Greek, Cyrillic (measured), Armenian
    (0x0590, 2.10),  # Hebrew, Arabic (measured) and their neighbours
    (0x0900, 2.45),  # Devanagari (measured) and the other scripts of India
    (0x0E00, 2.05),  # Thai (measured), Lao, Tibetan, Burmese
    (0x10A0, 1.55),  # Georgian
    (0x1100, 1.80),  # Hangul letters
    (0x1200, 2.45),  # Ethiopic and others, not measured: the worst that was
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
    """The factor for the o200k_base tokens of `text`, by its scripts.

    Shares are by UTF-8 bytes, which follow tokens better than characters do. Text with less than
    1 % of other characters counts as ASCII.
    """
    if not profile.weighs_scripts or text.isascii():
        return profile.factor
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    if (size_bytes - len(text)) * 100 < len(text):  # fewer others than bytes for them
        return profile.factor
    others = _ASCII.sub("", text)
    if len(others) * 100 < len(text):
        return profile.factor
    accented = vietnamese = 0
    weighted = 0.0
    weighted_bytes = 0
    for character, count in Counter(others).items():
        code = ord(character)
        weight = _SCRIPTS[bisect_right(_STARTS, code) - 1][1]
        if weight is not None:
            its_bytes = count * (2 if code < 0x800 else 3 if code < 0x10000 else 4)
            weighted += weight * its_bytes
            weighted_bytes += its_bytes
        elif code <= 0x24F:
            accented += count
        elif 0x1EA0 <= code < 0x1F00:
            vietnamese += count
    latin = _latin_factor(profile, accented, vietnamese, len(text))
    rest_bytes = size_bytes - weighted_bytes
    return (weighted + latin * rest_bytes) / (weighted_bytes + rest_bytes)


def _latin_factor(profile: Profile, accented: int, vietnamese: int, length_chars: int) -> float:
    if vietnamese * 50 >= length_chars:
        return 1.0  # Vietnamese; measured: 0.79 to 0.84
    return profile.accented_factor if accented * 100 >= length_chars else profile.factor
