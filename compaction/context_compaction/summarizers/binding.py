"""What binds: sentences of the user that state rules, preferences, decisions and corrections.

No pattern knows every phrasing. So every sentence that a user typed is ranked, and patterns of
many languages only say which go first; what looks pasted (code, logs, lists of files), asks, or
merely agrees goes last. A later sentence on the same subject with a correcting word or another
value takes the place of the earlier one, which is then left out everywhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from context_compaction import markers
from context_compaction.messages import Messages, Text
from context_compaction.summarizers.rule_words import (
    ABOUT_ONESELF,
    AGREEMENT,
    CORRECTION,
    IMPERATIVE,
    RULE,
    STRONG,
    WISH,
)

MAX_SENTENCE_CHARS = 400
MIN_SENTENCE_CHARS = 6
# Of one message: what is longer is pasted, and its beginning and end are read.
_MAX_MESSAGE_CHARS = 12_000
_PASTED_LINES = 12
_LONG_CHARS = 240
_STATEMENT_RANK = 0.4
_LATELY_WEIGHT = 0.1
# A sentence that stands word for word in so many messages is a frame, not speech.
_FRAME_TIMES = 3

_WORD = re.compile(r"[^\W\d_]{3,}")
_EAST_ASIAN_PAIR = re.compile(r"(?=([\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2}))")
_VALUE = re.compile(r"[\w./:@#-]*\d[\w./:@#-]*|`[^`]+`|\"[^\"]+\"|[\w-]+[./_][\w./-]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_STOP_WORDS = frozenset({
    "about", "actually", "all", "also", "always", "and", "any", "are", "been", "being", "but",
    "can", "could", "did", "does", "don't", "for", "from", "had", "has", "have", "here",
    "i'd", "i'm", "instead", "into", "it's", "its", "just", "let", "make", "must", "need",
    "never", "not", "now", "only", "our", "per", "please", "should", "sure", "than", "that",
    "that's", "the", "them", "then", "there", "they", "this", "use", "using", "via", "want",
    "was", "we're", "what", "when", "which", "will", "with", "would", "you", "your",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Binding:
    """A sentence of the user.

    Attributes:
        order: Its place among the user's sentences.
        text: The sentence, on one line.
        rank: How surely it binds: higher goes first.
    """

    order: int
    text: str
    rank: float


@dataclass(frozen=True, slots=True)
class Bindings:
    """What binds, best first, and what no longer does."""

    standing: tuple[Binding, ...]
    superseded: frozenset[str]


def bindings_of(messages: Messages, *, later: Messages = ()) -> Bindings:
    """The user's sentences in `messages`, ranked; those of `later` only correct them."""
    found: dict[str, Binding] = {}
    times: dict[str, int] = {}
    order = 0
    for text in _typed(messages):
        for sentence, pasted in _sentences(text):
            found.pop(sentence, None)  # said again: it counts as said last
            times[sentence] = times.get(sentence, 0) + 1
            rank = _rank(sentence, pasted=pasted) - (times[sentence] >= _FRAME_TIMES)
            found[sentence] = Binding(order, sentence, rank)
            order += 1
    said = tuple(found.values())
    corrections = tuple(
        Binding(order, sentence, _rank(sentence, pasted=pasted))
        for text in _typed(later)
        for sentence, pasted in _sentences(text)
        if sentence not in found
    )
    superseded = _superseded((*said, *corrections))
    standing = [_later_first(each, order) for each in said if each.text not in superseded]
    standing.sort(key=lambda binding: (-binding.rank, -binding.order))
    return Bindings(tuple(standing), superseded)


def _typed(messages: Messages) -> Iterator[str]:
    for message in messages:
        if markers.is_request(message):
            yield from (block.text for block in message.blocks if isinstance(block, Text))


def _later_first(binding: Binding, last: int) -> Binding:
    """`binding` ranked a little higher the later it was said."""
    lately = _LATELY_WEIGHT * binding.order / max(1, last)
    return Binding(binding.order, binding.text, binding.rank + lately)


