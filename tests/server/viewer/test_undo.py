"""Undo of a compaction in the viewer, and restoring single messages, outputs and files."""

import json
from pathlib import Path

from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from mcp_server_compaction.config import Config

from tests.server.viewer.site import BASE, Site, running_site
from tests.support.story import story


async def test_undo_returns_the_list_before_the_compaction(site: Site) -> None:
    undo = "/sessions/main/compactions/0/undo"
    assert f'action="{undo}"' in await site.html("/sessions/main/compactions/0")
    reply = await site.http.post(undo)
    assert (reply.status_code, reply.headers["location"]) == (303, "/sessions/main/undone")
    page = await site.html("/sessions/main/undone")
    assert "Compaction 0 is undone" in page
    assert "Nothing was deleted" in page
    context = await site.html("/sessions/main/download?as=context")
    exact = (await site.html("/sessions/main/download?as=jsonl")).splitlines()
    assert json.loads(context) == [json.loads(line) for line in exact]
    [message, *_] = (await site.json("/sessions/main"))["messages_shown"]
    assert (message["state"], message["compaction"]) == ("in context", None)
    assert (await site.html("/sessions/main/compactions")).count("undone <time") == 2
    assert "was undone" in await site.html("/sessions/main/compactions/1")
    again = await site.http.post(undo)
    assert again.status_code == 404
    assert "went through no compaction 0" in again.text


async def test_undo_refuses_with_figures_when_the_list_does_not_fit(config: Config) -> None:
    messages = story(turns=30)
    async with open_archive(Path(config.archive_folder)) as archive:
        request = CompactRequest(session_id="small", context_window=8_000)
        assert (await compact(messages, request, archive=archive)).status == "compacted"
    async with running_site(config) as site:
        refused = await site.http.post("/sessions/small/compactions/0/undo")
        assert refused.status_code == 409
        assert "the list has up to" in refused.text
        assert 'name="window" type="number" min="1" value="8000"' in refused.text
        assert "No compaction of this session was undone" in await site.html(
            "/sessions/small/undone"
        )
        back = {"pointer": "transcript://small/messages/0-400"}
        refused = await site.http.post("/sessions/small/put-back", data=back)
        assert refused.status_code == 409
        assert "Nothing was put back" in refused.text
        assert f'value="{back["pointer"]}"' in refused.text
        larger = {"window": "200000"}
        accepted = await site.http.post("/sessions/small/compactions/0/undo", data=larger)
        assert accepted.status_code == 303


async def test_message_is_put_back_into_the_context(site: Site) -> None:
    address = "/sessions/main?at=2"
    shown = (await site.json(address))["messages_shown"]
    [removed] = [m for m in shown if m["seq"] == 2]
    assert removed["state"] == "removed"
    page = await site.html(address)
    assert 'href="/sessions/main/messages/2/0" aria-label="Restore message 2"' in page
    page = await site.html("/sessions/main/messages/2/0")
    pointer = "transcript://main/messages/2-2"
    assert 'action="/sessions/main/put-back"' in page
    assert f'name="pointer" value="{pointer}"' in page
    reply = await site.http.post("/sessions/main/put-back", data={"pointer": pointer})
    assert (reply.status_code, reply.headers["location"]) == (303, "/sessions/main/undone")
    page = await site.html("/sessions/main/undone")
    assert "Restored in the context" in page
    assert "Nothing was deleted" in page
    assert removed["message"] in json.loads(await site.html("/sessions/main/download?as=context"))
    states = {m["seq"]: m["state"] for m in (await site.json(address))["messages_shown"]}
    assert states[2] == "in context"
    assert states[0] == "removed", "only this message and its results came back"
    assert "messages were put back" in await site.html("/sessions/main/compactions")
    assert (await site.http.post("/sessions/main/compactions/1/undo")).status_code == 303
    again = await site.http.post("/sessions/main/put-back", data={"pointer": "o_" + "0" * 24})
    assert again.status_code == 404


async def test_undo_is_refused_when_it_comes_from_another_origin(site: Site) -> None:
    await site.stranger.get(f"/enter/{site.access.new_entry()}")
    address = "/sessions/main/compactions/0/undo"
    for headers in ({}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await site.stranger.post(address, headers=headers)).status_code == 403
    assert (await site.stranger.get(address)).status_code in (404, 405)
    assert (await site.json("/sessions/main/undone"))["receipt"] is None
    assert (await site.stranger.post(address, headers={"Origin": BASE})).status_code == 303


async def test_messages_outputs_and_files_are_restored_by_their_pointers(site: Site) -> None:
    raws = (await site.html("/sessions/main/download?as=jsonl")).splitlines()
    message = await site.html("/restore?pointer=transcript://main/messages/2-2")
    assert json.loads(message) == json.loads(raws[2])
    [listed, *_] = (await site.json("/sessions/main/files"))["files"]
    assert listed["path"] == "billing/module_7.py"
    page = await site.html("/sessions/main/files/billing/module_7.py")
    assert "round_half_even" in page
    text = await site.html("/restore?pointer=transcript://main/files/billing/module_7.py")
    assert "round_half_even" in text
    assert (await site.http.get("/restore?pointer=nothing")).status_code == 400
    assert (await site.http.get("/sessions/main/files/none.py")).status_code == 404
