"""Pages of compactions: the lists before and after, receipts, and links to originals."""

import re
from typing import Any

import pytest
from context_compaction.archive.values import CompactedLists, ContextEntry
from context_compaction.layers import LAYERS
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.viewer.compactions import rows_of
from mcp_server_compaction.viewer.formatting import receipt_sentences

from tests.server.viewer.site import Site

# Steps that act in addition to the layers of a policy.
OTHER_STEPS = (
    "repair", "offload", "thinking", "request", "project_rules", "fill", "acknowledge",
    "changed_files",
)  # fmt: skip


async def test_compaction_page_shows_lists_pins_and_reasons(site: Site) -> None:
    document = await site.json("/sessions/main/compactions/last")
    assert document["receipt"]["status"] == "compacted"
    kinds = [row["kind"] for row in document["rows"]]
    assert "replaced" in kinds
    page = await site.html("/sessions/main/compactions/last")
    assert "Never push to main." in page
    assert "pinned by the caller" in page
    assert "tokens" in page
    assert "No model wrote the summary" in page
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


@pytest.mark.parametrize("name", [*LAYERS, *OTHER_STEPS])
def test_receipt_sentences_describe_every_layer(name: str) -> None:
    layer = {"name": name, "tokens_before": 9, "tokens_after": 4, "edit_count": 1}
    [sentence] = receipt_sentences({"layers": [layer]})
    assert sentence.startswith(f"{name}: ")
    assert "changed the messages" not in sentence


def test_rows_align_lists_by_shared_messages() -> None:
    before = tuple(map(entry, range(6)))
    after = (entry(-1), entry(3), entry(-1, 4), entry(-1), entry(5))
    rows = rows_of(CompactedLists(before, after))
    assert [(row.kind, row.seqs, len(row.after)) for row in rows] == [
        ("replaced", [0, 1, 2], 1),
        ("kept", [3], 0),
        ("changed", [4], 1),
        ("added", [], 1),
        ("kept", [5], 0),
    ]
    assert rows_of(CompactedLists(before, None)) == []


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
    rows = rows_of(CompactedLists(tuple(before), tuple(after)))
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
