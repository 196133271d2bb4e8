"""The sentences that a user typed, told apart from what he pasted; and what each is about.

A turn of the user may hold logs, code, quoted documents or the output of a tool. No list of such
things is complete; but what a user types is in paragraphs of its own, mostly the first or the
last, and none of its lines looks like a machine's.

A sentence is about its subject words and its values, in any language. Two are compared by the stems
of their words and by pairs of Chinese characters.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from context_compaction.messages.names import STOP_WORDS
from context_compaction.summarizers.instructions.own_words import LEFT_OUT, own_words
from context_compaction.summarizers.instructions.signs import sign

MAX_SENTENCE_CHARS = 500
MIN_SENTENCE_CHARS = 6
# Of one message: what is longer is pasted, and its beginning and end are read.
_MAX_MESSAGE_CHARS = 12_000
# Beyond so many lines a turn, and a paragraph of it, is hardly typed as a whole.
_PASTED_LINES = 12

# A point after a single letter, a title or the number of a day ends no sentence.
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Za-z]\.)(?<!\b[A-Z][rs]\.)(?<!\bvs\.)(?<!(?<!\.)\b\d\.)(?<!(?<!\.)\b\d\d\.)"
    r"(?<=[.!?…])\s+|(?<=[。！？；])"
)
# All are matched at the beginning of a line only: elsewhere the same signs are figures and words.
_BULLET = re.compile(r"\A[-*•]++\s+")
_ITEM_MARK = re.compile(r"\A(?:[-+*•>]++|\d{1,2}[.)])\s+")
# What a heading and emphasis are made of.
_MARKUP = "#*_ "
# Begins a line of a document that is no line of a paragraph.
_BLOCK_MARKS = ("#", "|", "<", ">", "```", "~~~")
# A line of a log, a patch, a table or code; who types may name a function: "don't touch parse()".
_MACHINE = re.compile(
    r"\A(?:\d+\s*[:|]|\$ |>>> |[@{}\[<|/\\]|Traceback|[+-]{1,3}\S|\d{4}-\d\d-\d\d[T ]\d|\d\d:\d\d:"
    r"|(?:INFO|DEBUG|WARN\w*|ERROR)\b|\S+ (?:= )?\S+\(\)\Z)"
    r"|(?:[{};\\$|]|->|\(\):)\Z|=>|::|==|\]\("
)

# English stemming takes the commonest endings of other languages too.
_stem: Any = import_module("Stemmer").Stemmer("english", 0)  # PyStemmer, which has no types
_WORD = re.compile(r"[^\W\d_]+")
# What is quoted, paths, identifiers, numbers.
_STATED = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<![\w-])[\w-]+(?:[._/-][\w-]+)+(?<![.:])|\b[A-Za-z]+\d\w*"
    r"|\d[\d.,']*\d|\d",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a user's turn, on one line."""

    text: str  # whole; "[…]" at its end where it is cut
    paragraph: int  # its number in the turn
    is_pasted: bool  # it rather looks so than typed
    is_last: bool  # in the turn's last paragraph, or in its only one
    is_listed_rule: bool = False  # an item, whole, of a list that is introduced as rules


def sentences_of(text: str, *, is_typed: bool = False) -> Sequence[Sentence]:
    """The sentences of one text, in order; with `is_typed` only those in the user's own words."""
    # Pins and writer, and the next compaction, ask for the same texts; long ones are not kept.
    return (_sentences if len(text) <= 1_000 else _sentences.__wrapped__)(text, is_typed)


@lru_cache(maxsize=16_384)
def _sentences(text: str, is_typed: bool) -> Sequence[Sentence]:
    if is_typed:
        text = own_words(text)
    if len(text) > _MAX_MESSAGE_CHARS:
        half = _MAX_MESSAGE_CHARS // 2
        text = f"{text[:half]} {LEFT_OUT}\n\n{LEFT_OUT} {text[-half:]}"
    paragraphs = list(_paragraphs(text))
    size_lines = sum(len(lines) for lines, _ in paragraphs)
    is_long = size_lines > _PASTED_LINES
    last = len(paragraphs) - 1
    found: list[Sentence] = []
    of_rules = False
    for at, (lines, is_code) in enumerate(paragraphs):
        # Who pastes a log says what to do with it before or after.
        amid = is_long and 0 < at < last
        pasted = is_code or amid or _is_machine_made(lines, is_long=is_long)
        for line in _unwrapped(lines):
            is_item = _ITEM_MARK.match(line) is not None
            whole = " ".join(_BULLET.sub("", line).split())
            if of_rules and is_item and len(whole) <= MAX_SENTENCE_CHARS:
                # A turn of more lines is a document, also where it lists rules.
                is_rule = not pasted or (not is_code and size_lines <= 40)
                found.append(Sentence(whole, at, not is_rule, at == last, is_rule))
                continue
            found.extend(
                Sentence(sentence, at, pasted or _is_machine(sentence), at == last)
                for sentence in _split(line)
            )
            of_rules = (of_rules and is_item) or _introduces_rules(line)
    return tuple(found)


