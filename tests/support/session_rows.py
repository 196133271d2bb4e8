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

_Phrases = Callable[[], str]


def session_file(host: str, number: int) -> bytes:
    """Return a session file of `host` with about `ROWS_PER_FILE` damaged rows.

    Args:
        number: Number of the file. Equal numbers give equal bytes.
    """
    dice = random.Random(f"{host} {number}")
    words = iter(range(number * 10_000, (number + 1) * 10_000))

    def phrase() -> str:
        return f"they said needle{next(words):07}q about it"

    rows = list(_HOSTS[host](phrase, number))
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


def claude_code_row(role: str, number: int, content: Any, **fields: Any) -> Json:
    """Return a row of Claude Code with a message, which follows the row before `number`."""
    parent = f"u{number - 1}" if number else None
    message = {"role": role, "content": content}
    return {"type": role, "uuid": f"u{number}", "parentUuid": parent, "message": message, **fields}


async def missing_words(archive: Archive, data: bytes) -> list[str]:
    """Return the words of a session file that a search does not find, each with its line."""
    missing: list[str] = []
    for word in sorted(set(_WORD.findall(data.decode()))):
        if not (await archive.search(Query(word))).hits:
            line = next(line for line in data.split(b"\n") if word.encode() in line)
            missing.append(f"{word} of {line.decode()[:700]}")
    return missing


def _torn(line: str, dice: random.Random) -> str:
    return line[: dice.randrange(len(line))] if dice.random() < _TORN_SHARE else line


def _claude_code(phrase: _Phrases, number: int) -> Iterator[Json]:
    session = {"sessionId": f"claude-{number}", "cwd": "/srv", "timestamp": _STAMP}

    def row(kind: str, n: int, content: Any, **fields: Any) -> Json:
        return claude_code_row(kind, n, content, **session, **fields)

    yield row("user", 0, "Begin.")
    for n in range(1, ROWS_PER_FILE, 10):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": phrase()}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": phrase()}
        yield row("user", n, phrase())
        yield row("assistant", n + 1, [{"type": "text", "text": phrase()}, call])
        yield row("user", n + 2, [result], toolUseResult={"stdout": phrase()})
        yield row(
            "assistant", n + 3, [{"type": "thinking", "thinking": phrase(), "signature": "x"}]
        )
        yield row("assistant", n + 4, phrase(), isSidechain=True, agentId="a1")
        attached = {"type": "file", "filename": "a.py", "content": {"text": phrase()}}
        yield {"type": "attachment", **session, "attachment": attached}
        yield {"type": "queue-operation", "operation": "enqueue", **session, "content": phrase()}
        yield {"type": "summary", "summary": phrase(), "leafUuid": f"u{n}"}
        yield {"type": "system", **session, "uuid": f"s{n}", "content": phrase()}
        yield {"type": "custom-title", **session, "customTitle": phrase()}


def _codex(phrase: _Phrases, number: int) -> Iterator[Json]:
    def row(kind: str, payload: Json) -> Json:
        return {"timestamp": _STAMP, "type": kind, "payload": payload}

    def message(role: str, kind: str) -> Json:
        content = [{"type": kind, "text": phrase()}]
        return row("response_item", {"type": "message", "role": role, "content": content})

    yield row("session_meta", {"id": f"codex-{number}", "cwd": "/srv"})
    for n in range(1, ROWS_PER_FILE, 10):
        arguments = json.dumps({"command": ["bash", "-lc", phrase()]})
        call = {"type": "function_call", "call_id": f"c{n}", "name": "shell"}
        custom = {"type": "custom_tool_call", "call_id": f"d{n}", "name": "apply_patch"}
        yield message("user", "input_text")
        yield message("assistant", "output_text")
        yield row("response_item", {**call, "arguments": arguments})
        yield row("response_item", {"type": "function_call_output", "call_id": f"c{n}",
                                    "output": phrase()})  # fmt: skip
        yield row("response_item", {**custom, "input": phrase()})
        yield row("response_item", {"type": "custom_tool_call_output", "call_id": f"d{n}",
                                    "output": phrase()})  # fmt: skip
        summary = [{"type": "summary_text", "text": phrase()}]
        yield row("response_item", {"type": "reasoning", "id": f"rs{n}", "summary": summary,
                                    "encrypted_content": "x"})  # fmt: skip
        yield row("event_msg", {"type": "agent_message", "message": phrase()})
        yield row("event_msg", {"type": "user_message", "message": phrase()})
        yield message("developer", "input_text")


