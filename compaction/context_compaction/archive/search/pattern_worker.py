"""The process that compiles and matches a caller's pattern; see `patterns.py`.

It is started as a file, so that it imports nothing of this package. It reads and writes lines of
JSON: first the pattern, to which it replies with an error or null. Then lists of texts, to which it
replies with the index of the first match in each text, or -1.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any


def main() -> None:
    """Serve one pattern until the input ends."""
    _limit_resources()
    # After the limits. Unlike `re`, it accepts the extended syntax that models write.
    import regex

    request: dict[str, Any] = json.loads(sys.stdin.readline())
    text: str = request["pattern"]
    pattern, problem = None, None
    try:
        # As in grep, ^ and $ match at each line.
        pattern = regex.compile(text, regex.MULTILINE)
    except regex.error as error:
        problem = str(error)
    except (MemoryError, RecursionError):
        problem = "it is too large"
    _reply(problem)
    plain: str | None = text if request["also_as_text"] else None
    for line in sys.stdin:
        _reply([_first(pattern, plain, text) for text in json.loads(line)])


def _first(pattern: Any, plain: str | None, text: str) -> int:
    index = -1 if plain is None else text.find(plain)
    if index >= 0 or pattern is None:
        return index
    for match in pattern.finditer(text):
        if match.end() > match.start() or plain is not None:
            return int(match.start())
    return -1


def _reply(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _limit_resources() -> None:
    """Limit memory and processor time, because the parent that would kill this may be killed."""
    try:
        import resource
    except ImportError:  # Windows, where only the time limit of the parent applies
        return
    os.nice(5)  # yields to work that somebody waits for
    for kind, most in (
        (resource.RLIMIT_AS, 1024 * 1024 * 1024),
        (resource.RLIMIT_CPU, 30),
        (resource.RLIMIT_CORE, 0),
    ):
        # macOS has no limit of the address space, and a stricter limit may already exist.
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
