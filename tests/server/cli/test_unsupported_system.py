"""Without the file locks of Linux and macOS, as on Windows, the program exits with an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# With None in sys.modules, an import fails as on Windows.
WITHOUT_LOCKS = "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None; "
PROGRAM = "from mcp_server_compaction.__main__ import run; run()"


def run_without_locks(
    code: str, *arguments: str, folder: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS + code, *arguments],
        input=stdin,
        cwd=folder,
        env={"HOME": str(folder), "MCP_COMPACTION_ARCHIVE": str(folder / "archive")},
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=False,
    )


def test_command_exits_with_one_line_that_names_the_fix(tmp_path: Path) -> None:
    result = run_without_locks(PROGRAM, "install", "claude-code", folder=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "fcntl" in line
    assert "WSL" in line
    assert list(tmp_path.iterdir()) == []


def test_hook_writes_the_error_to_its_log_only(tmp_path: Path) -> None:
    payload = {
        "session_id": "s",
        "tool_name": "Bash",
        "tool_response": {"stdout": "a long line\n" * 5_000},
    }
    result = run_without_locks(
        PROGRAM, "hook", "PostToolUse", folder=tmp_path, stdin=json.dumps(payload)
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert "fcntl" in (tmp_path / "archive/hooks/log").read_text("utf-8")


def test_library_raises_archive_error_when_an_archive_is_opened(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from context_compaction import open_archive\n"
        "from context_compaction.errors import ArchiveError\n"
        "try:\n    open_archive(Path('archive'))\n"
        "except ArchiveError as error:\n    print(error)"
    )
    result = run_without_locks(code, folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "WSL" in result.stdout
