"""Separate the user's own words from text that the user quoted, forwarded or pasted.

Text by somebody else is data: it never becomes a rule or a pin, whatever it says. It is recognized
by its form, in any language: fences, quoted lines, elements, mail, tracebacks, lines of a log or a
patch. Every step takes time linear in the length of the text.
"""

import re
from collections.abc import Iterator, Sequence
from unicodedata import category

from context_compaction.messages.cache import RecentCache

OMISSION = "[…]"
"""The mark in place of text that is not shown."""

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
# A line that a program printed. A line of the group "trace" also starts a traceback, which ends at
# the next blank line.
_PRINTED = re.compile(
    r"\s*(?:(?P<trace>Traceback \(most|File \".{1,300}\", line \d|at [\w.$<>]{1,200}\("
    r"|Exception in thread|panic: |thread '.{1,100}' panicked|goroutine \d)"
    r"|[\w.]{0,80}(?:Error|Exception): |\[?\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d\b"
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
    is_name = len(name) <= 34 and name.count(" ") <= 1
    # Marks are no letters, but the vowels of Hindi.
    is_name = is_name and all(category(char)[0] in "LM" or char in " -" for char in name)
    return name if is_name and value.strip() else ""


def _without_elements(text: str) -> str:
    """Return `text` without elements and their content. Pins, <private> and emphasis stay."""
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
