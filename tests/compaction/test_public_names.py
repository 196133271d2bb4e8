"""The library's public door: each name loads, and opening it loads nothing heavy."""

import json
import subprocess
import sys

import context_compaction
import pytest

from tests.support.environment import unmeasured

HEAVY = ["aiofiles", "anthropic", "anyio", "mcp", "pydantic", "sqlite3", "tiktoken", "zstandard"]

IMPORT = """
import json, sys
import context_compaction
print(json.dumps({"modules": sorted(sys.modules)}))
"""


@pytest.mark.parametrize("name", context_compaction.__all__)
def test_each_public_name_loads(name: str) -> None:
    assert getattr(context_compaction, name) is not None
    assert name in dir(context_compaction)


def test_every_public_error_is_a_compaction_error() -> None:
    errors = [name for name in context_compaction.__all__ if name.endswith("Error")]
    assert len(errors) > 10
    for name in errors:
        assert issubclass(getattr(context_compaction, name), context_compaction.CompactionError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compakt'"):
        getattr(context_compaction, "compakt")  # noqa: B009  # pyright sees that it is missing


def test_importing_the_library_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env=unmeasured(),
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    report = json.loads(done.stdout)
    assert set(report["modules"]).isdisjoint(HEAVY)
