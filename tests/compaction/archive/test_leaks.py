"""Archived content stays private: permissions of folders, and parts of outputs."""

import stat
from pathlib import Path

import pytest
from context_compaction import Archive, CompactRequest, compact, open_archive
from context_compaction.archive.records import pack
from context_compaction.errors import ArchiveDamagedError, ArchiveError
from context_compaction.messages.model import make_blob

TEXT = "The vault is under the painting of the harbour."
LINES = "".join(f"line {number} of the log with other words\n" for number in range(9_000))


async def _record(folder: Path, index: Path) -> None:
    async with open_archive(folder, index_root=index) as archive:
        payload = [{"role": "user", "content": TEXT}]
        await compact(payload, CompactRequest(mode="record", session_id="s"), archive=archive)


@pytest.mark.posix("modes of files")
async def test_archive_folder_becomes_private_when_others_may_enter(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    folder.chmod(0o777)
    await _record(folder, tmp_path / "index")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    await _record(folder, tmp_path / "index")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.posix("modes of files")
async def test_open_archive_refuses_a_shared_folder_that_others_may_write(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "notes.txt").write_text("a user's notes", encoding="utf-8")
    folder.chmod(0o777)
    with pytest.raises(ArchiveError, match="Other users may write"):
        await _record(folder, tmp_path / "index")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    folder.chmod(0o755)
    await _record(folder, tmp_path / "index")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


async def _stored(archive: Archive, text: str) -> str:
    blob = make_blob(text)
    await archive.commit("s", blobs=[blob])
    return blob.output_id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


async def _commit_first(archive: Archive) -> str:
    payload = [{"role": "user", "content": "Keep the log."}]
    await compact(payload, CompactRequest(mode="record", session_id="s"), archive=archive)
    return await _stored(archive, LINES)


async def test_read_output_raises_when_another_output_replaced_it(
    folder: Path, tmp_path: Path
) -> None:
    async with open_archive(folder, index_root=tmp_path / "index") as archive:
        output_id = await _commit_first(archive)
    for path in (folder / "blobs").glob("??/*.zst"):
        path.write_bytes(pack(LINES[::-1].encode()))
    async with open_archive(folder, index_root=tmp_path / "index") as archive:
        with pytest.raises(ArchiveDamagedError, match="does not match its hash"):
            await archive.read_output(output_id, start_byte=100_000, limit_bytes=200)
        with pytest.raises(ArchiveDamagedError):
            await archive.read_output_lines(output_id, start_line=500, line_count=3)


async def test_part_of_an_output_is_exact_or_raises_when_it_was_damaged(
    folder: Path, tmp_path: Path
) -> None:
    async with open_archive(folder, index_root=tmp_path / "index") as archive:
        output_id = await _commit_first(archive)
        full = (await archive.read_output(output_id)).data
        assert full.decode() == LINES
        part = await archive.read_output(output_id, start_byte=100_000, limit_bytes=200)
        assert part.data == full[100_000:100_200]
    replacement = pack(LINES.replace("log", "lot").encode())
    for path in (folder / "blobs").glob("??/*.zst"):
        path.write_bytes(path.read_bytes()[:10] + replacement[10:])
    async with open_archive(folder, index_root=tmp_path / "index") as archive:
        with pytest.raises(ArchiveDamagedError):
            await archive.read_output(output_id, start_byte=100_000, limit_bytes=200)
