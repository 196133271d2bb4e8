"""Import of session files: every message is archived once, and only new lines are read."""

import gzip
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import zstandard
from click.testing import CliRunner, Result
from context_compaction.archive.local.archive import open_archive
from context_compaction.archive.values import Query
from context_compaction.formats.session_files.read import read_conversation
from context_compaction.messages.model import is_list, is_object, text_of
from mcp_server_compaction.cli import main
from mcp_server_compaction.hosts import importing

from tests.support.session_rows import HOSTS, missing_words, session_file

Row = dict[str, Any]


def claude(kind: str, content: Any, number: int, **more: Any) -> Row:
    message: Row = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("message_id", f"m{number}"), "model": "claude-x"}
    time = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    return {"type": kind, "sessionId": "main", "timestamp": time, "message": message} | more


def text(words: str) -> list[Row]:
    return [{"type": "text", "text": words}]


def use(call_id: str) -> list[Row]:
    return [{"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}]


def answer(call_id: str) -> list[Row]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": f"output of {call_id}"}]


def claude_code_rows() -> list[Row]:
    """Three turns, a compaction and two more turns, with rows of a sub-agent between them."""
    rows: list[Row] = [{"type": "summary", "summary": "About listing"}]
    for turn in range(5):
        number = turn * 10
        if turn == 3:
            rows += [
                {"type": "system", "subtype": "compact_boundary", "sessionId": "main"},
                claude("user", "Earlier work: listing.", number, isCompactSummary=True),
            ]
        rows += [
            claude("user", f"question {turn}", number + 1),
            claude("assistant", text(f"thinking of {turn}"), number + 2, message_id=f"r{turn}"),
            claude("assistant", use(f"a{turn}"), number + 3, message_id=f"r{turn}"),
            claude("assistant", use(f"b{turn}"), number + 4, message_id=f"r{turn}"),
            claude("user", f"task {turn}", number + 5, isSidechain=True, agentId="7"),
            claude("assistant", text("done"), number + 6, isSidechain=True, agentId="7"),
            claude("user", answer(f"a{turn}"), number + 7),
            claude("user", answer(f"b{turn}"), number + 8),
            claude("assistant", text(f"answer {turn}"), number + 9),
        ]
    return rows


def codex_rows() -> list[Row]:
    def item(kind: str, payload: Any) -> Row:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}

    def message(role: str, words: str) -> Row:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": words}]
        return item("response_item", {"type": "message", "role": role, "content": content})

    rows = [item("session_meta", {"id": "rollout", "cwd": "/p"})]
    for turn in range(4):
        if turn == 2:
            rows.append(item("compacted", {"message": "Earlier work"}))
        call = {"type": "function_call", "call_id": f"c{turn}", "name": "shell", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": f"c{turn}", "output": "ok"}
        rows += [
            message("user", f"question {turn}"),
            item("response_item", call),
            item("response_item", output),
            message("assistant", f"answer {turn}"),
        ]
    return rows


def rewound_claude_code_rows() -> list[Row]:
    """Parallel calls, a missing parent, and prompts that the user took back twice."""
    tree: dict[str, str | None] = {
        "p0": None, "use a": "p0", "use b": "use a", "answer a": "use a", "answer b": "use b",
        "said 0": "answer b", "system 0": "said 0",
        "p1": "missing", "said 1": "p1",
        "taken back 2": "said 1", "said taken back 2": "taken back 2",
        "taken back 3": "said taken back 2", "said taken back 3": "taken back 3",
        "taken back 4": "said 1",
        "p5": "said 1", "said 5": "p5",
        "p6": "said 5", "said 6": "p6",
    }  # fmt: skip
    rows: list[Row] = []
    for number, (name, parent) in enumerate(tree.items()):
        content: Any = text(name)
        kind = "assistant" if name.startswith(("said", "use")) else "user"
        if name.startswith(("use", "answer")):
            content = (use if name.startswith("use") else answer)(name[-1])
        place = {"uuid": name, "parentUuid": parent}
        rows.append(claude(kind, content, number, **place))
        if name.startswith("system"):
            rows[-1] = {"type": "system", "content": "0 s", "sessionId": "main", **place}
    return rows


def rewound_codex_rows() -> list[Row]:
    rows = codex_rows()
    for index, turns in ((14, 1), (9, 1)):
        payload = {"type": "thread_rolled_back", "num_turns": turns}
        rows.insert(
            index, {"timestamp": "2026-01-01T00:00:00Z", "type": "event_msg", "payload": payload}
        )
    return rows


def codex_event_rows() -> list[Row]:
    """A review thread of Codex, which contains only events."""
    events: list[Row] = [
        {"type": "entered_review_mode", "user_facing_hint": "changes on branch addax"},
        {"type": "user_message", "message": "Review the addax branch."},
        {"type": "agent_reasoning", "text": "Look at the tests first."},
        {"type": "agent_message", "message": "One finding: eland is never closed."},
        {"type": "exited_review_mode", "review_output": {"overall_explanation": "Close eland."}},
    ]
    time = "2026-01-01T00:00:00Z"
    rows = [{"timestamp": time, "type": "event_msg", "payload": event} for event in events]
    return [{"timestamp": time, "type": "session_meta", "payload": {"id": "review"}}, *rows]


def unnamed_sub_agent_rows() -> list[Row]:
    """Two parallel sub-agents without `agentId`, as in files of 2025, and a later one."""
    rows: list[Row] = [claude("user", "start three", 0, uuid="p", parentUuid=None)]
    latest: dict[str, str | None] = dict.fromkeys(("kudu", "oryx", "topi"))
    for number, name in enumerate(("kudu", "oryx", "kudu", "oryx", "topi", "kudu", "topi"), 1):
        row_id = f"{name}-{number}"
        place = {"uuid": row_id, "parentUuid": latest[name], "isSidechain": True}
        kind = "user" if latest[name] is None else "assistant"
        rows.append(claude(kind, text(f"{name} {number}"), number, **place))
        latest[name] = row_id
    return [*rows, claude("assistant", text("all done"), 9, uuid="q", parentUuid="p")]


KINDS = {
    "codex events": codex_event_rows(),
    "unnamed sub-agents": unnamed_sub_agent_rows(),
    "claude-code": claude_code_rows(),
    "codex": codex_rows(),
    "rewound claude-code": rewound_claude_code_rows(),
    "rewound codex": rewound_codex_rows(),
}


def lines_of(rows: Iterable[Row]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def imported(archive: Path, *paths: Path, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(
        main, ["--archive", str(archive), "import", "--json", *map(str, paths)]
    )
    assert result.exit_code == exit_code, result.output
    return result


def figures(result: Result) -> dict[str, int]:
    return json.loads(result.stdout)


def archived(archive: Path, index: Path) -> dict[str, tuple[list[Row], list[Row], str | None]]:
    """Return transcript, context and parent of each session."""

    async def read() -> dict[str, tuple[list[Row], list[Row], str | None]]:
        sessions: dict[str, tuple[list[Row], list[Row], str | None]] = {}
        async with open_archive(archive, index_root=index) as opened:
            for info in (await opened.sessions(limit=100))[0]:
                messages = await opened.read_messages(info.session_id, 0, 100_000)
                _, context = await opened.context(info.session_id)
                sessions[info.session_id] = (
                    [message.raw for message in messages],
                    context,
                    info.parent_session_id,
                )
        return sessions

    return anyio.run(read)


def texts(raws: Sequence[Row]) -> list[str]:
    """Return the texts of messages, IDs of calls, and "result" for results, in order."""
    words: list[str] = []
    for raw in raws:
        content = raw["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        words += [str(block.get("text") or block.get("id") or "result") for block in blocks]
    return words


def test_import_archives_compacted_messages_and_sub_agents_of_claude_code(
    tmp_path: Path,
) -> None:
    file = tmp_path / "main.jsonl"
    file.write_bytes(b"".join(lines_of(claude_code_rows())))
    result = imported(tmp_path / "a", file)
    assert figures(result)["messages_written"] == 5 * 4 + 1 + 5 * 2
    sessions = archived(tmp_path / "a", tmp_path / "i")
    assert sorted(sessions) == ["main", "main:agent-7"]
    transcript, context, _ = sessions["main"]
    assert texts(transcript)[:7] == [
        "question 0", "thinking of 0", "a0", "b0", "result", "result", "answer 0",
    ]  # fmt: skip
    assert texts(context)[:2] == ["Earlier work: listing.", "question 3"]
    assert texts(context)[-1] == "answer 4"
    assert sessions["main:agent-7"][2] == "main"
    assert texts(sessions["main:agent-7"][0])[:4] == ["task 0", "done", "task 1", "done"]


def crashed(lines: Sequence[bytes], seed: int) -> bytes:
    """Return the lines with torn lines, zeros and repeated lines between them, as after crashes."""
    rng = Random(seed)
    data = b""
    for line in lines:
        if rng.random() < 0.2:  # the host writes the torn line again
            data += line[: rng.randrange(len(line) - 1)] + bytes(rng.randrange(1, 99))
        data += line * rng.choice([1, 1, 1, 2])
    return data


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "way", ["gz", "zst", "loglines", "lines", "batches", "crashed 0", "crashed 1"]
)
def test_import_archives_the_same_messages_in_every_form_of_the_file(
    rows: list[Row], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(rows)
    plain, other = tmp_path / "file.jsonl", tmp_path / f"other.{way}"
    plain.write_bytes(b"".join(lines))
    imported(tmp_path / "a", plain)
    if way == "gz":
        other.write_bytes(gzip.compress(plain.read_bytes()))
    elif way == "zst":
        first, second = plain.read_bytes()[:500], plain.read_bytes()[500:]
        compress = zstandard.ZstdCompressor().compress
        other.write_bytes(compress(first) + compress(second))
    elif way == "loglines":
        other.write_text(json.dumps({"loglines": rows}, indent=1), encoding="utf-8")
    else:
        other = tmp_path / "other.jsonl"
        other.write_bytes(crashed(lines, int(way[-1])) if "crashed" in way else plain.read_bytes())
        conversation = read_conversation(other.read_bytes(), name="f.jsonl")
        assert conversation.payload == read_conversation(plain.read_bytes(), name="f.jsonl").payload
    if way in {"lines", "batches"}:
        monkeypatch.setattr(importing, "BATCH_BYTES", 1 if way == "lines" else 700)
    assert figures(imported(tmp_path / "b", other))["failed"] == 0
    assert archived(tmp_path / "b", tmp_path / "i") == archived(tmp_path / "a", tmp_path / "i")
    assert figures(imported(tmp_path / "b", other))["unchanged"] == 1


def test_import_stores_output_files_of_claude_code_in_their_session(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    (project / "main" / "tool-results").mkdir(parents=True)
    (project / "main.jsonl").write_bytes(b"".join(lines_of(claude_code_rows())))
    output = "".join(f"line {number} of the quokka log\n" for number in range(5_000))
    (project / "main" / "tool-results" / "a1.txt").write_bytes(output.encode())
    listing = f"the wombat list\n{output}"
    (project / "main" / "tool-results" / "bq7.txt").write_bytes(listing.encode())
    assert figures(imported(tmp_path / "a", project))["outputs"] == 2
    again = figures(imported(tmp_path / "a", project))
    assert (again["files"], again["unchanged"]) == (3, 3)

    async def check() -> None:
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as archive:
            outputs = await archive.outputs("main")
            infos = {info.call_id: info for info in outputs if info.call_id}
            results = await archive.search(Query("quokka", session_id="main"))
            pointers = {hit.pointer for hit in results.hits if hit.kind == "output"}
            assert pointers == {info.output_id for info in infos.values()}
            assert (await archive.read_output(infos["a1"].output_id)).data == output.encode()
            assert (await archive.read_output(infos["bq7"].output_id)).data == listing.encode()

    anyio.run(check)


@pytest.mark.parametrize("seed", range(2))
def test_import_archives_a_codex_sub_agent_as_a_session_with_its_parent(
    seed: int, tmp_path: Path
) -> None:
    rows = codex_rows()
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}}
    rows[0]["payload"] |= {"id": "child", "source": spawn}
    # A forked rollout also contains the head of its parent.
    rows.insert(1, rows[0] | {"payload": {"id": "parent", "source": "cli"}})
    lines = lines_of(rows)
    file = tmp_path / "rollout.jsonl"
    cut = Random(seed).randrange(4, len(lines))
    for part in (lines[:cut], lines[cut:]):
        with file.open("ab") as growing:
            growing.write(b"".join(part))
        imported(tmp_path / "a", file)
    sessions = archived(tmp_path / "a", tmp_path / "i")
    assert list(sessions) == ["child"]
    assert sessions["child"][2] == "parent"
    assert len(sessions["child"][0]) == 4 * 4 + 2  # the summary, and "question 1" before it


@pytest.mark.parametrize("rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_import_archives_the_same_messages_when_the_file_grows_between_imports(
    rows: list[Row], seed: int, tmp_path: Path
) -> None:
    lines = lines_of(rows)
    complete, growing = tmp_path / "whole.jsonl", tmp_path / "growing.jsonl"
    complete.write_bytes(b"".join(lines))
    imported(tmp_path / "a", complete)
    data = b"".join(lines)
    rng = Random(seed)
    cuts = sorted({0, *(rng.randrange(len(lines[0]), len(data)) for _ in range(6)), len(data)})
    for start, stop in pairwise(cuts):
        with growing.open("ab") as file:  # a cut may fall within a line
            file.write(data[start:stop])
        imported(tmp_path / "b", growing)
    expected = archived(tmp_path / "a", tmp_path / "i")
    sessions = archived(tmp_path / "b", tmp_path / "i")
    assert sorted(expected) == sorted(sessions)
    for name, (transcript, context, parent) in expected.items():
        assert sessions[name][1:] == (context, parent)
        # A reply that was incomplete at a cut is archived in both forms.
        assert [raw for raw in transcript if raw not in sessions[name][0]] == []


@pytest.mark.parametrize(
    ("rows", "live"),
    [
        (
            rewound_claude_code_rows(),
            ["p0", "a", "b", "result", "result", "said 0", "p1", "said 1", "p5", "said 5", "p6",
             "said 6"],
        ),
        (rewound_codex_rows(), ["question 0", "Earlier work", "question 3", "answer 3"]),
    ],
    ids=["claude-code", "codex"],
)  # fmt: skip
def test_import_archives_rewound_messages_outside_of_the_context(
    rows: list[Row], live: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "main.jsonl"
    file.write_bytes(b"".join(lines_of(rows)))
    imported(tmp_path / "a", file)
    [(transcript, context, _)] = archived(tmp_path / "a", tmp_path / "i").values()
    assert read_conversation(file.read_bytes(), name="f.jsonl").payload == context
    assert texts([raw for raw in context if "content" in raw]) == live
    everything = json.dumps(transcript)
    for row in rows:
        message: Row = row.get("message") or row.get("payload") or {}
        content = message.get("content")
        assert not content or json.dumps(content)[1:-1] in everything


def test_import_reads_codex_events_as_messages_when_the_file_has_no_items(tmp_path: Path) -> None:
    file = tmp_path / "rollout.jsonl.zst"
    data = b"".join(lines_of(codex_event_rows()))
    file.write_bytes(zstandard.ZstdCompressor().compress(data))
    imported(tmp_path / "a", tmp_path)
    [(transcript, context, _)] = archived(tmp_path / "a", tmp_path / "i").values()
    assert transcript == context
    assert [raw["role"] for raw in context] == [
        "developer", "user", "developer", "assistant", "developer",
    ]  # fmt: skip
    assert texts(context)[1] == "Review the addax branch."
    assert "Close eland." in texts(context)[-1]


def test_import_separates_sub_agents_without_ids_by_their_parents(
    tmp_path: Path,
) -> None:
    file = tmp_path / "main.jsonl"
    file.write_bytes(b"".join(lines_of(unnamed_sub_agent_rows())))
    imported(tmp_path / "a", file)
    sessions = archived(tmp_path / "a", tmp_path / "i")
    assert {name: texts(transcript) for name, (transcript, _, _) in sessions.items()} == {
        "main": ["start three", "all done"],
        "main:sidechain-kudu-1": ["kudu 1", "kudu 3", "kudu 6"],
        "main:sidechain-oryx-2": ["oryx 2", "oryx 4"],
        "main:sidechain-topi-5": ["topi 5", "topi 7"],
    }
    assert [parent for _, _, parent in sessions.values()].count("main") == 3


def pi_rows() -> list[Row]:
    rows: list[Row] = [{"type": "session", "id": "main", "cwd": "/p"}]
    for number in range(6):
        role = "assistant" if number % 2 else "user"
        message = {"role": role, "content": text(f"words {number}")}
        place = {"id": str(number), "parentId": str(number - 1) if number else None}
        rows.append({"type": "message", **place, "message": message})
    return rows


def copilot_rows() -> list[Row]:
    call = {"toolCallId": "t", "name": "bash", "arguments": {"command": "ls"}}
    events = [
        ("session.start", {"sessionId": "main"}),
        ("user.message", {"content": "please list"}),
        ("assistant.message", {"content": "listing", "toolRequests": [call]}),
        ("tool.execution_complete", {"toolCallId": "t", "result": {"content": "two files"}}),
        ("assistant.message", {"content": "done", "parentToolCallId": "t"}),
        ("user.message", {"content": "thanks"}),
    ]
    return [
        {"type": kind, "data": data, "timestamp": "2026-01-01T00:00:00Z"} for kind, data in events
    ]


def gemini_rows() -> list[Row]:
    call: Row = {"id": "c", "name": "run", "args": {"command": "make"}, "status": "success"}
    call["result"] = [{"functionResponse": {"response": {"output": "potto failed"}}}]
    time = "2026-01-01T00:00:00Z"
    messages: list[Row] = [
        {"type": "user", "content": "Fix the build."},
        {"type": "gemini", "content": "Running it.", "toolCalls": [call],
         "thoughts": [{"subject": "Plan", "description": "think of loris"}]},
        {"type": "info", "content": "Update available"},
        {"type": "user", "content": [{"text": "taken back"}]},
        {"type": "gemini", "content": "never mind"},
        {"$rewindTo": "4"},
        {"type": "user", "content": [{"text": "Go on."}]},
    ]  # fmt: skip
    head: Row = {"sessionId": "main", "projectHash": "ab", "kind": "main"}
    for number, row in enumerate(messages, 1):
        if "type" in row:
            row |= {"id": str(number), "timestamp": time}
    return [head, *messages]


@pytest.mark.parametrize("shape", ["lines", "document"])
def test_import_reads_times_thoughts_and_rewinds_of_gemini_cli(shape: str, tmp_path: Path) -> None:
    rows = gemini_rows()
    data = b"".join(lines_of(rows))
    if shape == "document":
        live = [row for row in rows[1:] if row.get("id") not in ("4", "5", None)]
        data = json.dumps(rows[0] | {"messages": live}, indent=2).encode()
    file = tmp_path / f"chat.json{'l' if shape == 'lines' else ''}"
    file.write_bytes(data)
    conversation = read_conversation(data, name=file.name)
    assert (conversation.kind, conversation.session_id) == ("gemini-cli", "main")
    assert {message.timestamp_seconds for message in conversation.messages} == {1767225600.0}
    assert [text_of(message.blocks) for message in conversation.messages] == [
        "Fix the build.", "Running it.", "", "Go on.",
    ]  # fmt: skip
    assert conversation.payload[1]["content"][0]["thinking"] == "Plan\nthink of loris"
    imported(tmp_path / "a", file)
    [(transcript, context, _)] = archived(tmp_path / "a", tmp_path / "i").values()
    assert context == conversation.payload
    assert ("taken back" in json.dumps(transcript)) == (shape == "lines")


# Fields with IDs, names and settings. Import leaves them out of the search index.
LABELS = {"id", "cwd", "model", "type", "role", "call_id", "tool_use_id", "toolCallId", "sessionId"}


CONTENTS = {"message", "payload", "data", "content", "toolCalls", "thoughts"}


def damaged(value: Any, rng: Random, words: list[str]) -> Any:
    """Return `value` with some parts replaced by unique words, which are added to `words`."""
    words.append(f"zorilla{len(words)}")
    word = f"see {words[-1]}\nthere"
    if rng.random() < 0.08:
        return rng.choice([word, [word], {"odd": word}, {"type": "odd", "deep": [{"x": word}]}])
    words.pop()
    if is_object(value):
        items = [
            (key, inner if key in LABELS else damaged(inner, rng, words))
            for key, inner in value.items()
        ]
        # Some fields are missing, and some labels are of another type.
        return {
            key: 7 if key in LABELS and rng.random() < 0.02 else inner
            for key, inner in items
            if rng.random() > 0.04 or words_in(inner)
        }
    if is_list(value):
        return [damaged(inner, rng, words) for inner in value]
    return value


def words_in(value: Any) -> bool:
    return "zorilla" in json.dumps(value)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [*KINDS, "pi", "copilot", "gemini"])
def test_import_makes_every_word_of_damaged_rows_searchable(
    kind: str, seed: int, tmp_path: Path
) -> None:
    rng = Random(f"{kind} {seed}")
    more_kinds = {"pi": pi_rows, "copilot": copilot_rows, "gemini": gemini_rows}
    rows = more_kinds[kind]() if kind in more_kinds else KINDS[kind]
    words: list[str] = []
    odd: list[Row] = []
    for row in rows:
        # Fields with the type of the row and its parent are not damaged.
        content = {
            key
            for key in CONTENTS
            if key in row and row.get("type") != "session_meta"  # contains only settings
        }
        odd.append(row | {key: damaged(row[key], rng, words) for key in sorted(content)})
    lines = lines_of(odd)
    lines[2:2] = [
        b'{"type": "user", "message": {"content": "torn nyala\n',
        b"\xff zebra\n",
        b"[1]\n",
    ]
    file = tmp_path / "main.jsonl"
    file.write_bytes(b"".join(lines))
    conversation = read_conversation(file.read_bytes(), name="main.jsonl")
    assert sum("is no JSON object" in note for note in conversation.notes) == 3
    imported(tmp_path / "a", file)

    async def missing() -> list[str]:
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as opened:
            return [
                word
                for word in [*words, "nyala", "zebra"]
                if not (await opened.search(Query(word))).hits
            ]

    assert anyio.run(missing) == []


@pytest.mark.parametrize("host", HOSTS)
def test_import_makes_every_word_searchable_when_any_part_of_a_row_is_damaged(
    host: str, tmp_path: Path
) -> None:
    async def missing() -> list[str]:
        async with open_archive(tmp_path / "a", index_root=tmp_path / "i") as opened:
            return [word for data in files for word in await missing_words(opened, data)]

    files = [session_file(host, number) for number in range(3)]
    for number, data in enumerate(files):
        file = tmp_path / f"{host} {number}.{'json' if host == 'opencode' else 'jsonl'}"
        file.write_bytes(data)
        imported(tmp_path / "a", file)
    assert anyio.run(missing) == []


def test_import_reads_only_new_lines_when_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(claude_code_rows() * 40)
    file = tmp_path / "main.jsonl"
    file.write_bytes(b"".join(lines))
    imported(tmp_path / "a", file)
    again = figures(imported(tmp_path / "a", file))
    assert (again["unchanged"], again["messages_written"]) == (1, 0)
    with file.open("ab") as grown:
        grown.write(b"".join(lines_of([claude("user", "one more", 59)])))
    # A batch is smaller than the imported part, so the test fails if that part is read again.
    monkeypatch.setattr(importing, "BATCH_BYTES", 3_000)
    monkeypatch.setattr(importing, "_kind_of_file", None)
    assert figures(imported(tmp_path / "a", file))["messages_written"] == 1
    transcript, context, _ = archived(tmp_path / "a", tmp_path / "i")["main"]
    assert texts(transcript)[-1] == texts(context)[-1] == "one more"


def test_import_reads_the_whole_file_when_it_was_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "main.jsonl"
    rows = claude_code_rows()
    file.write_bytes(b"".join(lines_of(rows)))
    imported(tmp_path / "a", file)
    rows[1] = claude("user", "another question altogether", 1)
    file.write_bytes(b"".join(lines_of([*rows, claude("user", "end", 59)])))
    imported(tmp_path / "a", file)
    transcript, context, _ = archived(tmp_path / "a", tmp_path / "i")["main"]
    assert "another question altogether" in texts(transcript)
    assert "question 0" in texts(transcript)
    assert texts(context)[-1] == "end"


def test_import_archives_every_branch_of_a_pi_session(
    tmp_path: Path,
) -> None:
    def entry(name: str, parent: str | None, **more: Any) -> Row:
        message = {"role": "user", "content": name, "timestamp": 1}
        return {"type": "message", "id": name, "parentId": parent, "message": message} | more

    summary = {"type": "compaction", "summary": "short", "firstKeptEntryId": "c"}
    rows = [
        {"type": "session", "id": "pi-1", "cwd": "/p"},
        entry("a", None),
        entry("b", "a"),
        entry("c", "a"),
        summary | {"id": "k", "parentId": "c"},
        entry("d", "k"),
    ]
    file = tmp_path / "pi.jsonl"
    file.write_bytes(b"".join(lines_of(rows)))
    imported(tmp_path / "a", file)
    (transcript, context, _) = archived(tmp_path / "a", tmp_path / "i")["pi-1"]
    assert [raw.get("content") or raw["summary"] for raw in transcript] == [
        "a", "b", "c", "short", "d",
    ]  # fmt: skip
    assert [raw.get("content") or raw["summary"] for raw in context] == ["a", "c", "short", "d"]


def test_import_reads_message_lists_and_skips_other_files_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    (folder / "list.json").write_text(json.dumps(messages), encoding="utf-8")
    (folder / "more.jsonl.gz").write_bytes(
        gzip.compress(
            b"".join(lines_of([{"role": "user", "content": word} for word in ("a", "b")]))
        )
    )
    (folder / "settings.json").write_text('{"theme": "dark"}', encoding="utf-8")
    (folder / "notes.txt").write_text("no", encoding="utf-8")
    (folder / "empty.jsonl").write_bytes(b"")
    first = figures(imported(tmp_path / "a", folder))
    assert first == {
        "files": 4, "unchanged": 0, "passed_over": 2, "failed": 0, "sessions": 2,
        "messages_written": 4, "outputs": 0,
    }  # fmt: skip
    assert figures(imported(tmp_path / "a", folder))["unchanged"] == 4
    result = imported(tmp_path / "b", folder / "settings.json", exit_code=1)
    assert "settings.json" in result.stderr


@pytest.mark.posix("named pipes")
def test_import_reports_pipes_and_devices_without_waiting(
    tmp_path: Path,
) -> None:
    (tmp_path / "main.jsonl").write_bytes(b"".join(lines_of(claude_code_rows())))
    os.mkfifo(tmp_path / "a-pipe.jsonl")
    (tmp_path / "endless.jsonl").symlink_to("/dev/zero")
    result = imported(tmp_path / "a", tmp_path, exit_code=1)
    assert (figures(result)["failed"], figures(result)["sessions"]) == (2, 2)
    for name in ("a-pipe.jsonl", "endless.jsonl"):
        assert f"{name}: it is not a regular file" in result.stderr


def test_import_skips_the_files_of_the_archive(tmp_path: Path) -> None:
    (tmp_path / "main.jsonl").write_bytes(b"".join(lines_of(claude_code_rows())))
    imported(tmp_path / "a", tmp_path)
    assert figures(imported(tmp_path / "a", tmp_path))["files"] == 1


def test_import_reads_the_whole_file_again_when_its_session_was_deleted(
    tmp_path: Path,
) -> None:
    file = tmp_path / "main.jsonl"
    file.write_bytes(b"".join(lines_of(claude_code_rows())))
    imported(tmp_path / "a", file)
    shutil.rmtree(tmp_path / "a" / "sessions")
    with file.open("ab") as grown:
        grown.write(b"".join(lines_of([claude("user", "one more", 59)])))
    imported(tmp_path / "a", file)
    transcript, _, _ = archived(tmp_path / "a", tmp_path / "i")["main"]
    assert texts(transcript)[0] == "question 0"
    assert texts(transcript)[-1] == "one more"


def test_import_reads_the_folders_of_hosts_when_it_gets_no_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    result = imported(tmp_path / "a", exit_code=2)
    assert "Name files or folders" in result.stderr
    folder = tmp_path / ".claude" / "projects" / "-p"
    folder.mkdir(parents=True)
    (folder / "main.jsonl").write_bytes(b"".join(lines_of(claude_code_rows())))
    assert figures(imported(tmp_path / "a"))["files"] == 1
