"""How much o200k_base under-counts Claude outside English: a factor for a text by its scripts."""

import re
from bisect import bisect_right
from collections import Counter

from context_compaction.tokens.models import Profile

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
_FIRST_VIETNAMESE = 0x1EA0
_LAST_ACCENTED = 0x24F
_VIETNAMESE_FACTOR = 1.0  # measured: 0.79 to 0.84


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
        elif code <= _LAST_ACCENTED:
            accented += count
        elif _FIRST_VIETNAMESE <= code < 0x1F00:
            vietnamese += count
    latin = _latin_factor(profile, accented, vietnamese, len(text))
    rest_bytes = size_bytes - weighted_bytes
    return (weighted + latin * rest_bytes) / (weighted_bytes + rest_bytes)


def _latin_factor(profile: Profile, accented: int, vietnamese: int, length_chars: int) -> float:
    if vietnamese * 50 >= length_chars:
        return _VIETNAMESE_FACTOR
    return profile.accented_factor if accented * 100 >= length_chars else profile.factor
