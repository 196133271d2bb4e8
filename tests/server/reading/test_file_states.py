"""A file as a session left it, or as of one of its messages, in one call over real stdio."""

import pytest

from tests.server.helpers import Json, answer_of, error_of, spawned, text_of
from tests.support.small import answered, user

pytestmark = pytest.mark.slow

MESSAGES: list[Json] = [
    user("Write the plan, then mend the price."),
    *answered("1", "Write", "File created", file_path="/srv/plan.md", content="- [ ] price\n"),
    *answered("2", "Read", "     1\tnet = 1\n     2\ttax = 2", file_path="/srv/price.py"),
    *answered("3", "Edit", "updated", file_path="/srv/price.py", old_string="1", new_string="7"),
    *answered("4", "Bash", "", command="rm /srv/plan.md"),
    *answered("5", "Edit", "updated", file_path="/srv/far.py", old_string="a", new_string="b"),
]


async def test_a_file_reads_as_its_calls_leave_it_at_the_end_and_as_of_any_message(
    environment: dict[str, str],
) -> None:
    async with spawned(environment) as client:
        wish: Json = {"messages": MESSAGES, "session_id": "s", "mode": "record"}
        answer_of(await client.call_tool("compact_messages", wish))

        async def read(pointer: str) -> tuple[str, str]:
            arguments = {"output_id": f"transcript://s/{pointer}"}
            found = await client.call_tool("read_persisted_output", arguments)
            return text_of(found), text_of(found, 1)

        text, note = await read("files//srv/price.py")
        assert text == "net = 7\ntax = 2\n"
        assert "message 4, then 1 edits" in note
        assert (await read("files/price.py@4"))[0] == "net = 1\ntax = 2\n"
        assert (await read("files/plan.md@7"))[0] == "- [ ] price\n"
        listed, _ = await read("files")
        assert listed.splitlines() == [
            "/srv/far.py  text not known; read 0, changed 1; last message 10",
            "/srv/plan.md  deleted; read 0, changed 2; last message 8",
            "/srv/price.py  whole, 3 lines; read 1, changed 1; last message 6",
        ]

        async def refused(pointer: str) -> str:
            arguments = {"output_id": f"transcript://s/{pointer}"}
            return error_of(await client.call_tool("read_persisted_output", arguments))

        assert "deleted at message 8" in await refused("files/plan.md")
        assert "transcript://s/messages/10" in await refused("files/far.py")
        assert "Its files: /srv/price.py" in await refused("files/other.py@6")
