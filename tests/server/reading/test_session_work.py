"""Reading a file of a session as of any message, and the plan of a session."""

import posixpath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_server_compaction.config import Config
from mcp_server_compaction.reading.session_work import file_text

from tests.server.helpers import Json, answer_of, connect, error_of, text_of
from tests.support.small import answered, user

MESSAGES: list[Json] = [
    user("Write the plan, then fix the price."),
    *answered("1", "Write", "File created", file_path="/srv/plan.md", content="- [ ] price\n"),
    *answered("2", "Read", "     1\tnet = 1\n     2\ttax = 2", file_path="/srv/price.py"),
    *answered("3", "Edit", "updated", file_path="/srv/price.py", old_string="1", new_string="7"),
    *answered("4", "Bash", "", command="rm /srv/plan.md"),
    *answered("5", "Edit", "updated", file_path="/srv/far.py", old_string="a", new_string=""),
    *answered(
        "6", "Read", "     5\tfive\n     6\tsix", file_path="/srv/part.py", offset=5, limit=2
    ),
    *answered("7", "Write", "File created", file_path="/srv/unsure.py", content="one\n"),
    *answered("8", "Bash", "", command="sed -i s/one/two/ /srv/unsure.py"),
]


async def test_file_pointer_returns_the_file_as_of_any_message(
    config: Config,
) -> None:
    async with connect(config) as client:
        request: Json = {"messages": MESSAGES, "session_id": "s", "mode": "record"}
        answer_of(await client.call_tool("compact_messages", request))

        async def read(pointer: str) -> tuple[str, str]:
            arguments = {"output_id": f"transcript://s/{pointer}"}
            result = await client.call_tool("read_persisted_output", arguments)
            return text_of(result), text_of(result, 1)

        text, note = await read("files//srv/price.py")
        assert text == "net = 7\ntax = 2\n"
        assert "/srv/price.py as of message 6" in note
        assert (await read("files/price.py@4"))[0] == "net = 1\ntax = 2\n"
        assert (await read("files/plan.md@7"))[0] == "- [ ] price\n"
        listed, _ = await read("files")
        text, note = await read("files/part.py")
        assert text == "Lines 5-6:\nfive\nsix\n"
        assert "Only these lines" in note
        text, note = await read("files/unsure.py")
        assert text == "one\n"
        assert "Unsure since message 16." in note
        assert listed.splitlines() == [
            "/srv/unsure.py  whole text, 2 lines, unsure, changed; last message 14",
            "/srv/part.py  some lines; last message 12",
            "/srv/far.py  unknown text, changed; last message 10",
            "/srv/plan.md  deleted, changed; last message 8",
            "/srv/price.py  whole text, 3 lines, changed; last message 6",
        ]

        async def refused(pointer: str) -> str:
            arguments = {"output_id": f"transcript://s/{pointer}"}
            return error_of(await client.call_tool("read_persisted_output", arguments))

        assert "deleted at message 8" in await refused("files/plan.md")
        assert "transcript://s/messages/10" in await refused("files/far.py")
        assert "Its last files: /srv/price.py" in await refused("files/other.py@6")


async def test_file_text_finds_a_path_when_its_accents_are_encoded_differently(
    tmp_path: Path,
) -> None:
    path = normalize("NFD", "/Users/müller/été.py")
    messages = answered("1", "Write", "ok", file_path=path, content="net = 1\n")
    async with open_archive(tmp_path / "archive", index_root=tmp_path / "index") as archive:
        await archive.append("s", formats.parse(messages, format="anthropic"), format="anthropic")
        for spelling in (path, normalize("NFC", path), "été.py"):
            assert (await file_text(archive, "s", None, spelling, None))[0] == "net = 1\n"


