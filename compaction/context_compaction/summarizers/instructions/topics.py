"""What a sentence of the user is about: its subject words and its values, in any language.

Two sentences are compared by their words cut down to what inflection leaves: the beginning of a
stem or word, pairs of Chinese and Japanese characters. Words that every rule contains do not name
its subject and are left out. Pure.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from context_compaction.messages.names import STOP_WORDS
from context_compaction.summarizers.instructions.signs import sign_words

# So many letters of a word are compared: of Latin ones after English stemming, which takes the
# commonest endings of other languages too, of others as it stands.
_FIRST_OTHER_LETTER = "\u0370"
_STEM_CHARS = 6
_FOREIGN_STEM_CHARS = 5
_MIN_WORD_CHARS = 3
_MIN_NAME_CHARS = 2  # CI, UI, DB

# Devanagari writes vowels as signs that are no letters.
_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u097f])+")
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_HAN = re.compile(r"[\u3400-\u9fff]+")

_stem: Any = import_module("Stemmer").Stemmer("english", 0)  # PyStemmer, which has no types

# Values.
_NUMBER = re.compile(r"\d[\d.,']*\d|\d")
_LITERAL = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<![\w-])[\w-]+(?:[._/-][\w-]+)+(?<![.:])|\b[A-Za-z]+\d\w*", re.ASCII
)
_NAME = re.compile(r"(?<!\A)(?<![.!?:] )\b[A-Z][\w-]*[A-Za-z\d]")


@dataclass(frozen=True, slots=True)
class Topic:
    """The subject of one sentence.

    Attributes:
        words: Its subject words, cut down.
        values: Its values by kind: "number", "literal" (what is quoted, paths, identifiers),
            "name".
        figures: Its values of all kinds, but for names.
    """

    words: frozenset[str]
    values: dict[str, frozenset[str]]
    figures: frozenset[str]


def topic_of(sentence: str) -> Topic:
    """The subject words and the values of `sentence`."""
    words: set[str] = set()
    values: dict[str, frozenset[str]] = {}
    for match in _WORD.finditer(sentence):
        word = match[0].lower()
        if len(word) == 1 and match.start() and match[0].isupper() and word != "i":
            words.add(word)  # server A, plan B
        words.update(_cut(word, is_name=match[0].isupper()))
    left = sentence
    for kind, pattern in (("literal", _LITERAL), ("number", _NUMBER)):
        if found := pattern.findall(left):
            values[kind] = frozenset(found)
            left = pattern.sub(" ", left)  # the 2 of v2.1 is no value of its own
    figures = frozenset[str]().union(*values.values())
    if names := _NAME.findall(sentence):
        values["name"] = frozenset(names)
    return Topic(frozenset(words), values, figures)


@lru_cache(maxsize=8_192)
def _cut(word: str, *, is_name: bool) -> tuple[str, ...]:
    """The parts of a lower-case word that are compared; empty where it names no subject."""
    if _EAST_ASIAN.search(word):
        return _east_asian_words(word)
    if word in STOP_WORDS or word in sign_words():
        return ()
    if len(word) < (_MIN_NAME_CHARS if is_name else _MIN_WORD_CHARS):
        return ()
    if word < _FIRST_OTHER_LETTER:
        return (_stem.stemWord(word)[:_STEM_CHARS],)
    return (word[:_FOREIGN_STEM_CHARS],)


def _east_asian_words(text: str) -> tuple[str, ...]:
    pairs = [run[at : at + 2] for run in _HAN.findall(text) for at in range(len(run) - 1)]
    return tuple(pair for pair in pairs if pair not in sign_words())
