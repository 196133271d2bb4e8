"""`CompactionClient` on real servers returns the list that calls with full lists return.

Between two calls, these events happen in any order: a reply is lost after the server has acted, a
call never arrives or is cancelled, the server restarts or loses its archive, another client
continues the session, the host edits its list.
"""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
import pytest
from context_compaction import is_prompt_too_long
from context_compaction.archive.local.archive import open_archive
from context_compaction.errors import CompactionError
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_server_compaction.client import CompactionClient
from mcp_server_compaction.config import Config

from tests.server.helpers import Era, Json, answer_of, connect, conversation, output
from tests.support.provider_rules import problems

WINDOW = 12_000
POINTER = r"o_[0-9a-f]{24}|transcript://s/messages/\d+-\d+(?:@[0-9a-f]+)?"
Fate: TypeAlias = Literal["arrives", "is lost", "never arrives", "is cancelled"]
Event: TypeAlias = Literal["nothing", "restart", "other archive", "goes on elsewhere", "edit"]


def turn(number: int, lines: int) -> list[Json]:
    """Return another tool call of the agent and its result."""
    call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output(number, lines)}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": f"Step {number}."}, call]},
        {"role": "user", "content": [result]},
    ]


class BrokenConnectionError(Exception):
    """The connection broke."""


class Line:
    """A line to a server on which calls get lost."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.fate: Fate = "arrives"
        self.arrived: list[Json] = []
        self.done = 0  # calls that the server did not refuse
        self.scope = anyio.CancelScope()

    async def call_tool(self, name: str, arguments: Json) -> Any:
        if self.fate == "never arrives":
            raise BrokenConnectionError
        # As it travels: nothing is shared with the caller.
        result = await self.client.call_tool(name, json.loads(json.dumps(arguments)))
        self.arrived.append(arguments)
        self.done += not result.is_error
        if self.fate == "is lost":
            raise BrokenConnectionError
        if self.fate == "is cancelled":
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        return result


@asynccontextmanager
async def lines(folder: Path | None = None) -> AsyncGenerator[tuple[Line, Line]]:
    """Connect to two servers with separate archives."""
    with TemporaryDirectory() as own:
        first, second = (Config(archive_folder=(folder or Path(own)) / name) for name in "ab")
        async with connect(first) as client, connect(second) as other:
            yield Line(client), Line(other)


async def fitted_from_full_list(line: Line, messages: list[Json]) -> list[Json]:
    """Return the list of a caller that passes and receives whole lists."""
    arguments: Json = {"messages": messages, "session_id": "s", "context_window": WINDOW}
    arguments |= {"reply": "messages"}
    answer = answer_of(await line.call_tool("compact_messages", arguments))
    return answer["messages"] if answer["changed"] else messages


def without_places(messages: list[Json] | None) -> str:
    """Return the list as JSON without message numbers and branches of the archive.

    A full history and the context that replaces it are separate branches.
    """
    text = json.dumps(messages)
    text = re.sub(r"(transcript://\w+/messages/)\d+-\d+(@[0-9a-f]{12})?", r"\1", text)
    return re.sub(r"\[\d+\]", "[]", text)


async def check_pointers(line: Line, messages: list[Json]) -> None:
    """Check that every pointer in the list can be read."""
    for pointer in {*re.findall(POINTER, json.dumps(messages))}:
        answer = await line.client.call_tool("read_persisted_output", {"output_id": pointer})
        assert not answer.is_error, (pointer, answer.content)


async def extend_elsewhere(line: Line) -> None:
    """Extend the session without the client's knowledge, if there is one."""
    new = [{"role": "user", "content": "Said on another machine."}]
    arguments = {"new_messages": new, "session_id": "s", "context_window": WINDOW}
    answer_of(await line.client.call_tool("compact_messages", arguments))


def edited(messages: list[Json]) -> list[Json]:
    """Return the list after the user undid the last step and wrote something else."""
    remaining = messages[:-2] if len(messages) > 3 else messages
    return [*remaining, {"role": "user", "content": "No, otherwise."}]


