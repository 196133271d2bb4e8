"""Counters of plain text: each has a name and `count(text)`, which takes any string at all.

The counter for a model is o200k_base, times the factor of its family, which depends on the scripts
of a text.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Literal, Protocol

from context_compaction.tokens.models import Profile
from context_compaction.tokens.vocabulary import o200k_tokens

# tiktoken's regular expression engine gives up on a million white space characters in a row; a
# piece of this size is safe. Cut at a newline where there is one, as few tokens cross it.
PIECE_CHARS = 100_000


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
class CharsCounter:
    """An estimator by characters, far too low for Claude.

    The published papers take floor(characters / 4), and Claude Code a third, to the nearest.
    """

    chars_per_token: Literal[3, 4]

    @property
    def name(self) -> str:
        """As "chars/4"."""
        return f"chars/{self.chars_per_token}"

    def count(self, text: str) -> int:
        """A fixed part of the characters."""
        return len(text) // 4 if self.chars_per_token == 4 else round(len(text) / 3)


@dataclass(frozen=True, slots=True)
class ModelCounter:
    """The tokens of o200k_base times the factor of a model family, rounded up for each text."""

    profile: Profile

    @property
    def name(self) -> str:
        """As "o200k*1.50/claude"."""
        return f"o200k*{self.profile.factor:.2f}/{self.profile.name}"

    def count(self, text: str) -> int:
        """Tokens of `text` for the model family."""
        return math.ceil(o200k_count(text) * script_token_factor(self.profile, text))


def o200k_count(text: str) -> int:
    """Tokens of `text` by o200k_base, which OpenAI's models since gpt-4o have.

    Control tokens such as `<|endoftext|>` count as the plain text that they are inside a message.
    """
    if len(text) <= PIECE_CHARS:
        return o200k_tokens(text)
    return sum(map(o200k_tokens, split_pieces(text)))


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
