"""The public interface of the library: every name loads, and importing it loads nothing slow."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import context_compaction
import mcp_server_compaction
import pytest

from tests.support.environment import unmeasured

SLOW_MODULES = ["aiofiles", "anthropic", "anyio", "mcp", "pydantic", "sqlite3", "tiktoken"]

IMPORT = """
import json, sys
import context_compaction
print(json.dumps({"modules": sorted(sys.modules)}))
"""

# These files of the server still import modules of the library that are not public.
EXCEPTIONS = {
    "hosts/importing.py",
    "hosts/session_files.py",
    "viewer/markup.py",
}


def test_public_names_load() -> None:
    for name in context_compaction.__all__:
        assert getattr(context_compaction, name) is not None
        assert name in dir(context_compaction)


def test_public_errors_are_compaction_errors() -> None:
    errors = [name for name in context_compaction.__all__ if name.endswith("Error")]
    assert len(errors) > 10
    for name in errors:
        assert issubclass(getattr(context_compaction, name), context_compaction.CompactionError)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compakt'"):
        getattr(context_compaction, "compakt")  # noqa: B009 - pyright would report an attribute


def test_import_of_the_library_loads_no_slow_module() -> None:
    process = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env=unmeasured(),
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    assert set(json.loads(process.stdout)["modules"]).isdisjoint(SLOW_MODULES)


def test_server_imports_only_public_names() -> None:
    server = Path(mcp_server_compaction.__file__).parent
    importers = {
        path.relative_to(server).as_posix()
        for path in server.rglob("*.py")
        if any(_private_imports(path.read_text(encoding="utf-8")))
    }
    assert importers <= EXCEPTIONS


def _private_imports(source: str) -> Iterator[str]:
    """Yield the names that `source` imports from the library although they are not public."""
    public = {*context_compaction.__all__, "formats"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "context_compaction"
        ):
            if node.module == "context_compaction.system":  # what differs between systems
                continue
            is_public = node.module == "context_compaction"
            yield from (a.name for a in node.names if not is_public or a.name not in public)
