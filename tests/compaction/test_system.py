"""What differs between systems, with the branch for Windows on each system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from context_compaction import system
from context_compaction.errors import PathNotAllowedError
from context_compaction.file_access import Roots

PROGRAM = r"C:\Users\Ann Lee\Scripts\mcp-server-compaction.exe"


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "IS_WINDOWS", True)


@pytest.mark.usefixtures("windows")
def test_command_line_is_quoted_for_the_shell_of_windows() -> None:
    assert system.command_line([PROGRAM, "hook", "Stop"]) == f'"{PROGRAM}" hook Stop'
    in_bash = "'C:/Users/Ann Lee/Scripts/mcp-server-compaction.exe' hook Stop"
    assert system.command_line([PROGRAM, "hook", "Stop"], in_bash=True) == in_bash


@pytest.mark.usefixtures("windows")
def test_files_of_the_user_are_outside_of_appdata_which_packages_see_a_copy_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert system.user_folder("data") == tmp_path / ".mcp-server-compaction/data"
    monkeypatch.setenv("SYSTEMROOT", "W")  # without it, Windows cannot start Python
    assert system.desktop_environment()["SYSTEMROOT"] == "W"


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("path", [r"\\198.51.100.7\share\a.txt", "//198.51.100.7/share/a.txt"])
async def test_roots_refuse_a_network_path_before_they_look_at_it(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> Path:
        raise AssertionError("Windows would send the user's credentials")

    monkeypatch.setattr(Path, "resolve", fail)
    with pytest.raises(PathNotAllowedError, match="outside the folders"):
        await Roots((tmp_path,)).read_bytes(path)


@pytest.mark.usefixtures("windows")
def test_deletion_waits_until_a_file_is_closed_and_then_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter(range(3))
    unlink = Path.unlink

    def refuse_at_first(path: Path, *, missing_ok: bool = False) -> None:
        if next(refusals, None) is not None:
            raise PermissionError(13, "[WinError 32]", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_at_first)
    path = tmp_path / "open"
    path.touch()
    system.delete_file(path)
    assert not path.exists()
    path.touch()
    refusals = iter(range(1_000_000))
    monkeypatch.setattr(system, "OPEN_FILE_SECONDS", 0.0)
    with pytest.raises(PermissionError):
        system.delete_file(path)
    system.delete_if_closed(path)
    assert path.exists()


def test_process_is_running_until_it_ends() -> None:
    assert system.is_running(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert not system.is_running(process.pid)
