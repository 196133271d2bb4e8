"""Where the locks of Linux and macOS are missing, as on Windows, the program says so and ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# None there makes an import raise what Python for Windows raises.
WITHOUT_LOCKS = "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None; "
PROGRAM = "from mcp_server_compaction.__main__ import run; run()"


def run_without_locks(
    code: str, *arguments: str, folder: Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS + code, *arguments],
        input=given,
        cwd=folder,
        env={"HOME": str(folder), "MCP_COMPACTION_ARCHIVE": str(folder / "archive")},
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=False,
    )


def test_a_command_is_refused_with_one_line_that_names_the_remedy(tmp_path: Path) -> None:
    done = run_without_locks(PROGRAM, "install", "claude-code", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "fcntl" in line
    assert "WSL" in line
    assert list(tmp_path.iterdir()) == []


def test_a_hook_leaves_the_host_as_it_is_and_logs_why(tmp_path: Path) -> None:
    payload = {
        "session_id": "s",
        "tool_name": "Bash",
        "tool_response": {"stdout": "a long line\n" * 5_000},
    }
    done = run_without_locks(
        PROGRAM, "hook", "PostToolUse", folder=tmp_path, given=json.dumps(payload)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "fcntl" in (tmp_path / "archive/hooks/log").read_text("utf-8")


def test_the_library_refuses_an_archive_with_an_error_of_its_own(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from context_compaction import open_archive\n"
        "from context_compaction.errors import ArchiveError\n"
        "try:\n    open_archive(Path('archive'))\n"
        "except ArchiveError as error:\n    print(error)"
    )
    done = run_without_locks(code, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "WSL" in done.stdout
