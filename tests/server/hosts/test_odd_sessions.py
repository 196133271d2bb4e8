"""Odd input of hosts, by automatic import and by hooks: it is archived and never stops anything."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from context_compaction.archive.archive import Archive
from context_compaction.archive.local.archive import open_archive
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_server_compaction.hosts import hook
from mcp_server_compaction.hosts.session_imports import SessionImports

from tests.server.helpers import Json
from tests.support.session_rows import claude_code_row

Shape = Callable[[Json, str], Any]


def row(number: int, content: Any) -> Json:
    role = "assistant" if number % 2 else "user"
    return claude_code_row(role, number, content, sessionId="s-1", timestamp="2026-11-22T10:00:00Z")


def without(good: Json, *path: str) -> Json:
    *holders, last = path
    copy = holder = json.loads(json.dumps(good))
    for name in holders:
        holder = holder[name]
    del holder[last]
    return copy


def with_message(good: Json, message: Any) -> Json:
    return {**good, "message": message}


def blocks(good: Json, *items: Any) -> Json:
    return with_message(good, {"role": good["type"], "content": list(items)})


SHAPES: dict[str, Shape] = {
    "no id": lambda good, _: without(good, "uuid"),
    "no parent": lambda good, _: without(good, "parentUuid"),
    "no time": lambda good, _: without(good, "timestamp"),
    "no session": lambda good, _: without(good, "sessionId"),
    "no type": lambda good, _: without(good, "type"),
    "no role": lambda good, _: without(good, "message", "role"),
    "unknown type": lambda good, _: {**good, "type": "zork"},
    "type is a number": lambda good, _: {**good, "type": 7},
    "ids are lists": lambda good, _: {**good, "uuid": ["u"], "parentUuid": {}, "sessionId": [1]},
    "message is a text": with_message,
    "message is a list": lambda good, word: with_message(good, [word, 1, None]),
    "content is an object": lambda good, word: with_message(
        good, {"role": good["type"], "content": {"x": word}}
    ),
    "content is missing": lambda good, word: with_message(good, {"role": good["type"], "x": word}),
    "unknown block": lambda good, word: blocks(good, {"type": "zork", "x": [word]}),
    "block is a text": lambda good, word: blocks(good, word, 3),
    "call without a name": lambda good, word: blocks(
        good, {"type": "tool_use", "id": "t", "input": {"x": word}}
    ),
    "call with a list": lambda good, word: blocks(
        good, {"type": "tool_use", "id": "t", "name": "X", "input": [word]}
    ),
    "result without a call": lambda good, word: blocks(
        good, {"type": "tool_result", "content": word}
    ),
    "row is a text": lambda _, word: word,
    "row is a list": lambda _, word: [word, {"x": 1}],
    "long number": lambda good, _: {**good, "x": "NUMBER"},
}  # fmt: skip
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda line: line,
    "torn": lambda line: line[:-1],
    "bad byte": lambda line: line.replace(b"wurd", b"\xffwurd", 1),
    "zeros before": lambda line: b"\0\0\0" + line,
    "torn by zeros": lambda line: line[:-3] + b"\0\0" + line,
    "not a number": lambda line: line.replace(b'{"', b'{"n": NaN, "m": 1e999, "', 1),
    "twice": lambda line: line + b"\n" + line,
}
ODD_LINES = st.tuples(st.sampled_from(sorted(SHAPES)), st.sampled_from(sorted(DAMAGES)))


def archived(folder: Path) -> bytes:
    """Return everything in the log of an archive."""
    return b"".join(path.read_bytes() for path in folder.rglob("*.jsonl"))


def file_of(odd: list[tuple[str, str]]) -> tuple[bytes, list[bytes]]:
    """Return the text of a session file with good and odd lines, and a word of each line."""
    lines = [json.dumps(row(0, "wurdfirst")).encode()]
    words = [b"wurdfirst"]
    for number, (shape, damage) in enumerate(odd, start=1):
        word = f"wurd{number}x"
        text = json.dumps(SHAPES[shape](row(number, word), word)).replace('"NUMBER"', "9" * 5000)
        lines.append(DAMAGES[damage](text.encode()))
        words.append(word.encode())
    return b"\n".join((*lines, b"")), words


@settings(max_examples=60, deadline=None)
@given(st.lists(ODD_LINES, max_size=4))
def test_automatic_import_archives_every_word_of_odd_lines(odd: list[tuple[str, str]]) -> None:
    data, words = file_of(odd)

    async def imported(folder: Path) -> bytes:
        (folder / "sessions").mkdir()
        (folder / "sessions/s-1.jsonl").write_bytes(data)
        async with open_archive(folder / "a", index_root=folder / "i") as archive:

            async def opened() -> Archive:
                return archive

            await SessionImports(folder / "a", [folder / "sessions"], opened).catch_up(30)
        return archived(folder / "a" / "sessions")

    with TemporaryDirectory() as name:
        found = anyio.run(imported, Path(name))
    assert [word for word in words if word not in found] == []


def hooked(folder: Path, host: str, event: str, payload: bytes) -> bytes:
    """Run the background part of a hook, and return what it archived."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(payload), "utf-8")
    try:
        hook.run_hook([event, "--host", host, "--archive", str(folder / "a"), "--background"])
    finally:
        sys.stdin = before
    return archived(folder / "a" / "sessions")


