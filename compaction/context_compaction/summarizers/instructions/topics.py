"""What a sentence of the user is about: its subject words and its values, in any language.

Two sentences are compared by their words cut down to what inflection leaves: the beginning of a
stem or word, pairs of Chinese and Japanese characters. Words that every rule has say nothing of its
subject and are left out. Pure.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from context_compaction.summarizers.instructions.stop_words import STOP_WORDS, VALUE_KINDS

# So many letters of a word are compared: of Latin ones after English stemming, which takes the
# commonest endings of other languages too, of others as it stands.
_FIRST_OTHER_LETTER = "\u0370"
_STEM_CHARS = 6
_FOREIGN_STEM_CHARS = 5
_KOREAN_CHARS = 2
_MIN_WORD_CHARS = 3
_MIN_NAME_CHARS = 2  # CI, UI, DB

# Devanagari writes vowels as signs that are no letters.
_WORD = re.compile(r"(?:[^\W\d_]|[\u0900-\u097f])+")
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_HAN = re.compile(r"[\u3400-\u9fff]+")
_KATAKANA = re.compile(r"[\u30a0-\u30ff]{2,}")
_HANGUL = re.compile(r"[\uac00-\ud7af]")
_HAN_STOP = re.compile(
    "[的了是在把和请請不都也就还給给从從到我你您他她们這这那有没沒得再将為为以及]"
)

_stem: Any = import_module("Stemmer").Stemmer("english", 0)  # PyStemmer, which has no types

# Values that are no words: a number is also a time where it is written as one.
_TIME = re.compile(
    r"\b\d{1,2}(?::\d\d|[.:]\d\d (?:uhr|h)\b| ?(?:am|pm|h|uhr)\b|h\d\d)"
    r"|[上下]午|午[前後]|오[전후] ?\d",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d.,']*\d|\d")
_NUMERAL = "[一二两三四五六七八九十百千]"
_EAST_ASIAN_VALUES = (
    ("day", re.compile("(?:周|星期|礼拜)[一二三四五六日天]|[月火水木金土日]曜|.요일")),
    ("month", re.compile(r"\d{1,2}[月월]")),
    ("language", re.compile("[中英日德法俄韩韓]文|(?:英|日本|中国|韓国)語|(?:영|한국)어")),
    ("colour", re.compile("[红蓝绿黑白黄灰赤青緑]色?")),
    ("number", re.compile(f"(?<!{_NUMERAL}){_NUMERAL}++(?=[个個小天秒分年月周人次页頁份章条])")),
)  # fmt: skip
_LITERAL = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<![\w-])[\w-]+(?:[._/-][\w-]+)+(?<![.:])|\b[A-Za-z]+\d\w*", re.ASCII
)
_NAME = re.compile(r"(?<!\A)(?<![.!?:] )\b[A-Z][\w-]*[A-Za-z\d]")


@dataclass(frozen=True, slots=True)
class Topic:
    """What one sentence is about.

    Attributes:
        words: Its subject words, cut down.
        values: Its values by kind: "number", "time", "day", "month", "language", "colour",
            "literal" (what is quoted, paths, identifiers), "name".
    """

    words: frozenset[str]
    values: dict[str, frozenset[str]]


def topic_of(sentence: str) -> Topic:
    """The subject of `sentence`."""
    words: set[str] = set()
    values: dict[str, set[str]] = {}
    for match in _WORD.finditer(sentence):
        word = match[0].lower()
        if kind := VALUE_KINDS.get(word):
            values.setdefault(kind, set()).add(word)
        if len(word) == 1 and match.start() and match[0].isupper() and word != "i":
            words.add(word)  # server A, plan B
        words.update(_cut(word, is_name=match[0].isupper()))
    left = sentence
    for kind, pattern in (("time", _TIME), ("literal", _LITERAL), ("number", _NUMBER)):
        if found := pattern.findall(left):
            values.setdefault(kind, set()).update(found)
            left = pattern.sub(" ", left)  # the 10 of 10:30 is no value of its own
    patterns = [("name", _NAME), *(() if sentence.isascii() else _EAST_ASIAN_VALUES)]
    for kind, pattern in patterns:
        if found := pattern.findall(sentence):
            values.setdefault(kind, set()).update(found)
    return Topic(frozenset(words), {kind: frozenset(found) for kind, found in values.items()})


@lru_cache(maxsize=8_192)
def _cut(word: str, *, is_name: bool) -> tuple[str, ...]:
    """What is compared of a word in small letters; nothing where it is on no subject."""
    if _EAST_ASIAN.search(word):
        return _east_asian_words(word)
    if _HANGUL.search(word):
        start = word[:_KOREAN_CHARS]
        return () if len(word) < _KOREAN_CHARS or start in STOP_WORDS else (start,)
    if word in STOP_WORDS or VALUE_KINDS.get(word) == "number":
        return ()
    if len(word) < (_MIN_NAME_CHARS if is_name else _MIN_WORD_CHARS):
        return ()
    if word < _FIRST_OTHER_LETTER:
        return (_stem.stemWord(word)[:_STEM_CHARS],)
    return (word[:_FOREIGN_STEM_CHARS],)


def _east_asian_words(text: str) -> tuple[str, ...]:
    pairs = [
        part[at : at + 2]
        for run in _HAN.findall(text)
        for part in _HAN_STOP.split(run)
        for at in range(len(part) - 1)
    ]
    return (*_KATAKANA.findall(text), *(pair for pair in pairs if pair not in STOP_WORDS))
