"""Measure the gain of each heuristic of the summary engine, next to its lines of code.

Run: python benchmarks/ablation.py [READERS] [--targets 10000,4000] [--only NAME,NAME]

Each row switches one heuristic off and measures the answer key (answer_key.py) again. Figures are
changes of `window` in thousandths; below zero the heuristic helps. READERS is a folder with
`questions/` and `sessions/`; use sessions that were not used for tuning. A heuristic stays only if
a figure falls clearly without it.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.activity import files
from context_compaction.pipeline import solve
from context_compaction.summarizers.extractive import collect, items

from benchmarks.answer_key import READERS, ReaderSession, measure, sessions


@dataclass(frozen=True, slots=True)
class Patch:
    """Replacement of an attribute while a heuristic is off.

    Attributes:
        owner: Module or class.
        name: Name of the attribute.
        value: Replacement.
    """

    owner: Any
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A heuristic.

    Attributes:
        patches: Replacements that switch it off.
        functions: Functions that only this heuristic needs.
    """

    patches: Sequence[Patch]
    functions: Sequence[Callable[..., Any]] = ()


def without(*kinds: str) -> Sequence[Patch]:
    """Return a patch that gives items of `kinds` almost no weight, so that they are taken last."""
    return (Patch(items, "WEIGHTS", {**items.WEIGHTS, **dict.fromkeys(kinds, 0.01)}),)


def in_order(pieces: Sequence[str]) -> list[int]:
    """Return the order of the text."""
    return list(range(len(pieces)))


def find_nothing(*_: object, **__: object) -> Sequence[Any]:
    """Return an empty sequence."""
    return ()


def return_none(*_: object) -> None:
    """Return None."""


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the functions that `module` defines."""
    return [
        f
        for f in vars(module).values()
        if inspect.isfunction(f) and f.__module__ == module.__name__
    ]


def never(*_: object, **__: object) -> bool:
    """Return False."""
    return False


def line_groups_only(text: str) -> list[str]:
    """Cut `text` into groups of lines, without a look at its paragraphs."""
    return items.line_groups(text)


WALK: Any = vars(collect)["_Walk"]
REPLACE: Callable[..., Any] = WALK._replace_older
FILES: Any = vars(files)["_Walk"]


def keep_versions(*kinds: str) -> Sequence[Patch]:
    """Return a patch that keeps older versions if the first part of their key is in `kinds`."""

    def replace_older(walk: Any, key: Any, item: Any) -> None:
        if key[0] not in kinds:
            REPLACE(walk, key, item)

    return (Patch(WALK, "_replace_older", replace_older),)


def keep_results(walk: Any, key: Any, item: Any) -> None:
    """Replace older versions of everything except results."""
    if key[0] in ("text", "skill", "plan", "host's summary"):
        REPLACE(walk, key, item)


def without_line_of(part: str) -> Sequence[Patch]:
    """Return a patch that omits a part of the line of work: changed or committed."""

    def add_actions(walk: Any) -> None:
        turns: list[Any] = walk._turns
        for turn in turns:
            getattr(turn, part).clear()
        ACTIONS(walk)

    return (Patch(WALK, "add_actions", add_actions),)


ACTIONS: Callable[..., Any] = WALK.add_actions
HEURISTICS: Mapping[str, Heuristic] = {
    **{f"items: {kind}": Heuristic(without(kind)) for kind in items.WEIGHTS if kind != "replaced"},
    "rules of the user": Heuristic(without("rule", "preference"), (WALK.add_rules,)),
    "pasted text of a user": Heuristic((Patch(items, "LONG_CHARS", 10**9),)),
    "first and newest order do not age": Heuristic(
        (Patch(items, "orders_of", find_nothing),), (items.orders_of,)
    ),
    "error of a result first": Heuristic(
        (Patch(collect, "errors_first", items.ends_first),), (collect.errors_first,)
    ),
    "ends of a result first": Heuristic(
        (Patch(collect, "ends_first", in_order),), (items.ends_first,)
    ),
    "paragraphs": Heuristic((Patch(collect, "paragraphs", line_groups_only),), (items.paragraphs,)),
    "introducing line": Heuristic(
        (Patch(items, "_introduces", never),), (vars(items)["_introduces"],)
    ),
    "newest version only": Heuristic(
        (Patch(WALK, "_replace_older", return_none),),
        (REPLACE,),
    ),
    "newest version only: results": Heuristic((Patch(WALK, "_replace_older", keep_results),)),
    "newest version only: texts": Heuristic(keep_versions("text")),
    "newest version only: plans": Heuristic(keep_versions("plan")),
    **{
        f"line of work: {part}": Heuristic(without_line_of(part))
        for part in ("changed", "committed")
    },
    "known files": Heuristic((Patch(solve, "file_items", find_nothing),), functions_of(files)),
    "words of formatters": Heuristic((Patch(files, "_REWROTE", ()),)),
    "words of a failing shell": Heuristic((Patch(files, "_COMPLAINTS", ("\0",)),)),
    "host's notes of changed files": Heuristic(
        (Patch(FILES, "_take_note", return_none),), (FILES._take_note,)
    ),
    "documents weigh more than code": Heuristic((Patch(collect, "_DOCUMENT_NAMES", ()),)),
    "passes of a fill": Heuristic((Patch(solve, "_PASSES", 4),)),
}


def lines_of(functions: Sequence[Callable[..., Any]]) -> int:
    """Count the lines of `functions` without blank lines and docstrings."""
    total = 0
    for function in functions:
        source = inspect.getsource(function)
        text = inspect.getdoc(function) or ""
        blank = sum(not line.strip() for line in source.splitlines())
        total += len(source.splitlines()) - blank - len(text.splitlines())
    return total


@contextmanager
def switched_off(patches: Sequence[Patch]) -> Generator[None]:
    """Replace the attributes until the context ends."""
    with ExitStack() as stack:
        for change in patches:
            stack.enter_context(patch.object(change.owner, change.name, change.value))
        yield


def windows(chosen: Sequence[ReaderSession], targets: Sequence[int]) -> list[float]:
    """Return the mean window at each target."""
    return [measure(chosen, target, controls=False)["ours"].window for target in targets]


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", type=Path, nargs="?", default=READERS)
    parser.add_argument("--targets", default="10000,4000")
    parser.add_argument("--sessions", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    targets = [*map(int, options.targets.split(","))]
    chosen = list(sessions(filter(None, options.sessions.split(",")), options.readers))
    only: set[str] = {*filter(None, options.only.split(","))}
    complete = windows(chosen, targets)
    print("| switched off | lines | " + " | ".join(f"{target:,}" for target in targets) + " |")
    print("| --- " * (2 + len(targets)) + "|")
    print("| nothing | | " + " | ".join(f"{window:.4f}" for window in complete) + " |")
    for name, heuristic in HEURISTICS.items():
        if only and name not in only:
            continue
        with switched_off(heuristic.patches):
            changed = windows(chosen, targets)
        changes = (f"{1000 * (b - a):+.1f}" for a, b in zip(complete, changed, strict=True))
        print(
            f"| {name} | {lines_of(heuristic.functions) or ''} | " + " | ".join(changes) + " |",
            flush=True,
        )


if __name__ == "__main__":
    main()
