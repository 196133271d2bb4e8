"""Storage: export, pruning, protection and deletion."""

import json
import re

from mcp_server_compaction.config import Config

from tests.server.viewer.site import BASE, Site, archive_messages, running_site

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def test_export_is_complete_and_removes_secrets_when_asked(
    config: Config,
) -> None:
    messages = [
        {"role": "user", "content": f"my token is {SECRET} and ```fences``` </pre><b>x"},
        {"role": "assistant", "content": "I will not repeat it."},
    ]
    await archive_messages(config, "secret", messages)
    async with running_site(config) as site:
        exact = await site.html("/sessions/secret/download?as=jsonl")
        assert [json.loads(line) for line in exact.splitlines()] == messages
        for kind in ("html", "jsonl"):
            reply = await site.http.get(f"/sessions/secret/download?as={kind}&redact=on")
            assert reply.status_code == 200
            assert f'filename="secret.{kind}"' in reply.headers["content-disposition"]
            assert SECRET not in reply.text
            assert "I will not repeat it." in reply.text
        page = await site.html("/sessions/secret/download?as=html")
        assert SECRET in page
        assert "<script" not in page
        assert "<b>x" not in page
        assert 'href="/' not in page
        assert (await site.http.get("/sessions/secret/download?as=exe")).status_code == 400


async def test_export_of_a_long_session_is_complete(config: Config) -> None:
    messages = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"say {n}"} for n in range(1001)
    ]
    await archive_messages(config, "long", messages)
    async with running_site(config) as site:
        lines = (await site.html("/sessions/long/download?as=jsonl")).splitlines()
        assert [json.loads(line)["content"] for line in lines] == [m["content"] for m in messages]
        assert (await site.html("/sessions/long/download?as=html")).count("<article") == len(
            messages
        )


async def test_prune_deletes_exactly_the_listed_sessions(
    site: Site,
) -> None:
    planned = await site.json("/storage/prune?days=0")
    assert {s["session_id"] for s in planned["sessions"]} == {"main", "sub"}
    assert len((await site.json("/"))["sessions"]) == 2
    stale = await site.http.post("/storage/prune", data={"days": "0", "plan_hash": "another"})
    assert stale.status_code == 409
    assert len((await site.json("/"))["sessions"]) == 2
    protected = await site.http.post("/sessions/main/protect", data={"protected": "yes"})
    assert protected.status_code == 303
    assert (await site.json("/storage/prune?days=0"))["sessions"] == []
    await site.http.post("/sessions/main/protect", data={"protected": "no"})
    page = await site.html("/storage/prune?days=0")
    plan_hash = re.search(r'name="plan_hash" value="([0-9a-f]+)"', page)
    assert plan_hash is not None
    deleted = await site.http.post("/storage/prune", data={"days": "0", "plan_hash": plan_hash[1]})
    assert deleted.status_code == 303
    assert (await site.json("/"))["sessions"] == []
    for query in ("", "days=x", "mb=-1"):
        assert (await site.http.get(f"/storage/prune?{query}")).status_code == 400


async def test_delete_removes_a_session_when_its_id_is_typed(site: Site) -> None:
    assert "will not be deleted" in await site.html("/sessions/main/delete")
    wrong = await site.http.post("/sessions/main/delete", data={"session": "sub"})
    assert wrong.status_code == 400
    assert len((await site.json("/"))["sessions"]) == 2
    deleted = await site.http.post("/sessions/sub/delete", data={"session": "sub"})
    assert deleted.status_code == 303
    assert [s["session_id"] for s in (await site.json("/"))["sessions"]] == ["main"]


async def test_changes_are_refused_when_they_come_from_another_origin(site: Site) -> None:
    await site.stranger.get(f"/enter/{site.access.new_entry()}")
    changes = (
        ("/sessions/sub/delete", {"session": "sub"}),
        ("/sessions/sub/protect", {"protected": "yes"}),
        ("/storage/prune", {"days": "0"}),
    )
    for address, form in changes:
        for headers in ({}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            reply = await site.stranger.post(address, data=form, headers=headers)
            assert reply.status_code == 403, address
        assert (await site.stranger.get(address)).status_code != 303
    assert len((await site.json("/"))["sessions"]) == 2
    accepted = await site.stranger.post(
        *changes[1][:1], data=changes[1][1], headers={"Origin": BASE}
    )
    assert accepted.status_code == 303


async def test_storage_lists_sessions_with_titles_and_sizes(site: Site) -> None:
    document = await site.json("/storage")
    assert document["session_count"] == len(document["sessions"]) == 2
    assert "Measuring the archive" in await site.html("/storage")
    sizes = await site.html("/storage?part=sizes")
    for session in document["sessions"]:
        assert session["title"] in sizes
        assert session["title"] != session["session_id"]
