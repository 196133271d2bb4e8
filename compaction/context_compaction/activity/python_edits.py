"""What a Python script writes into files, worked out without running anything.

Followed are assignments, texts and what strings do with them, loops over what is spelled out. What
is not understood makes values unclear, and so the files into which they are written.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

_MOST_CHARS = 2_000_000
_MOST_TURNS = 200
_MOST_STEPS = 2_000  # loops within loops make more of few lines than anybody waits for
_PURE = frozenset({
    "replace", "index", "rindex", "find", "rfind", "count", "strip", "lstrip", "rstrip",
    "startswith", "endswith", "removeprefix", "removesuffix", "lower", "upper",
})  # fmt: skip
# Methods of a path, and functions, that change a file.
_PATH_WRITES = frozenset({
    "write_text", "write_bytes", "unlink", "rename", "touch", "rmdir", "symlink_to", "hardlink_to",
})  # fmt: skip
_MODULE_WRITES = frozenset({"shutil", "subprocess", "fileinput", "runpy"})
_OS_WRITES = frozenset({
    "remove", "unlink", "rename", "replace", "system", "popen", "rmdir", "removedirs", "truncate",
})  # fmt: skip
_ENDS = frozenset({"exit", "quit", "_exit", "SystemExit"})


class _Unknown(Exception):  # noqa: N818 - no error: it ends what is worked out
    """Something that is not followed."""


class _Endless(Exception):  # noqa: N818 - as above; nothing that the script does is followed then
    """More steps than are followed."""


class _Unclear:
    """The value of what is not followed."""


_UNCLEAR = _Unclear()


@dataclass(frozen=True, slots=True)
class _Path:
    name: str


@dataclass(frozen=True, slots=True)
class _Opened:
    name: str
    mode: str


@dataclass(slots=True)
class PythonWrites:
    """What a script writes.

    Attributes:
        texts: The texts of files, by path.
        unclear: Files that it changes in a way that is not followed.
        may_write: Names in it of which each may be a file that it changes, too.
        guessed: Those of `texts` that may be others, as the ends of files may be that it reads.
        unended: Those of which that is true of the end alone.
    """

    texts: dict[str, str] = field(default_factory=dict[str, str])
    unclear: set[str] = field(default_factory=set[str])
    may_write: set[str] = field(default_factory=set[str])
    guessed: set[str] = field(default_factory=set[str])
    unended: set[str] = field(default_factory=set[str])

    @property
    def names(self) -> set[str]:
        """All files that it may change."""
        return {*self.texts, *self.unclear, *self.may_write}


@dataclass(slots=True)
class _Run:
    """The values of the names of a script, and what it has written."""

    tree: ast.Module
    text_of: Callable[[str], str | None]
    names: dict[str, object] = field(default_factory=dict[str, object])
    functions: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    helpers: dict[str, ast.FunctionDef] = field(default_factory=dict[str, ast.FunctionDef])
    written: PythonWrites = field(default_factory=PythonWrites)
    steps: int = 0
    begun: set[str] = field(default_factory=set[str])  # files into which it has written some text


def written_by_python(
    code: str, texts_of: Callable[[str], Sequence[str]] = lambda _: ()
) -> PythonWrites | None:
    """What `code` writes into files, by path; None where nothing of that is certain.

    Args:
        code: A Python script, which has ended without an error.
        texts_of: The texts that a file may have at present, the likeliest first; none where that is
            not known. Several differ in whether their last line is ended.
    """
    read: dict[str, Sequence[str]] = {}

    def likeliest(path: str) -> str | None:
        read[path] = texts_of(path)
        return next(iter(read[path]), None)

    written = _written(code, likeliest)
    if written is None or all(len(texts) < 2 for texts in read.values()):
        return written
    other = _written(code, lambda path: next(reversed(texts_of(path)), None))
    other = other or PythonWrites()
    for path, text in written.texts.items():
        if path not in other.texts or other.texts[path].rstrip("\n") != text.rstrip("\n"):
            written.guessed.add(path)
        elif other.texts[path] != text:
            written.unended.add(path)
    written.unclear |= other.names - written.names
    return written


def _written(code: str, text_of: Callable[[str], str | None]) -> PythonWrites | None:
    try:
        tree = ast.parse(code)
        run = _Run(tree, text_of)
        for statement in tree.body:
            _do(run, statement)
    except (_Unknown, _Endless, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    written = run.written
    for path in written.unclear:
        written.texts.pop(path, None)
    return written


def _do(run: _Run, statement: ast.stmt) -> None:
    run.steps += 1
    if run.steps > _MOST_STEPS:
        raise _Endless
    try:
        _follow(run, statement)
    except (_Unknown, TypeError, IndexError, ValueError, RecursionError):
        _pass_over(run, statement)


def _follow(run: _Run, statement: ast.stmt) -> None:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            pass
        case ast.Assign(targets=[target], value=value):
            _bind(run, target, _value(run, value))
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
            run.names[name] = _sum(run.names.get(name, _UNCLEAR), _value(run, value))
        case ast.Assert(test=test):
            if _value(run, test) is False:
                raise _Unknown
        case ast.Expr(value=value):
            _evaluate(run, value)
        case _:
            _follow_block(run, statement)


def _follow_block(run: _Run, statement: ast.stmt) -> None:
    match statement:
        case ast.For(target=target, iter=items, orelse=[]):
            _loop(run, statement, target, _items(run, items))
        case ast.With(items=[ast.withitem(context_expr=made, optional_vars=ast.Name() as target)]):
            _bind(run, target, _value(run, made))
            for inner in statement.body:
                _do(run, inner)
        case ast.If(test=ast.Compare(ops=[ast.In()]) as test) if not _leaves(statement):
            # What isn't there was not meant to be missed: the text may be another one.
            if _value(run, test) is not True:
                raise _Unknown
            for inner in statement.body:
                _do(run, inner)
        case ast.FunctionDef(name=name) if _is_helper(statement):
            run.helpers[name] = statement
        case ast.FunctionDef(name=name):
            globals_ = [node for node in ast.walk(statement) if isinstance(node, ast.Global)]
            run.functions[name] = {shared for node in globals_ for shared in node.names}
            _pass_over(run, statement)
        case _:
            raise _Unknown


def _leaves(statement: ast.stmt) -> bool:
    """Whether what follows `statement` may not be reached."""
    ends = ast.Raise | ast.Return | ast.Break | ast.Continue
    return any(isinstance(node, ends) for node in ast.walk(statement))


def _evaluate(run: _Run, value: ast.expr) -> None:
    """Evaluate an expression whose value is not used."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "print"
    ):
        # What it prints changes nothing, unless to work that out does.
        if any(True for _ in _writes(value)) or _called_here(run, value) or value.keywords:
            raise _Unknown
        return
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        helper = run.helpers.get(value.func.id)
        if helper is not None:
            _help(run, helper, value)
            return
    _value(run, value)


