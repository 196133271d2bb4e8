"""A small invented project, and two tools with which the example agents read it."""

from collections.abc import Mapping
from typing import Any

MODULES = (
    "basket",
    "billing",
    "catalogue",
    "checkout",
    "customer",
    "delivery",
    "discount",
    "invoice",
    "refund",
    "shipping",
    "stock",
    "tax",
)
TASK = (
    "Read every module of this project, then tell me which one has the highest RETRY_LIMIT. "
    "Never change a file."
)
FOLLOW_UP = "In which ticket was step 7 of the basket agreed? Quote the line."


def _source(number: int, module: str) -> str:
    """Return the text of one module: distinct lines, about 4,000 characters."""
    lines = [f'"""Everything about the {module}."""', "", f"RETRY_LIMIT = {number * 5 % 8 + 2}", ""]
    ticket = 1_000 * number + 100
    for step in range(24):
        lines += [
            f"def {module}_step_{step}(order):",
            f'    """Step {step} of the {module}, as agreed in ticket {ticket + step}."""',
            f"    return order.apply({module!r}, step={step}, weight={(step * 37 + number) % 91})",
            "",
        ]
    return "\n".join(lines)


FILES: Mapping[str, str] = {
    f"src/{module}.py": _source(number, module) for number, module in enumerate(MODULES)
}

# Name, description and input schema. Each loop converts them to the format of its provider.
TOOLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("list_files", "List the project's files.", {"type": "object", "properties": {}}),
    (
        "read_file",
        "Read one file.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    ),
)
TOOL_NAMES = frozenset(name for name, _, _ in TOOLS)


def run_tool(name: str, arguments: Mapping[str, Any]) -> str:
    """Run one of `TOOLS` and return its result, or an error text for the model."""
    if name == "list_files":
        return "\n".join(FILES)
    path = str(arguments.get("path"))
    return FILES.get(path) or f"There is no file {path!r}. list_files names those there are."