def sentences_of(text: str) -> list[str]:
    """The sentences of a user's text, each on one line, as this module compares them."""
    return [sentence for sentence, _ in _sentences(text)]


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences, and whether each looks pasted rather than typed."""
    if len(text) > _MAX_MESSAGE_CHARS:
        half = _MAX_MESSAGE_CHARS // 2
        text = text[:half] + "\n" + text[-half:]
    fenced = False
    lines = text.splitlines()
    is_long = len(lines) > _PASTED_LINES
    last_part = max((at for at, line in enumerate(lines) if not line.strip()), default=-1)
    for at, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        # Who pastes a log says what to do with it before or after.
        amid = is_long and 1 < at <= last_part
        stripped = line.strip().lstrip("-*>•").strip()
        indented = line[:1] in (" ", "\t") and is_long
        for part in _SENTENCE_END.split(stripped):
            sentence = part.strip()
            if len(sentence) < (2 if not sentence.isascii() else MIN_SENTENCE_CHARS):
                continue
            pasted = fenced or indented or amid or _looks_pasted(sentence)
            yield sentence[:MAX_SENTENCE_CHARS], pasted


def _looks_pasted(sentence: str) -> bool:
    if not sentence.isascii():
        return False
    letters = sum(char.isalpha() or char == " " for char in sentence)
    return letters < len(sentence) * 0.72 or " " not in sentence


def _rank(sentence: str, *, pasted: bool) -> float:
    rules = len({match[0].lower() for match in RULE.finditer(sentence)})
    rank = min(rules, 3) * 0.75
    if STRONG.search(sentence):
        rank += 1.0
    if rules and ABOUT_ONESELF.search(sentence):
        rank -= 1.0
    if WISH.search(sentence):
        rank += 0.5
    if IMPERATIVE.match(sentence):
        rank += 0.25
    if rules and CORRECTION.search(sentence):
        rank += 0.5
    if pasted:
        rank -= 1.0
    if sentence.endswith(("?", "？")):
        rank -= 1.0
    if AGREEMENT.match(sentence):
        rank -= 0.5 if rules else 1.0
    # A statement of ordinary length is worth its room even where no pattern knows it.
    chars = len(sentence) + 2 * sum(char > "\u2e80" for char in sentence)
    return rank + (0.5 if 20 <= chars <= _LONG_CHARS else 0.0)


def _superseded(bindings: tuple[Binding, ...]) -> frozenset[str]:
    """Sentences that a later one on the same subject corrects.

    Candidates are found by shared words, so the cost stays near linear.
    """
    words = [_subject(binding.text) for binding in bindings]
    by_word: dict[str, list[int]] = {}
    gone: set[str] = set()
    for at, binding in enumerate(bindings):
        corrects = CORRECTION.search(binding.text) is not None
        near: dict[int, int] = {}
        for word in words[at]:
            for other in by_word.get(word, ())[-40:]:
                near[other] = near.get(other, 0) + 1
        for other, shared in near.items():
            older = bindings[other]
            if _replaces(binding, older, shared, words[at], words[other], corrects=corrects):
                gone.add(older.text)
        for word in words[at]:
            by_word.setdefault(word, []).append(at)
    return frozenset(gone)


def _replaces(
    newer: Binding,
    older: Binding,
    shared: int,
    newer_words: frozenset[str],
    older_words: frozenset[str],
    *,
    corrects: bool,
) -> bool:
    if newer.rank < 1 or older.rank < _STATEMENT_RANK or shared < 2:
        return False
    smaller = min(len(newer_words), len(older_words))
    share = shared / max(1, smaller)
    newer_values, older_values = set(_VALUE.findall(newer.text)), set(_VALUE.findall(older.text))
    other_value = bool(newer_values and older_values and newer_values != older_values)
    if corrects:
        return share >= (0.34 if other_value else 0.5)
    return other_value and share >= 0.75


def _subject(sentence: str) -> frozenset[str]:
    found = (match[0].lower() for match in _WORD.finditer(sentence[:MAX_SENTENCE_CHARS]))
    words = {_stem(word) for word in found if word not in _STOP_WORDS and word < "\u2e80"}
    return frozenset(words.union(_EAST_ASIAN_PAIR.findall(sentence)))


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 4 and word.endswith("s") else word
