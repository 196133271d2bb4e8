"""What the caller wants a summary to weigh most: lines that match it are wanted sooner.

Instructions are a sentence or two in any language ("Keep what we found out about the login
timeouts"). The beginnings of their words are sought in the lines, so that "timeouts" finds
"timeout=30" and "loginTimeout" too. Words that nearly every line contains add no weight.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from context_compaction.summarizers.extractive.fit import Line

# A line with all of the focus weighs so many times more than one with none.
FOCUS_WEIGHT = 9.0
_STEM_CHARS = 5  # "logi" would find "logic" for "login"
_COMMON_SHARE = 0.3
_FEW_LINES = 3  # so many are never "nearly everywhere", however short the list
_EAST_ASIAN = r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
_WORD = re.compile(rf"(?:(?!{_EAST_ASIAN})[^\W_]){{4,}}|(?=({_EAST_ASIAN}{{2}}))")


def focused(
    sections: Mapping[str, Sequence[Line]], instructions: str
) -> Mapping[str, Sequence[Line]]:
    """The sections, with the lines that match `instructions` wanted sooner."""
    if not instructions:
        return sections
    texts = [line.text.lower() for lines in sections.values() for line in lines]
    most = max(_FEW_LINES, len(texts) * _COMMON_SHARE)
    sought = dict.fromkeys(
        found[1] or _stem(found[0]) for found in _WORD.finditer(instructions.lower())
    )
    stems = [stem for stem in sought if 0 < sum(stem in text for text in texts) <= most]

    def want(line: Line) -> float:
        hits = sum(stem in line.text.lower() for stem in stems)
        weight = 1 + (FOCUS_WEIGHT - 1) * hits / len(stems) if hits else 1
        return line.want / weight if line.want > 0 else line.want

    return {
        title: [replace(line, want=want(line)) for line in lines]
        for title, lines in sections.items()
    }


def _stem(word: str) -> str:
    singular = word[:-1] if len(word) >= _STEM_CHARS and word.endswith("s") else word
    return singular[: max(_STEM_CHARS, len(singular) - 3)]
