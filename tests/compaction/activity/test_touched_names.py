"""Which functions edits touched, told by name."""

from difflib import SequenceMatcher
from typing import Any

import pytest
from context_compaction.activity.file_changes import changes_of
from context_compaction.activity.file_replay import replay_files
from context_compaction.activity.tool_kinds import classify
from context_compaction.activity.touched_names import touched_in
from context_compaction.messages.model import tool_calls
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.small import answered, read, user

GO = """package engine

func New(c *Config) *Engine {
	return &Engine{c}
}

func (e *Engine) width(text string) int {
	total := 0
	return total
}

func (e *Engine) color() Ansi {
	return e.c.color
}
"""
PYTHON = """class Store(Base):
    def load(self, path):
        return open(path).read()

    def save(self, path, text):
        path.write_text(text)


def main():
    Store().load("a")
"""


def touched(calls: list[Json], path: str) -> str:
    messages = read([user("Go on."), *calls])
    made = [
        change
        for message in messages
        for call in tool_calls(message)
        for change in changes_of(call, classify(call))
    ]
    return touched_in(made, {path: path}, replay_files(messages, {}), 1_000).get(path, "")


def edited(path: str, old: str, new: str, call_id: str = "e") -> list[Json]:
    given: dict[str, Any] = {"file_path": path, "old_string": old, "new_string": new}
    return answered(call_id, "Edit", f"The file {path} has been updated.", **given)


def written(path: str, text: str) -> list[Json]:
    return answered("w", "Write", "File created.", file_path=path, content=text)


@pytest.mark.parametrize(
    ("path", "text", "old", "new", "names"),
    [
        ("a.go", GO, "total := 0", "total := 1", "width"),
        ("a.go", GO, "\treturn total\n}\n", "\treturn total\n}\n\nfunc pad() {\n}\n", "pad"),
        ("a.go", GO, "package engine\n", "package engine // of prompts\n", ""),
        ("a.py", PYTHON, "        path.write_text(text)", "        path.write(text)", "save"),
        ("a.py", PYTHON, '    Store().load("a")', '    Store().load("b")', "main"),
        ("a.md", "# How\n\nRun it.\n", "Run it.", "Run main().", ""),
    ],
)
def test_of_a_known_file_the_function_around_the_changed_lines_is_named(
    path: str, text: str, old: str, new: str, names: str
) -> None:
    calls = [*written(path, text), *edited(path, old, new)]
    assert touched(calls, path) == (f"{path} ({names})" if names else "")


def test_of_an_unknown_file_only_what_the_edit_itself_defines_is_named() -> None:
    old = "func (e *Engine) color() Ansi {\n\treturn e.c\n}\n\nfunc (e *Engine) same() {\n}\n"
    new = old.replace("e.c\n", "e.c.last()\n") + "\nfunc edge(s *Segment) Ansi {\n}\n"
    assert touched(edited("a.go", old, new), "a.go") == "a.go (color, edge)"
    assert touched(edited("a.go", "total := 0", "total := 1"), "a.go") == ""


def test_lines_that_are_there_twice_name_no_function() -> None:
    text = "def one():\n    x = 1\n\n\ndef two():\n    x = 2\n"
    calls = [*written("a.py", text), *edited("a.py", "    x = 2", "    x = 1")]
    assert touched(calls, "a.py") == ""


def test_a_function_touched_twice_is_named_once_and_a_file_without_name_not() -> None:
    calls = written("a.go", GO)
    calls += edited("a.go", "total := 0", "total := 1", "x")
    calls += edited("a.go", "return total", "return total + 1", "y")
    assert touched(calls, "a.go") == "a.go (width)"
    assert touched(calls, "b.go") == ""


def test_a_patch_names_the_functions_that_its_hunks_are_in() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n@@\n     def load(self, path):\n"
        "-        return open(path).read()\n+        return path.read_text()\n"
        "@@ def main():\n"
        '-    Store().load("a")\n+    Store().load("c")\n*** End Patch'
    )
    calls = [*written("a.py", PYTHON), *answered("p", "apply_patch", "Done!", input=patch)]
    assert touched(calls, "a.py") == "a.py (load, main)"


FORMS = {
    "a.py": ("def {}(x):", "    {} = x", ""),
    "a.go": ("func {}(x int) int {{", "\t{} := x", "}"),
    "a.ts": ("export function {}(x: number) {{", "  const {} = x;", "}"),
}


def code_of(path: str, functions: list[tuple[str, int]]) -> list[list[str]]:
    """The lines of each of `functions`: its name and which body it has."""
    head, line, close = FORMS[path]
    return [
        [head.format(name), *(line.format(f"{name}{kind}{n}") for n in range(3)), close, ""]
        for name, kind in functions
    ]


@given(
    path=st.sampled_from(sorted(FORMS)),
    done=st.lists(st.sampled_from(["same", "same", "change", "remove", "add"]), min_size=3),
    around=st.integers(3, 9),
    is_known=st.booleans(),
    is_one=st.booleans(),
)
def test_what_stands_unchanged_beside_a_change_is_not_named(
    path: str, done: list[str], around: int, is_known: bool, is_one: bool
) -> None:
    """As it does in the context of a patch, and between two places of one edit."""
    names = [f"fn{chr(97 + n % 26)}{n}" for n in range(len(done))]
    steps = list(zip(names, done, strict=True))
    old = code_of(path, [(name, 0) for name, what in steps if what != "add"])
    new = code_of(path, [(n, int(what == "change")) for n, what in steps if what != "remove"])
    before, after = ([line for part in code for line in part] for code in (old, new))
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    groups = list(matcher.get_grouped_opcodes(around))
    if is_one and groups:
        (_, a, _, c, _), (_, _, b, _, d) = groups[0][0], groups[-1][-1]
        groups = [[("replace", a, b, c, d)]]
    hunks = [
        "@@\n" + "".join(
            f"{mark}{line}\n"
            for tag, a, b, c, d in group
            for mark, lines in (
                [(" ", before[a:b])] if tag == "equal" else [("-", before[a:b]), ("+", after[c:d])]
            )
            for line in lines
        )
        for group in groups
    ]  # fmt: skip
    # A hunk that changes nothing says where the others are.
    first = code_of(path, [("top", 0)])[0]
    top = "@@\n" + "".join(f" {line}\n" for line in first)
    patch = f"*** Begin Patch\n*** Update File: {path}\n{top}{''.join(hunks)}*** End Patch"
    text = "\n".join([*first, *before])
    calls = written(path, f"{text}\n") if is_known else []
    calls += answered("p", "apply_patch", "Done!", input=patch)
    told = set(touched(calls, path).removeprefix(path).strip(" ()").split(", ")) - {""}
    true = {name for name, what in steps if what in ("change", "add")}
    true |= {f"removed {name}" for name, what in steps if what == "remove"}
    assert told == true if is_known else told <= true


def test_a_definition_that_an_edit_only_begins_with_is_not_removed() -> None:
    new = "def count(x):\n    return len(x)\n\n\ndef main("
    assert touched(edited("a.py", "def main(", new), "a.py") == "a.py (count)"
    assert touched(edited("a.go", "\nfunc old() {\n}\n", "\n"), "a.go") == "a.go (removed old)"
