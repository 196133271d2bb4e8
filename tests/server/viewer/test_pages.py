"""Pages of the viewer over HTTP, as HTML and as JSON."""

import re

from context_compaction.archive.opening import open_archive
from context_compaction.messages.model import make_blob
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from mcp_server_compaction.access.access_tokens import create_cookie
from mcp_server_compaction.access.principal import Principal
from mcp_server_compaction.config import Config

from tests.server.viewer.site import Site, archive_messages, running_site


async def test_session_list_shows_sub_agents_after_their_session(site: Site) -> None:
    page = await site.html("/")
    assert page.index("/sessions/main") < page.index("/sessions/sub")
    assert "sub-agent" in page
    listed = (await site.json("/"))["sessions"]
    assert [(s["session_id"], s["parent_session_id"]) for s in listed] == [
        ("main", None),
        ("sub", "main"),
    ]


async def test_session_list_is_filtered_by_words(site: Site) -> None:
    assert (await site.json("/?q=invoices%20SUB"))["sessions"][0]["session_id"] == "sub"
    assert (await site.json("/?q=nothing-has-this"))["sessions"] == []


async def test_session_shows_the_messages_around_the_requested_one(site: Site) -> None:
    info = await site.json("/sessions/main")
    count = info["message_count"]
    assert [m["seq"] for m in info["messages_shown"]] == [*range(min(30, count))]
    page = await site.html(f"/sessions/main?at={count - 1}")
    assert f'id="m{count - 1}"' in page
    part = await site.json("/sessions/main/messages/3-5")
    assert [m["seq"] for m in part["messages"]] == [3, 4, 5]


async def test_long_result_is_folded_and_shown_in_full_when_unfolded(config: Config) -> None:
    text = "\n".join(f"line {n} of the log" for n in range(1, 3_001))
    result = {"type": "tool_result", "tool_use_id": "c", "content": text}
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    await archive_messages(config, "long", messages)
    async with running_site(config) as site:
        page = await site.html("/sessions/long")
        body = await site.html("/sessions/long/messages/2/0?part=body")
        lines = await site.html("/sessions/long/messages/2/0?start=2001")
        document = await site.json("/sessions/long/messages/2/0?start=2001")
    assert "3,000 lines" in page
    assert "line 24 of the log" in page
    assert "line 26 of the log" not in page
    assert "line 1500 of the log" in body
    assert "Show the full text by lines" in body
    assert 'id="L2500"' in lines
    assert "line 2500 of the log" in lines
    assert (document["line_count"], document["start_line"]) == (3_000, 2_001)


async def test_code_diffs_and_json_are_highlighted_by_type(config: Config) -> None:
    def call(name: str, **arguments: object) -> dict[str, object]:
        block = {"type": "tool_use", "id": name, "name": name, "input": arguments}
        return {"role": "assistant", "content": [block]}

    def result(name: str, text: str) -> dict[str, object]:
        block = {"type": "tool_result", "tool_use_id": name, "content": text}
        return {"role": "user", "content": [block]}

    messages = [
        {"role": "user", "content": "go"},
        call("Edit", file_path="a.py", old_string="x = 1\ny = 2", new_string="x = 3\ny = 2"),
        result("Edit", "done"),
        call("Read", file_path="src/b.py"),
        result("Read", "def greet(name):\n    return name\n"),
        call("Query", q="all"),
        result("Query", '{"rows": [{"id": 1, "name": "Ada"}]}'),
        {"role": "assistant", "content": "Done:\n\n```python\nprint(1)\n```\n\n- **one**"},
    ]
    await archive_messages(config, "kinds", messages)
    async with running_site(config) as site:
        page = await site.html("/sessions/kinds")
    assert '<span class="del">-x = 1</span>' in page
    assert '<span class="add">+x = 3</span>' in page
    assert re.search(r'<span class="h-k">def</span>', page)
    assert '<span class="h-nt">"rows"</span>' in page
    assert '<span class="h-nb">print</span>' in page
    assert "<strong>one</strong>" in page


async def test_missing_pages_have_status_404(site: Site) -> None:
    for address in (
        "/sessions/none",
        "/sessions/main/messages/2/77",
        "/sessions/main/messages/99999/0",
        "/outputs/o_000000000000000000000000",
        "/nothing",
        "/static/../web.py",
    ):
        assert (await site.http.get(address)).status_code == 404, address
    assert (await site.http.get("/sessions/main?at=x")).status_code == 400
    assert (await site.http.post("/sessions/main")).status_code in (404, 405)


