"""Session files of every host with damaged rows. Each text has a unique word."""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from context_compaction import Archive, Query

from .fuzz import damage
from .json_types import Json

# The spaces keep a word apart from odd text that the damage inserts.
_WORD = re.compile(r"(?<= )needle[0-9]{7}q(?= )")
ROWS_PER_FILE = 100
_TORN_SHARE = 0.1
_STAMP = "2026-01-01T00:00:00Z"

_Say = Callable[[], str]


def session_file(host: str, number: int) -> bytes:
    """Return a session file of `host` with about `ROWS_PER_FILE` damaged rows.

    Args:
        number: Number of the file. The same number gives the same bytes.
    """
    dice = random.Random(f"{host} {number}")
    words = iter(range(number * 10_000, (number + 1) * 10_000))

    def say() -> str:
        return f"they said needle{next(words):07}q about it"

    rows = list(_HOSTS[host](say, number))
    head, rows = rows[0], rows[1:]
    damaged: list[Any] = []
    for row in rows:
        holder = [row]
        for _ in range(dice.choice([1, 1, 2])):
            if holder:
                damage(holder, dice)
        damaged += holder
    if host == "opencode":
        return json.dumps({**head, "messages": damaged}).encode()
    lines = [_torn(json.dumps(row), dice) for row in damaged]
    return "\n".join([json.dumps(head), *lines, ""]).encode()


async def lost_words(archive: Archive, data: bytes) -> list[str]:
    """Return the words of a session file that a search does not find, each with its line."""
    lost: list[str] = []
    for word in sorted(set(_WORD.findall(data.decode()))):
        if not (await archive.search(Query(word))).hits:
            line = next(line for line in data.split(b"\n") if word.encode() in line)
            lost.append(f"{word} of {line.decode()[:700]}")
    return lost


def _torn(line: str, dice: random.Random) -> str:
    return line[: dice.randrange(len(line))] if dice.random() < _TORN_SHARE else line


def _claude_code(say: _Say, number: int) -> Iterator[Json]:
    session = {"sessionId": f"claude-{number}", "cwd": "/srv", "timestamp": _STAMP}

    def row(kind: str, n: int, content: Any, **fields: Any) -> Json:
        parent = f"u{n - 1}" if n else None
        message = {"role": kind, "content": content}
        return {"type": kind, "uuid": f"u{n}", "parentUuid": parent, **session, "message": message,
                **fields}  # fmt: skip

    yield row("user", 0, "Begin.")
    for n in range(1, ROWS_PER_FILE, 10):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": say()}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": say()}
        yield row("user", n, say())
        yield row("assistant", n + 1, [{"type": "text", "text": say()}, call])
        yield row("user", n + 2, [result], toolUseResult={"stdout": say()})
        yield row("assistant", n + 3, [{"type": "thinking", "thinking": say(), "signature": "x"}])
        yield row("assistant", n + 4, say(), isSidechain=True, agentId="a1")
        attached = {"type": "file", "filename": "a.py", "content": {"text": say()}}
        yield {"type": "attachment", **session, "attachment": attached}
        yield {"type": "queue-operation", "operation": "enqueue", **session, "content": say()}
        yield {"type": "summary", "summary": say(), "leafUuid": f"u{n}"}
        yield {"type": "system", **session, "uuid": f"s{n}", "content": say()}
        yield {"type": "custom-title", **session, "customTitle": say()}


def _codex(say: _Say, number: int) -> Iterator[Json]:
    def row(kind: str, payload: Json) -> Json:
        return {"timestamp": _STAMP, "type": kind, "payload": payload}

    def message(role: str, kind: str) -> Json:
        content = [{"type": kind, "text": say()}]
        return row("response_item", {"type": "message", "role": role, "content": content})

    yield row("session_meta", {"id": f"codex-{number}", "cwd": "/srv"})
    for n in range(1, ROWS_PER_FILE, 10):
        arguments = json.dumps({"command": ["bash", "-lc", say()]})
        call = {"type": "function_call", "call_id": f"c{n}", "name": "shell"}
        custom = {"type": "custom_tool_call", "call_id": f"d{n}", "name": "apply_patch"}
        yield message("user", "input_text")
        yield message("assistant", "output_text")
        yield row("response_item", {**call, "arguments": arguments})
        yield row("response_item", {"type": "function_call_output", "call_id": f"c{n}",
                                    "output": say()})  # fmt: skip
        yield row("response_item", {**custom, "input": say()})
        yield row("response_item", {"type": "custom_tool_call_output", "call_id": f"d{n}",
                                    "output": say()})  # fmt: skip
        summary = [{"type": "summary_text", "text": say()}]
        yield row("response_item", {"type": "reasoning", "id": f"rs{n}", "summary": summary,
                                    "encrypted_content": "x"})  # fmt: skip
        yield row("event_msg", {"type": "agent_message", "message": say()})
        yield row("event_msg", {"type": "user_message", "message": say()})
        yield message("developer", "input_text")


