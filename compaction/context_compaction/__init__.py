"""Make a conversation fit its context window: nothing is lost, always valid, no LLM needed.

The names in `__all__` are the public contract; everything else may change. `__init__.pyi` lists
them for type checkers and for this file. Each name is loaded when it is first used, so that
importing the library takes almost no time::

    async with open_archive(Path("archive")) as archive:
        result = await compact(messages, CompactRequest(context_window=200_000), archive=archive)
"""

import ast
from importlib import import_module
from pkgutil import get_data
from typing import Any

_STUB = ast.parse(get_data(__name__, "__init__.pyi") or b"")
_MODULE_OF = {
    alias.name: f"{__name__}.{node.module}"
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll] - the stub has it


def __getattr__(name: str) -> Any:
    """Load a public name from its module when it is first used."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