async def test_page_is_shown_when_a_text_has_an_unpaired_surrogate(config: Config) -> None:
    await archive_messages(config, "half", [{"role": "user", "content": "half \ud800 pair"}])
    async with running_site(config) as site:
        assert "half \\ud800 pair" in await site.html("/sessions/half")
        assert (await site.json("/sessions/half"))["messages_shown"]
        assert "half" in await site.html("/")


async def test_message_shows_its_first_parts_when_it_has_thousands(
    config: Config,
) -> None:
    parts = [{"type": "text", "text": f"part {n}."} for n in range(5_000)]
    await archive_messages(config, "parts", [{"role": "user", "content": parts}])
    async with running_site(config) as site:
        page = await site.html("/sessions/parts")
        assert "part 199." in page
        assert "part 200." not in page
        assert "4,800 more parts" in page
        assert "part 200." in await site.html("/sessions/parts/messages/0/200")
        assert "part 4999." in await site.html("/sessions/parts/download?as=html")


async def test_error_page_has_no_foreign_link_when_the_path_looks_like_a_host(site: Site) -> None:
    for path in ("//evil.example/x", "/%2f/evil.example", "/sessions//evil.example"):
        reply = await site.http.get(f"http://127.0.0.1:8765{path}")
        assert reply.status_code == 404
        assert not re.findall(r'(?:href|hx-get|action)="(?!/[^/]|/"|[#?])[^"]*', reply.text)


async def test_search_keeps_the_form_when_the_query_is_invalid(site: Site) -> None:
    reply = await site.http.get("/search?query=%28and&kind=regex&tool=Bash")
    assert reply.status_code == 400
    assert 'role="alert"' in reply.text
    assert 'value="(and"' in reply.text
    assert 'value="Bash"' in reply.text
    document = await site.http.get("/search?query=%28and&kind=regex&format=json")
    assert (document.status_code, document.json()["status"]) == (400, 400)


async def test_tenants_see_only_their_own_session_when_both_use_one_id(
    config: Config,
) -> None:
    tokens: dict[str, str] = {}
    async with open_archive(config.archive) as archive:
        for tenant, count in (("acme", 3), ("umbrella", 9)):
            own = await archive.for_tenant(tenant)
            messages = [{"role": "user", "content": f"{tenant} {'word ' * 50}"}]
            messages += [
                {"role": "assistant" if n % 2 else "user", "content": f"{tenant} {n}"}
                for n in range(1, count)
            ]
            request = CompactRequest(session_id="same", mode="record", format="anthropic")
            await compact(messages, request, archive=own)
            principal = Principal(tenant=tenant, user="u", scopes=frozenset({"read"}))
            tokens[tenant] = await create_cookie(own, principal)
    async with running_site(config) as site:
        for tenant, count in (("acme", 3), ("umbrella", 9), ("acme", 3)):
            headers = {"Cookie": f"mcp-compaction-8765={tokens[tenant]}"}
            page = await site.stranger.get("/", headers=headers)
            assert f"{count} messages" in page.text
            assert tenant in page.text
            assert ({"acme", "umbrella"} - {tenant}).pop() not in page.text


async def test_branches_are_listed_and_each_is_shown_alone(config: Config) -> None:
    start = [
        {"role": "user", "content": "Fix the parser."},
        {"role": "assistant", "content": "Which one?"},
        {"role": "user", "content": "The small one."},
        {"role": "assistant", "content": "I see."},
    ]
    first_branch = [*start, {"role": "user", "content": "Go left."}]
    second_branch = [*start[:2], {"role": "user", "content": "The large one, go right."}]
    await archive_messages(config, "fork", first_branch)
    await archive_messages(config, "fork", second_branch)
    async with running_site(config) as site:
        document = await site.json("/sessions/fork/branches")
        heads = [branch["head"] for branch in document["branches"]]
        assert document["branch_count"] == len(heads) == 2
        assert f"/sessions/fork?head={heads[1]}" in await site.html("/sessions/fork/branches")
        branch = await site.json(f"/sessions/fork?head={heads[0]}")
        assert [m["message"]["content"] for m in branch["messages_shown"]] == [
            m["content"] for m in second_branch
        ]


async def test_search_marks_words_and_links_to_the_message(
    site: Site,
) -> None:
    document = await site.json("/search?query=rounded+wrongly&session_id=main")
    assert document["total"] >= 1
    page = await site.html("/search?query=rounded+wrongly&session_id=main")
    assert "<mark>rounded</mark> <mark>wrongly</mark>" in page
    address = re.search(r'class="hit-link title" href="([^"]+)"', page)
    assert address is not None
    assert "rounded wrongly" in await site.html(address[1].partition("#")[0].replace("&amp;", "&"))
    assert "No" in (await site.json("/search?query=zzzzqqqq"))["note"]
    for filters in ("kind=other", "since=soon", "limit=x&role=pope"):
        assert (await site.http.get(f"/search?query=a&{filters}")).status_code == 400, filters


