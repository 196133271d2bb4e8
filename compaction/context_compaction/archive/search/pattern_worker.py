"""The process in which a caller's pattern is compiled and matched: see `patterns.py`.

Started as a file, so that it imports nothing of ours. It reads and writes lines of JSON: first
the pattern, which is answered with its error or null; then lists of texts, each answered
with where the first match of each text begins, -1 where there is none.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any


def main() -> None:
    """Serve one pattern until the input ends."""
    _limit_itself()
    import regex  # after the limits; it knows what `re` does not, and models write

    request: dict[str, Any] = json.loads(sys.stdin.readline())
    text: str = request["pattern"]
    try:
        # As grep has it: ^ and $ are those of each line.
        pattern = regex.compile(text, regex.MULTILINE)
    except regex.error as error:
        pattern = None
        _say(str(error))
    except (MemoryError, RecursionError):
        pattern = None
        _say("it is too large")
    else:
        _say(None)
    plain: str | None = text if request["also_as_text"] else None
    for line in sys.stdin:
        _say([_first(pattern, plain, found, request["skip_empty"]) for found in json.loads(line)])


def _first(pattern: Any, plain: str | None, text: str, skip_empty: bool) -> int:
    at = -1 if plain is None else text.find(plain)
    if at >= 0 or pattern is None:
        return at
    for match in pattern.finditer(text):
        if match.end() > match.start() or not skip_empty:
            return int(match.start())
    return -1


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _limit_itself() -> None:
    try:
        import resource
    except ImportError:  # Windows: there the parent's time limit has to do
        return
    os.nice(5)  # whoever waits for something else goes first
    # Beyond these the process ends, whatever its parent does, which may have been killed.
    for kind, most in (
        (resource.RLIMIT_AS, 1024 * 1024 * 1024),
        (resource.RLIMIT_CPU, 30),
        (resource.RLIMIT_CORE, 0),
    ):
        # macOS knows no limit of the address space, and a stricter one may stand already.
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    main()
