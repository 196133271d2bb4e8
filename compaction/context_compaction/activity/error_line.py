"""The line of a tool's output that names its error."""

import re

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


def error_line(text: str) -> str:
    """The most specific line of a failed result: the last that names an error.

    "Traceback" announces an error, and "ValueError: …" names it, in any language's spelling.
    """
    lines = [line for row in scanned(text).split("\n") if (line := row.strip())]
    announced = ""
    for line in reversed(lines):
        if ERROR.search(line) or _ERROR_NAME.match(line):
            if not line.startswith("Traceback ("):
                return line[:LINE_CHARS]
            announced = announced or line
    return (announced or (lines[-1] if lines else ""))[:LINE_CHARS]


def scanned(text: str) -> str:
    """`text`, or beginning and end of one too long to look through."""
    if len(text) <= _SCAN_CHARS:
        return text
    half = _SCAN_CHARS // 2
    return text[:half] + "\n" + text[-half:]
