"""Edits that a command spells out: `sed -i 's/old/new/' FILE`, and Python that replaces text.

What is not understood for certain is not followed: the answer is None, and the caller has a doubt.
Nothing is run: of Python only assignments, texts and what strings do with them are worked out.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

_PART = re.compile(r"[ \t]*(?:/((?:\\.|[^/\\\n])+)/[ \t]*)?(s|d)")
_MOST_STARS = 3
_MOST_CHARS = 2_000_000
_PURE = frozenset({
    "replace", "index", "rindex", "find", "rfind", "count", "strip", "lstrip", "rstrip",
    "startswith", "endswith", "removeprefix", "removesuffix",
})  # fmt: skip
_MODULES = frozenset({"re", "os", "sys", "pathlib", "json", "io"})


@dataclass(frozen=True, slots=True)
class LineEdit:
    """On lines where `where` is found (all without it), `old` gives `new`; None drops the line."""

    where: re.Pattern[str] | None
    old: re.Pattern[str] | None
    new: str | None
    everywhere: bool = False


def sed_edits(script: str) -> tuple[LineEdit, ...] | None:
    """The edits of a script for sed in its basic syntax; None where it does anything else."""
    edits: list[LineEdit] = []
    at = 0
    while found := _PART.match(script, at):
        where = _pattern(found[1]) if found[1] else None
        if found[1] and where is None:
            return None
        at = found.end()
        if found[2] == "d":
            if where is None:
                return None
            edits.append(LineEdit(where, None, None))
        else:
            parts = _parts(script, at)
            if parts is None:
                return None
            old, new, flags, at = parts
            pattern, replacement = _pattern(old), _replacement(new)
            if pattern is None or replacement is None or flags not in ("", "g"):
                return None
            edits.append(LineEdit(where, pattern, replacement, flags == "g"))
        rest = re.match(r"[ \t]*(?:;|\n|\Z)[ \t]*", script[at:])
        if rest is None:
            return None
        at += rest.end()
    return tuple(edits) if edits and at == len(script) else None


def edited_rows(rows: Sequence[str], edits: Sequence[LineEdit]) -> tuple[list[str], int]:
    """Lines after `edits`, and how many times one of them did anything."""
    kept: list[str] = []
    done = 0
    for row in rows:
        text: str | None = row
        for edit in edits:
            if text is None or (edit.where and not edit.where.search(text)):
                continue
            if edit.old is None or edit.new is None:
                text, times = None, 1
            else:
                text, times = edit.old.subn(edit.new, text, count=0 if edit.everywhere else 1)
            done += times
        kept += [] if text is None else text.split("\n")
    return kept, done


def _parts(script: str, at: int) -> tuple[str, str, str, int] | None:
    """Pattern, replacement and flags of an `s` with its separator at `at`, and where it ends."""
    mark = script[at : at + 1]
    if not mark or mark in "\\\n" or mark.isalnum():
        return None
    texts: list[str] = []
    at += 1
    for _ in range(2):
        start = at
        while at < len(script) and script[at] != mark:
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            return None
        texts.append(
            script[start:at].replace("\\" + mark, mark) if mark != "/" else script[start:at]
        )
        at += 1
    stop = next((n for n in range(at, len(script)) if not script[n].isalnum()), len(script))
    return texts[0], texts[1], script[at:stop], stop


_ATOM = re.compile(
    r"(?P<open>\\\()|(?P<close>\\\)(?!\*))|\\(?P<plain>[^\w\s+?|{}<>()])|(?P<set>\[\^?\]?[^\]\[\\]*\])"
    r"|(?P<star>\*)|(?P<start>\A\^)|(?P<end>\$\Z)|(?P<dot>\.)|(?P<char>[^\\\[])"
)


def _pattern(basic: str) -> re.Pattern[str] | None:
    """A basic expression of POSIX as one of Python; None where it is more than a simple one."""
    out: list[str] = []
    at = 0
    while atom := _ATOM.match(basic, at):
        at = atom.end()
        is_first = not out or out[-1] in ("(", "^")
        match atom.lastgroup:
            case "open" | "close":
                out.append("(" if atom["open"] else ")")
            case "star":
                out.append("\\*" if is_first else "*")
            case "end":
                out.append("\\Z")
            case "plain" | "char":
                out.append(re.escape(atom["plain"] or atom["char"]))
            case _:
                out.append(atom[0])
    # A group that is repeated, and many repetitions, take too long on some texts.
    if at < len(basic) or not out or out.count("*") > _MOST_STARS or "**" in "".join(out):
        return None
    try:
        return re.compile("".join(out))
    except re.error:
        return None


def _replacement(text: str) -> str | None:
    """A replacement of sed as one of Python."""
    out: list[str] = []
    at = 0
    while at < len(text):
        char, following = text[at], text[at + 1 : at + 2]
        at += 2 if char == "\\" else 1
        if char == "&":
            out.append("\\g<0>")
        elif char != "\\":
            out.append(char)
        elif following.isdigit():
            out.append(f"\\g<{following}>")
        elif following == "n":
            out.append("\n")
        elif following and not following.isalnum():
            out.append("\\\\" if following == "\\" else following)
        else:
            return None
    return "".join(out)


class _Unknown(Exception):  # noqa: N818 - no error: it ends what is worked out
    """Something that is not followed."""


@dataclass(frozen=True, slots=True)
class _Path:
    name: str


@dataclass(frozen=True, slots=True)
class _Opened:
    name: str
    mode: str


@dataclass(slots=True)
class _Run:
    """What the names of a script stand for, and what it has written."""

    text_of: Callable[[str], str | None]
    names: dict[str, object] = field(default_factory=dict[str, object])
    written: dict[str, str] = field(default_factory=dict[str, str])


def written_by_python(code: str, text_of: Callable[[str], str | None]) -> Mapping[str, str] | None:
    """The texts that `code` writes into files, by path; None where that is not certain.

    Args:
        code: A Python script.
        text_of: The present text of a file; None where it is not known.
    """
    try:
        tree = ast.parse(code)
        run = _Run(text_of)
        for statement in tree.body:
            _do(run, statement)
    except (_Unknown, SyntaxError, ValueError, TypeError, IndexError, RecursionError, MemoryError):
        return None
    return run.written


def _do(run: _Run, statement: ast.stmt) -> None:
    match statement:
        case ast.Import(names=names) if all(name.name in _MODULES for name in names):
            pass
        case ast.ImportFrom(module="pathlib", names=[ast.alias(name="Path", asname=None)]):
            pass
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            run.names[name] = _value(run, value)
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
            run.names[name] = _sum(run.names.get(name), _value(run, value))
        case ast.Assert(test=test):
            if _value(run, test) is not True:
                raise _Unknown
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=args)):
            # What it prints may be anything that changes nothing.
            if any(isinstance(n, ast.Call) for arg in args for n in ast.walk(arg)):
                raise _Unknown
        case ast.Expr(value=value):
            _value(run, value)
        case _:
            raise _Unknown


def _value(run: _Run, node: ast.expr) -> object:
    match node:
        case ast.Constant(value=str() | int() | None as value):
            return value
        case ast.Name(id=name) if name in run.names:
            return run.names[name]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            one, other = _value(run, left), _value(run, right)
            return _sum(one, other if isinstance(op, ast.Add) else -_whole(other))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_whole(_value(run, operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(_value(run, left), op, _value(run, right))
        case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
            text = _value(run, inner)
            start = None if lower is None else _whole(_value(run, lower))
            stop = None if upper is None else _whole(_value(run, upper))
            if isinstance(text, str):
                return text[start:stop]
        case ast.Call():
            return _called(run, node)
        case _:
            pass
    raise _Unknown


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise _Unknown
    return value


def _sum(one: object, other: object) -> object:
    if isinstance(one, str) and isinstance(other, str) and len(one) + len(other) < _MOST_CHARS:
        return one + other
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    raise _Unknown


def _compared(one: object, op: ast.cmpop, other: object) -> bool:
    match op:
        case ast.Eq():
            return one == other
        case ast.In() if isinstance(one, str) and isinstance(other, str):
            return one in other
        case ast.NotIn() if isinstance(one, str) and isinstance(other, str):
            return one not in other
        case ast.Gt() if isinstance(one, int) and isinstance(other, int):
            return one > other
        case _:
            raise _Unknown


def _called(run: _Run, call: ast.Call) -> object:
    given = [_value(run, arg) for arg in call.args]
    options = {word.arg: _value(run, word.value) for word in call.keywords}
    if set(options) - {"encoding", "newline"} or options.get("newline", "") != "":
        raise _Unknown
    match call.func:
        case ast.Name(id="len") if len(given) == 1 and isinstance(given[0], str):
            return len(given[0])
        case ast.Name(id="open") if given and isinstance(given[0], str | _Path):
            name = given[0] if isinstance(given[0], str) else given[0].name
            return _Opened(name, str(given[1]) if len(given) > 1 else "r")
        case ast.Name(id="Path") | ast.Attribute(value=ast.Name(id="pathlib"), attr="Path"):
            if len(given) == 1 and isinstance(given[0], str):
                return _Path(given[0])
        case ast.Attribute(value=owner, attr=name):
            return _method(run, _value(run, owner), name, given)
        case _:
            pass
    raise _Unknown


def _method(run: _Run, owner: object, name: str, given: Sequence[object]) -> object:
    match owner, name:
        case (_Path(path), "read_text") | (_Opened(path, "r" | "rt"), "read") if not given:
            text = run.written.get(path, run.text_of(path))
            if text is None:
                raise _Unknown
            return text
        case (_Path(path), "write_text") | (_Opened(path, "w" | "wt"), "write") if given:
            if not isinstance(given[0], str):
                raise _Unknown
            run.written[path] = given[0]
            return len(given[0])
        case (str() as text, "replace") if all(isinstance(part, str) for part in given[:2]):
            old, new = cast("tuple[str, str]", tuple(given[:2]))
            # What isn't there was not meant to be missed: the text may be another one.
            if old not in text or text.count(old) * len(new) + len(text) > _MOST_CHARS:
                raise _Unknown
            return text.replace(old, new, *cast("list[int]", given[2:3]))
        case (str() as text, _) if name in _PURE and all(isinstance(g, str | int) for g in given):
            return cast("object", getattr(text, name)(*given))
        case _:
            raise _Unknown
