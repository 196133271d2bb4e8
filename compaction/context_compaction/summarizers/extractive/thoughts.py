"""What the agent thought where it said nothing, as far as its work bears it out.

Thoughts are guesses and plans too, and many are dropped. Told is what joins something found with
what is done about it: it shares words with the answers before it and with the calls behind it, and
the fewer other thoughts have a word, the more that says.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from math import fsum
from typing import TypeAlias

from context_compaction.messages.model import compact_json
from context_compaction.summarizers.extractive.deeds import after_failures
from context_compaction.summarizers.extractive.said import pieces_of
from context_compaction.summarizers.extractive.turns import Step, Turn
from context_compaction.summarizers.instructions.typed_text import words_of

_MOST_CHARS = 300  # two or three sentences
_LEAST_WORTH = 1.0  # as much as a word that no other thought has
_Worth: TypeAlias = Callable[[Set[str]], float]


def conclusions(turns: Sequence[Turn]) -> dict[int, list[str]]:
    """By the number of its step what a thought concludes, in pieces.

    Some steps follow a failure, and say what it came from; the others change something.
    """
    causes = {number for turn in turns for number in after_failures(turn)}
    silent = [*_silent(turns, causes)]
    known = Counter(word for _, step in silent for word in words_of(step.thought))
    told: dict[int, list[str]] = {}
    for before, step in silent:
        best, pieces = _best(pieces_of(step.thought), _worth_between(before, step, known))
        if best >= _LEAST_WORTH or (pieces and step.number in causes):
            told[step.number] = pieces
    return told


def _silent(turns: Sequence[Turn], causes: Set[int]) -> Iterator[tuple[Step, Step]]:
    """The steps with a thought and without words, each behind the one before it."""
    for before, step in (pair for turn in turns for pair in pairwise(turn.steps)):
        is_cause = step.number in causes
        changes = (action.changes for action in step.actions if not action.failed)
        is_told = step.thought and (is_cause or any(changes))
        if is_told and not (step.pieces if is_cause else step.telling):
            yield before, step


def _worth_between(before: Step, step: Step, known: Mapping[str, int]) -> _Worth:
    """How much words are worth that stand between these answers and these calls."""
    found = "\n".join(action.text for action in before.actions)
    calls = (compact_json(action.call.arguments) for action in step.actions if action.call)
    sides = (found.lower(), "\n".join(calls).lower())

    def worth(words: Set[str]) -> float:
        # The same sum in any order, as sets have it.
        return min(fsum(1 / known[word] for word in words if word in side) for side in sides)

    return worth


def _best(pieces: Sequence[str], worth: _Worth) -> tuple[float, list[str]]:
    """The sentences in a row that are worth most, as few as can be; none that is worth nothing."""
    words = [*map(_words_told, pieces)]
    rows: list[tuple[float, int, int]] = [(0.0, 0, 0)]
    for start in range(len(pieces)):
        said: Set[str] = frozenset()
        chars = 0
        for stop in range(start, len(pieces)):
            chars += len(pieces[stop])
            if not words[stop] or (said and chars > _MOST_CHARS):
                break
            said |= words[stop]
            rows.append((worth(said), start, stop + 1))
    best, start, stop = max(rows, key=lambda row: (row[0], row[1] - row[2]))
    return best, [*pieces[start:stop]]


def _words_told(piece: str) -> Set[str]:
    """The words of a sentence; none of a heading or a question."""
    is_heading = piece[0] == "\n" and piece[-1] not in ".!…。！"
    return frozenset() if is_heading or piece[-1] in "?？" else words_of(piece)
