"""What the caller wants a summary to weigh most: how much a line matches it.

Instructions are a sentence or two in any language ("Keep what we found out about the login
timeouts"). Their words are sought in the lines by their beginnings, so that "timeouts" finds
"timeout=30" and "loginTimeout" too. Words that nearly every line contains add no weight.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from context_compaction.summarizers.extractive.fit import Line

# A line with all of the focus weighs so many times more than one with none.
FOCUS_WEIGHT = 9.0
_MIN_STEM_CHARS = 5  # "logi" would find "logic" for "login"
_COMMON_SHARE = 0.3
_FEW_LINES = 3  # so many are never "nearly everywhere", however short the list
_WORD = re.compile(r"[^\W_]{4,}")
_EAST_ASIAN_PAIR = re.compile(r"(?=([\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2}))")

# How much more a line weighs than another, from 1 to `FOCUS_WEIGHT`.
Focus: TypeAlias = Callable[[str], float]


def focused(
    sections: Mapping[str, Sequence[Line]], instructions: str
) -> Mapping[str, Sequence[Line]]:
    """The sections, with the lines that match `instructions` wanted sooner."""
    if not instructions:
        return sections
    focus = _focus_of(instructions, [line.text for lines in sections.values() for line in lines])
    return {
        title: [
            replace(line, want=line.want / focus(line.text)) if line.want > 0 else line
            for line in lines
        ]
        for title, lines in sections.items()
    }


def _focus_of(instructions: str, lines: Sequence[str]) -> Focus:
    """The weight of a line by `instructions`, 1 to `FOCUS_WEIGHT`; 1 where no line matches."""
    sought = {stem: _pattern(stem) for stem in _stems(instructions)}
    times = {
        stem: sum(1 for line in lines if pattern.search(line)) for stem, pattern in sought.items()
    }
    most = max(_FEW_LINES, len(lines) * _COMMON_SHARE)
    found = [sought[stem] for stem in sought if 0 < times[stem] <= most]
    if not found:
        return lambda _: 1.0

    def weight(line: str) -> float:
        hits = sum(1 for pattern in found if pattern.search(line))
        return 1 + (FOCUS_WEIGHT - 1) * hits / len(found) if hits else 1.0

    return weight


def _stems(instructions: str) -> list[str]:
    """The beginnings of the words that name a subject, and pairs of East Asian signs."""
    text = instructions.lower()
    stems = (_stem(word) for word in _WORD.findall(text) if word < "\u2e80")
    return list(dict.fromkeys((*stems, *_EAST_ASIAN_PAIR.findall(text))))


def _stem(word: str) -> str:
    singular = word[:-1] if len(word) > _MIN_STEM_CHARS - 1 and word.endswith("s") else word
    return singular[: max(_MIN_STEM_CHARS, len(singular) - 3)]


def _pattern(stem: str) -> re.Pattern[str]:
    """A pattern of `stem` at the beginning of a word, or of a part of a camelCase name."""
    if stem >= "\u2e80":
        return re.compile(re.escape(stem))
    here = re.escape(stem)
    return re.compile(rf"(?<![^\W_])(?i:{here})|(?<=[a-z0-9]){re.escape(stem.capitalize())}")
