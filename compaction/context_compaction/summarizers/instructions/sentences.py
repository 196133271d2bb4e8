"""Split a user's text into sentences, tell typed from pasted ones, and read their signs and words.

A user's message may hold logs, code, quoted documents or the output of a tool. No list of such
things is complete. But people type paragraphs of their own, usually the first or the last ones,
and none of the lines that people type looks like a machine's.

A sign is a pattern in many languages: of a rule, a wish, a correction. Signs only rank sentences,
so they need not be complete. Each language has a file in `data` with one table for each sign:
`words` match as whole words, `anywhere` also inside a word (for scripts without blanks), `starts`
at the beginning of the sentence, and `clauses` at the beginning of a clause. `before` may precede
the last two. Each of the `examples` has the sign by this language alone.

- rule: a rule, a preference, a decision
- lasting: valid for all later work, unlike a wish for now
- heading: the list below consists of rules
- sure: more sure signs of a rule
- correction: the sentence corrects something
- negation: precedes a name or value that is not wanted, or no longer
- agreement: the sentence begins with a yes, with thanks or a greeting
- errand: a request or report of the moment, which holds until it is done
- about_oneself: a report about oneself and now ("I don't have the number at hand"), unlike a
  lasting fact ("I'm vegetarian")
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from itertools import groupby, pairwise
from string import ascii_letters
from typing import Any, Literal, TypeAlias

from context_compaction.messages.names import STOP_WORDS
from context_compaction.summarizers.instructions.own_words import OMISSION, own_words

Sign: TypeAlias = Literal[
    "rule", "lasting", "heading", "sure", "correction", "negation", "agreement", "errand",
    "about_oneself",
]  # fmt: skip

_MAX_SENTENCE_CHARS = 500
_MIN_SENTENCE_CHARS = 6
# A longer message was pasted: only its beginning and its end are read.
_MAX_MESSAGE_CHARS = 12_000
# People hardly type more lines than this in one message or paragraph.
_MAX_TYPED_LINES = 12

# A period after a single letter, a title or the number of a day does not end a sentence.
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Za-z]\.)(?<!\b[A-Z][rs]\.)(?<!\bvs\.)(?<!(?<!\.)\b\d\.)(?<!(?<!\.)\b\d\d\.)"
    r"(?<=[.!?…])\s+|(?<=[。！？；])"
)
_BULLETS = "-*•"
_LIST_MARK = re.compile(r"\A(?:[-+*•>]++|\d{1,2}[.)])\s+")
# A line of a log, a patch, a table or code. A person may name a function: "don't touch parse()".
_MACHINE_LINE = re.compile(
    r"\A(?:\d+\s*[:|]|\$ |>>> |[@{}\[<|/\\]|Traceback|[+-]{1,3}\S|\d{4}-\d\d-\d\d[T ]\d|\d\d:\d\d:"
    r"|(?:INFO|DEBUG|WARN\w*|ERROR)\b|\S+ (?:= )?\S+\(\)\Z)"
    r"|(?:[{};\\$|]|->|\(\):)\Z|=>|::|==|\]\("
)

_NO_LETTERS = str.maketrans("", "", f"{ascii_letters} ")
# The English stemmer also removes the commonest endings of other languages.
_stemmer: Any = import_module("Stemmer").Stemmer("english", 0)  # PyStemmer has no type hints
_WORD = re.compile(r"[^\W\d_]+")
# Quoted text, paths, identifiers, numbers.
_VALUE = re.compile(
    r"`[^`]+`|\"[^\"]+\"|(?<![\w-])[\w-]+(?:[._/-][\w-]+)+(?<![.:])|\b[A-Za-z]+\d\w*"
    r"|\d[\d.,']*\d|\d",
    re.ASCII,
)


@cache
def sign_pattern(sign: Sign) -> re.Pattern[str]:
    """Return the pattern of a sign in all languages together, for texts in `lower_case`."""
    return sign_pattern_in(sign, list(languages().values()))


def lower_case(text: str) -> str:
    """Return `text` in lower case, with each character at its position.

    Patterns that ignore case take three times as long.
    """
    return text.replace("İ", "i").lower()


@cache
def languages() -> Mapping[str, Any]:
    """Return the tables of each language by its name."""
    folder = files(__package__ or "") / "data"
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir()}
    # English first, because the first of two alternatives matches.
    names = sorted(texts, key=lambda name: (name != "english.toml", name))
    return {
        name.removesuffix(".toml"): tomllib.loads(texts[name])
        for name in names
        if name.endswith(".toml")
    }


def sign_pattern_in(sign: Sign, tables: Sequence[Mapping[str, Any]]) -> re.Pattern[str]:
    """Return the pattern of a sign in the languages of `tables`."""

    def alternatives(kind: str) -> str:
        patterns = [pattern for table in tables for pattern in table.get(sign, {}).get(kind, ())]
        return "|".join(patterns) or "(?!)"

    return re.compile(
        rf"(?:\A(?:{alternatives('before')})*(?:{alternatives('starts')})"
        rf"|(?:\A|[,;:.!?(–—]\s*+)(?:{alternatives('before')})*(?:{alternatives('clauses')}))\b"
        rf"|\b(?:{alternatives('words')})\b|{alternatives('anywhere')}"
    )


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a user's message.

    Attributes:
        text: The sentence on one line. "[…]" at its end says that it was cut.
        is_pasted: Whether the sentence looks pasted, not typed.
        is_last: Whether it belongs to the last paragraph of the message.
        line: Number of its line in the message. A line that was wrapped counts as one.
        is_listed_rule: Whether it is a whole item of a list that is introduced as rules.
    """

    text: str
    is_pasted: bool
    is_last: bool
    line: int
    is_listed_rule: bool = False


