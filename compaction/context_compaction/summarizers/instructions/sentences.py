"""Split a user's own words into sentences, tell typed from pasted ones, and read signs and words.

Text that the user quoted, forwarded or pasted in a marked form is data: it never becomes a rule or
a pin, whatever it says. `own_words` recognizes it by its form, in any language: fences, quoted
lines, elements, mail, tracebacks, lines of a log or a patch. Every step takes time linear in the
length of the text.

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
from itertools import chain, groupby, pairwise
from string import ascii_letters
from typing import Any, Literal, TypeAlias
from unicodedata import category

from context_compaction.messages.cache import RecentCache
from context_compaction.messages.names import STOP_WORDS

OMISSION = "[…]"
"""The mark in place of text that is not shown."""

Sign: TypeAlias = Literal[
    "rule", "lasting", "heading", "sure", "correction", "negation", "agreement", "errand",
    "about_oneself",
]  # fmt: skip

_MAX_SENTENCE_CHARS = 500
# A longer message was pasted: only its beginning and its end are read.
_MAX_MESSAGE_CHARS = 12_000
# People hardly type more lines than this in one message or paragraph.
_MAX_TYPED_LINES = 12

# A period after a single letter, a title or the number of a day does not end a sentence.
_SENTENCE_END = re.compile(
    r"(?<=[.!?…])"  # first, because it fails at most characters
    r"(?<!\b[A-Za-z]\.)(?<!\b[A-Z][rs]\.)(?<!\bvs\.)(?<!(?<!\.)\b\d\.)(?<!(?<!\.)\b\d\d\.)"
    r"\s+|(?<=[。！？；])"
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
        return "|".join(patterns)

    before = f"(?:{alternatives('before') or '(?!)'})*"
    places = {
        "starts": rf"\A{before}(?:%s)\b",
        "clauses": rf"(?:\A|[,;:.!?(–—]\s*+){before}(?:%s)\b",
        "words": r"\b(?=\w)(?:%s)\b",
        "anywhere": "%s",
    }
    # Without empty places, because each would be tried at every character.
    found = [place % words for kind, place in places.items() if (words := alternatives(kind))]
    return re.compile("|".join(found))


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
    return frozenset(chain.from_iterable(map(_stems, _WORD.findall(sentence))))


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
    if not (line.startswith("#") or content.endswith((":", "："))):
        return False
    last_sentence = _SENTENCE_END.split(content)[-1]
    return sign_pattern("heading").search(lower_case(last_sentence)) is not None


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
        if len(sentence) < 2:
            continue
        if len(sentence) > _MAX_SENTENCE_CHARS:
            head, _, _ = sentence[: _MAX_SENTENCE_CHARS + 1].rpartition(" ")
            sentence = f"{head or sentence[:_MAX_SENTENCE_CHARS]} {OMISSION}"
        yield sentence


# The user's own words ---------------------------------------------------------------------------

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,60})(?:\s[^<>]{0,2000})?>")
# An element inside a line is emphasis up to this many words, and data beyond.
_EMPHASIS_WORDS = 2
# Names of the mail headers for sender and subject. Two neighbouring lines that look like headers
# start a mail if such a name is among them.
_MAIL_HEADERS = frozenset({
    "from", "subject", "sent", "von", "betreff", "gesendet", "de", "objet", "envoyé", "asunto",
    "enviado", "assunto", "da", "oggetto", "van", "onderwerp", "od", "temat", "от", "тема",
    "发件人", "主题", "差出人", "件名", "보낸 사람", "제목", "من", "الموضوع", "från", "ämne",
    "प्रेषक", "विषय", "kimden", "konu",
})  # fmt: skip
# The line before the text of an answered mail, which contains a year or a time: "On 3 March 2026,
# Bob Miller wrote:". The verb ends it, or only a name follows.
_DATE = re.compile(r"(?:19|20)\d\d|\d[:.]\d\d")
_WROTE = re.compile(
    r"(?:\bwrote|\ba écrit|\bescribió|\bha scritto|\bescreveu|писал(?:\(а\)|а)?|写道|書きました"
    r"|のメール|님이 (?:작성|씀)|ने लिखा|\byazdı|\bnapisał(?:\(a\)|a)?"
    r"|(?:\bschrieb|\bschreef|\bskrev|كتب)\s[^:]{1,60})\s?[:：]\Z"
)
# A line that a program printed, also in an exported chat. A line of the group "trace" also starts a
# traceback, which ends at the next blank line.
_PRINTED = re.compile(
    r"\s*(?:(?P<trace>Traceback \(most|File \".{1,300}\", line \d|at [\w.$<>]{1,200}\("
    r"|Exception in thread|panic: |thread '.{1,100}' panicked|goroutine \d)"
    r"|(?:Caused by: |E {3})?[\w.]{0,80}(?:Error|Exception): |\[?\d\d:\d\d:\d\d\b"
    r"|(?:[\w./\\-]{1,200}(?::\d{1,9}){1,2}: )?(?:error|fatal): |npm ERR! "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "
    r"|\[?\d{1,4}[-./]\d\d?[-./]\d{1,4}[T ,]{1,2}\d\d?:"
    r"|\[?(?:INFO|DEBUG|WARN|WARNING|ERROR|FATAL|TRACE)\b[\]:\s]"
    r"|diff --git |@@ -\d|index [0-9a-f]{7,}|(?:\+\+\+|---) \S)"
)


_CACHE_CHARS = 8_000_000
_ENTRY_CHARS = 200  # what an entry takes besides its text, because many texts are one word
_own_words: RecentCache[str] = RecentCache(_CACHE_CHARS)


def own_words(text: str) -> str:
    """Return `text` without the parts that somebody else wrote. Line breaks stay."""
    # Cached, because several stages ask for the words of each message, at every turn.
    return _own_words.get_or_compute(text, lambda: _without_data(text), len(text) + _ENTRY_CHARS)


def _without_data(text: str) -> str:
    lines = text.split("\n")
    for index in _data_lines(lines):
        lines[index] = ""
    return _without_elements("\n".join(lines))


def _data_lines(lines: Sequence[str]) -> Iterator[int]:
    """Yield the indices of the lines that somebody else wrote."""
    fence, in_trace, in_pin = "", False, False
    for index, line in enumerate(lines):
        is_blank = not line or line.isspace()
        fence_line = None if is_blank else _FENCE.match(line)
        if in_pin:  # the user asked for all of a pin, code included
            in_pin = "</pin>" not in line
        elif fence:
            yield index
            if fence_line and fence_line[1].startswith(fence) and not fence_line[2].strip():
                fence = ""
        elif is_blank:
            in_trace = False
        elif fence_line:
            yield index
            fence = "" if fence_line[1] in fence_line[2] else fence_line[1]
        elif _starts_mail(lines, index):
            yield from range(index, len(lines))  # because a mail has no recognizable end
            return
        else:
            printed = _PRINTED.match(line)
            in_trace = in_trace or bool(printed and printed["trace"])
            if in_trace or printed or line.lstrip().startswith(">"):
                yield index
            else:
                in_pin = line.rfind("<pin>") > line.rfind("</pin>")


def _starts_mail(lines: Sequence[str], index: int) -> bool:
    """Whether a forwarded or answered mail starts at line `index`."""
    before, _, rest = lines[index].partition("<")
    address, _, after = rest.partition(">")
    is_short = len(before) <= 120 and len(after) <= 40
    if is_short and "@" in address[1:] and after.rstrip().endswith((":", "：")):
        return " " not in address  # "On Monday Bob <bob@example.org> wrote:"
    line = lines[index].rstrip()
    if (
        line.endswith((":", "："))
        and len(line) <= 200
        and _DATE.search(line)
        and _WROTE.search(line)
    ):
        return True
    first = _header_name(lines[index])
    second = _header_name(lines[index + 1]) if first and index + 1 < len(lines) else ""
    return bool(second) and not _MAIL_HEADERS.isdisjoint((first, second))


def _header_name(line: str) -> str:
    """Return the lower-case name of a line like "Subject: hello". "" for any other line."""
    name, _, value = line.replace("：", ":", 1).partition(":")
    name = name.strip().lower()
    if not value.strip() or len(name) > 34 or name.count(" ") > 1:
        return ""
    # Marks are no letters, but the vowels of Hindi.
    return name if all(category(char)[0] in "LM" or char in " -" for char in name) else ""


def _without_elements(text: str) -> str:
    """Return `text` without elements and their content. Pins, <private> and emphasis stay."""
    if "<" not in text:
        return text
    tags = [(match, match[2].lower()) for match in _TAG.finditer(text)]
    last_ends = {name: match.start() for match, name in tags if match[1]}
    parts: list[str] = []
    copied, start, depth = 0, 0, 0
    outer_name, in_pin = "", False
    for match, name in tags:
        is_end = bool(match[1])
        if depth == 0 and name == "pin":
            in_pin = not is_end
        elif depth == 0 and not (in_pin or is_end or name == "private"):
            if last_ends.get(name, -1) > match.start():
                start, outer_name, depth = match.start(), name, 1
        elif depth and name == outer_name:
            depth += -1 if is_end else 1
            if depth == 0 or (is_end and match.start() == last_ends[name]):
                depth = 0
                if (mark := _mark_of_element(text, start, match.end())) is not None:
                    parts += (text[copied:start], mark)
                    copied = match.end()
    return "".join((*parts, text[copied:]))


def _mark_of_element(text: str, start: int, stop: int) -> str | None:
    """Return what replaces the element `text[start:stop]`. None if the element is emphasis."""
    # A limited part of the line, because one line may hold many elements.
    before = text[max(0, start - 200) : start].rpartition("\n")[2].strip()
    after = text[stop : stop + 200].partition("\n")[0].strip()
    content = _TAG.sub(" ", text[start:stop])
    if before and "\n" not in content and len(content.split()) <= _EMPHASIS_WORDS:
        return None
    return OMISSION if before or after else ""