def _is_helper(made: ast.FunctionDef) -> bool:
    """Whether a function only does something to what it is given: no result, no defaults."""
    args = made.args
    if made.decorator_list or args.kwonlyargs or args.kwarg or args.defaults or args.posonlyargs:
        return False
    leaves = ast.Return | ast.Global | ast.Nonlocal | ast.FunctionDef | ast.Yield | ast.YieldFrom
    return not any(isinstance(node, leaves) for one in made.body for node in ast.walk(one))


def _help(run: _Run, helper: ast.FunctionDef, call: ast.Call) -> None:
    """Follow a call of a function that the script itself defines."""
    names = [arg.arg for arg in helper.args.args]
    given = [_value(run, arg) for arg in call.args]
    rest = helper.args.vararg
    if call.keywords or len(given) < len(names) or (rest is None and len(given) > len(names)):
        raise _Unknown
    outer = run.names
    run.names = {**outer, **dict(zip(names, given, strict=False))}
    if rest is not None:
        run.names[rest.arg] = tuple(given[len(names) :])
    try:
        for inner in helper.body:
            _do(run, inner)
    finally:
        run.names = outer


def _items(run: _Run, items: ast.expr) -> tuple[object, ...]:
    """The values that a loop goes through."""
    if isinstance(items, ast.Tuple | ast.List):
        return tuple(_value(run, item) for item in items.elts)
    value = _value(run, items)
    if isinstance(value, tuple):
        return cast("tuple[object, ...]", value)
    raise _Unknown


