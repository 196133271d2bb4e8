"""The library's public door: which names it has, and that opening it costs next to nothing."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import context_compaction
import pytest

from tests.support.environment import unmeasured

MAX_IMPORT_SECONDS = 0.15
HEAVY = ["aiofiles", "anthropic", "anyio", "mcp", "pydantic", "sqlite3", "tiktoken", "zstandard"]

IMPORT = """
import json, sys, time
began = time.process_time()
import context_compaction
seconds = time.process_time() - began
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def test_the_public_names_are_these() -> None:
    assert context_compaction.__all__ == [
        "FORMATS",
        "POLICIES",
        "AnthropicModel",
        "Archive",
        "ArchiveBusyError",
        "ArchiveDamagedError",
        "ArchiveError",
        "ArchiveFullError",
        "Blob",
        "Boundary",
        "Budget",
        "CompactRequest",
        "CompactResult",
        "CompactionError",
        "CompactionStats",
        "Conversation",
        "DiskFile",
        "Edit",
        "Hit",
        "HookError",
        "InvalidMessageError",
        "LayerReport",
        "LocalArchive",
        "Message",
        "MessageCounter",
        "Messages",
        "ModelAnswer",
        "ModelPrompt",
        "ModelUsage",
        "NotFoundError",
        "PathNotAllowedError",
        "Piece",
        "Policy",
        "Prepared",
        "PromptTooLongError",
        "Query",
        "QueryError",
        "Recognised",
        "Roots",
        "SearchPage",
        "Settings",
        "SettingsError",
        "Splice",
        "SummaryError",
        "SummaryModel",
        "SummaryPrompt",
        "TokenReport",
        "UnknownFormatError",
        "VocabularyError",
        "apply_splices",
        "compact",
        "convert",
        "counter_for",
        "detect",
        "make_budget",
        "make_splices",
        "open_archive",
        "parse",
        "read_conversation",
        "read_losses",
        "render",
        "roots_of",
    ]


@pytest.mark.parametrize("name", context_compaction.__all__)
def test_each_public_name_loads_from_where_type_checkers_see_it(name: str) -> None:
    source = Path(context_compaction.__file__).read_text(encoding="utf-8")
    seen = {
        alias.name: node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module = seen[name]
    assert module is not None
    assert getattr(context_compaction, name) is getattr(sys.modules[module], name)
    assert name in dir(context_compaction)


def test_every_public_error_is_a_compaction_error() -> None:
    errors = [name for name in context_compaction.__all__ if name.endswith("Error")]
    assert len(errors) > 10
    for name in errors:
        assert issubclass(getattr(context_compaction, name), context_compaction.CompactionError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compakt'"):
        getattr(context_compaction, "compakt")  # noqa: B009  # pyright sees that it is missing


def test_importing_the_library_is_cheap_and_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env=unmeasured(),
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=True,
    )
    report = json.loads(done.stdout)
    assert report["seconds"] < MAX_IMPORT_SECONDS
    assert set(report["modules"]).isdisjoint(HEAVY)
