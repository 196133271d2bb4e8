"""Count the code: lines, files, functions, numbers and regular expressions of each folder.

Run: python benchmarks/size.py compaction/context_compaction server/mcp_server_compaction

A code line has a token that is neither comment nor docstring. Numbers are numeric constants at
module level.
"""

import ast
import io
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
KEYS = ("code", "files", "functions", "numbers", "regexes")


def is_number(node: ast.expr) -> bool:
    """Whether `node` is a number, or a calculation or tuple of numbers."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.Tuple(elts=[_, *_] as elements):
            return all(map(is_number, elements))
        case _:
            return False


def measure(path: Path) -> dict[str, int]:
    """Return the counts of one file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and body
        ):
            for statement in body:  # docstrings of functions and of attributes
                if (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                ):
                    lines.difference_update(
                        range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
                    )
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
    ]
    return {
        "code": len(lines),
        "files": 1,
        "functions": sum(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree)
        ),
        "numbers": sum(map(is_number, values)),
        "regexes": sum(
            isinstance(node, ast.Call) and ast.unparse(node.func) in ("re.compile", "regex.compile")
            for node in ast.walk(tree)
        ),
    }


def main(roots: list[str]) -> None:
    """Print the counts of each folder and the total."""
    rows: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for root in map(Path, roots):
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).parts
            group = f"{root.name}/{parts[0] if len(parts) > 1 else '.'}"
            for key, value in measure(path).items():
                rows[group][key] += value
                rows["total"][key] += value
    print("".join(f"{key:>11}" for key in KEYS), " folder")
    for group, row in sorted(rows.items(), key=lambda item: (item[0] == "total", item[0])):
        print("".join(f"{row[key]:11,}" for key in KEYS), "", group)


if __name__ == "__main__":
    main(sys.argv[1:] or ["compaction/context_compaction", "server/mcp_server_compaction"])
