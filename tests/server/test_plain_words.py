"""What the tools say: in plain words, in text and structured content alike."""

import re

from .helpers import Json, answer_of, spawned


async def test_markers_name_tools_as_they_are_called(environment: dict[str, str]) -> None:
    messages: list[Json] = [{"role": "user", "content": "Read the logs."}]
    for n in range(6):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"cat {n}"}}
        text = "".join(f"line {line} of log {n}\n" for line in range(2_000 * (n + 1)))
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    async with spawned(environment) as client:
        stored = answer_of(await client.call_tool("persist_large_output", {"output": "x" * 9_000}))
        texts = [stored["marker"]]
        for policy in ("default", "claude-code", "three-layer"):
            wish = {"messages": messages, "policy": policy, "context_window": 60_000}
            answer = answer_of(
                await client.call_tool("compact_messages", {**wish, "session_id": policy})
            )
            texts.append(str(answer["messages"]))
        names = {tool.name for tool in (await client.list_tools()).tools}
    for text in texts:
        named = re.findall(rf"(?i)\b(?:{'|'.join(names)})\b", text)
        assert named
        assert set(named) <= names
