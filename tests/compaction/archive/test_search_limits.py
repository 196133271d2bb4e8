"""A search for words has a time limit, and ends when it is cancelled."""

from math import inf
from pathlib import Path

import anyio
import pytest
from anyio import from_thread
from context_compaction import errors
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.archive.search import words
from context_compaction.archive.values import Query

from tests.compaction.archive.archive_contract import add, user

WORDS = [f"word{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]
SLOW = Query(" ".join(WORDS), limit=100)


async def filled(archive: LocalArchive, texts: int) -> None:
    """Append texts of 250 KB that contain every word of `SLOW` many times."""
    await add(archive, "other", user("needle_7"))
    lines = [" ".join([*WORDS[offset:], *WORDS[:offset]]) + "\n" for offset in range(texts)]
    await add(archive, "s", *(user(line * 500) for line in lines))
    await archive.search(Query("needle_7"))  # now everything is indexed


async def test_search_ends_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searching = anyio.CancelScope()
    cancel_at, check_count = inf, 0
    check_cancelled = from_thread.check_cancelled

    def count_check() -> None:
        nonlocal check_count
        check_count += 1
        if check_count == cancel_at:
            from_thread.run_sync(searching.cancel)
        check_cancelled()

    monkeypatch.setattr(words, "SCAN_SECONDS", inf)
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await filled(archive, 6)
        monkeypatch.setattr(from_thread, "check_cancelled", count_check)
        assert (await archive.search(SLOW)).hits
        total_checks = check_count
        assert total_checks >= 6  # one check for each text
        for cancel_at in (1, total_checks // 2, total_checks * 3 // 4):
            check_count, searching = 0, anyio.CancelScope()
            with searching:
                await archive.search(SLOW)
            assert searching.cancelled_caught
            assert check_count <= cancel_at + 1  # one more finds the reason
            assert (await archive.search(Query("needle_7", session_id="other"))).total == 1


@pytest.mark.parametrize("kind", ["words", "phrase"])
async def test_search_raises_when_it_takes_too_long(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await filled(archive, 1)
        with monkeypatch.context() as patched:
            patched.setattr(words, "SCAN_SECONDS", 0.0)
            with pytest.raises(errors.QueryError, match="took more than 0 seconds"):
                await archive.search(Query(SLOW.text, kind=kind))  # type: ignore[arg-type]
        assert (await archive.search(Query("needle_7", session_id="other"))).total == 1
