"""What a sentence of the user is about: its subject words and its values, in any language.

Two sentences are compared by the stems of their words and by pairs of Chinese characters. Pure.
"""

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

from context_compaction.messages.names import STOP_WORDS
from context_compaction.summarizers.instructions.signs import sign

# English stemming takes the commonest endings of other languages too.
_STEM_CHARS = 6
_stem: Any = import_module("Stemmer").Stemmer("english", 0)  # PyStemmer, which has no types
_MIN_WORD_CHARS = 3
_WORD = re.compile(r"[^\W\d_]+")
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_HAN_PAIR = re.compile(r"(?=([\u3400-\u9fff]{2}))")
# What is quoted, paths, identifiers, numbers.
_STATED = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<![\w-])[\w-]+(?:[._/-][\w-]+)+(?<![.:])|\b[A-Za-z]+\d\w*"
    r"|\d[\d.,']*\d|\d",
    re.ASCII,
)


def values_of(sentence: str) -> frozenset[str]:
    """The values that `sentence` names."""
    return frozenset(_STATED.findall(sentence))


def words_of(sentence: str) -> frozenset[str]:
    """The subject words of `sentence`, cut down."""
    return frozenset(part for word in _WORD.findall(sentence) for part in _cut(word))


@lru_cache(maxsize=8_192)
def _cut(word: str) -> tuple[str, ...]:
    """The parts of a word that are compared; empty where it names no subject."""
    if _EAST_ASIAN.search(word):
        return tuple(_HAN_PAIR.findall(word))
    if len(word) < _MIN_WORD_CHARS:  # CI, server A
        return (word,) if word.isupper() and word != "I" else ()
    lower = word.lower()
    if lower in STOP_WORDS or sign("lasting").fullmatch(lower):  # "always" is no subject
        return ()
    return (_stem.stemWord(lower)[:_STEM_CHARS],)