async def test_search_links_to_the_line_when_the_hit_is_in_an_output(config: Config) -> None:
    text = "\n".join(f"row {n} says word{n}" for n in range(20_000))
    result = {"type": "tool_result", "tool_use_id": "c", "content": text}
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "Now I see."},
        {"role": "user", "content": "and?"},
    ]
    async with open_archive(config.archive) as archive:
        request = CompactRequest(session_id="big", target_tokens=4_000)
        assert (await compact(messages, request, archive=archive)).changed
    async with running_site(config) as site:
        page = await site.html("/search?query=word15432")
        address = re.search(r'href="(/outputs/o_[0-9a-f]{24}\?start=\d+)#L15433"', page)
        assert address is not None
        lines = await site.html(address[1])
        assert 'id="L15433"' in lines
        assert "row 15432 says word15432" in lines


async def test_context_page_counts_by_kind_and_plans_without_writing(site: Site) -> None:
    before = await site.json("/sessions/main/compactions")
    context = await site.json("/sessions/sub/context?window=20000")
    assert context["used_tokens"] == sum(context["tokens_by_kind"].values())
    assert {"user", "assistant", "result"} <= set(context["tokens_by_kind"])
    assert context["results_by_tool"][0]["tool"] == "Read"
    sizes = [piece["tokens"] for piece in context["largest"]]
    assert sizes == sorted(sizes, reverse=True)
    planned = await site.json("/sessions/main/context?window=8000&policy=default")
    assert planned["plan"]["status"] in ("planned", "unchanged", "no_progress")
    assert await site.json("/sessions/main/compactions") == before
    page = await site.html("/sessions/main/context?part=counted")
    assert "<svg" in page
    assert (await site.http.get("/sessions/main/context?policy=none")).status_code == 400


async def test_removed_messages_are_marked_in_transcript_and_hits(site: Site) -> None:
    [before, *_] = (await site.json("/sessions/main"))["messages_shown"]
    assert (before["state"], before["compaction"]) == ("removed", 0)
    page = await site.html("/sessions/main")
    assert re.search(r'href="/sessions/main/compactions/0">removed by compaction 0, <time', page)
    last = (await site.json("/sessions/main/messages/30-33"))["messages"][-1]
    assert (last["state"], last["compaction"]) == ("in context", None)
    assert "in the context now" in await site.html("/sessions/main/messages/30-33")
    assert "removed by compaction" in await site.html(
        "/search?query=invoices&session_id=main&role=user"
    )


async def test_table_cells_keep_their_alignment(config: Config) -> None:
    table = "| a | b |\n|---|--:|\n| x | 1 |"
    reply = {"role": "assistant", "content": table}
    await archive_messages(config, "table", [{"role": "user", "content": "go"}, reply])
    async with running_site(config) as site:
        page = await site.html("/sessions/table")
    assert '<td class="align-right">1</td>' in page
    assert "style=" not in page


async def test_session_list_gives_instructions_when_the_archive_is_empty(config: Config) -> None:
    async with running_site(config) as site:
        assert "mcp-server-compaction import" in await site.html("/")


async def test_sessions_are_sorted_and_filtered_with_their_sizes(
    site: Site, config: Config
) -> None:
    listed = (await site.json("/?sort=saved"))["sessions"]
    assert [s["session_id"] for s in listed] == ["main", "sub"]
    assert listed[0]["saved_tokens"] > 0 == listed[1]["saved_tokens"]
    assert (await site.json("/?sort=tokens"))["sessions"][0]["session_id"] == "main"
    assert (await site.json("/?q=sub"))["sessions"][0]["session_id"] == "sub"
    assert (await site.http.get("/?sort=luck")).status_code == 400
    async with open_archive(config.archive) as archive:
        host = make_blob("codex /home/a/shop", tool_name="session host")
        await archive.commit("sub", blobs=[host])
    assert [s["folder"] for s in (await site.json("/?host=codex"))["sessions"]] == ["/home/a/shop"]
    assert [s["session_id"] for s in (await site.json("/?q=SHOP"))["sessions"]] == ["sub"]
    assert "No session matches" in await site.html("/?q=none")
    page = await site.html("/")
    assert re.search(r"about <b>[\d.k]+</b> tokens", page)
    assert "saved by compactions" in page