def sentences_of(text: str, *, is_typed: bool = False) -> Sequence[Sentence]:
    """Return the sentences of `text` in order; with `is_typed`, only the user's own words."""
    # Cached because pins, the summary and the next compaction ask for these texts again. Long texts
    # are not cached.
    return (_sentences if len(text) <= 1_000 else _sentences.__wrapped__)(text, is_typed)


@lru_cache(maxsize=16_384)
def _sentences(text: str, is_typed: bool) -> Sequence[Sentence]:
    if is_typed:
        text = own_words(text)
    if len(text) > _MAX_MESSAGE_CHARS:
        half = _MAX_MESSAGE_CHARS // 2
        text = f"{text[:half]} {OMISSION}\n\n{OMISSION} {text[-half:]}"
    grouped = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    paragraphs = [list(lines) for has_text, lines in grouped if has_text]
    line_count = sum(map(len, paragraphs))
    is_long = line_count > _MAX_TYPED_LINES
    sentences: list[Sentence] = []
    in_rules = False
    line_number = 0
    for number, lines in enumerate(paragraphs, start=1):
        # People say what to do with a pasted log before or after it.
        is_inside = is_long and 1 < number < len(paragraphs)
        is_pasted = is_inside or _is_machine_text(lines)
        is_last = number == len(paragraphs)
        for line in _unwrapped(lines):
            line_number += 1
            is_item = _LIST_MARK.match(line) is not None
            content = " ".join(_without_bullet(line).split())
            if in_rules and is_item and len(content) <= _MAX_SENTENCE_CHARS:
                # A message of more lines is a document, even if it lists rules.
                is_rule = not is_pasted or line_count <= 40
                sentences.append(Sentence(content, not is_rule, is_last, line_number, is_rule))
                continue
            sentences.extend(
                Sentence(sentence, is_pasted or _is_machine_line(sentence), is_last, line_number)
                for sentence in _split(line)
            )
            in_rules = (in_rules and is_item) or _introduces_rules(line)
    return tuple(sentences)


def without_list_mark(text: str) -> str:
    """Return `text` without the bullet, number or quotation sign at its beginning."""
    return _LIST_MARK.sub("", text)


def values_in(sentence: str) -> frozenset[str]:
    """Return the values that `sentence` names: quoted text, paths, identifiers, numbers."""
    return frozenset(_VALUE.findall(sentence))


def subject_words(sentence: str) -> frozenset[str]:
    """Return the stems of the words that name a subject; of Chinese words, the character pairs."""
    return frozenset(stem for word in _WORD.findall(sentence) for stem in _stems(word))


@lru_cache(maxsize=4_096)  # a real session of 200,000 tokens has 1,400 words
def _stems(word: str) -> tuple[str, ...]:
    if any("\u3040" <= char <= "\u9fff" for char in word):  # Japanese and Chinese
        return tuple(a + b for a, b in pairwise(word) if min(a, b) >= "\u3400")
    if len(word) < 3:  # CI, server A
        return (word,) if word.isupper() and word != "I" else ()
    lower = word.lower()
    if lower in STOP_WORDS or sign_pattern("lasting").fullmatch(lower):  # "always" is no subject
        return ()
    return (_stemmer.stemWord(lower)[:6],)


def _introduces_rules(line: str) -> bool:
    """Whether `line` announces a list of rules: "House rules, for all of this:"."""
    content = line.strip("#*_ ")
    is_heading = line.startswith("#") or content.endswith((":", "："))
    last_sentence = _SENTENCE_END.split(content)[-1]
    return is_heading and sign_pattern("heading").search(lower_case(last_sentence)) is not None


def _is_machine_text(lines: Sequence[str]) -> bool:
    machine_lines = sum(map(_is_machine_line, lines))
    return machine_lines > len(lines) / 2 or len(lines) > _MAX_TYPED_LINES


def _is_machine_line(line: str) -> bool:
    """Whether `line` looks written by or for a machine."""
    line = line.replace(OMISSION, "")
    if not line.isascii():
        return False
    if line.startswith(("    ", "\t")):
        return True
    content = without_list_mark(line.strip())
    if " " not in content or _MACHINE_LINE.search(content):
        return True
    return len(content.translate(_NO_LETTERS)) > len(content) * 0.28


def _unwrapped(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, and join a line that was broken at the margin with the next one."""
    joined = ""
    for line in map(str.strip, lines):
        is_broken = len(joined) >= 50 and (joined[-1].isalpha() or joined[-1] in ",;—–-")
        if is_broken and line[:1].islower():
            joined += f" {line}"
            continue
        if joined:
            yield joined
        joined = line
    if joined:
        yield joined


def _without_bullet(line: str) -> str:
    rest = line.lstrip(_BULLETS)
    return rest.lstrip() if rest[:1].isspace() else line


def _split(line: str) -> Iterator[str]:
    """Yield the sentences of `line`. Fragments are dropped and long sentences are cut."""
    for part in _SENTENCE_END.split(_without_bullet(line)):
        sentence = " ".join(part.split())
        if len(sentence) < (_MIN_SENTENCE_CHARS if sentence.isascii() else 2):
            continue
        if len(sentence) > _MAX_SENTENCE_CHARS:
            head, _, _ = sentence[: _MAX_SENTENCE_CHARS + 1].rpartition(" ")
            sentence = f"{head or sentence[:_MAX_SENTENCE_CHARS]} {OMISSION}"
        yield sentence
