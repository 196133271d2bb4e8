"""The picture of a session: how its context grew, and what each compaction took off."""

import re

import pytest
from mcp_server_compaction.config import Config
from mcp_server_compaction.viewer.timeline import context_sizes

from tests.server.viewer.site import Site, archive_list, visiting


def test_a_context_grows_by_its_messages_and_falls_at_a_compaction() -> None:
    step = {"message": 1, "after": 12}
    assert context_sizes([10, 20, 30, 5], [step]) == [10, 30, 42, 47]
    assert context_sizes([], [step]) == []


async def test_a_timeline_shows_the_compactions_as_steps_that_lead_to_them(site: Site) -> None:
    told = await site.timeline("main")
    assert [one["number"] for one in told["compactions"]] == [0, 1]
    assert told["compactions"][0]["after"] < told["compactions"][0]["before"]
    page = await site.html("/sessions/main/timeline")
    assert page.count('class="l-step"') == 2
    assert '/sessions/main/compactions/1"' in page
    linked = re.findall(r'href="/sessions/main\?at=(\d+)#', page)
    count = (await site.json("/sessions/main"))["message_count"]
    assert [*map(int, linked)] == [*range(count)]


async def test_a_long_session_is_counted_in_pieces_and_drawn_in_few(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"say {n}"} for n in range(3_000)
    ]
    await archive_list(config, "long", said)
    async with visiting(config) as site:
        monkeypatch.setattr("mcp_server_compaction.viewer.timeline._REQUEST_SECONDS", 0.001)
        assert (await site.json("/sessions/long/timeline"))["counted_share"] < 1
        await site.timeline("long")
        page = await site.html("/sessions/long/timeline")
    assert page.count("<a href") <= 240


async def test_branches_are_listed_and_each_is_read_alone(config: Config) -> None:
    start = [
        {"role": "user", "content": "Mend the parser."},
        {"role": "assistant", "content": "Which one?"},
        {"role": "user", "content": "The small one."},
        {"role": "assistant", "content": "I see."},
    ]
    left = [*start, {"role": "user", "content": "Go left."}]
    right = [*start[:2], {"role": "user", "content": "The large one, go right."}]
    await archive_list(config, "fork", left)
    await archive_list(config, "fork", right)
    async with visiting(config) as site:
        told = await site.json("/sessions/fork/branches")
        heads = [branch["head"] for branch in told["branches"]]
        assert told["branch_count"] == len(heads) == 2
        assert f"/sessions/fork?head={heads[1]}" in await site.html("/sessions/fork/branches")
        one = await site.json(f"/sessions/fork?head={heads[0]}")
        assert [m["message"]["content"] for m in one["messages_shown"]] == [
            m["content"] for m in right
        ]