def _loop(run: _Run, loop: ast.For, target: ast.expr, items: tuple[object, ...]) -> None:
    leaves = ast.Break | ast.Continue | ast.Return
    if len(items) > _MOST_TURNS or any(isinstance(node, leaves) for node in ast.walk(loop)):
        raise _Unknown
    for item in items:
        _bind(run, target, item)
        for inner in loop.body:
            _do(run, inner)


def _bind(run: _Run, target: ast.expr, value: object) -> None:
    """Give `target` its `value`."""
    match target:
        case ast.Name(id=name):
            run.names[name] = value
        case ast.Tuple(elts=parts):
            unclear: tuple[object, ...] = (_UNCLEAR,) * len(parts)
            values = cast("tuple[object, ...]", value) if isinstance(value, tuple) else unclear
            for part, one in zip(parts, values, strict=True):
                _bind(run, part, one)
        case _:
            raise _Unknown


def _pass_over(run: _Run, statement: ast.stmt) -> None:
    """What `statement` may have done that is not followed."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                run.names[name] = _UNCLEAR
            case ast.Name(id=name) if isinstance(opened := run.names.get(name), _Opened):
                run.written.unclear |= {opened.name} if opened.mode[:1] != "r" else set()
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _ENDS:
                # What follows may not have run.
                raise _Unknown
            case ast.Call():
                _pass_over_call(run, node)
            case ast.Global(names=names):
                run.names.update(dict.fromkeys(names, _UNCLEAR))
            case _:
                pass
    for target in _writes(statement):
        path = _path_of(run, target)
        if path is None:
            run.written.may_write |= _names_in(run.tree)
        else:
            run.written.unclear.add(path)


def _pass_over_call(run: _Run, call: ast.Call) -> None:
    """What a function of the script may have done."""
    for shared in _called_here(run, call):
        run.names[shared] = _UNCLEAR
    if isinstance(call.func, ast.Name) and call.func.id in run.helpers:
        _pass_over(run, run.helpers.pop(call.func.id))


def _called_here(run: _Run, node: ast.AST) -> set[str]:
    """Names that functions change which the script itself defines and `node` calls."""
    found: set[str] = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            found |= run.functions.get(call.func.id, set())
    return found


def _path_of(run: _Run, target: ast.expr | None) -> str | None:
    if target is None:
        return None
    try:
        value = _value(run, target)
    except (_Unknown, TypeError, IndexError, ValueError, RecursionError):
        return None
    return _name_of(value)


def _name_of(value: object) -> str | None:
    """The path of the file that `value` refers to."""
    if isinstance(value, _Path | _Opened):
        return value.name
    return value if isinstance(value, str) else None


def _writes(node: ast.AST) -> Iterator[ast.expr | None]:
    """The files that calls in `node` change, as it names them; None for one that it does not."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield from _changed_by_call(call)


def _changed_by_call(call: ast.Call) -> list[ast.expr] | list[None]:
    match call.func:
        case ast.Name(id="open"):
            is_write = _opens_to_write(call.args[1:], call.keywords)
            return (call.args[:1] or [None]) if is_write else []
        case ast.Name(id="exec" | "eval"):
            return [None]
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in _MODULE_WRITES or (
            module == "os" and name in _OS_WRITES
        ):
            return call.args or [None]
        case ast.Attribute(value=owner, attr="open"):
            return [owner] if _opens_to_write(call.args, call.keywords) else []
        case ast.Attribute(value=owner, attr=name) if name in _PATH_WRITES:
            return [owner]
        case ast.Attribute(value=owner, attr="replace") if len(call.args) == 1:
            return [owner, call.args[0]]
        case _:
            return []


def _opens_to_write(args: list[ast.expr], options: list[ast.keyword]) -> bool:
    mode = next((word.value for word in options if word.arg == "mode"), args[0] if args else None)
    if mode is None:
        return False
    is_text = isinstance(mode, ast.Constant) and isinstance(mode.value, str)
    return not is_text or bool(set(str(cast(ast.Constant, mode).value)) & set("wax+"))