@settings(max_examples=40, deadline=None)
@given(st.lists(ODD_LINES, max_size=4))
def test_hook_archives_every_word_of_odd_lines(odd: list[tuple[str, str]]) -> None:
    data, words = file_of(odd)
    with TemporaryDirectory() as name:
        path = Path(name, "s-1.jsonl")
        path.write_bytes(data)
        payload = {"session_id": "s-1", "transcript_path": str(path)}
        found = hooked(Path(name), "claude-code", "PreCompact", json.dumps(payload).encode())
    assert [word for word in words if word not in found] == []


def chat(*parts: Any, **fields: Any) -> Json:
    return {"info": {"role": "user"}, "parts": list(parts), **fields}


CHAT_SHAPES: dict[str, Callable[[str], Any]] = {
    "good": lambda word: chat({"type": "text", "text": word}),
    "a text": lambda word: word,
    "a list": lambda word: [word],
    "no info": lambda word: {"parts": [{"type": "text", "text": word}]},
    "info is a text": lambda word: chat({"type": "text", "text": word}, info="x"),
    "no parts": lambda word: {"info": {"role": "user"}, "text": word},
    "parts are an object": lambda word: {"info": {"role": "user"}, "parts": {"text": word}},
    "parts are a text": lambda word: {"info": {"role": "user"}, "parts": word},
    "part is a text": chat,
    "unknown part": lambda word: chat({"type": "zork", "text": word}),
    "text is a list": lambda word: chat({"type": "text", "text": [word]}),
    "text is an object": lambda word: chat({"type": "text", "text": {"content": word}}),
    "tool without a state": lambda word: chat({"type": "tool", "tool": "x", "text": word}),
    "output is an object": lambda word: chat(
        {"type": "tool", "tool": "x", "callID": "c", "state": {"output": {"text": word}}}
    ),
    "long number": lambda word: chat({"type": "text", "text": word}, x="NUMBER"),
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHAT_SHAPES)), max_size=4))
def test_hook_archives_every_word_of_odd_messages(shapes: list[str]) -> None:
    words = [f"wurd{number}x" for number in range(len(shapes) + 1)]
    messages = [
        CHAT_SHAPES[shape](word) for shape, word in zip(["good", *shapes], words, strict=True)
    ]
    text = json.dumps({"session_id": "ses_1", "messages": messages})
    with TemporaryDirectory() as name:
        payload = text.replace('"NUMBER"', "9" * 5000).encode()
        found = hooked(Path(name), "opencode", "session.compacting", payload)
    assert [word for word in words if word.encode() not in found] == []
