"""After any number of rewinds, only the live branch of a session file is the conversation."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from context_compaction.formats.session_files.read import read_conversation
from hypothesis import given
from hypothesis import strategies as st

from tests.support.json_types import Json

TIME = "2026-01-01T00:00:00Z"
# Numbers of tool calls in a turn, or a negative number of turns to take back.
STEPS = st.lists(st.integers(-3, 3), min_size=1, max_size=12)
Writer = Callable[[Sequence[int]], list[Json]]


def words(turn: int, part: str) -> str:
    return f"{part} kudu{turn}x"


def live_turns(steps: Sequence[int]) -> list[int]:
    """Return the numbers of the turns that nobody took back; a turn's number is its step."""
    live: list[int] = []
    for number, step in enumerate(steps):
        live = [*live, number] if step >= 0 else live[: max(0, len(live) + step)]
    return live


def claude_code(steps: Sequence[int]) -> list[Json]:
    """A rewind shows only in the parent of the next prompt."""
    rows: list[Json] = []
    ends: list[str | None] = [None]

    def add(kind: str, parent: str | None, content: Any) -> str:
        row_id = f"r{len(rows)}"
        message = {"role": kind, "content": content, "id": row_id, "model": "claude-x"}
        row = {"type": kind, "uuid": row_id, "parentUuid": parent, "message": message}
        rows.append({**row, "sessionId": "main", "timestamp": TIME})
        return row_id

    for number, step in enumerate(steps):
        if step < 0:
            ends = ends[: max(1, len(ends) + step)]
            continue
        last = add("user", ends[-1], words(number, "ask"))
        for call in range(step):
            call_id = f"c{number}-{call}"
            use = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}
            last = add("assistant", last, [use])
            result = {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}
            last = add("user", last, [result])
        ends.append(add("assistant", last, [{"type": "text", "text": words(number, "said")}]))
    return rows


def codex(steps: Sequence[int]) -> list[Json]:
    rows: list[Json] = [{"type": "session_meta", "payload": {"id": "main", "cwd": "/p"}}]

    def add(kind: str, payload: Json) -> None:
        # No two rows have the same time, because a repeated row counts once.
        time = f"2026-01-01T00:00:{len(rows):02}Z"
        rows.append({"timestamp": time, "type": kind, "payload": payload})

    for number, step in enumerate(steps):
        if step < 0:
            add("event_msg", {"type": "thread_rolled_back", "num_turns": -step})
            continue
        for role, part in (("user", "ask"), ("assistant", "said")):
            kind = "input_text" if role == "user" else "output_text"
            content = [{"type": kind, "text": words(number, part)}]
            add("response_item", {"type": "message", "role": role, "content": content})
    return rows


def gemini(steps: Sequence[int]) -> list[Json]:
    """A rewind names the first message that goes."""
    rows: list[Json] = [{"sessionId": "main", "projectHash": "ab", "kind": "main"}]
    prompts: list[str] = []
    for number, step in enumerate(steps):
        if step < 0:
            gone = prompts[step:] if -step <= len(prompts) else prompts
            rows += [{"$rewindTo": gone[0]}] if gone else []
            prompts = prompts[: len(prompts) - len(gone)]
            continue
        for kind, part in (("user", "ask"), ("gemini", "said")):
            row = {"id": f"{part}{number}", "timestamp": TIME, "type": kind}
            rows.append({**row, "content": words(number, part)})
        prompts.append(f"ask{number}")
    return rows


def pi(steps: Sequence[int]) -> list[Json]:
    """A rewind shows only in the parent of the next message."""
    rows: list[Json] = [{"type": "session", "id": "main", "cwd": "/p"}]
    ends: list[str | None] = [None]
    for number, step in enumerate(steps):
        if step < 0:
            ends = ends[: max(1, len(ends) + step)]
            continue
        parent = ends[-1]
        for role, part in (("user", "ask"), ("assistant", "said")):
            content = [{"type": "text", "text": words(number, part)}]
            message = {"role": role, "content": content, "timestamp": 1}
            row = {"type": "message", "id": f"{part}{number}", "parentId": parent}
            rows.append({**row, "message": message})
            parent = f"{part}{number}"
        ends.append(parent)
    return rows


@pytest.mark.parametrize("write", [claude_code, codex, gemini, pi])
@given(steps=STEPS, last=st.integers(0, 3))
def test_conversation_is_the_live_branch_after_any_rewinds(
    write: Writer, steps: list[int], last: int
) -> None:
    steps = [*steps, last]  # a rewind at the end is not in a file of Claude Code or pi
    data = "".join(json.dumps(row) + "\n" for row in write(steps)).encode()
    conversation = read_conversation(data, name="main.jsonl")
    text = json.dumps(conversation.payload)
    shown = [number for number in range(len(steps)) if f"kudu{number}x" in text]
    assert shown == live_turns(steps)
