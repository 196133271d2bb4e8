"""Every pattern of the product takes time in proportion to the text, however hostile that is.

All compiled patterns are collected from the modules and run on texts made of what they look for,
again and again, in the way in which the product runs them. Time is the processor's; a pattern is
given at most `CAP_SECONDS` of it, and no more of its texts once one has shown it to be slow.
"""

import importlib
import pkgutil
import re
import signal
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from time import process_time
from types import ModuleType
from typing import Any, cast

import context_compaction
import mcp_server_compaction
import pytest
import regex

CHARS = 8_000
GROWTH = 3
# A linear pattern takes `GROWTH` times as long for the larger text, a quadratic one its square.
MOST_GROWTH = 5.0
# Quadratic patterns take longer than this on the small text, a step being a nanosecond or more;
# few linear ones do. Processor time is told by four milliseconds in places.
LEAST_SECONDS = 0.012
CAP_SECONDS = 1.0
COMMON = ' \n\ta0A_-./"*<[`é中'


def sources() -> str:
    roots = [Path(package.__path__[0]) for package in (context_compaction, mcp_server_compaction)]
    return "\n".join(path.read_text() for root in roots for path in root.rglob("*.py"))


def modules() -> Iterator[ModuleType]:
    for package in (context_compaction, mcp_server_compaction):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith(("__main__", "pattern_worker")):
                yield importlib.import_module(info.name)


def patterns_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, re.Pattern | regex.Pattern):
        yield name, value
    elif isinstance(value, list | tuple | set | frozenset):
        for at, item in enumerate(cast("Iterable[Any]", value)):
            yield from patterns_in(f"{name}[{at}]", item)
    elif isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from patterns_in(f"{name}[{key!r}]", item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in value.__dataclass_fields__:
            yield from patterns_in(f"{name}.{field}", getattr(value, field, None))


def patterns() -> dict[str, Any]:
    """Each pattern once, under the name by which it is found first."""
    found: dict[int, tuple[str, Any]] = {}
    for module in modules():
        for name, value in vars(module).items():
            if not name.startswith("__"):
                place = f"{module.__name__.partition('.')[2]}.{name}"
                for pattern in patterns_in(place, value):
                    found.setdefault(id(pattern[1]), pattern)
    return dict(found.values())


SOURCES = sources()
ALL = patterns()


def is_anchored(name: str) -> bool:
    """Whether the product only asks if a text begins with the pattern, or is it."""
    own = re.escape(name.rpartition(".")[2])
    # Called, or handed on: `map(_PATTERN.match, lines)`.
    calls = r"match|fullmatch|search|finditer|findall|sub|subn|split"
    ways = set(re.findall(rf"(?<![\w]){own}\.({calls})[(,]", SOURCES))
    return bool(ways) and ways <= {"match", "fullmatch"}


def hostile_units(pattern: Any) -> list[str]:
    """Short texts to repeat: signs and words of the pattern, and both beside what is common."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
    words = sorted(set(re.findall("[A-Za-z]{2,}", source)), key=len)[:6]
    marks = list(dict.fromkeys(char for char in source if not char.isspace()))[:16]
    pairs = [one + other for one in (*words, *marks[:8]) for other in (" ", "a", "\n", ".", "0")]
    return list(dict.fromkeys([*COMMON, *marks, *words, *pairs, *(pair[::-1] for pair in pairs)]))


class TooSlowError(Exception):
    """A pattern has had `CAP_SECONDS`."""


@contextmanager
def capped() -> Generator[None]:
    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CAP_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def seconds_of(pattern: Any, unit: str, chars: int, *, anchored: bool) -> float:
    # What comes last is seldom what is looked for, so that all of it may be given back.
    text = (unit * (chars // len(unit) + 1))[:chars] + "\x01"
    subject = text if isinstance(pattern.pattern, str) else text.encode()
    began = process_time()
    if anchored:
        pattern.match(subject)
        pattern.fullmatch(subject)
    else:
        for _ in pattern.finditer(subject):
            pass
    return process_time() - began


def slow_units(pattern: Any, *, anchored: bool) -> Iterator[str]:
    for unit in hostile_units(pattern):
        try:
            with capped():
                # What is worse than quadratic would never end, and does not look at its signals.
                small = seconds_of(pattern, unit, CHARS // 16, anchored=anchored)
                if small < LEAST_SECONDS:
                    small = seconds_of(pattern, unit, CHARS, anchored=anchored)
                    if small < LEAST_SECONDS:
                        continue
                    large = seconds_of(pattern, unit, CHARS * GROWTH, anchored=anchored)
                    if large <= MOST_GROWTH * small < CAP_SECONDS:
                        continue
        except TooSlowError:
            pass
        yield unit


@pytest.mark.parametrize("name", ALL)
def test_a_pattern_takes_time_in_proportion_to_the_text(name: str) -> None:
    unit = next(slow_units(ALL[name], anchored=is_anchored(name)), None)
    assert unit is None, f"{ALL[name].pattern!r} is slow on {unit!r} again and again"


@pytest.mark.parametrize("hostile", [r"(a+)+$", "[ab]*c", r"\s+$", r"[\w.]+/"])
def test_a_pattern_that_is_worse_is_found(hostile: str) -> None:
    assert any(slow_units(re.compile(hostile), anchored=False))
