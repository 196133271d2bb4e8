"""Marks of hits that show an edit: none any more; removed with the next change of the search."""

from collections.abc import Sequence

from context_compaction import Archive, Hit


async def edit_marks(_archive: Archive, _hits: Sequence[Hit]) -> dict[int, str]:
    """No marks."""
    return {}
