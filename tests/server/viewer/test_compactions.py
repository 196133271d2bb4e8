"""Pages of compactions: the lists before and after, receipts, and links to originals."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from context_compaction.archive.opening import open_archive
from context_compaction.archive.values import CompactedLists, ContextEntry
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.config import Config
from mcp_server_compaction.viewer.compactions import rows_of
from mcp_server_compaction.viewer.marks import newest_receipt

from tests.server.viewer.site import Site, running_site
from tests.support.story import story


async def test_compaction_page_shows_lists_pins_and_reasons(site: Site) -> None:
    document = await site.json("/sessions/main/compactions/last")
    assert document["receipt"]["status"] == "compacted"
    kinds = [row["kind"] for row in document["rows"]]
    assert {"summarized", "kept"} <= set(kinds)
    page = await site.html("/sessions/main/compactions/last")
    assert "Never push to main." in page
    assert "pinned by the caller" in page
    assert "tokens" in page
    assert "Source of the summary: extracts." in page
    assert "Previous compaction" in page
    listed = (await site.json("/sessions/main/compactions"))["compactions"]
    assert [c["number"] for c in listed] == [1, 0]
    chart = re.search(
        r'points="0,(\d+) ([\d,-]+) ([\d,-]+) ', await site.html("/sessions/main/compactions")
    )
    assert chart is not None
    tokens = listed[1]["receipt"]["tokens"]
    levels = [int(chart[1]) - int(point.partition(",")[2]) for point in chart.groups()[1:]]
    assert levels == [tokens["before"], tokens["after"]]


async def test_summary_lines_link_to_their_source_messages(site: Site) -> None:
    page = await site.html("/sessions/main/compactions/0")
    summary = page[page.index('<div class="summary">') :]
    links = re.findall(r'<a class="from" href="(/sessions/main\?at=(\d+)#m\2)"', summary)
    assert links
    for address, seq in links:
        assert f'id="m{seq}"' in await site.html(address.partition("#")[0])


async def test_missing_compaction_is_reported_with_the_existing_ones(site: Site) -> None:
    for number in ("7", "x", "-1", "0x1"):
        reply = await site.http.get(f"/sessions/main/compactions/{number}")
        assert reply.status_code == 404
        assert "0, 1" in reply.text
    assert (await site.http.get("/sessions/sub/compactions/last")).status_code == 404
    assert "never compacted" in await site.html("/sessions/sub/compactions")


def entry(seq: int, source_seq: int = -1) -> ContextEntry:
    return ContextEntry(seq, {} if seq >= 0 else {"role": "user", "content": "x"}, source_seq)


def test_rows_align_lists_by_shared_messages() -> None:
    before = tuple(map(entry, range(6)))
    lines = ['<context_summary originals="p">', "# Work", "[1] user: go", "on", "# Rules", "none"]
    summary = ContextEntry(-1, {"role": "user", "content": "\n".join(lines)})
    after = (summary, entry(3), entry(-1, 4), entry(-1), entry(5))
    edits = [{"layer": "microcompact", "action": "cleared", "index": 4}]
    rows = rows_of(CompactedLists(before, after), {"edits": edits})
    assert [(row.kind, row.seqs, len(row.after)) for row in rows] == [
        ("summarized", [], 1),
        ("summarized", [0], 0),
        ("summarized", [1], 0),
        ("summarized", [2], 0),
        ("kept", [3], 0),
        ("cleared", [4], 1),
        ("added", [], 1),
        ("kept", [5], 0),
    ]
    assert rows[0].replaced_count == 3
    assert [row.lines for row in rows[1:4]] == [[], ["[1] user: go", "on"], []]
    assert rows_of(CompactedLists(before, None), {}) == []


@given(st.data())
def test_rows_contain_every_entry_of_both_lists_once(data: Any) -> None:
    count = data.draw(st.integers(0, 12))
    before = [entry(seq) if data.draw(st.booleans()) else entry(-1, seq) for seq in range(count)]
    before += [entry(-1)] * data.draw(st.integers(0, 2))
    after: list[ContextEntry] = []
    for seq in range(count):
        match data.draw(st.sampled_from(["keep", "change", "drop", "add"])):
            case "keep":
                after.append(before[seq])
            case "change":
                after.append(entry(-1, seq))
            case "add":
                after += [entry(-1), before[seq]]
            case _:
                pass
    rows = rows_of(CompactedLists(tuple(before), tuple(after)), {})
    seqs = [seq for row in rows for seq in row.seqs]
    assert seqs == [e.original_seq for e in before]
    changed = [e for row in rows for e in row.after]
    unchanged_count = sum(len(row.before) for row in rows if row.kind == "kept")
    assert len(changed) + unchanged_count == len(after)


@pytest.mark.parametrize("number", ["0", "1"])
async def test_links_of_a_compaction_page_lead_to_pages(site: Site, number: str) -> None:
    page = await site.html(f"/sessions/main/compactions/{number}")
    addresses = {found.partition("#")[0] for found in re.findall(r'href="(/[^"]*)"', page)}
    assert len(addresses) > 10
    for address in addresses:
        if address.startswith("/search?"):
            continue
        reply = await site.http.get(address.replace("&amp;", "&"))
        assert reply.status_code == 200, address


def rows_on(page: str) -> list[tuple[str, str]]:
    """Return the kinds and the HTML of the rows of messages."""
    parts = re.split(r'<li class="(?:change )?row (\w+) ', page)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("number", [0, 1])
async def test_rows_of_a_compaction_add_up_to_its_receipt(site: Site, number: int) -> None:
    address = f"/sessions/main/compactions/{number}"
    tokens = (await site.json(address))["receipt"]["tokens"]
    before = after = 0
    for kind, row in rows_on(await site.html(f"{address}?show=all")):
        counts = [int(n.replace(",", "")) for n in re.findall(r'class="n">([\d,]+)<span', row)]
        if kind == "kept":
            counts *= 2
        elif "inserted-row" in row:
            counts = [0, counts[-1]]
        before += counts[0]
        after += sum(counts[1:])
    overhead = tokens["before"] - before
    assert (tokens["after"] - after, 0 < overhead < 20) == (overhead, True)


async def test_each_summarized_row_has_the_words_that_replace_it(site: Site) -> None:
    page = await site.html("/sessions/main/compactions/0")
    row = next(row for _, row in rows_on(page) if 'at=0#m0">0</a></div>' in row)
    assert re.search(r'<div class="plain" dir="auto">.*\[0\]</a> user: .*invoices', row)
    only = await site.html("/sessions/main/compactions/0?show=summarized")
    assert {kind for kind, _ in rows_on(only)} == {"summarized"}
    assert (await site.http.get("/sessions/main/compactions/0?show=none")).status_code == 400


async def test_later_rows_are_loaded_in_parts(config: Config) -> None:
    messages = story(turns=60)
    async with open_archive(Path(config.archive_folder)) as archive:
        request = CompactRequest(session_id="long", mode="full")
        await compact(messages, request, archive=archive)
    async with running_site(config) as site:
        page = await site.html("/sessions/long/compactions/0")
        seen = [found for _, found in rows_on(page)]
        while follow := re.search(r'hx-get="(\?part=rows[^"]*)"', page):
            query = follow[1].replace("&amp;", "&")
            page = await site.html(f"/sessions/long/compactions/0{query}")
            assert "<h1" not in page
            seen += [found for _, found in rows_on(page)]
    ids = [re.search(r'id="r(\d+)"', html) for html in seen]
    positions = [int(found[1]) for found in ids if found]
    assert positions == sorted(set(positions))
    assert len(positions) == len(seen) > 120


async def test_repairs_are_listed_with_their_number(config: Config) -> None:
    orphan = {"type": "tool_result", "tool_use_id": "none", "content": "text"}
    messages = [*story(turns=8), {"role": "user", "content": [orphan]}]
    async with open_archive(Path(config.archive_folder)) as archive:
        request = CompactRequest(session_id="broken", mode="full")
        repaired = await compact(messages, replace(request, mode="auto"), archive=archive)
        assert repaired.status == "repaired"
        assert (await compact(messages, request, archive=archive)).status == "compacted"
    async with running_site(config) as site:
        listed = (await site.json("/sessions/broken/compactions"))["compactions"]
        assert [(c["number"], c["receipt"]["status"]) for c in listed] == [
            (1, "compacted"),
            (0, "repaired"),
        ]
        page = await site.html("/sessions/broken/compactions")
        assert "0: only repairs" in page
        assert 'href="/sessions/broken/compactions/1"' in page
        assert (await site.http.get("/sessions/broken/compactions/0")).status_code == 404


@pytest.mark.parametrize(("position", "max_read"), [(299, 1), (295, 10), (0, 1_000), (None, 1_000)])
async def test_newest_receipt_is_found_from_the_end(
    tmp_path: Path, position: int | None, max_read: int
) -> None:
    receipts = [{"n": n, "status": "unchanged"} for n in range(300)]
    expected: dict[str, Any] = {}
    if position is not None:
        expected = {"n": position, "status": "undone"}
        receipts[position] = expected
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        for receipt in receipts:
            await archive.commit("s", receipt=receipt)
        read_all, read_count = archive.receipts, 0

        async def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal read_count
            found = await read_all(*arguments, **options)
            read_count += len(found)
            return found

        archive.receipts = counting  # type: ignore[method-assign]
        assert await newest_receipt(archive, "s", "undone") == expected
    assert read_count <= max_read
