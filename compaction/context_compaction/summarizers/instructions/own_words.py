"""The user's own words in a text of his: what he quoted, forwarded or pasted is data.

Data never becomes a rule or a pin, whatever it says. It is recognised by its form, in any language:
fences, lines of a quotation, elements, mail, tracebacks, lines of a log or a patch. Every step is
linear in the text.
"""

import re
from collections.abc import Iterator

LEFT_OUT = "[…]"  # in place of data amid a line

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.:-]{0,60})(?:\s[^<>]{0,2000})?>")
# An element of so many words amid a line is emphasis; a longer one is data.
_EMPHASISED_WORDS = 2
# Of two neighbouring lines with a header's form, one names the sender or the subject.
_HEADER = re.compile(r"\s*[^\W\d_][^\W\d_ -]{0,20}(?: [^\W\d_]{1,12})?\s?[:：]\s*\S")
_SENDER = re.compile(
    r"\s*(?:from|subject|sent|von|betreff|gesendet|de|objet|envoyé|asunto|enviado|assunto|da"
    r"|oggetto|van|onderwerp|od|temat|от|тема|发件人|主题|差出人|件名|보낸 사람|제목|من|الموضوع"
    r"|från|ämne)\s?[:：]",
    re.IGNORECASE,
)
# "On Monday Bob <bob@example.org> wrote:"
_WROTE = re.compile(r".{0,120}<[^<>\s@]{1,80}@[^<>\s]{1,80}>.{0,40}[:：]\s*")
_TRACE = re.compile(
    r"\s*(?:Traceback \(most|File \".{1,300}\", line \d|at [\w.$<>]{1,200}\(|Exception in thread"
    r"|panic: |thread '.{1,100}' panicked|goroutine \d)"
)
# A line that programs write: an error by its name, a time or a level, a line of a patch.
_PRINTED = re.compile(
    r"\s*(?:[\w.]{0,80}(?:Error|Exception): |\[?\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d\b"
    r"|\[?(?:INFO|DEBUG|WARN|WARNING|ERROR|FATAL|TRACE)\b[\]:\s]"
    r"|diff --git |@@ -\d|index [0-9a-f]{7,}|(?:\+\+\+|---) \S)"
)


def own_words(text: str) -> str:
    """`text` without what is marked as somebody else's; line breaks stay."""
    lines = text.split("\n")
    for at in _data_lines(lines):
        lines[at] = ""
    return _without_elements("\n".join(lines))


def _data_lines(lines: list[str]) -> Iterator[int]:
    fence, in_trace, in_pin = "", False, False
    for at, line in enumerate(lines):
        found = _FENCE.match(line)
        if in_pin:  # all of it is asked for
            in_pin = "</pin>" not in line
        elif fence:
            yield at
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found:
            yield at
            fence = "" if found[1] in found[2] else found[1]
        elif _begins_mail(lines, at):
            yield from range(at, len(lines))  # nobody can tell where it ends
            return
        elif line.strip():
            in_trace = in_trace or _TRACE.match(line) is not None
            if in_trace or line.lstrip().startswith(">") or _PRINTED.match(line):
                yield at
            else:
                in_pin = line.rfind("<pin>") > line.rfind("</pin>")
        else:
            in_trace = False


def _begins_mail(lines: list[str], at: int) -> bool:
    if _WROTE.fullmatch(lines[at]):
        return True
    pair = lines[at : at + 2]
    return len(pair) == 2 and all(map(_HEADER.match, pair)) and any(map(_SENDER.match, pair))


def _without_elements(text: str) -> str:
    """`text` without elements and what they hold, but for the user's own and for emphasis."""
    tags = [(found, found[2].lower()) for found in _TAG.finditer(text)]
    last_end = {name: found.start() for found, name in tags if found[1]}
    pieces: list[str] = []
    done, opened, depth = 0, -1, 0
    outer, in_pin = "", False
    for found, name in tags:
        if depth == 0 and name == "pin":
            in_pin = not found[1]
        elif depth == 0 and not in_pin:
            ends_later = last_end.get(name, -1) > found.start()
            if not found[1] and name != "private" and ends_later:
                opened, outer, depth = found.start(), name, 1
        elif depth and name == outer:
            depth += -1 if found[1] else 1
            if depth == 0 or (found[1] and found.start() == last_end[name]):
                depth = 0
                # Not the whole line, which may hold many elements.
                before = text[max(0, opened - 200) : opened].rpartition("\n")[2].strip()
                after = text[found.end() : found.end() + 200].partition("\n")[0].strip()
                if not before or _is_data(text[opened : found.end()]):
                    pieces += (text[done:opened], LEFT_OUT if before or after else "")
                    done = found.end()
    return "".join((*pieces, text[done:]))


def _is_data(element: str) -> bool:
    inner = _TAG.sub(" ", element)
    return "\n" in inner or len(inner.split()) > _EMPHASISED_WORDS
