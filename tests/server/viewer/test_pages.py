"""Pages of the viewer, over HTTP: each says in JSON what it shows."""

import re

from context_compaction.archive.opening import open_archive
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from mcp_server_compaction.access.access_tokens import create_cookie
from mcp_server_compaction.access.principal import Principal
from mcp_server_compaction.config import Config

from tests.server.viewer.site import Site, archive_list, visiting


async def test_sessions_are_listed_with_their_sub_agents_behind_them(site: Site) -> None:
    page = await site.html("/")
    assert page.index("/sessions/main") < page.index("/sessions/sub")
    assert "sub-agent" in page
    listed = (await site.json("/"))["sessions"]
    assert [(s["session_id"], s["parent_session_id"]) for s in listed] == [
        ("main", None),
        ("sub", "main"),
    ]


async def test_words_narrow_the_list(site: Site) -> None:
    assert (await site.json("/?q=invoices%20SUB"))["sessions"][0]["session_id"] == "sub"
    assert (await site.json("/?q=nothing-has-this"))["sessions"] == []


async def test_a_session_shows_its_messages_around_the_one_asked_for(site: Site) -> None:
    info = await site.json("/sessions/main")
    count = info["message_count"]
    assert [m["seq"] for m in info["messages_shown"]] == [*range(min(30, count))]
    page = await site.html(f"/sessions/main?at={count - 1}")
    assert f'id="m{count - 1}"' in page
    part = await site.json("/sessions/main/messages/3-5")
    assert [m["seq"] for m in part["messages"]] == [3, 4, 5]


async def test_a_long_result_is_folded_with_its_size_and_unfolds_whole(config: Config) -> None:
    text = "\n".join(f"line {n} of the log" for n in range(1, 3_001))
    result = {"type": "tool_result", "tool_use_id": "c", "content": text}
    call = {"type": "tool_use", "id": "c", "name": "Bash", "input": {"command": "make"}}
    said = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    await archive_list(config, "long", said)
    async with visiting(config) as site:
        page = await site.html("/sessions/long")
        body = await site.html("/sessions/long/messages/2/0?part=body")
        lines = await site.html("/sessions/long/messages/2/0?start=2001")
        document = await site.json("/sessions/long/messages/2/0?start=2001")
    assert "3,000 lines" in page
    assert "line 24 of the log" in page
    assert "line 26 of the log" not in page
    assert "line 1500 of the log" in body
    assert "all of it by lines" in body
    assert 'id="L2500"' in lines
    assert "line 2500 of the log" in lines
    assert (document["line_count"], document["start_line"]) == (3_000, 2_001)


async def test_code_diffs_and_json_are_shown_as_what_they_are(config: Config) -> None:
    def use(name: str, **given: object) -> dict[str, object]:
        block = {"type": "tool_use", "id": name, "name": name, "input": given}
        return {"role": "assistant", "content": [block]}

    def told(name: str, text: str) -> dict[str, object]:
        block = {"type": "tool_result", "tool_use_id": name, "content": text}
        return {"role": "user", "content": [block]}

    said = [
        {"role": "user", "content": "go"},
        use("Edit", file_path="a.py", old_string="x = 1\ny = 2", new_string="x = 3\ny = 2"),
        told("Edit", "done"),
        use("Read", file_path="src/b.py"),
        told("Read", "def greet(name):\n    return name\n"),
        use("Query", q="all"),
        told("Query", '{"rows": [{"id": 1, "name": "Ada"}]}'),
        {"role": "assistant", "content": "Done:\n\n```python\nprint(1)\n```\n\n- **one**"},
    ]
    await archive_list(config, "kinds", said)
    async with visiting(config) as site:
        page = await site.html("/sessions/kinds")
    assert '<span class="del">-x = 1</span>' in page
    assert '<span class="add">+x = 3</span>' in page
    assert re.search(r'<span class="h-k">def</span>', page)
    assert '<span class="h-nt">"rows"</span>' in page
    assert '<span class="h-nb">print</span>' in page
    assert "<strong>one</strong>" in page


async def test_what_is_not_there_is_said_to_be_missing(site: Site) -> None:
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


async def test_half_a_surrogate_pair_does_not_break_a_page(config: Config) -> None:
    await archive_list(config, "half", [{"role": "user", "content": "half \ud800 pair"}])
    async with visiting(config) as site:
        assert "half \\ud800 pair" in await site.html("/sessions/half")
        assert (await site.json("/sessions/half"))["messages_shown"]
        assert "half" in await site.html("/")


async def test_a_message_of_very_many_parts_shows_the_first_and_counts_the_rest(
    config: Config,
) -> None:
    parts = [{"type": "text", "text": f"part {n}."} for n in range(5_000)]
    await archive_list(config, "parts", [{"role": "user", "content": parts}])
    async with visiting(config) as site:
        page = await site.html("/sessions/parts")
        assert "part 199." in page
        assert "part 200." not in page
        assert "4,800 more parts" in page
        assert "part 200." in await site.html("/sessions/parts/messages/0/200")
        assert "part 4999." in await site.html("/sessions/parts/export?as=html")


async def test_a_path_that_looks_like_another_host_makes_no_link_to_it(site: Site) -> None:
    for path in ("//evil.example/x", "/%2f/evil.example", "/sessions//evil.example"):
        reply = await site.http.get(f"http://127.0.0.1:8765{path}")
        assert reply.status_code == 404
        assert not re.findall(r'(?:href|hx-get|action)="(?!/[^/]|/"|[#?])[^"]*', reply.text)


async def test_a_search_that_cannot_be_made_keeps_its_form_to_be_corrected(site: Site) -> None:
    reply = await site.http.get("/search?q=%28and&kind=regex&tool=Bash")
    assert reply.status_code == 400
    assert 'role="alert"' in reply.text
    assert 'value="(and"' in reply.text
    assert 'value="Bash"' in reply.text
    document = await site.http.get("/search?q=%28and&kind=regex&format=json")
    assert (document.status_code, document.json()["status"]) == (400, 400)


async def test_two_tenants_with_a_session_of_one_name_see_their_own_figures(
    config: Config,
) -> None:
    tokens: dict[str, str] = {}
    async with open_archive(config.archive) as archive:
        for tenant, count in (("acme", 3), ("umbrella", 9)):
            own = await archive.for_tenant(tenant)
            said = [{"role": "user", "content": f"{tenant} {'word ' * 50}"}]
            said += [
                {"role": "assistant" if n % 2 else "user", "content": f"{tenant} {n}"}
                for n in range(1, count)
            ]
            wish = CompactRequest(session_id="same", mode="record", format="anthropic")
            await compact(said, wish, archive=own)
            who = Principal(tenant=tenant, user="u", scopes=frozenset({"read"}))
            tokens[tenant] = await create_cookie(own, who)
    async with visiting(config) as site:
        for tenant, count in (("acme", 3), ("umbrella", 9), ("acme", 3)):
            shown = {"Cookie": f"mcp-compaction-8765={tokens[tenant]}"}
            page = await site.stranger.get("/", headers=shown)
            assert f"{count} messages" in page.text
            assert tenant in page.text
            assert ({"acme", "umbrella"} - {tenant}).pop() not in page.text


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
