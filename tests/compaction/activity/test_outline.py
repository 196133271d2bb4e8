"""What a file defines, line by line."""

import gc
import tracemalloc

import pytest
from context_compaction.activity.outline import functions, may_define, outline
from hypothesis import given
from hypothesis import strategies as st

PYTHON = '''
LIMIT = 3

class Price(Base):
    net: int
    def gross(self, rate: float = 1.19, *, rounded: bool = True) -> int:
        """In cents."""
        return 1

async def load(path): ...
'''
TYPESCRIPT = """
export interface Theme {
  name: string;
}
export class Loader<T> extends Base {
  private async load(path: string, times = 3): Promise<T> {
    if (times > 0) {
      return await this.read(path);
    }
  }
}
export const total = (items: Item[]) => items.length;
"""


def test_python_shows_signatures_and_fields_with_their_lines() -> None:
    assert outline(PYTHON, "price.py").splitlines() == [
        "2: LIMIT = 3",
        "4: class Price(Base)",
        "5:     net: int",
        "6:     def gross(self, rate: float=1.19, *, rounded: bool=True) -> int",
        "10: async def load(path)",
    ]


def test_other_languages_show_what_looks_like_a_definition_and_no_statement() -> None:
    assert outline(TYPESCRIPT, "loader.ts").splitlines() == [
        "2: export interface Theme",
        "3:   name: string;",
        "5: export class Loader<T> extends Base",
        "6:   private async load(path: string, times = 3): Promise<T>",
        "12: export const total = (items: Item[]) => items.length;",
    ]


@given(text=st.text(max_size=300), path=st.sampled_from(["a.py", "a.ts", "a.md", "a"]))
def test_every_line_names_a_line_of_the_text(text: str, path: str) -> None:
    for row in outline(text, path).splitlines():
        number, _, _ = row.partition(": ")
        assert 1 <= int(number) <= text.count("\n") + 1


_LINES = (
    "def {0}(a, b):", "    async def {0} (self) -> int:", "class {0}({1}):", "{0} = frozenset({1})",
    "    {0}: Final = {1}(2)", "export const {0} = (x) => x;", "  private {0}(path: string) {{",
    "func (r *{1}) {0}(n int) {{", "func {0}(n int) {{", "  public static int {0}(int n) {{",
    "    return {0}({1})", "    {1}.{0}()", "    {0}({1})", "@{0}({1})", "# {0}: {1}", "    pass",
)  # fmt: skip


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(_LINES), *[st.sampled_from(["get", "get_all", "Raise"])] * 2),
        max_size=8,
    ),
    path=st.sampled_from(["a.py", "a.ts", "a.go"]),
)
def test_whatever_a_text_defines_is_told_as_perhaps_defined(
    rows: list[tuple[str, str, str]], path: str
) -> None:
    text = "\n".join(line.format(*names) for line, *names in rows)
    for name, _, _ in functions(text, path):
        assert may_define(text, name)


@given(
    name=st.from_regex(r"[a-z]\w{0,12}(\.[a-z]\w{0,8})?", fullmatch=True),
    arguments=st.from_regex(r"[\w', .+]{0,20}", fullmatch=True),
    indent=st.sampled_from(["  ", "    ", "\t"]),
)
def test_a_call_is_no_definition(name: str, arguments: str, indent: str) -> None:
    text = f"export function App() {{\n{indent}{name}({arguments});\n}}\n"
    assert outline(text, "app.ts") == "1: export function App()"


@given(quoted=st.lists(st.sampled_from(["height: 100%;", "  margin: 0;", "p: q;", "class A {"])))
def test_what_stands_in_a_text_of_the_code_is_no_definition(quoted: list[str]) -> None:
    html = "\n".join(f"    {line}" for line in quoted)
    code = f"export function page(): string {{\n  return `\n{html}`;\n}}\nfunction f() {{\n}}\n"
    last = code[: code.index("function f")].count("\n") + 1
    told = f"1: export function page(): string\n{last}: function f()"
    assert outline(code, "page.ts") == told
    assert outline("import {\n  type A,\n} from './a';\n" + code, "page.ts").count("\n") == 1


def test_what_was_outlined_keeps_no_text_in_memory() -> None:
    def outlined(number: int) -> None:
        comments = f"// {number}: nothing is defined here\n" * 10_000
        assert outline(f"{comments}function last{number}() {{\n}}\n", "src/a.js")

    outlined(0)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(1, 20):
            outlined(number)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000  # of 7 MB of texts
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("a.go", "func (e *Engine) color() Ansi {\n\treturn e.c\n}\n", ["color"]),
        ("a.go", "func (c *Cache[K, V]) Get(key K) V {\n\treturn c.m[key]\n}\n", ["Get"]),
        ("a.go", "func Map[K comparable, V any](m map[K]V) []V {\n\treturn nil\n}\n", ["Map"]),
        ("a.rs", "pub(crate) fn split_args(line: &str) -> Vec<String> {\n}\n", ["split_args"]),
        ("a.rs", "impl A {\n    pub(in crate::b) async fn load(&self) {\n    }\n}\n", ["load"]),
    ],
)
def test_a_function_has_its_name_behind_what_brackets_stand_before_it(
    path: str, text: str, names: list[str]
) -> None:
    assert [name for name, _, _ in functions(text, path)] == names
    assert all(may_define(text, name) for name in names)
