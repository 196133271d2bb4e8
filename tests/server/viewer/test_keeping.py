"""Search, the context now, export, and cleaning up: shown before it is done."""

import json
import re

from mcp_server_compaction.config import Config

from tests.server.viewer.site import BASE, Site, archive_list, visiting

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def test_a_search_finds_passages_with_their_words_marked_and_where_they_stand(
    site: Site,
) -> None:
    found = await site.json("/search?q=rounded+wrongly&session=main")
    assert found["total"] >= 1
    page = await site.html("/search?q=rounded+wrongly&session=main")
    assert "<mark>rounded</mark> <mark>wrongly</mark>" in page
    address = re.search(r'class="hit-link title" href="([^"]+)"', page)
    assert address is not None
    assert "rounded wrongly" in await site.html(address[1].partition("#")[0].replace("&amp;", "&"))
    assert "No" in (await site.json("/search?q=zzzzqqqq"))["note"]
    for wrong in ("kind=other", "since=soon", "limit=x&role=pope"):
        assert (await site.http.get(f"/search?q=a&{wrong}")).status_code == 400, wrong


async def test_a_hit_in_an_output_leads_to_its_line(config: Config) -> None:
    text = "\n".join(f"row {n} says word{n}" for n in range(20_000))
    result = {"type": "tool_result", "tool_use_id": "c", "content": text}
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    said = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "Now I see."},
        {"role": "user", "content": "and?"},
    ]
    from context_compaction.archive.opening import open_archive
    from context_compaction.pipeline.compact import compact
    from context_compaction.request import CompactRequest

    async with open_archive(config.archive) as archive:
        wish = CompactRequest(session_id="big", target_tokens=4_000)
        assert (await compact(said, wish, archive=archive)).changed
    async with visiting(config) as site:
        page = await site.html("/search?q=word15432")
        address = re.search(r'href="(/outputs/o_[0-9a-f]{24}\?start=\d+)#L15433"', page)
        assert address is not None
        lines = await site.html(address[1])
        assert 'id="L15433"' in lines
        assert "row 15432 says word15432" in lines


async def test_the_context_is_told_by_kind_with_a_plan_that_writes_nothing(site: Site) -> None:
    before = await site.json("/sessions/main/compactions")
    told = await site.json("/sessions/sub/context?window=20000")
    assert told["used_tokens"] == sum(told["tokens_by_kind"].values())
    assert {"user", "assistant", "result"} <= set(told["tokens_by_kind"])
    assert told["results_by_tool"][0]["tool"] == "Read"
    sizes = [piece["tokens"] for piece in told["biggest"]]
    assert sizes == sorted(sizes, reverse=True)
    planned = await site.json("/sessions/main/context?window=8000&policy=default")
    assert planned["plan"]["status"] in ("planned", "unchanged", "no_progress")
    assert await site.json("/sessions/main/compactions") == before
    page = await site.html("/sessions/main/context?part=counted")
    assert "<svg" in page
    assert (await site.http.get("/sessions/main/context?policy=none")).status_code == 400


async def test_exports_hold_everything_and_no_secret_that_was_to_be_left_out(
    config: Config,
) -> None:
    said = [
        {"role": "user", "content": f"my token is {SECRET} and ```fences``` </pre><b>x"},
        {"role": "assistant", "content": "I will not repeat it."},
    ]
    await archive_list(config, "secret", said)
    async with visiting(config) as site:
        exact = await site.html("/sessions/secret/export?as=jsonl")
        assert [json.loads(line) for line in exact.splitlines()] == said
        for kind in ("html", "jsonl"):
            reply = await site.http.get(f"/sessions/secret/export?as={kind}&redact=on")
            assert reply.status_code == 200
            assert f'filename="secret.{kind}"' in reply.headers["content-disposition"]
            assert SECRET not in reply.text
            assert "I will not repeat it." in reply.text
        page = await site.html("/sessions/secret/export?as=html")
        assert SECRET in page
        assert "<script" not in page
        assert "<b>x" not in page
        assert 'href="/' not in page
        assert (await site.http.get("/sessions/secret/export?as=exe")).status_code == 400


async def test_an_export_of_a_long_session_is_whole(config: Config) -> None:
    said = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"say {n}"} for n in range(1001)
    ]
    await archive_list(config, "long", said)
    async with visiting(config) as site:
        lines = (await site.html("/sessions/long/export?as=jsonl")).splitlines()
        assert [json.loads(line)["content"] for line in lines] == [m["content"] for m in said]
        assert (await site.html("/sessions/long/export?as=html")).count("<article") == len(said)


async def test_pruning_is_planned_first_and_deletes_what_was_listed_and_no_more(
    site: Site,
) -> None:
    planned = await site.json("/archive/prune?days=0")
    assert {one["session_id"] for one in planned["sessions"]} == {"main", "sub"}
    assert len((await site.json("/"))["sessions"]) == 2  # nothing went
    stale = await site.http.post("/archive/prune", data={"days": "0", "listed": "another"})
    assert stale.status_code == 409
    assert len((await site.json("/"))["sessions"]) == 2
    kept = await site.http.post("/sessions/main/retain", data={"keep": "yes"})
    assert kept.status_code == 303
    assert (await site.json("/archive/prune?days=0"))["sessions"] == []
    await site.http.post("/sessions/main/retain", data={"keep": "no"})
    page = await site.html("/archive/prune?days=0")
    listed = re.search(r'name="listed" value="([0-9a-f]+)"', page)
    assert listed is not None
    done = await site.http.post("/archive/prune", data={"days": "0", "listed": listed[1]})
    assert done.status_code == 303
    assert (await site.json("/"))["sessions"] == []
    for wrong in ("", "days=x", "mb=-1"):
        assert (await site.http.get(f"/archive/prune?{wrong}")).status_code == 400


async def test_a_session_is_deleted_when_its_id_is_typed(site: Site) -> None:
    assert "that it started stay" in await site.html("/sessions/main/delete")
    wrong = await site.http.post("/sessions/main/delete", data={"session": "sub"})
    assert wrong.status_code == 400
    assert len((await site.json("/"))["sessions"]) == 2
    done = await site.http.post("/sessions/sub/delete", data={"session": "sub"})
    assert done.status_code == 303
    assert [s["session_id"] for s in (await site.json("/"))["sessions"]] == ["main"]


async def test_nothing_is_changed_for_a_page_of_another_origin(site: Site) -> None:
    await site.stranger.get(f"/enter/{site.access.new_entry()}")
    changes = (
        ("/sessions/sub/delete", {"session": "sub"}),
        ("/sessions/sub/retain", {"keep": "yes"}),
        ("/archive/prune", {"days": "0"}),
    )
    for address, form in changes:
        for headers in ({}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            reply = await site.stranger.post(address, data=form, headers=headers)
            assert reply.status_code == 403, address
        assert (await site.stranger.get(address)).status_code != 303
    assert len((await site.json("/"))["sessions"]) == 2
    good = await site.stranger.post(*changes[1][:1], data=changes[1][1], headers={"Origin": BASE})
    assert good.status_code == 303