def _gemini_cli(say: _Say, number: int) -> Iterator[Json]:
    yield {"sessionId": f"gemini-{number}", "projectHash": "p", "startTime": _STAMP}
    for n in range(1, ROWS_PER_FILE, 4):
        call = {"id": f"t{n}", "name": "read_file", "args": {"path": say()}, "status": "success"}
        result = [{"functionResponse": {"id": f"t{n}", "response": {"output": say()}}}]
        thought = {"subject": "Look", "description": say(), "timestamp": _STAMP}
        yield {"id": f"m{n}", "type": "user", "timestamp": _STAMP, "content": say()}
        yield {"id": f"n{n}", "type": "gemini", "content": say(), "thoughts": [thought]}
        yield {"id": f"o{n}", "type": "gemini", "content": "",
               "toolCalls": [{**call, "result": result}]}  # fmt: skip
        yield {"id": f"p{n}", "type": "info", "content": say()}


def _pi(say: _Say, number: int) -> Iterator[Json]:
    def row(n: int, message: Json) -> Json:
        about = {"id": f"e{n}", "parentId": f"e{n - 1}" if n > 1 else None, "timestamp": _STAMP}
        return {"type": "message", **about, "message": {**message, "timestamp": 1}}

    def text() -> list[Json]:
        return [{"type": "text", "text": say()}]

    yield {"type": "session", "id": f"pi-{number}", "cwd": "/srv", "timestamp": _STAMP}
    for n in range(1, ROWS_PER_FILE, 5):
        call = {"type": "toolCall", "id": f"t{n}", "name": "bash", "arguments": {"command": say()}}
        thinking = {"type": "thinking", "thinking": say(), "thinkingSignature": "x"}
        result = {"role": "toolResult", "toolCallId": f"t{n}", "toolName": "bash"}
        yield row(n, {"role": "user", "content": text()})
        yield row(n + 1, {"role": "assistant", "content": [thinking, *text(), call]})
        yield row(n + 2, {**result, "content": text(), "isError": False})
        yield row(n + 3, {"role": "bashExecution", "command": say(), "output": say()})
        yield {"type": "custom_message", "id": f"e{n + 4}", "parentId": f"e{n + 3}",
               "content": say()}  # fmt: skip


def _copilot(say: _Say, number: int) -> Iterator[Json]:
    def event(kind: str, **data: Any) -> Json:
        return {"type": kind, "data": data, "id": "e", "timestamp": _STAMP}

    yield event("session.start", sessionId=f"copilot-{number}", version=1)
    for n in range(1, ROWS_PER_FILE, 4):
        call = {"toolCallId": f"t{n}", "name": "view", "arguments": {"path": say()}}
        yield event("user.message", content=say(), attachments=[])
        yield event("assistant.message", content=say(), toolRequests=[call])
        yield event("tool.execution_complete", toolCallId=f"t{n}", result={"content": say()})
        yield event("assistant.message", content=say(), parentToolCallId="c0")


def _opencode(say: _Say, number: int) -> Iterator[Json]:
    yield {"info": {"id": f"opencode-{number}", "directory": "/srv", "title": "A title"}}
    for n in range(1, ROWS_PER_FILE, 2):
        text = {"id": f"p{n}", "type": "text", "text": say()}
        state = {"status": "completed", "input": {"command": say()}, "output": say()}
        tool = {"type": "tool", "callID": f"t{n}", "tool": "bash", "state": state}
        yield {"info": {"id": f"m{n}", "role": "user"}, "parts": [text]}
        thought = {"type": "reasoning", "text": say()}
        said = [thought, {**text, "text": say()}, tool]
        yield {"info": {"id": f"n{n}", "role": "assistant"}, "parts": said}


def _cursor(say: _Say, number: int) -> Iterator[Json]:
    yield {"role": "user", "message": {"content": f"Begin number {number}."}}
    for _ in range(1, ROWS_PER_FILE, 2):
        call = {"type": "tool_use", "name": "Shell", "input": {"command": say()}}
        yield {"role": "user", "message": {"content": [{"type": "text", "text": say()}]}}
        yield {"role": "assistant", "message": {"content": [{"type": "text", "text": say()}, call]}}


def _messages(say: _Say, number: int) -> Iterator[Json]:
    yield {"role": "user", "content": f"Begin number {number}."}
    for n in range(1, ROWS_PER_FILE, 3):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": say()}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": say()}
        yield {"role": "assistant", "content": [{"type": "text", "text": say()}, call]}
        yield {"role": "user", "content": [result]}
        yield {"role": "user", "content": say()}


_HOSTS: dict[str, Callable[[_Say, int], Iterator[Json]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini_cli,
    "pi": _pi,
    "copilot": _copilot,
    "opencode": _opencode,
    "cursor": _cursor,
    "messages": _messages,
}
HOSTS = tuple(_HOSTS)
