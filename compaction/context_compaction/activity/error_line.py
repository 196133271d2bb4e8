"""The lines of a tool's output that name its errors, or tell how it ended."""

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

LINE_CHARS = 300  # a longer line is shown cut; minified files have lines of megabytes
_SCAN_CHARS = 400_000  # the head and tail of an output say enough about its kind


ERROR = re.compile(
    r"\b(error|errors|failed|failure|fatal|exception|traceback|panic|assert\w*|denied|not found)\b",
    re.IGNORECASE,
)


# The name of an exception before its message: "ValueError: …", "java.io.IOException: …".
# Nothing is tried twice: a line may be a hundred thousand capitals.
_ERROR_NAME = re.compile(
    r"\A(?:\w*+\.)*+[^\WA-Z]*+[A-Z]\w*+"
    r"(?:(?<=Error)|(?<=Exception)|(?<=Warning)|(?<=Interrupt)|(?<=Exit)|(?<=Fault))(?::|\Z)"
)


# "2 failed, 317 passed": how many there are says less than any of them.
_COUNTS = re.compile(
    r"\W{0,40}(?:Tests?:? +)?\d{1,6} (?:failed|failures?|errors?)\b", re.IGNORECASE
)


# "Tests  9 passed (9)", "# fail 0", "ok  example.com/a  0.3s": what a run of tests came to.
_CAME_TO = re.compile(
    r"\d (?:\w{1,20} )?(?:pass(?:ed|ing)?|fail(?:ed|ing)?|errors?)\b|\b(?:pass|fail)\W{1,3}\d"
    r"|\A(?:ok|PASS|FAIL)[ \t]"
)
_COUNTED_FAILURES = re.compile(
    r"\b[1-9]\d{0,6} (?:\w{1,20} )?(?:fail(?:ed|ing)?|errors?)\b|\bfail[^\w\n]{1,3}[1-9]"
)
# A part of a run that failed, though the last part passed.
_FAILED_PART = re.compile(r"^[ \t]*FAIL\b|\bFAILED\b", re.MULTILINE)
# One of these stands in it; to look for them first is far faster, and most outputs have none.
_CAME_TO_SIGNS = ("pass", "fail", "error", "PASS", "FAIL", "ok ", "ok\t")
_STATUS = re.compile(r"\b(?:exit|exited|failed) with\b|\bexit (?:code|status)\b", re.IGNORECASE)
_END_CHARS = 4_000
_OUTCOME_CHARS = 160
# An output that speaks of trouble though no flag and no status does. To look for the signs first is
# far faster, and most outputs have none.
_TROUBLE = re.compile(
    r"^[ \t]*(?:E +)?(?:[\w.]*(?:Error|Exception)\b|error:|fatal:|npm ERR)"
    r"|error TS\d|\berror\[\w|\bTraceback \(|\bFAILED\b|[✖×] "
)
# One of these stands in every such line.
_TROUBLE_SIGNS = (
    *("Error", "Exception", "error:", "error TS", "error[", "fatal:", "npm ERR", "Traceback ("),
    *("FAILED", "✖ ", "× "),
)
_SCANNED_CHARS = 20_000


def outcome_line(text: str, *, failed: bool) -> str:
    """The line that tells what a command came to; "" where none does.

    Of one that `failed` the last that names an error, and else what a run of tests counted last.
    """
    end = text[-_END_CHARS:]
    if not failed and not any(map(end.__contains__, _CAME_TO_SIGNS)):
        return ""  # as most, and a look at each line takes its time
    rows = error_lines(end).split("\n") if failed else [row.strip() for row in end.split("\n")]
    told = (row for row in reversed(rows) if failed or _tells_count(row))
    return next((row for row in told if not _STATUS.search(row)), "")[:_OUTCOME_CHARS]


def _tells_count(row: str) -> bool:
    return any(map(row.__contains__, _CAME_TO_SIGNS)) and _CAME_TO.search(row) is not None


def error_line(text: str) -> str:
    """The most specific line of a failed result: the last that names an error.

    "Traceback" and a count announce an error, and "ValueError: …" names it, in any language's
    spelling.
    """
    announced = last = ""
    for line in map(str.strip, reversed(scanned(text).split("\n"))):
        last = last or line
        if ERROR.search(line) or _ERROR_NAME.match(line):
            if not (line.startswith("Traceback (") or _COUNTS.match(line)):
                return line[:LINE_CHARS]
            announced = announced or line
    return (announced or last)[:LINE_CHARS]


def names_error(line: str) -> bool:
    """Whether `line` itself names an error; "Traceback" only announces one."""
    is_one = ERROR.search(line) or _ERROR_NAME.match(line)
    return bool(is_one) and not line.startswith("Traceback (")


def error_lines(text: str) -> str:
    """The lines of a failed result that name errors, each once, in order; "" where none does."""
    rows = (row.strip()[:LINE_CHARS] for row in scanned(text).split("\n"))
    return "\n".join(dict.fromkeys(filter(names_error, rows)))


def lines_with(text: str, words: Iterable[str]) -> Iterator[str]:
    """The lines with one of `words`: a text is searched for a word far sooner than its lines."""
    for word in words:
        at = text.find(word)
        while at >= 0:
            stop = text.find("\n", at)
            stop = stop if stop >= 0 else len(text)
            yield text[text.rfind("\n", 0, at) + 1 : stop]
            at = text.find(word, stop)


def scanned(text: str) -> str:
    """`text`, or beginning and end of one too long to look through."""
    if len(text) <= _SCAN_CHARS:
        return text
    half = _SCAN_CHARS // 2
    return text[:half] + "\n" + text[-half:]


def counts_failures(text: str) -> bool:
    """Whether a run of tests counts failures in an output."""
    return _COUNTED_FAILURES.search(text) is not None


def reports_trouble(text: str) -> bool:
    """Whether the beginning of an output names an error on a line.

    Not where tests were counted behind it and none failed: what they expect they print too.
    """
    if not _names_trouble(text[:_SCANNED_CHARS]):
        return False
    if _FAILED_PART.search(scanned(text)):
        return True
    rows = [row.strip() for row in reversed(text[-_END_CHARS:].split("\n"))]
    behind = [*takewhile(lambda row: not _tells_count(row), rows)]
    counted = [*takewhile(_tells_count, rows[len(behind) :])]
    if not counted or counts_failures("\n".join(counted)):
        return True
    return _names_trouble("\n".join(behind))


def _names_trouble(text: str) -> bool:
    return any(map(_TROUBLE.search, lines_with(text, _TROUBLE_SIGNS)))