def _names_in(tree: ast.Module) -> set[str]:
    """What may be names of files among the texts of a script."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and id(node) not in documents
        and "." in node.value and len(node.value) < 300 and not any(map(str.isspace, node.value))
    }  # fmt: skip


def _value(run: _Run, node: ast.expr) -> object:
    match node:
        case ast.Constant(value=str() | int() | None as value):
            return value
        case ast.Name(id=name) if name in run.names:
            return run.names[name]
        case ast.Tuple(elts=parts):
            return tuple(_value(run, part) for part in parts)
        case ast.BinOp(left=left, op=op, right=right):
            return _operated(_value(run, left), op, _value(run, right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negated(_value(run, operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(_value(run, left), op, _value(run, right))
        case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper, step=None)):
            bounds = [None if bound is None else _value(run, bound) for bound in (lower, upper)]
            return _part(_value(run, inner), *bounds)
        case ast.Call():
            return _called(run, node)
        case _:
            raise _Unknown


def _part(text: object, start: object, stop: object) -> object:
    if _UNCLEAR in (text, start, stop):
        return _UNCLEAR
    if isinstance(text, str) and isinstance(start, int | None) and isinstance(stop, int | None):
        return text[start:stop]
    raise _Unknown


def _operated(one: object, op: ast.operator, other: object) -> object:
    match op:
        case ast.Add():
            return _sum(one, other)
        case ast.Sub():
            return _sum(one, _negated(other))
        case ast.Div():
            return _below(one, other)
        case _:
            raise _Unknown


def _negated(value: object) -> object:
    if isinstance(value, int):
        return -value
    if value is _UNCLEAR:
        return _UNCLEAR
    raise _Unknown


def _below(folder: object, name: object) -> object:
    if isinstance(folder, _Path) and isinstance(name, str):
        return _Path(f"{folder.name}/{name}" if not name.startswith("/") else name)
    raise _Unknown


def _sum(one: object, other: object) -> object:
    if _UNCLEAR in (one, other):
        return _UNCLEAR
    if isinstance(one, str) and isinstance(other, str) and len(one) + len(other) < _MOST_CHARS:
        return one + other
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    raise _Unknown


def _compared(one: object, op: ast.cmpop, other: object) -> object:
    if _UNCLEAR in (one, other):
        return _UNCLEAR
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
            opened = _Opened(name, str(given[1]) if len(given) > 1 else "r")
            if opened.mode not in ("r", "rt"):
                run.written.unclear.add(name)  # until the text is written that it has then
                run.begun.discard(name)
            return opened
        case ast.Name(id="Path") | ast.Attribute(value=ast.Name(id="pathlib"), attr="Path"):
            if len(given) == 1 and isinstance(given[0], str):
                return _Path(given[0])
        case ast.Attribute(value=owner, attr=name):
            return _method(run, _value(run, owner), name, given)
        case _:
            pass
    raise _Unknown


def _method(run: _Run, owner: object, name: str, given: list[object]) -> object:
    match owner, name:
        case (_Path(path), "read_text") | (_Opened(path, "r" | "rt"), "read") if not given:
            if path in run.written.unclear:
                return _UNCLEAR
            text = run.written.texts.get(path, run.text_of(path))
            return _UNCLEAR if text is None else text
        case (_Path(path), "write_text") | (_Opened(path, "w" | "wt"), "write") if given:
            return _wrote(run, path, given[0], adds=isinstance(owner, _Opened))
        case (_Opened(), "close") if not given:
            return None
        case (str() as text, _) if name in _PURE:
            return _of_text(text, name, given)
        case (_Unclear(), _) if name in _PURE:
            return _UNCLEAR
        case _:
            raise _Unknown


def _of_text(text: str, name: str, given: list[object]) -> object:
    """The result of a method of a text."""
    if not all(isinstance(part, str | int) for part in given):
        return _UNCLEAR
    if name in ("replace", "index", "rindex") and str(given[0]) not in text:
        # What isn't there was not meant to be missed: the text may be another one.
        return _UNCLEAR
    if name == "replace" and text.count(str(given[0])) * len(str(given[1])) > _MOST_CHARS:
        raise _Unknown
    return cast("object", getattr(text, name)(*given))


def _wrote(run: _Run, path: str, text: object, *, adds: bool) -> object:
    """Write a text to a file; where it was opened, after what was written since."""
    comes_after = adds and path in run.begun
    run.begun.add(path)
    if comes_after or not isinstance(text, str):
        run.written.unclear.add(path)
        return _UNCLEAR
    run.written.unclear.discard(path)
    run.written.texts[path] = text
    return len(text)
