"""How well rows answer a query of words: the same arithmetic whichever archive they come from.

An archive gives the rows that contain each word, as `Matches`; nothing here reads or stores.

1. BM25 adds what each word contributes, weighted by how rare it is in the whole archive.
2. What the messages around a row contain counts in part: an answer seldom repeats the words of
   its question.
3. The best rows are read, and small words ("how", "before") contribute there; they find no row.

benchmarks/results/search_ablation.md has what each of these is worth on questions that nobody
tuned on, and what was dropped: synonyms, words close together, a least share of the
query, other weights for parts of identifiers, British spelling.
"""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from context_compaction.archive.tokenizer import words_of

NEIGHBOR_MESSAGES = 3  # as far as this on either side; farther away a word counts less
# How much of a word next to a row counts for it: where the row lacks it, and where it has it too.
LACKED_SHARE = 0.5
HELD_SHARE = 0.25

# What a small word in the text of a row contributes, about as BM25 has it for a common word.
SMALL_WORD_SCORE = 1.5
# Of a row, for its small words: as much as a passage shows, since a long text has all of them.
READ_CHARS = 500


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows that contain one word of a query, or another thing that it asks for.

    Attributes:
        shares: By row id what BM25 gives the row before it is weighted, 0 to 2.2: for a word that
            occurs n times in l words, n * 2.2 / (n + 1.2 * (0.25 + 0.75 * l / average l)).
        weight: How much a share contributes to the score: by how rare the word is.
        is_whole: Whether these are all rows that contain it.
    """

    shares: Mapping[int, float]
    weight: float
    is_whole: bool


def share(occurrences: float, length: float, average_length: float) -> float:
    """What BM25 gives a row in which a word occurs so often, before it is weighted: 0 to 2.2."""
    relative = length / average_length if average_length else 1.0
    return occurrences * 2.2 / (occurrences + 1.2 * (0.25 + 0.75 * relative))


def idf(row_count: int, count: float) -> float:
    """BM25's weight of a word that `count` rows of `row_count` contain; never negative."""
    return math.log(1 + (row_count - count + 0.5) / (count + 0.5))


def scores_of(found: Iterable[Matches]) -> dict[int, float]:
    """The score of each row that contains any of the words."""
    scores: dict[int, float] = {}
    for matches in found:
        for row, share in matches.shares.items():
            scores[row] = scores.get(row, 0.0) + share * matches.weight
    return scores


def neighbor_context(
    near: Mapping[int, Mapping[int, int]], found: Iterable[Matches]
) -> dict[int, float]:
    """What the messages around rows add to their scores.

    Args:
        near: For each row the rows around it, with how many messages lie between, from 1.
        found: The rows that contain each word.
    """
    added = dict.fromkeys(near, 0.0)
    for matches in found:
        shares = matches.shares
        for row, around in near.items():
            beside = (shares[other] / far for other, far in around.items() if other in shares)
            part = HELD_SHARE if row in shares else LACKED_SHARE
            added[row] += part * max(beside, default=0.0) * matches.weight
    return added


def small_word_score(text: str, small_words: Set[str]) -> float:
    """What the small words of a query add to the score of a row, given its text."""
    return SMALL_WORD_SCORE * len(small_words & words_of(text[:READ_CHARS]))


def best_first(scores: Mapping[int, float]) -> list[int]:
    """The rows, the best first; among equals the newer, which has the larger id."""
    pairs = sorted(zip(scores.values(), scores, strict=True), reverse=True)
    return [row for _, row in pairs]


def add_scores(
    order: Sequence[int], scores: dict[int, float], added: Mapping[int, float]
) -> list[int]:
    """`order` anew, after adding to the `scores` of some of its first rows; `scores` changes."""
    for row, more in added.items():
        scores[row] += more
    stop = 1 + max((at for at, row in enumerate(order) if row in added), default=-1)
    return [*best_first({row: scores[row] for row in order[:stop]}), *order[stop:]]
