"""A compaction's page: both lists beside each other, and a way from everything to its original."""

import re
from typing import Any

import pytest
from context_compaction.archive import CompactedLists, ContextEntry
from context_compaction.layers import LAYERS
from hypothesis import given
from hypothesis import strategies as st
from mcp_server_compaction.viewer.compactions import rows_of
from mcp_server_compaction.viewer.words import sentences

from tests.server.viewer.site import Site

# What acts beside the layers that a policy can name.
OTHERS = (
    "repair", "offload", "thinking", "request", "project_rules", "fill", "acknowledge",
    "changed_files",
)  # fmt: skip


async def test_a_compaction_shows_what_was_there_what_stands_there_and_why(site: Site) -> None:
    document = await site.json("/sessions/main/compactions/last")
    assert document["receipt"]["status"] == "compacted"
    kinds = [row["kind"] for row in document["rows"]]
    assert "replaced" in kinds
    page = await site.html("/sessions/main/compactions/last")
    assert "Never push to main." in page
    assert "given by the caller" in page
    assert "tokens" in page
    assert "No model wrote the summary" in page
    assert "The one before" in page
    listed = (await site.json("/sessions/main/compactions"))["compactions"]
    assert [one["number"] for one in listed] == [1, 0]
    chart = re.search(
        r'points="0,(\d+) ([\d,-]+) ([\d,-]+) ', await site.html("/sessions/main/compactions")
    )
    assert chart is not None
    tokens = listed[1]["receipt"]["tokens"]
    levels = [int(chart[1]) - int(point.partition(",")[2]) for point in chart.groups()[1:]]
    assert levels == [tokens["before"], tokens["after"]]


async def test_every_line_of_a_summary_leads_to_what_it_came_from(site: Site) -> None:
    page = await site.html("/sessions/main/compactions/0")
    summary = page[page.index('<div class="summary">') :]
    links = re.findall(r'<a class="from" href="(/sessions/main\?at=(\d+)#m\2)"', summary)
    assert links
    for address, seq in links:
        assert f'id="m{seq}"' in await site.html(address.partition("#")[0])


async def test_a_compaction_that_is_not_there_is_named_with_those_that_are(site: Site) -> None:
    for number in ("7", "x", "-1", "0x1"):
        reply = await site.http.get(f"/sessions/main/compactions/{number}")
        assert reply.status_code == 404
        assert "0, 1" in reply.text
    assert (await site.http.get("/sessions/sub/compactions/last")).status_code == 404
    assert "never compacted" in await site.html("/sessions/sub/compactions")


def entry(seq: int, source_seq: int = -1) -> ContextEntry:
    return ContextEntry(seq, {} if seq >= 0 else {"role": "user", "content": "x"}, source_seq)


@pytest.mark.parametrize("name", [*LAYERS, *OTHERS])
def test_what_a_layer_did_is_told_in_words(name: str) -> None:
    layer = {"name": name, "tokens_before": 9, "tokens_after": 4, "edit_count": 1}
    [told] = sentences({"layers": [layer]})
    assert told.startswith(f"{name} ")
    assert " acted (" not in told


def test_lists_are_aligned_by_the_messages_that_they_share() -> None:
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
def test_no_entry_of_either_list_is_left_out_or_shown_twice(data: Any) -> None:
    count = data.draw(st.integers(0, 12))
    before = [entry(at) if data.draw(st.booleans()) else entry(-1, at) for at in range(count)]
    before += [entry(-1)] * data.draw(st.integers(0, 2))
    after: list[ContextEntry] = []
    for at in range(count):
        match data.draw(st.sampled_from(["keep", "change", "drop", "add"])):
            case "keep":
                after.append(before[at])
            case "change":
                after.append(entry(-1, at))
            case "add":
                after += [entry(-1), before[at]]
            case _:
                pass
    rows = rows_of(CompactedLists(tuple(before), tuple(after)))
    told = [seq for row in rows for seq in row.seqs]
    assert told == [one.seq if one.seq >= 0 else one.source_seq for one in before]
    made = [one for row in rows for one in row.after]
    kept = sum(len(row.before) for row in rows if row.kind == "kept")
    assert len(made) + kept == len(after)


@pytest.mark.parametrize("number", ["0", "1"])
async def test_every_link_of_a_compaction_leads_somewhere(site: Site, number: str) -> None:
    page = await site.html(f"/sessions/main/compactions/{number}")
    addresses = {found.partition("#")[0] for found in re.findall(r'href="(/[^"]*)"', page)}
    assert len(addresses) > 10
    for address in addresses:
        if address.startswith("/search?"):
            continue
        reply = await site.http.get(address.replace("&amp;", "&"))
        assert reply.status_code == 200, address