def unbroken(text: str) -> str:
    """A document without the breaks that were made at a margin: a paragraph is one line."""
    rows = [row.rstrip() for row in text.split("\n")]
    pieces = rows[:1]
    for before, row in pairwise(rows):
        goes_on = not (_is_block(before) or _is_block(row) or _ITEM_MARK.match(row.lstrip()))
        pieces += (" " if goes_on else "\n", row)
    return "".join(pieces)


def _is_block(row: str) -> bool:
    said = row.lstrip()
    return not said or said.startswith(_BLOCK_MARKS)


def without_list_mark(text: str) -> str:
    """`text` without the bullet, the number or the sign of a quotation that it begins with."""
    return _ITEM_MARK.sub("", text)


def without_gap(text: str) -> str:
    """`text` without the sign of what is left out before it."""
    return text.removeprefix(LEFT_OUT).lstrip()


def values_of(sentence: str) -> frozenset[str]:
    """The values that `sentence` names."""
    return frozenset(_STATED.findall(sentence))


def words_of(sentence: str) -> frozenset[str]:
    """The subject words of `sentence`, cut down."""
    return frozenset(part for word in _WORD.findall(sentence) for part in _cut(word))


@lru_cache(maxsize=4_096)  # a real session of 200,000 tokens has 1,400
def _cut(word: str) -> tuple[str, ...]:
    """The parts of a word that are compared; empty where it names no subject."""
    if any("\u3040" <= char <= "\u9fff" for char in word):  # Japanese and Chinese
        return tuple(a + b for a, b in pairwise(word) if min(a, b) >= "\u3400")
    if len(word) < 3:  # CI, server A
        return (word,) if word.isupper() and word != "I" else ()
    lower = word.lower()
    if lower in STOP_WORDS or sign("lasting").fullmatch(lower):  # "always" is no subject
        return ()
    return (_stem.stemWord(lower)[:6],)


def _introduces_rules(line: str) -> bool:
    """Whether `line` says that the list behind it is of rules: "House rules, for all of this:"."""
    said = line.strip(_MARKUP)
    is_head = line.startswith("#") or said.endswith((":", "："))
    return is_head and sign("heading").search(_SENTENCE_END.split(said)[-1]) is not None


def _paragraphs(text: str) -> Iterator[tuple[list[str], bool]]:
    """Runs of lines between empty ones, and whether each is fenced code."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith(("```", "~~~"))
        if line.strip() and not is_fence:
            lines.append(line)
            continue
        if lines:
            yield lines, fenced
        lines, fenced = [], fenced != is_fence
    if lines:
        yield lines, fenced


def _is_machine_made(lines: Sequence[str], *, is_long: bool) -> bool:
    machine = sum(map(_is_machine, lines))
    return machine > (0 if is_long else len(lines) / 2) or len(lines) > _PASTED_LINES


def _is_machine(line: str) -> bool:
    """Whether a line looks written by a machine, or for one."""
    line = line.replace(LEFT_OUT, "")
    if not line.isascii():
        return False
    if line.startswith(("    ", "\t")):
        return True
    stripped = without_list_mark(line.strip())
    if " " not in stripped or _MACHINE.search(stripped):
        return True
    letters = sum(char.isalpha() or char == " " for char in stripped)
    return letters < len(stripped) * 0.72


def _unwrapped(lines: Sequence[str]) -> Iterator[str]:
    """The lines; one that was broken at the margin is joined with the next."""
    whole = ""
    for line in lines:
        stripped = line.strip()
        if len(whole) >= 50 and whole[-1].isalpha() and stripped[:1].islower():
            whole += f" {stripped}"
            continue
        if whole:
            yield whole
        whole = stripped
    if whole:
        yield whole


def _split(line: str) -> Iterator[str]:
    for part in _SENTENCE_END.split(_BULLET.sub("", line)):
        sentence = " ".join(part.split())
        if len(sentence) < (2 if not sentence.isascii() else MIN_SENTENCE_CHARS):
            continue
        if len(sentence) > MAX_SENTENCE_CHARS:
            head, _, _ = sentence[: MAX_SENTENCE_CHARS + 1].rpartition(" ")
            sentence = f"{head or sentence[:MAX_SENTENCE_CHARS]} {LEFT_OUT}"
        yield sentence
