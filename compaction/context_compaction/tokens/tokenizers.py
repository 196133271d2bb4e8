"""Counters of plain text: each has a name and `count(text)`, which takes any string at all.

The counter for a model is o200k_base, times the factor of its family.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from context_compaction.tokens.models import Profile
from context_compaction.tokens.script_factors import script_token_factor
from context_compaction.tokens.vocabulary import o200k_tokens

# tiktoken's regular expression engine gives up on a million white space characters in a row; a
# piece of this size is safe. Cut at a newline where there is one, as few tokens cross it.
PIECE_CHARS = 100_000
NEWLINE_WITHIN_CHARS = 4_096

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
        newline = text.rfind("\n", stop - NEWLINE_WITHIN_CHARS, stop)
        stop = stop if newline < 0 else newline + 1
        pieces.append(text[start:stop])
        start = stop
    pieces.append(text[start:])
    return pieces
