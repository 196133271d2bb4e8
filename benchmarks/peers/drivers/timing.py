"""How each peer is timed, in its own environment: nothing of ours is imported here."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROUNDS = 5


def time_calls(prepare: Callable[[list[Any]], Any], work: Callable[[Any], Sequence[Any]]) -> None:
    """Print, as JSON, what `work` takes of a list: cold, again, and grown by a turn each time.

    Args:
        prepare: Makes of a list of OpenAI messages what the peer takes, for each call anew, since
            some change what they are given; not timed.
        work: Gives the messages that go to the model.
    """
    messages: list[Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    turns: list[list[Any]] = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    cold, left = _cpu_ms(prepare, work, messages)
    again = [_cpu_ms(prepare, work, messages)[0] for _ in range(ROUNDS)]
    grown: list[float] = []
    for turn in turns:
        messages = [*messages, *turn]
        grown.append(_cpu_ms(prepare, work, messages)[0])
    print(json.dumps({"cold": cold, "again": again, "grown": grown, "left": left}))


def _cpu_ms(
    prepare: Callable[[list[Any]], Any], work: Callable[[Any], Sequence[Any]], messages: list[Any]
) -> tuple[float, int]:
    prepared = prepare(json.loads(json.dumps(messages)))
    before = time.process_time()
    left = work(prepared)
    return (time.process_time() - before) * 1e3, len(left)
