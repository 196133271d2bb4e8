"""The tools read files inside the roots only."""

import os
from pathlib import Path

import pytest
from context_compaction.errors import PathNotAllowedError
from context_compaction.file_access import DiskFile, default_folders, roots_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "note.txt").write_bytes("Grüße\r\n".encode())
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    return folder


async def test_roots_read_a_file_without_any_change_when_it_is_inside(root: Path) -> None:
    path = root / "inner" / "note.txt"
    assert await roots_of([root]).read_text(path) == "Grüße\r\n"
    assert await roots_of([root]).read_bytes(str(path)) == path.read_bytes()


async def test_roots_name_the_folders_when_a_file_is_outside(root: Path) -> None:
    with pytest.raises(PathNotAllowedError) as refused:
        await roots_of([root]).read_bytes(root.parent / "secret.txt")
    assert str(root) in str(refused.value)


@pytest.mark.parametrize("way", ["..", "link", "linked folder"])
@pytest.mark.posix("symbolic links")
async def test_roots_refuse_a_file_outside_when_a_link_or_parent_leads_to_it(
    root: Path, way: str
) -> None:
    (root / "link").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent)
    path = {
        "..": root / "inner" / ".." / ".." / "secret.txt",
        "link": root / "link",
        "linked folder": root / "folder" / "secret.txt",
    }[way]
    with pytest.raises(PathNotAllowedError):
        await roots_of([root]).read_bytes(path)


@pytest.mark.posix("symbolic links")
async def test_roots_follow_links_when_the_target_is_inside(root: Path) -> None:
    (root / "link").symlink_to(root / "inner" / "note.txt")
    linked = root.parent / "linked"
    linked.symlink_to(root)
    for path in (root / "link", linked / "inner" / "note.txt"):
        assert await roots_of([linked]).read_text(path) == "Grüße\r\n"


@pytest.mark.posix("named pipes")
async def test_roots_refuse_special_missing_large_and_binary_files(root: Path) -> None:
    roots = roots_of([root])
    os.mkfifo(root / "pipe")
    (root / "latin").write_bytes(b"caf\xe9")
    for name, problem in (("pipe", "not a regular file"), ("absent", "No such file")):
        with pytest.raises(PathNotAllowedError, match=problem):
            await roots.read_bytes(root / name)
    with pytest.raises(PathNotAllowedError, match="not a regular file"):
        await roots.read_bytes(root / "inner")
    with pytest.raises(PathNotAllowedError, match="4 bytes"):
        await roots.read_bytes(root / "latin", max_bytes=3)
    with pytest.raises(PathNotAllowedError, match="UTF-8"):
        await roots.read_text(root / "latin")


async def test_roots_refuse_every_file_when_there_are_none(root: Path) -> None:
    with pytest.raises(PathNotAllowedError, match="none"):
        await roots_of([]).read_bytes(root / "inner" / "note.txt")


async def test_reader_returns_none_when_a_file_is_outside(root: Path) -> None:
    read_file = roots_of([root]).reader(str(root / "inner"))
    note = root / "inner" / "note.txt"
    assert await read_file("note.txt") == DiskFile("Grüße\r\n", note.stat().st_mtime)
    assert await read_file(str(root.parent / "secret.txt")) is None


def test_default_roots_exclude_the_home_folder_and_the_file_system(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    transcripts = (
        home / ".claude/projects",
        home / ".codex/sessions",
        home / ".pi/agent/sessions",
    )
    assert default_folders(home, home) == transcripts
    assert default_folders(home.parent, home) == transcripts
    assert default_folders(Path("/"), home) == transcripts
    assert default_folders(home / "work", home) == (home / "work", *transcripts)
