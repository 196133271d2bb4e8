"""Profiles of models with their limits, and counters of plain text for them.

A profile is found by the longest prefix of the model's name. The caller's `context_window` and
`max_output_tokens` take precedence. An unknown model gets cautious values.

The factors were measured with Anthropic's count_tokens on more than a thousand texts in 22
programming languages, prose, logs and tool output: o200k_base times 1.22 for Claude 3 to 4.6, and
times 1.50 for the newer tokenizer of Claude 4.7 and later. The mean error of a block is 5 to 9 %.
In a coding session of 820 messages with Claude Sonnet 4.5, the reported usage grew by 127,170
tokens and the estimate by 127,482. The number of characters divided by 4 is only half to two thirds
of the true tokens.

The counter for a model is o200k_base times a factor, which depends on the model family and on the
scripts in the text.
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from context_compaction.tokens.media import ImageRule, PatchRule, TileRule
from context_compaction.tokens.vocabulary import o200k_tokens


@dataclass(frozen=True, slots=True)
class Profile:
    """One family of models.

    Attributes:
        name: Name of the family, as it appears in the name of a counter.
        factor: Tokens of this family per token of o200k_base, in ASCII text.
        margin: Factor from an estimate to its upper estimate. It covers the error of a whole
            session, in which the errors of single blocks average out.
        image: Rule for the tokens of images.
        accented_factor: Tokens per token of o200k_base in Latin text with accents (German, French,
            Spanish).
        weighs_scripts: Whether o200k_base counts too few tokens for other scripts in this family.
        context_window: Token limit of a request, input and output together.
        max_output_tokens: Token limit of one response.
    """

    name: str
    factor: float
    margin: float
    image: ImageRule
    accented_factor: float
    weighs_scripts: bool
    context_window: int = 200_000
    max_output_tokens: int = 16_384


# Images. Claude: squares of 28 pixels, at most 1568 (old tier) or 4784 (4.7 and later). OpenAI's
# small models: squares of 32 pixels, at most 1536, times 1.62 to 2.46. Gemini: 258 a tile of 768.
_CLAUDE_OLD_IMAGE = PatchRule(28, max_edge_px=1568, max_patches=1568)
_CLAUDE_IMAGE = PatchRule(28, max_edge_px=2576, max_patches=4784)
_OPENAI_SMALL_IMAGE = PatchRule(32, max_edge_px=2048, max_patches=1536, patch_tokens=2.46)
_GEMINI_IMAGE = PatchRule(768, max_edge_px=3072, max_patches=16, patch_tokens=258)

# Margins. OpenAI's tokenizer is o200k_base itself; 3 % cover the tokens added to messages. For
# Claude, estimates of mixed sessions were 4 % too low to 1 % too high, and those of one language up
# to 25 % too low; 10 % cover a session with several kinds of text. Gemini was not measured.
_CLAUDE = Profile("claude", 1.50, 1.10, _CLAUDE_IMAGE, accented_factor=2.0, weighs_scripts=True)
_CLAUDE_OLD = Profile(
    "claude-3", 1.22, 1.10, _CLAUDE_OLD_IMAGE, accented_factor=1.45, weighs_scripts=True
)
_OPENAI = Profile("openai", 1.0, 1.03, TileRule(), accented_factor=1.0, weighs_scripts=False)
_OPENAI_SMALL = replace(_OPENAI, image=_OPENAI_SMALL_IMAGE)
# gpt-4 and gpt-3.5 use cl100k_base: nearly equal in English and code, far worse elsewhere.
_OPENAI_OLD = Profile("openai-cl100k", 1.05, 1.05, TileRule(), 1.20, weighs_scripts=True)
# Gemini's vocabulary is larger and multilingual, but every digit is a token.
_GEMINI = Profile("gemini", 1.30, 1.10, _GEMINI_IMAGE, accented_factor=1.30, weighs_scripts=False)
_UNKNOWN = replace(_CLAUDE, name="unknown")


def _limits(profile: Profile, context_window: int, max_output_tokens: int) -> Profile:
    return replace(profile, context_window=context_window, max_output_tokens=max_output_tokens)


# Profiles by prefix of the model's name, with dashes in place of dots. A prefix consists of whole
# parts. The limits are from the providers' documentation of November 2026. If the input has a lower
# limit than the window (gpt-5: 272,000 of 400,000), the lower limit is used.
_MODELS: dict[str, Profile] = {
    "claude": _limits(_CLAUDE, 200_000, 64_000),
    "claude-fable-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-haiku-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-mythos-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-sonnet-5": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-4-7": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-4-8": _limits(_CLAUDE, 1_000_000, 128_000),
    "claude-opus-4-6": _limits(_CLAUDE_OLD, 1_000_000, 128_000),
    "claude-sonnet-4-6": _limits(_CLAUDE_OLD, 1_000_000, 128_000),
    "claude-opus-4-5": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-opus-4": _limits(_CLAUDE_OLD, 200_000, 32_000),
    "claude-sonnet-4": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-haiku-4": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-3-7": _limits(_CLAUDE_OLD, 200_000, 64_000),
    "claude-3-5": _limits(_CLAUDE_OLD, 200_000, 8_192),
    "claude-3": _limits(_CLAUDE_OLD, 200_000, 4_096),
    "gpt": _limits(_OPENAI, 128_000, 16_384),
    "gpt-6": _limits(_OPENAI, 272_000, 128_000),
    "gpt-5": _limits(_OPENAI, 272_000, 128_000),
    "gpt-5-mini": _limits(_OPENAI_SMALL, 272_000, 128_000),
    "gpt-5-nano": _limits(_OPENAI_SMALL, 272_000, 128_000),
    "gpt-5-4": _limits(_OPENAI, 922_000, 128_000),
    "gpt-5-5": _limits(_OPENAI, 922_000, 128_000),
    "gpt-4-1": _limits(_OPENAI, 1_047_576, 32_768),
    "gpt-4-1-mini": _limits(_OPENAI_SMALL, 1_047_576, 32_768),
    "gpt-4-1-nano": _limits(_OPENAI_SMALL, 1_047_576, 32_768),
    "gpt-4o": _limits(_OPENAI, 128_000, 16_384),
    "chatgpt-4o": _limits(_OPENAI, 128_000, 16_384),
    "gpt-4-turbo": _limits(_OPENAI_OLD, 128_000, 4_096),
    "gpt-4": _limits(_OPENAI_OLD, 8_192, 4_096),
    "gpt-3-5-turbo": _limits(_OPENAI_OLD, 16_385, 4_096),
    "gpt-oss": _limits(_OPENAI, 131_072, 32_768),
    "o1": _limits(_OPENAI, 200_000, 100_000),
    "o3": _limits(_OPENAI, 200_000, 100_000),
    "o4-mini": _limits(_OPENAI_SMALL, 200_000, 100_000),
    "gemini": _limits(_GEMINI, 1_048_576, 65_536),
    "gemini-2-0": _limits(_GEMINI, 1_048_576, 8_192),
    "gemini-1-5": _limits(_GEMINI, 1_048_576, 8_192),
}

_MAX_PARTS = max(name.count("-") + 1 for name in _MODELS)


def profile_for(model: str | None) -> Profile:
    """Return the profile of a model by its name; a cautious profile for None or an unknown name.

    A provider before the name is ignored: "anthropic/claude-sonnet-4.5",
    "us.anthropic.claude-sonnet-4-5-v1:0" and "claude-sonnet-4-5" are the same model.
    """
    if model is None:
        return _UNKNOWN
    name = model.lower().rpartition("/")[2].rpartition("anthropic.")[2]
    parts = re.split(r"[-.@:_]", name, maxsplit=_MAX_PARTS)
    for length in range(min(len(parts), _MAX_PARTS), 0, -1):
        profile = _MODELS.get("-".join(parts[:length]))
        if profile is not None:
            return profile
    return _UNKNOWN


# tiktoken's regular expression engine fails on a million consecutive white space characters. Pieces
# of this size are safe. They are cut at a newline if possible, because few tokens contain one.
PIECE_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class TextCounter:
    """A counter of text. Counters with different results have different names.

    Attributes:
        name: Name of the method as reports show it, for example "o200k*1.50/claude".
        count: Returns the tokens of any text, even with lone surrogates or control tokens.
    """

    name: str
    count: Callable[[str], int]


# Counts by characters, which are far too low for Claude: of the papers, rounded down, and of Claude
# Code, rounded to the nearest.
CHARS_COUNTERS: Mapping[str, TextCounter] = {
    "chars/4": TextCounter("chars/4", lambda text: len(text) // 4),
    "chars/3": TextCounter("chars/3", lambda text: round(len(text) / 3)),
}


def model_counter(profile: Profile) -> TextCounter:
    """Return the counter of a model family: o200k_base times a factor, rounded up."""

    def count(text: str) -> int:
        return math.ceil(o200k_count(text) * script_token_factor(profile, text))

    return TextCounter(f"o200k*{profile.factor:.2f}/{profile.name}", count)


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