class Host:
    """A program with a conversation, and its client.

    Attributes:
        keeps_history: Whether each call passes the full history. If not, it passes the last
            returned list plus new messages.
        given: Messages of all completed calls since the archive was created.
    """

    def __init__(self, keeps_history: bool) -> None:
        self.keeps_history = keeps_history
        self.messages: list[Json] = [{"role": "user", "content": "Find out why the test fails."}]
        self.given: list[Json] = []
        self.has_first_archive = True
        self.line: Line | None = None
        self.client = CompactionClient(self._call_tool, session_id="s", context_window=WINDOW)

    async def _call_tool(self, name: str, arguments: Json) -> Any:
        assert self.line is not None
        return await self.line.call_tool(name, arguments)

    async def step(self, line: Line, full_line: Line, fate: Fate) -> None:
        """Make one call, and compare it with the result for whole lists."""
        self.line, line.fate, line.scope = line, fate, anyio.CancelScope()
        before, done, fitted = json.dumps(self.messages), line.done, None
        with line.scope:
            try:
                fitted = await self.client.fit(self.messages)
            except BrokenConnectionError:
                assert fate in {"is lost", "never arrives"}
        assert json.dumps(self.messages) == before
        if line.done == done:  # no call arrived, or the server refused the new messages
            assert fate != "arrives"
            return
        expected = await fitted_from_full_list(full_line, self.messages)
        if fitted is None:
            assert fate != "arrives"
            return
        if self.keeps_history:
            assert without_places(fitted) == without_places(expected)
        else:
            assert fitted == expected
        assert not problems(fitted, "anthropic")
        if self.keeps_history or self.has_first_archive:  # pointers into a lost archive are dead
            await check_pointers(line, fitted)
        self.given += self.messages
        if not self.keeps_history:
            self.messages = fitted


async def check(keeps_history: bool, steps: list[tuple[Event, int, Fate]]) -> None:
    host, number, event = Host(keeps_history), 0, "nothing"
    with TemporaryDirectory() as folder:
        archives = 0
        while number < len(steps):
            root = Path(folder, str(archives))
            async with lines(root) as (line, full_line):
                while number < len(steps):
                    event, size, fate = steps[number]
                    number += 1
                    if event == "goes on elsewhere" and host.given:
                        await extend_elsewhere(line)
                        await extend_elsewhere(full_line)
                    if event == "edit":
                        host.messages = edited(host.messages)
                    host.messages = [*host.messages, *turn(number, size)]
                    await host.step(line, full_line, fate)
                    if event in {"restart", "other archive"}:
                        break
            if event == "other archive" or number == len(steps):
                await check_archived(root / "a", host.given)
                archives, host.given = archives + 1, []
                host.has_first_archive = False


async def check_archived(folder: Path, given: list[Json]) -> None:
    """Check that the archive has every message of completed calls."""
    steps = [
        entry for entry in given if entry["role"] == "assistant" and "Step" in json.dumps(entry)
    ]
    if given:
        async with open_archive(folder, index_root=folder / "index") as archive:
            archived = [message.raw for message in await archive.read_messages("s", 0, 1_000)]
        assert all(step in archived for step in steps)


EVENTS: list[Event] = ["restart", "other archive", "goes on elsewhere", "edit"]
FATES: list[Fate] = ["is lost", "never arrives", "is cancelled"]
STEPS = st.lists(
    st.tuples(
        st.just("nothing") | st.sampled_from(EVENTS),
        st.sampled_from([2, 60, 150]),
        st.just("arrives") | st.sampled_from(FATES),
    ),
    min_size=4,
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=10)
@given(st.booleans(), STEPS)
def test_client_list_equals_whole_list_calls_after_any_fault(
    keeps_history: bool, steps: list[tuple[Event, int, Fate]]
) -> None:
    anyio.run(check, keeps_history, steps)


