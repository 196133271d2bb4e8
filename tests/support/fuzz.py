"""Fuzz settings, the corpus of failed cases, and damaged parts of real transcripts.

CI runs 50 fixed cases of each of four kinds. `.ci/nightly` runs 5,000 new cases of each kind and
prints its seed. A failing case is written to `tests/data/fuzz_corpus`, in the smallest form that
hypothesis finds. Give its file a descriptive name; every later run replays it.
"""

import copy
import gzip
import json
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from .converted import PROVIDER_FORMATS, in_format
from .corpus import DATA, sample_transcripts
from .json_types import Json, is_list, is_object
from .mutations import MUTATIONS, apply

CASES = 5_000 if settings().max_examples > 1_000 else 50
FUZZ = settings(
    max_examples=CASES,
    deadline=None,
    phases=tuple(phase for phase in Phase if phase is not Phase.explain),
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
NIGHTLY_SECONDS = 7_200
CORPUS = DATA / "fuzz_corpus"

# Texts that are wrong in some field, for example as a number or as a path.
ODD_TEXTS = (
    "", "\0", "a\0b", "\ud800", "\u202e", "s", "(", "[" * 500, "x{99}", "$[" + "9" * 5_000 + "]",
    "../..", "9" * 5_000, "2026-13-99", "0001-01-01", "9999-12-31T23:59:59+00:00",
    "transcript://s/messages/0-9", "transcript://s/context", "transcript://s/messages/9-1", "o_00",
    "needle_7", "*", "a" * 500, "WzEsMWU0MDBd", "[]", "{}", "null", "-", "--", "=",
    '[{"role":"user","content":"x"}]',
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**63, 10**400, 1e308, 0.5, [], {}, [[]], [None], {"x": 1}, *ODD_TEXTS
)  # fmt: skip

_MAX_ROWS = 24
_MAX_CHARS = 1_500
# By format the row that a host writes around a message.
_WRAPPED: dict[str, Callable[[Json], Json]] = {
    "anthropic": lambda m: {"type": m["role"], "sessionId": "f", "cwd": "/srv", "message": m},
    "openai-responses": lambda m: {"type": "response_item", "payload": m},
    "pi": lambda m: {"type": "message", "message": m},
}


@contextmanager
def save_if_failing(kind: str, case: Any) -> Generator[None]:
    """Write `case` to the corpus if the code in this context raises."""
    try:
        yield
    except BaseException:
        (CORPUS / f"{kind}-found.json").write_text(json.dumps(case, indent=1), encoding="utf-8")
        raise


@cache
def corpus(kind: str) -> dict[str, Any]:
    """Return the saved cases of one kind by name."""
    return {
        path.stem.removeprefix(f"{kind}-"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(CORPUS.glob(f"{kind}-*.json"))
    }


@st.composite
def transcripts(draw: st.DrawFn) -> Json:
    """Return a part of a real transcript with damage.

    `rows` are messages in the format `format`; if it is None, they are rows of a host's file.
    """
    dice: random.Random = draw(st.randoms(use_true_random=False))
    rows, format = copy.deepcopy(_real(dice))
    if format is not None and dice.random() < 0.4:
        place, inner = dice.randrange(40), dice.randrange(6)
        rows = apply(dice.choice(MUTATIONS), rows, format, place, inner)
    for _ in range(dice.randrange(3)):
        if rows:
            damage(rows, dice)
    cut = [dice.random(), dice.choice(ODD_TEXTS)] if dice.random() < 0.2 else None
    return {"rows": rows, "format": format, "cut": cut}


def _real(dice: random.Random) -> tuple[list[Any], str | None]:
    if dice.random() < 0.15:
        rows = dice.choice(_claude_code_files())
        return _part(rows, dice), None
    transcript = dice.randrange(len(sample_transcripts()))
    format = dice.choice(("pi", *PROVIDER_FORMATS))
    rows = _part(_converted(transcript, format), dice)
    if format in _WRAPPED and dice.random() < 0.3:
        return [_WRAPPED[format](row) if "role" in row else row for row in rows], None
    return rows, format


def _part(rows: list[Any], dice: random.Random) -> list[Any]:
    start = dice.choice([0, dice.randrange(len(rows))])
    return rows[start : start + dice.randint(1, _MAX_ROWS)]


@cache
def _converted(number: int, format: str) -> list[Any]:
    return _truncated(in_format(sample_transcripts()[number], format)[:300])


@cache
def _claude_code_files() -> list[list[Any]]:
    paths = sorted((DATA / "claude-code").glob("*.jsonl.gz"))
    texts = [gzip.decompress(path.read_bytes()).decode() for path in paths]
    return [_truncated([json.loads(line) for line in text.splitlines() if line]) for text in texts]


def _truncated(value: Any) -> Any:
    """Return the value with truncated texts, so that a case is fast and readable."""
    if isinstance(value, str):
        return value[:_MAX_CHARS]
    if is_list(value):
        return [_truncated(item) for item in value]
    if is_object(value):
        return {key: _truncated(item) for key, item in value.items()}
    return value


def damage(rows: list[Any], dice: random.Random) -> None:
    """Replace, delete, repeat or extend one value in `rows`, at any depth."""
    holder: Any = rows
    key: Any = dice.randrange(len(rows))
    while dice.random() < 0.8 and (keys := _keys(holder[key])):
        holder, key = holder[key], dice.choice(keys)
    value = holder[key]
    match dice.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(value, str):
            at = dice.randrange(len(value) + 1)
            holder[key] = value[:at] + dice.choice(ODD_TEXTS) + value[at:]
        case 2 if is_list(holder):
            holder.insert(dice.randrange(len(holder) + 1), value)
        case 2:
            holder[dice.choice(["id", "type", "role", "content", "text", "x"])] = value
        case _:
            holder[key] = copy.deepcopy(dice.choice(ODD_VALUES))


def _keys(value: Any) -> list[Any]:
    if is_object(value):
        return list(value)
    return list(range(len(value))) if is_list(value) else []
