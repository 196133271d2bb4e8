"""Which one-line changes of the product no test notices.

    nice -n 19 python benchmarks/mutants.py [--seed 1] [--minutes 10] [--only archive/snippets]

A fixed-seed sample of small changes (a comparison turned, a number moved, `and` for `or`, a
`return` of nothing) is made one at a time in a copy of the tree. For each, the tests that concern
its file run until one fails. What is printed are the changes that all of them pass. A survivor is
a missing test, a constant that decides nothing, or a change that means the same.
"""

import argparse
import ast
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
LIBRARY = Path("compaction", "context_compaction")
MOST_SECONDS = 120  # of one run of tests: a change that makes an endless loop is noticed

# The tests that concern a folder, quickest and nearest first; those marked slow are left out.
_TESTS = {
    "pipeline": ("pipeline", "policies"),
    "layers": ("layers", "pipeline", "policies"),
    "messages": ("messages", "pipeline"),
    "summarizers/instructions": ("messages", "summarizers", "policies"),
    "archive": ("archive",),
}
CONCERNS: dict[str, tuple[str, ...]] = {
    str(path.relative_to(ROOT / LIBRARY).with_suffix("")): tests
    for folder, tests in _TESTS.items()
    for path in sorted((ROOT / LIBRARY / folder).rglob("[a-z]*.py"))
}

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: in `file`, the bytes from `start` to `stop` become `new`."""

    file: str
    line: int
    start: int
    stop: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}.py:{self.line}: {self.old} -> {self.new}"


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every change that is made to one file of the library."""
    source = (ROOT / LIBRARY / f"{file}.py").read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    for node in ast.walk(ast.parse(source)):
        change = _operator(node) or _value(node)
        if change is None:
            continue
        first, last, old, new = change
        start, stop = place(first)[0 if first is last else 1], place(last)[first is last]
        old = old or source[start:stop].decode()
        at = source.find(old.encode(), start, stop)
        if at >= 0:
            new = new.replace("{}", old)
            yield Mutant(file, first.lineno, at, at + len(old.encode()), old, new)


Change: TypeAlias = tuple[ast.expr, ast.expr, str, str]
"""Between which two expressions what becomes what; all of one that is given twice is `{}`."""


def _operator(node: ast.AST) -> Change | None:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return (left, right, *_COMPARED[type(op)])
        case ast.BoolOp(op=ast.And(), values=[first, second, *_]):
            return first, second, "and", "or"
        case ast.BoolOp(op=ast.Or(), values=[first, second, *_]):
            return first, second, "or", "and"
        case _:
            return None


def _value(node: ast.AST) -> Change | None:
    match node:
        case ast.Constant(value=bool() as value):
            return node, node, "", str(not value)
        case ast.Constant(value=int() | float() as value):
            return node, node, "", str(value + 1) if value in (0, 1) else str(value * 2)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return value, value, "", "(None and ({}))"
        case _:
            return None


def survives(mutant: Mutant, tree: Path) -> bool:
    """Whether every test that concerns the changed file passes."""
    path = tree / LIBRARY / f"{mutant.file}.py"
    source = path.read_bytes()
    path.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.stop :])
    tests = [f"tests/compaction/{folder}" for folder in CONCERNS[mutant.file]]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *tests]
    paths = os.pathsep.join([str(tree / "compaction"), str(tree / "server")])
    try:
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_bytes(source)
    return done.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU")
    parser.add_argument("--only", help="one file, as CONCERNS names it")
    told = parser.parse_args()
    files = [told.only] if told.only else list(CONCERNS)
    every = [mutant for file in files for mutant in mutants_of(file)]
    random.Random(told.seed).shuffle(every)
    tried = lived = 0
    with TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in ("compaction", "server", "tests", "examples", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, tree / part)
        for mutant in every:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            if used.ru_utime + used.ru_stime > told.minutes * 60:
                break
            tried += 1
            if survives(mutant, tree):
                lived += 1
                print(f"lives: {mutant}", flush=True)
    print(f"seed {told.seed}: {tried} of {len(every)} tried, {lived} lived")


if __name__ == "__main__":
    main()