@pytest.mark.parametrize("keeps_history", [False, True])
async def test_client_sends_only_new_messages(keeps_history: bool) -> None:
    async with lines() as (line, _):
        compaction = CompactionClient(line, context_window=WINDOW)
        messages: list[Json] = [{"role": "user", "content": "Find out why the test fails."}]
        statuses: list[str] = []
        for number in range(40):
            messages = [*messages, *turn(number, 40)]
            fitted = await compaction.fit(messages)
            statuses.append(compaction.answer["status"])
            if not keeps_history:
                messages = fitted
    assert statuses.count("compacted") in range(2, 12)
    assert ["messages" in sent for sent in line.arrived] == [True] + [False] * 39
    assert all(len(sent["new_messages"]) == 2 for sent in line.arrived[1:])


async def test_client_notices_lists_changed_in_place() -> None:
    async with lines() as (line, full_line):
        compaction = CompactionClient(line, context_window=200_000)
        messages = conversation(2, 4)
        fitted = await compaction.fit(messages)
        assert all(a is b for a, b in zip(fitted, messages, strict=True))
        messages[0]["content"] = "Something else."
        assert await compaction.fit(messages) == messages
        assert "messages" in line.arrived[-1], "the client passed the full list"
        compaction = CompactionClient(line, session_id="s", context_window=WINDOW)
        history = conversation(12, 40)
        fitted = await compaction.fit(history)
        expected = await fitted_from_full_list(full_line, history)
        assert fitted == expected != history
        fitted[0]["content"] = "Overwritten by the caller."
        history = [*history, *turn(99, 2)]
        fitted, expected = (
            await compaction.fit(history),
            await fitted_from_full_list(full_line, history),
        )
        assert without_places(fitted) == without_places(expected)


async def test_client_retries_once_when_the_prompt_is_too_long(config: Config) -> None:
    sent: list[int] = []

    async def request(messages: list[Json]) -> str:
        sent.append(len(json.dumps(messages)))
        if len(sent) == 1:
            raise RuntimeError("prompt is too long: 210000 tokens > 200000 maximum")
        return "Done."

    async with connect(config) as client:
        compaction = CompactionClient(client, context_window=200_000)
        messages, reply = await compaction.send(conversation(12, 60), request)
    assert reply == "Done."
    assert sent[1] < sent[0]
    assert len(json.dumps(messages)) == sent[1]


def test_client_recognizes_refusals_of_providers() -> None:
    for text in (
        "Error code: 400 - prompt is too long: 8702 tokens > 8192 maximum",
        "This model's maximum context length is 8192 tokens.",
        "Your input exceeds the context window of this model.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "Input is too long for requested model.",
    ):
        assert is_prompt_too_long(RuntimeError(text)), text


async def test_provider_usage_anchors_the_next_estimate() -> None:
    async with lines() as (line, _):
        compaction = CompactionClient(line, context_window=200_000)
        messages = conversation(2, 4)
        await compaction.fit(messages)
        compaction.learn({"input_tokens": 90_000, "output_tokens": 10})
        messages += turn(7, 2)
        await compaction.fit(messages)
    assert line.arrived[-1]["options"]["usage_message_index"] == len(messages) - 2
    assert compaction.answer["tokens"]["before"] > 90_000


async def test_client_raises_the_text_of_a_refused_list(config: Config, era: Era) -> None:
    async with connect(config, era) as client:
        compaction = CompactionClient(client.call_tool)
        with pytest.raises(CompactionError, match="Message 0"):
            await compaction.fit([{"role": "user", "content": 7}])
        assert await compaction.fit(conversation(2, 4)) == conversation(2, 4)


@pytest.mark.slow
async def test_client_continues_after_a_restart_over_stdio(environment: dict[str, str]) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "mcp_server_compaction"], env=environment
    )
    messages = conversation(12, 40)

    async def call_tool(name: str, arguments: Json) -> Any:
        async with Client(server) as client:
            return await client.call_tool(name, arguments)

    compaction = CompactionClient(call_tool, context_window=WINDOW)
    with anyio.fail_after(150):
        messages = await compaction.fit(messages)
        assert compaction.answer["status"] == "compacted"
        grown = [*messages, *turn(99, 2)]
        assert await compaction.fit(grown) == grown


def test_client_does_not_import_mcp() -> None:
    code = (
        "import sys, mcp_server_compaction.client\n"
        "print(*sorted({'mcp', 'mcp_types', 'pydantic', 'anyio'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150
    )
    assert done.stdout.strip() == ""
