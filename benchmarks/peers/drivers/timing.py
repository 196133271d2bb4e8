"""Time a peer in its own environment, which does not have this library."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROUNDS = 5


def time_calls(prepare: Callable[[list[Any]], Any], work: Callable[[Any], Sequence[Any]]) -> None:
    """Print the CPU milliseconds of `work` as JSON: first call, repeated calls, grown lists.

    Args:
        prepare: Converts OpenAI messages to the peer's input. It runs before each call, because
            some peers change their input, and is not timed.
        work: Returns the messages for the model.
    """
    messages: list[Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    turns: list[list[Any]] = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    cold, size = _cpu_ms(prepare, work, messages)
    again = [_cpu_ms(prepare, work, messages)[0] for _ in range(ROUNDS)]
    grown: list[float] = []
    for turn in turns:
        messages = [*messages, *turn]
        grown.append(_cpu_ms(prepare, work, messages)[0])
    print(json.dumps({"cold": cold, "again": again, "grown": grown, "left": size}))


def _cpu_ms(
    prepare: Callable[[list[Any]], Any], work: Callable[[Any], Sequence[Any]], messages: list[Any]
) -> tuple[float, int]:
    prepared = prepare(json.loads(json.dumps(messages)))
    before = time.process_time()
    output = work(prepared)
    return (time.process_time() - before) * 1e3, len(output)
