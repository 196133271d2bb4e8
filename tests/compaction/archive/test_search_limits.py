"""A search for words keeps to its time, and ends when nobody waits for it any more."""

from pathlib import Path
from time import monotonic

import anyio
import pytest
from context_compaction import errors
from context_compaction.archive import Query, patterns
from context_compaction.archive.local.archive import LocalArchive, open_archive
from context_compaction.archive.local.search import search

from tests.compaction.archive.archive_contract import add, user

WORDS = [f"word{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]
SLOW = Query(" ".join(WORDS), limit=100)
MOST_SECONDS = 2.0


async def filled(archive: LocalArchive, texts: int) -> None:
    """Put in texts of half a megabyte, in each of which every word of `SLOW` is common."""
    await add(archive, "other", user("needle_7"))
    lines = [" ".join([*WORDS[at:], *WORDS[:at]]) + "\n" for at in range(texts)]
    await add(archive, "s", *(user(line * 1_000) for line in lines))
    await archive.search(Query("needle_7"))  # all is indexed now


async def test_a_cancelled_search_for_words_ends_and_holds_up_nobody(tmp_path: Path) -> None:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await filled(archive, 40)
        began = monotonic()
        assert (await archive.search(SLOW)).hits
        whole_seconds = monotonic() - began
        began = monotonic()
        with anyio.move_on_after(whole_seconds / 10) as waiting:
            await archive.search(SLOW)
        assert waiting.cancelled_caught
        assert (await archive.search(Query("needle_7", session_id="other"))).total == 1
        assert monotonic() - began < whole_seconds / 2


@pytest.mark.parametrize("kind", ["words", "phrase"])
async def test_a_search_that_takes_too_long_says_so_and_the_next_one_answers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await filled(archive, 1)
        with monkeypatch.context() as patched:
            patched.setattr(search, "SCAN_SECONDS", 0.0)
            with pytest.raises(errors.QueryError, match="took more than 0 seconds"):
                await archive.search(Query(SLOW.text, kind=kind))  # type: ignore[arg-type]
        assert patterns.SCAN_SECONDS == 5.0
        began = monotonic()
        assert (await archive.search(Query("needle_7", session_id="other"))).total == 1
        assert monotonic() - began < MOST_SECONDS
