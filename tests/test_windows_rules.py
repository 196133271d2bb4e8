"""Tests run again under the rules of Windows; see `support/windows_rules/sitecustomize.py`.

`pytest` with that folder in PYTHONPATH runs any other tests under the same rules.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environment import unmeasured

pytestmark = [pytest.mark.slow, pytest.mark.posix("Windows has its own rules")]

REPOSITORY = Path(__file__).parents[1]
RULES = REPOSITORY / "tests/support/windows_rules"

REFUSALS = """
import errno, os, sys
from pathlib import Path

def refused(action, code):
    try:
        action()
    except OSError as error:
        assert error.winerror == code, error
    else:
        raise AssertionError(code)

folder = Path(sys.argv[1])
(folder / "open").write_bytes(b"")
(folder / "other").write_bytes(b"")
with (folder / "open").open("rb") as file:
    refused((folder / "open").unlink, 32)
    refused(lambda: (folder / "open").rename(folder / "new"), 32)
    refused(lambda: (folder / "other").replace(folder / "open"), 32)
    try:
        os.fsync(file.fileno())
    except OSError as error:
        assert error.errno == errno.EBADF
    else:
        raise AssertionError("fsync")
(folder / "open").unlink()
refused(lambda: os.open(folder, os.O_RDONLY), 5)
refused((folder / "NUL.txt").touch, 123)
refused((folder / "a:b").mkdir, 123)
refused((folder / "OTHER").touch, 183)
refused((folder / ("x" * 250)).touch, 206)
handle = os.open(folder / "text", os.O_WRONLY | os.O_CREAT)
os.write(handle, b"1\\n")
os.close(handle)
assert (folder / "text").read_bytes() == b"1\\r\\n"
from context_compaction.system import IS_WINDOWS
assert IS_WINDOWS
"""


def under_windows_rules(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=REPOSITORY,
        # Without `fork` each killed writer takes the start of a new Python.
        env=unmeasured() | {"PYTHONPATH": str(RULES), "ARCHIVE_KILL_ROUNDS": "4"},
        capture_output=True,
        encoding="utf-8",
        timeout=170,
        check=False,
    )


def test_rules_refuse_what_windows_refuses(tmp_path: Path) -> None:
    result = under_windows_rules("-c", REFUSALS, str(tmp_path))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/compaction/archive/test_local.py", "-k", "contract"],
        ["tests/compaction/archive/test_processes.py", "-k", "not 4"],
        ["tests/compaction/archive/test_index.py", "-k", "open or truncate"],
        ["tests/server/hosts/test_install.py", "-k", "uninstall and not keeps"],
        ["tests/server/hosts/test_hooks.py", "-k", "large or background or log"],
    ],
    ids=lambda tests: Path(tests[0]).stem,
)
def test_tests_pass_under_the_rules_of_windows(tests: list[str]) -> None:
    command = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    result = under_windows_rules(*command)
    assert result.returncode == 0, result.stdout[-4_000:] + result.stderr[-1_000:]