async def test_plan_pointer_returns_the_messages_of_the_work_on_an_item(
    config: Config,
) -> None:
    def plan(call_id: str, *states: str) -> list[Json]:
        items = zip(("fix the price", "tell Ines"), states, strict=True)
        todos = [{"content": text, "status": state} for text, state in items]
        return answered(call_id, "TodoWrite", "ok", todos=todos)

    messages = [
        user("Fix the price, then tell Ines."),
        *plan("1", "in_progress", "pending"),
        *answered("2", "Edit", "updated", file_path="p.py", old_string="1", new_string="7"),
        *plan("3", "completed", "in_progress"),
        *answered("4", "Bash", "sent", command="mail ines"),
    ]
    only_new = answered("5", "TodoWrite", "ok", todos=[{"content": "rest", "status": "pending"}])
    async with connect(config) as client:
        request: Json = {"messages": messages, "session_id": "s", "mode": "record"}
        answer_of(await client.call_tool("compact_messages", request))

        async def read(pointer: str) -> str:
            arguments = {"output_id": f"s/{pointer}"}
            return text_of(await client.call_tool("read_persisted_output", arguments))

        assert (await read("plan")).splitlines() == [
            "1. fix the price: in_progress at 1, completed at 5; transcript://s/messages/1-5",
            "2. tell Ines: pending at 1, in_progress at 5; transcript://s/messages/5-8",
        ]
        first, second = await read("plan/1"), await read("plan/2")
        assert "p.py" in first
        assert "mail ines" not in first
        assert "mail ines" in second
        refused = await client.call_tool("read_persisted_output", {"output_id": "s/plan/3"})
        assert "items 1 to 2" in error_of(refused)

        request["messages"] = [*messages, *only_new]
        answer_of(await client.call_tool("compact_messages", request))
        rest, done, removed = (await read("plan")).splitlines()
        assert rest.startswith("1. rest: pending at 9;")
        assert done.startswith("2. fix the price: in_progress at 1, completed at 5, removed at 9")
        assert "in_progress at 5, removed at 9; transcript://s/messages/5-9" in removed


async def test_plan_pointer_reads_single_tasks_and_plans_of_one_text(
    config: Config,
) -> None:
    text = "# Ship it\n\n1. Tag it.\n2. Push it."
    messages = [
        user("Ship it."),
        *answered("1", "ExitPlanMode", "approved", plan=text),
        *answered("2", "TaskCreate", "Task #4 created: tag", subject="tag", description="v1"),
        *answered("3", "TaskCreate", "Task #5 created: push", subject="push", description="main"),
        *answered("4", "TaskUpdate", "Updated task #4", taskId="4", status="in_progress"),
        *answered("5", "Bash", "", command="git tag v1"),
        *answered("6", "TaskUpdate", "Updated task #4", taskId="4", status="completed"),
    ]
    async with connect(config) as client:

        async def read(pointer: str) -> Any:
            return await client.call_tool("read_persisted_output", {"output_id": pointer})

        for session, session_messages in (
            ("none", messages[:1]),
            ("text", messages[:3]),
            ("s", messages),
        ):
            request: Json = {"messages": session_messages, "session_id": session, "mode": "record"}
            answer_of(await client.call_tool("compact_messages", request))
        assert "Session none has no plan" in error_of(await read("none/plan"))
        written_plan = f"Plan written by message 1:\n{text}"
        assert text_of(await read("text/plan")).strip() == written_plan
        assert "has no items" in error_of(await read("text/plan/1"))
        assert text_of(await read("s/plan")).strip() == (
            "1. tag: pending at 3, in_progress at 7, completed at 11; transcript://s/messages/7-11\n"
            f"2. push: pending at 5; transcript://s/messages/5-12\n{written_plan}"
        )
        assert "git tag v1" in text_of(await read("s/plan/1"))


_PATHS = ("/w/a.py", "/w/lib/a.py", "/w/lib/b.py", "/w/c.md", "/w/d.md")
_STEPS = st.lists(
    st.tuples(st.sampled_from(_PATHS), st.sampled_from(["one", "two\nthree", "four\n", "five"])),
    min_size=1,
    max_size=8,
)


@given(_STEPS, *[st.integers(0, 40)] * 3)
@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_file_text_returns_the_content_of_a_matching_file_after_any_message(
    tmp_path: Path, steps: list[tuple[str, str]], when: int, which: int, how: int
) -> None:
    messages, disk, disks = [user("Go.")], dict[str, str](), list[dict[str, str]]()
    for number, (path, text) in enumerate(steps):
        old = disk.get(path, "")
        if old and old != text:
            edit = {"file_path": path, "old_string": old, "new_string": text}
            messages += answered(str(number), "Edit", "updated", **edit)
        else:
            messages += answered(str(number), "Write", "created", file_path=path, content=text)
        disk = {**disk, path: text}
        disks.append(disk)
    step = when % len(steps)
    path = sorted(disks[step])[which % len(disks[step])]
    names = [path, posixpath.basename(path), f"./{path}", posixpath.join("/w", path)]
    name = names[how % len(names)]
    with TemporaryDirectory(dir=tmp_path) as folder:
        async with open_archive(Path(folder)) as archive:
            parsed = formats.parse(messages, format="anthropic")
            await archive.append("s", parsed, format="anthropic")
            text, note = await file_text(archive, "s", None, name, 2 * step + 2)
    possible_texts = {
        content
        for other, content in disks[step].items()
        if posixpath.basename(other) == posixpath.basename(path)
    }
    assert text in ({disks[step][path]} if name == path else possible_texts)
    assert len(possible_texts) == 1 or name != posixpath.basename(path) or "Another file" in note
