"""The lines of a tool's output that name its errors, or tell how it ended."""

import re
from collections.abc import Iterable, Iterator, Sequence
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
# A row that is one of several counts of a run: "6 did not run", "13 passed (43.1s)", "# fail 1".
_COUNT_ROW = re.compile(
    r"(?:\W{0,8}\d{1,6} (?P<what>[a-z][a-z ]{1,30}?)|# (?P<what_tap>[a-z]{2,12}) \d{1,6})"
    r"(?: \([\d.]+ ?\w{1,3}\))?\Z"
)
_NONE = re.compile(r"\b0\b")
TERMINAL_CODE = re.compile(r"\x1b\[[\d;]{0,12}[A-Za-z]")
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
    if not failed:
        return "; ".join(_counted(_rows_at_end(text)))[:_OUTCOME_CHARS]
    rows = error_lines(text[-_END_CHARS:]).split("\n")
    return next((row for row in reversed(rows) if not _STATUS.search(row)), "")[:_OUTCOME_CHARS]


def _rows_at_end(text: str) -> list[str]:
    """The last rows of an output; none where no run of tests is counted in them."""
    end = text[-_END_CHARS:]
    if not any(map(end.__contains__, _CAME_TO_SIGNS)):
        return []  # as most, and a look at each line takes its time
    rows = map(str.strip, TERMINAL_CODE.sub("", end).split("\n"))
    return [row for row in rows if row]


def _tells_count(row: str) -> bool:
    return any(map(row.__contains__, _CAME_TO_SIGNS)) and _CAME_TO.search(row) is not None


def _counted(rows: Sequence[str]) -> list[str]:
    """The row that tells what a run of tests came to, the last one.

    Where it is one of several counts, all of them: what failed does not stand with what passed, and
    what was not run in a row beside it.
    """
    ends = (at for at, row in reversed([*enumerate(rows)]) if _tells_count(row))
    last = next((at for at in ends if not _STATUS.search(rows[at])), None)
    if last is None:
        return []
    told: dict[str, str] = {}
    is_beside = True
    for row in reversed(rows[: last + 1]):
        found = _COUNT_ROW.match(row)
        is_beside = found is not None and (is_beside or _tells_count(row))
        if found and is_beside:
            if (what := found["what"] or found["what_tap"]) in told:
                break  # of another run
            told[what] = row
    counts = (row for row in reversed(told.values()) if _tells_count(row) or not _NONE.search(row))
    return [*counts] or [rows[last]]


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
    """Whether the beginning of an output names an error on a line, or its end counts failed tests.

    Not where tests were counted behind it and none failed: what they expect they print too.
    """
    is_named = _names_trouble(text[:_SCANNED_CHARS])
    if not is_named and not counts_failures(text[-_END_CHARS:]):
        return False
    if is_named and _FAILED_PART.search(scanned(text)):
        return True
    rows = _rows_at_end(text)
    behind = [*takewhile(lambda row: not _tells_count(row), reversed(rows))]
    beside = takewhile(_tells_count, reversed(rows[: len(rows) - len(behind)]))
    counted = "\n".join((*beside, *_counted(rows)))
    if counts_failures(counted):
        return is_named or "pass" in counted  # else nobody knows whether tests were run
    return is_named and (not counted or _names_trouble("\n".join(behind)))


def _names_trouble(text: str) -> bool:
    return any(map(_TROUBLE.search, lines_with(text, _TROUBLE_SIGNS)))
