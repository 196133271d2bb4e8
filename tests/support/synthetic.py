"""A generated session of a coding agent, in any size, for benchmarks and long tests.

Sizes follow real sessions: results are log-normal with a median near 2 KB and a maximum of 120 KB,
slightly less than half of them are lists of parts, some calls run in parallel, and a few contain
images. The text resembles code, logs and prose. Equal arguments give equal bytes.
"""

import json
import random
from collections.abc import Callable
from typing import Any

from .script import TINY_PNG

_MEDIAN_CHARS = 2_000
_SIGMA = 1.3
_MAX_CHARS = 120_000
_LIST_SHARE = 0.45
_CHARS_PER_TOKEN = 4  # nominal, not the count of a tokenizer

_WORDS = (
    "account", "adapter", "archive", "batch", "border", "branch", "buffer", "cache", "channel",
    "client", "cluster", "column", "commit", "config", "context", "cursor", "default", "digest",
    "document", "driver", "editor", "element", "entry", "error", "event", "factory", "field",
    "filter", "folder", "format", "frame", "handler", "header", "helper", "index", "input",
    "issue", "kernel", "layer", "length", "letter", "limit", "linker", "loader", "logger",
    "marker", "memory", "message", "method", "module", "number", "object", "offset", "option",
    "output", "packet", "parser", "pattern", "pointer", "policy", "prefix", "process", "profile",
    "prompt", "query", "queue", "reader", "record", "region", "render", "report", "request",
    "result", "return", "router", "schema", "screen", "script", "sector", "server", "session",
    "signal", "socket", "source", "stream", "string", "switch", "symbol", "system", "target",
    "thread", "ticket", "token", "trigger", "update", "vector", "version", "window",
)  # fmt: skip
_TOPICS = ("parser", "router", "session", "archive", "exporter", "validator", "cache")

Json = dict[str, Any]


def synthetic_session(tokens: int, seed: int) -> list[Json]:
    """Return Anthropic messages of about `tokens` tokens (4 characters each) and a last response.

    Every call has a result. Results, thinking and images are where the API expects them.
    """
    dice = random.Random(seed)
    messages: list[Json] = []
    rest_chars = tokens * _CHARS_PER_TOKEN
    turn = 0
    while rest_chars > 0:
        new = synthetic_turn(dice, turn)
        messages += new
        rest_chars -= sum(_chars(message) for message in new)
        turn += 1
    return messages


def synthetic_turn(dice: random.Random, turn: int) -> list[Json]:
    """Return the messages of one request: the request, calls with results, and a response."""
    topic = dice.choice(_TOPICS)
    request = (
        f"Task {turn}: {_sentence(dice)} It concerns the {topic}. Do not touch the public API."
    )
    messages: list[Json] = [{"role": "user", "content": request}]
    for step in range(dice.randint(2, 9)):
        calls = [
            _call(dice, f"toolu_{turn:05}_{step}_{place}", topic)
            for place in range(dice.choice((1, 1, 1, 2, 3)))
        ]
        blocks = [*_thinking(dice, f"{turn}-{step}"), {"type": "text", "text": _sentence(dice)}]
        results = [_result(dice, call) for call in calls]
        messages += [
            {"role": "assistant", "content": [*blocks, *calls]},
            {"role": "user", "content": results},
        ]
    answer = {"type": "text", "text": f"Done with the {topic}: {_sentence(dice)}"}
    return [*messages, {"role": "assistant", "content": [answer]}]


def _thinking(dice: random.Random, place: str) -> list[Json]:
    if dice.random() > 0.15:
        return []
    thought = " ".join(_sentence(dice) for _ in range(dice.randint(1, 6)))
    signature = f"EqQB{dice.getrandbits(512):0128x}{place}"
    return [{"type": "thinking", "thinking": thought, "signature": signature}]


def _call(dice: random.Random, id_: str, topic: str) -> Json:
    path = f"src/{topic}/{dice.choice(_WORDS)}.py"
    name, arguments = dice.choice((
        ("Read", {"file_path": path}),
        ("Read", {"file_path": path, "offset": dice.randint(1, 400), "limit": 200}),
        ("Edit", {"file_path": path, "old_string": _code(dice, 99), "new_string": _code(dice, 99)}),
        ("Write", {"file_path": path, "content": _code(dice, dice.randint(200, 4_000))}),
        ("Bash", {"command": f"pytest tests/{topic} -q", "description": "Run the tests"}),
        ("Grep", {"pattern": dice.choice(_WORDS), "path": f"src/{topic}"}),
    ))  # fmt: skip
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def _result(dice: random.Random, call: Json) -> Json:
    size_chars = min(_MAX_CHARS, int(dice.lognormvariate(0, _SIGMA) * _MEDIAN_CHARS) + 20)
    make = {"Read": _code, "Bash": _log, "Grep": _log}.get(call["name"], _prose)
    text = make(dice, size_chars)
    content: str | list[Json] = text
    if dice.random() < _LIST_SHARE:
        content = [{"type": "text", "text": text}]
        if dice.random() < 0.05:
            source = {"type": "base64", "media_type": "image/png", "data": TINY_PNG}
            content.append({"type": "image", "source": source})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
    return {**result, "is_error": True} if dice.random() < 0.04 else result


def _until(size_chars: int, line: Callable[[int], str]) -> str:
    lines: list[str] = []
    chars = 0
    while chars < size_chars:
        lines.append(line(len(lines) + 1))
        chars += len(lines[-1]) + 1
    return "\n".join(lines)


def _code(dice: random.Random, size_chars: int) -> str:
    def line(number: int) -> str:
        first, second, third = dice.choice(_WORDS), dice.choice(_WORDS), dice.choice(_WORDS)
        return dice.choice((
            f"def {first}_{second}({third}: int) -> str:",
            f"    {first} = self._{second}.get({third!r}, {dice.randint(0, 9_999)})",
            f"    if {first}.{second} is None:  # {third}",
            f"        raise ValueError(f'{first} {second}: {{{third}}}')",
            "",
        ))  # fmt: skip

    return _until(size_chars, line)


def _log(dice: random.Random, size_chars: int) -> str:
    def line(number: int) -> str:
        level = dice.choice(("INFO", "INFO", "INFO", "WARNING", "ERROR"))
        where, what = dice.choice(_WORDS), dice.choice(_WORDS)
        return (
            f"2026-01-{number % 28 + 1:02}T10:{number % 60:02}:07Z {level} {where}.{what} "
            f"id={dice.getrandbits(48):012x} src/{where}/{what}.py:{dice.randint(1, 900)}"
        )

    return _until(size_chars, line)


def _prose(dice: random.Random, size_chars: int) -> str:
    return _until(size_chars, lambda number: _sentence(dice))


def _sentence(dice: random.Random) -> str:
    words = [dice.choice(_WORDS) for _ in range(dice.randint(6, 14))]
    return " ".join(words).capitalize() + "."


def _chars(message: Json) -> int:
    content = message["content"]
    return len(content) if isinstance(content, str) else len(json.dumps(content))