def _gemini_cli(phrase: _Phrases, number: int) -> Iterator[Json]:
    yield {"sessionId": f"gemini-{number}", "projectHash": "p", "startTime": _STAMP}
    for n in range(1, ROWS_PER_FILE, 4):
        call = {"id": f"t{n}", "name": "read_file", "args": {"path": phrase()}, "status": "success"}
        result = [{"functionResponse": {"id": f"t{n}", "response": {"output": phrase()}}}]
        thought = {"subject": "Look", "description": phrase(), "timestamp": _STAMP}
        yield {"id": f"m{n}", "type": "user", "timestamp": _STAMP, "content": phrase()}
        yield {"id": f"n{n}", "type": "gemini", "content": phrase(), "thoughts": [thought]}
        yield {"id": f"o{n}", "type": "gemini", "content": "",
               "toolCalls": [{**call, "result": result}]}  # fmt: skip
        yield {"id": f"p{n}", "type": "info", "content": phrase()}


def _pi(phrase: _Phrases, number: int) -> Iterator[Json]:
    def row(n: int, message: Json) -> Json:
        about = {"id": f"e{n}", "parentId": f"e{n - 1}" if n > 1 else None, "timestamp": _STAMP}
        return {"type": "message", **about, "message": {**message, "timestamp": 1}}

    def text() -> list[Json]:
        return [{"type": "text", "text": phrase()}]

    yield {"type": "session", "id": f"pi-{number}", "cwd": "/srv", "timestamp": _STAMP}
    for n in range(1, ROWS_PER_FILE, 5):
        call = {
            "type": "toolCall",
            "id": f"t{n}",
            "name": "bash",
            "arguments": {"command": phrase()},
        }
        thinking = {"type": "thinking", "thinking": phrase(), "thinkingSignature": "x"}
        result = {"role": "toolResult", "toolCallId": f"t{n}", "toolName": "bash"}
        yield row(n, {"role": "user", "content": text()})
        yield row(n + 1, {"role": "assistant", "content": [thinking, *text(), call]})
        yield row(n + 2, {**result, "content": text(), "isError": False})
        yield row(n + 3, {"role": "bashExecution", "command": phrase(), "output": phrase()})
        yield {"type": "custom_message", "id": f"e{n + 4}", "parentId": f"e{n + 3}",
               "content": phrase()}  # fmt: skip


def _copilot(phrase: _Phrases, number: int) -> Iterator[Json]:
    def event(kind: str, **data: Any) -> Json:
        return {"type": kind, "data": data, "id": "e", "timestamp": _STAMP}

    yield event("session.start", sessionId=f"copilot-{number}", version=1)
    for n in range(1, ROWS_PER_FILE, 4):
        call = {"toolCallId": f"t{n}", "name": "view", "arguments": {"path": phrase()}}
        yield event("user.message", content=phrase(), attachments=[])
        yield event("assistant.message", content=phrase(), toolRequests=[call])
        yield event("tool.execution_complete", toolCallId=f"t{n}", result={"content": phrase()})
        yield event("assistant.message", content=phrase(), parentToolCallId="c0")


def _opencode(phrase: _Phrases, number: int) -> Iterator[Json]:
    yield {"info": {"id": f"opencode-{number}", "directory": "/srv", "title": "A title"}}
    for n in range(1, ROWS_PER_FILE, 2):
        text = {"id": f"p{n}", "type": "text", "text": phrase()}
        state = {"status": "completed", "input": {"command": phrase()}, "output": phrase()}
        tool = {"type": "tool", "callID": f"t{n}", "tool": "bash", "state": state}
        yield {"info": {"id": f"m{n}", "role": "user"}, "parts": [text]}
        thought = {"type": "reasoning", "text": phrase()}
        parts = [thought, {**text, "text": phrase()}, tool]
        yield {"info": {"id": f"n{n}", "role": "assistant"}, "parts": parts}


def _cursor(phrase: _Phrases, number: int) -> Iterator[Json]:
    yield {"role": "user", "message": {"content": f"Begin number {number}."}}
    for _ in range(1, ROWS_PER_FILE, 2):
        call = {"type": "tool_use", "name": "Shell", "input": {"command": phrase()}}
        yield {"role": "user", "message": {"content": [{"type": "text", "text": phrase()}]}}
        yield {
            "role": "assistant",
            "message": {"content": [{"type": "text", "text": phrase()}, call]},
        }


def _messages(phrase: _Phrases, number: int) -> Iterator[Json]:
    yield {"role": "user", "content": f"Begin number {number}."}
    for n in range(1, ROWS_PER_FILE, 3):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": phrase()}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": phrase()}
        yield {"role": "assistant", "content": [{"type": "text", "text": phrase()}, call]}
        yield {"role": "user", "content": [result]}
        yield {"role": "user", "content": phrase()}


_HOSTS: dict[str, Callable[[_Phrases, int], Iterator[Json]]] = {
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
