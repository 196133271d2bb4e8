"""The import contracts hold, and each of them breaks where a wrong import is planted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def check_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run the checker over the packages in `tree`."""
    path = os.pathsep.join([str(tree / "compaction"), str(tree / "server")])
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        capture_output=True,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        encoding="utf-8",
        timeout=150,
        check=False,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the packages, to plant imports in."""
    for folder in ("compaction", "server"):
        ignored = shutil.ignore_patterns("__pycache__", "*.gz")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold(tree: Path) -> None:
    done = check_imports(tree)
    assert done.returncode == 0, done.stdout
    assert "7 kept, 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("pipeline/report", "import mcp_server_compaction.config", "The server stands above"),
        (
            "layers/persist",
            "from context_compaction.summarizers import SummaryInput",
            "imports point downwards",
        ),
        (
            "layers/dedupe",
            "from context_compaction.layers.repair import repair",
            "A layer knows no other",
        ),
        (
            "layers/cut_point",
            "from context_compaction.layers.base import LayerContext",
            "No circle",
        ),
        ("layers/microcompact", "import os", "a layer is a plain function"),
        (
            "policies",
            "from context_compaction.archive.archive import Archive",
            "the session know the archive",
        ),
        ("layers/insert_messages", "import anthropic", "knows no protocol, no provider"),
        ("summarizers/llm/writer", "import anthropic", "knows no protocol, no provider"),
    ],
)
def test_a_wrong_import_breaks_its_contract(
    tree: Path, module: str, planted: str, contract: str
) -> None:
    file = tree / "compaction" / "context_compaction" / f"{module}.py"
    with file.open("a", encoding="utf-8") as text:
        text.write(f"\n{planted}\n")
    done = check_imports(tree)
    assert done.returncode == 1
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    assert any(contract in line for line in broken), done.stdout


def test_a_new_file_of_the_library_must_take_its_place_in_the_map(tree: Path) -> None:
    package = tree / "compaction" / "context_compaction"
    (package / "homeless.py").write_text('"""Nowhere."""\n', encoding="utf-8")
    done = check_imports(tree)
    assert done.returncode == 1
    assert "homeless" in done.stdout
