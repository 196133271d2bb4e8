"""Odd input: whatever a caller or a file holds, there is an answer, and the next call is served."""

import gzip
import json
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from click.testing import CliRunner, Result
from context_compaction.errors import SettingsError
from mcp_server_compaction.cli import main
from mcp_server_compaction.config import Config, load_config

from tests.server.helpers import Json, answer_of, connect, text_of


async def run(*arguments: str) -> Result:
    """Return the result of a command."""
    return await to_thread.run_sync(lambda: CliRunner().invoke(main, list(arguments)))


NUL_PATH = "a\0b"
DEEP = "[" * 900 + "]" * 900


def reading(path: str) -> list[Json]:
    """A conversation whose model asked to read `path`, long enough to be compacted."""
    call: Json = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": path}}
    result: Json = {"type": "tool_result", "tool_use_id": "t1", "content": "def f(): pass\n" * 50}
    return [
        {"role": "user", "content": "Look at the parser."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        *(
            {"role": role, "content": f"step {step}: " + "It has many lines of code. " * 60}
            for step in range(20)
            for role in ("assistant", "user")
        ),
    ]


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_a_path_that_no_system_can_hold_does_not_stop_compaction(
    config: Config, mode: str
) -> None:
    async with connect(config) as client:
        given = {"messages": reading(NUL_PATH), "mode": mode, "context_window": 40_000}
        answer = answer_of(await client.call_tool("compact_messages", given))
    assert answer["status"] == "compacted"


ABSURD_TIMES = (1.7e15, 253402300800000, -62135596801000, 1e300, 10**400, -1, 1, True, "x", None)


async def test_listing_works_with_any_timestamp_of_a_message(config: Config) -> None:
    async with connect(config) as client:
        for number, time in enumerate(ABSURD_TIMES):
            messages = [
                {"role": "user", "content": f"find needle_7 of {number}", "timestamp": time}
            ]
            given = {"messages": messages, "session_id": f"s{number}", "options": {"format": "pi"}}
            answer_of(await client.call_tool("compact_messages", given))
            listed = await client.list_resources()
            assert f"transcript://s{number}" in [str(resource.uri) for resource in listed.resources]
            hits = answer_of(await client.call_tool("search_transcript", {"query": "needle_7"}))
            assert hits["total"] == number + 1
    for command in (["sessions"], ["usage"], ["search", "needle_7"]):
        result = await run("--archive", str(config.archive_folder), *command)
        assert result.exit_code == 0, result.output


ODD_READS: list[Json] = [
    {"json_path": r'$["\q"]'},
    {"json_path": f"$[{'9' * 5_000}]"},
    {"json_path": f"$[{'9' * 5_000}:]"},
    {"json_path": "$.deep"},
    {"output_id": f"transcript://s/messages/{'9' * 5_000}"},
    {"output_id": f"o_0123/lines/1-{'9' * 5_000}"},
    {"output_id": f"transcript://s/messages/0-{'9' * 18}"},
]


async def test_a_path_or_pointer_of_any_number_is_answered(config: Config) -> None:
    async with connect(config) as client:
        output = json.dumps({"a": 1})[:-1] + f', "deep": {DEEP}}}'
        given = {"output": output, "threshold_tokens": 0, "session_id": "s"}
        stored = answer_of(await client.call_tool("persist_large_output", given))
        given = {"messages": [{"role": "user", "content": "needle"}], "session_id": "s"}
        answer_of(await client.call_tool("compact_messages", given))
        for arguments in ODD_READS:
            asked = {"output_id": stored["output_id"], **arguments}
            result = await client.call_tool("read_persisted_output", asked)
            assert len(text_of(result)) < 8_000, arguments


async def test_half_a_surrogate_pair_is_shown_by_every_command(config: Config, files: Path) -> None:
    row = {"role": "user", "content": "needle_7 \ud83d cut"}
    (files / "s.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row), encoding="utf-8")
    for arguments in (
        ["compact", str(files / "s.jsonl")],
        ["search", "needle_7"],
        ["sessions"],
        ["search", "needle_7", "--json"],
    ):
        done = await run("--archive", str(config.archive_folder), *arguments)
        assert done.exit_code == 0, (arguments, done.output)
        if arguments == ["search", "needle_7"]:
            assert r"needle_7 \ud83d cut" in done.stdout


async def test_a_file_of_millions_of_messages_is_refused_at_once(tmp_path: Path) -> None:
    for name, text in (
        ("lines.gz", b'{"role":"user","content":""}\n' * 1_100_000),
        ("list.gz", b"[" + b"{}," * 6_000_000 + b"{}]"),
        ("many.json", b"[" + b'{"role":"user","content":""},' * 200_001 + b"{}]"),
    ):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
        result = await run("--archive", str(tmp_path / "a"), "compact", str(path))
        assert result.exit_code == 1, result.output
        assert "Give a part" in result.output


async def test_a_message_that_nests_too_deeply_is_kept_as_text_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    block = f'{{"type":"tool_use","id":"t","name":"f","input":{{"x":{DEEP}}}}}'
    path.write_text(
        '{"role":"user","content":"hi"}\n' + f'{{"role":"assistant","content":[{block}]}}\n',
        encoding="utf-8",
    )
    result = await run("--archive", str(tmp_path / "a"), "compact", str(path))
    assert result.exit_code == 0, result.output
    assert "became text: it nests too deeply" in result.output


def test_an_address_of_an_unknown_kind_is_no_archive(tmp_path: Path) -> None:
    for address in ("mysql://u:secret@h/db", "file:///tmp/x", "s3://b/c"):
        with pytest.raises(SettingsError, match="address") as raised:
            load_config(archive=address, environment={})
        assert "secret" not in str(raised.value)


async def test_gap_in_the_log_is_reported_when_it_is_read(config: Config) -> None:
    messages = [{"role": "user", "content": f"needle_{number}"} for number in range(9)]
    async with connect(config) as client:
        given = {"messages": messages, "session_id": "s"}
        answer_of(await client.call_tool("compact_messages", given))
    (log,) = [path async for path in anyio.Path(config.archive_folder).glob("sessions/*/*/*.jsonl")]
    await log.write_bytes((await log.read_bytes()).replace(b"needle_6", b"noodle_6"))
    async with connect(config) as client:
        for pointer, is_reported in (("5-7", True), ("6-6", True), ("6", True), ("0-5", False)):
            asked = {"output_id": f"transcript://s/messages/{pointer}"}
            note = text_of(await client.call_tool("read_persisted_output", asked), 1)
            assert ("omitted: messages 6" in note) == is_reported, note
        listed = await client.list_resources()
        assert "transcript://s" in [str(resource.uri) for resource in listed.resources]
        parts = await client.read_resource("transcript://s/messages/5-7")
        assert "omitted: messages 6" in str(parts.contents[-1])
    folder = str(config.archive_folder)
    result = await run("--archive", folder, "read", "transcript://s/messages/5-7")
    assert "omitted: messages 6" in result.stderr
