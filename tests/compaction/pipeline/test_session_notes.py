"""Notes of a session exist for any length and refer to all messages."""

import pytest
from context_compaction import parse, session_notes

from tests.support.json_types import Json
from tests.support.promises import temporary_archive

SESSION = "notes"
REQUEST: Json = {"role": "user", "content": "Never use tabs. Fix every file of the parser."}


def step(number: int) -> list[Json]:
    call: Json = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"path": "a.py"}}
    result: Json = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"part {number}"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize("steps", [0, 1, 40])
async def test_session_notes_refer_to_all_messages(steps: int) -> None:
    payload = [REQUEST, *(message for number in range(steps) for message in step(number))]
    async with temporary_archive() as archive:
        await archive.append(SESSION, parse(payload, format="anthropic"), format="anthropic")
        notes = await session_notes(
            payload, format="anthropic", session_id=SESSION, archive=archive, max_tokens=2_000
        )
        assert "Never use tabs." in notes
        pointer = notes.partition('originals="')[2].partition('"')[0]
        start, stop = map(int, pointer.rpartition("/")[2].partition("@")[0].split("-"))
        archived = await archive.read_messages(SESSION, start, stop)
        assert [message.raw for message in archived] == payload
