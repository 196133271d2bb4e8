"""Texts of replies: equal in the text block and in the structured content."""

import json
import re
from pathlib import Path

import pytest
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.tools import MAX_REPLY_CHARS

from tests.server.helpers import Json, answer_of, connect, conversation, parsed, text_of

pytestmark = pytest.mark.slow


async def test_markers_name_tools_as_they_are_called(config: Config) -> None:
    messages: list[Json] = [{"role": "user", "content": "Read the logs."}]
    for n in range(6):
        call = {"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": f"cat {n}"}}
        text = "".join(f"line {line} of log {n}\n" for line in range(2_000 * (n + 1)))
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    async with connect(config) as client:
        stored = answer_of(await client.call_tool("persist_large_output", {"output": "x" * 9_000}))
        texts = [stored["marker"]]
        for policy in ("default", "claude-code", "three-layer"):
            call_arguments = {"messages": messages, "policy": policy, "context_window": 60_000}
            call_arguments |= {"session_id": policy, "reply": "messages"}
            answer = answer_of(await client.call_tool("compact_messages", call_arguments))
            texts.append(str(answer["messages"]).replace("\\n", "\n"))
        names = {tool.name for tool in (await client.list_tools()).tools}
    for text in texts:
        named = re.findall(rf"(?i)\b(?:{'|'.join(names)})\b", text)
        assert named or "transcript://" in text  # a short summary has no room for more
        assert set(named) <= names


async def test_transcript_reply_has_the_whole_summary_and_says_that_the_host_is_unchanged(
    config: Config, files: Path
) -> None:
    path = files / "session.json"
    path.write_text(json.dumps(conversation(40, 60)), encoding="utf-8")
    call_arguments: Json = {"transcript_path": str(path), "mode": "full", "target_tokens": 3_000}
    async with connect(config) as client:
        plan = answer_of(
            await client.call_tool("compact_messages", {**call_arguments, "mode": "plan"})
        )
        result = await client.call_tool("compact_messages", call_arguments)
        answer = answer_of(result)
        context = text_of(
            await client.call_tool(
                "read_persisted_output", {"output_id": answer["context_pointer"], "offset": 0}
            )
        )
        receipts = text_of(
            await client.call_tool(
                "read_persisted_output",
                {"output_id": answer["receipt_pointer"], "json_path": "$.digest"},
            )
        )
        inline = answer_of(
            await client.call_tool(
                "compact_messages",
                {"messages": conversation(40, 60), "mode": "full", "target_tokens": 3_000},
            )
        )
    assert parsed(result) == answer
    assert len(text_of(result)) <= MAX_REPLY_CHARS
    assert next(iter(answer)) == next(iter(parsed(result))) == "summary"
    assert "</context_summary>" in answer["summary"]
    assert answer["summary"] in context
    assert "context is unchanged" in answer["next_step"]
    assert "receipt" not in answer
    assert "src/module_0.py" in receipts
    assert "your context is unchanged" in inline["next_step"]
    assert plan["status"] == "planned"
    assert "Nothing was written" in plan["next_step"]
    assert "context_pointer" not in plan


CHANGED = {
    "repaired": True,
    "compacted": True,
    "no_progress": False,
    "unchanged": False,
    "planned": False,
    "prepared": False,
    "needs_summary": False,
}


async def test_status_changed_fits_and_tokens_agree_in_every_mode(
    config: Config,
) -> None:
    """Status, changed, fits and tokens agree for every mode and option."""
    orphan = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "x", "content": "no call"}],
    }
    lists = {"small": conversation(1, 5), "large": conversation(20, 80)}
    lists["broken"] = [*conversation(2, 20)[:-1], orphan]
    variants: list[Json] = [{"context_window": 200_000}, {"context_window": 16_000}]
    variants += [{"target_tokens": 60}]
    options = {"usage": {"input_tokens": 30_000, "output_tokens": 9}, "usage_message_index": 1}
    variants.append({"context_window": 60_000, "options": options})
    seen: set[str] = set()
    async with connect(config) as client:
        for name, messages in lists.items():
            for number, call_arguments in enumerate(variants):
                for mode in ("auto", "plan", "micro", "full", "reactive", "record"):
                    for more in ({}, {"summarizer": "host"}, {"options": {"prepare": True}}):
                        if more and "options" in call_arguments:
                            continue
                        if more.get("options") and mode not in {"auto", "full", "micro"}:
                            continue
                        session_id = f"{name}-{number}-{mode}-{len(str(more))}"
                        given = {"messages": messages, "session_id": session_id, "mode": mode}
                        given |= {"reply": "messages"}
                        answer = answer_of(
                            await client.call_tool(
                                "compact_messages", {**given, **call_arguments, **more}
                            )
                        )
                        _check_words(answer, messages, mode)
                        seen.add(answer["status"])
    assert seen == set(CHANGED)


def _check_words(answer: Json, messages: list[Json], mode: str) -> None:
    tokens, status = answer["tokens"], answer["status"]
    assert answer["fits"] == (tokens["upper"] <= tokens["limit"]), answer
    assert tokens["limit"] in {tokens["trigger"], tokens["target"]}
    is_over = tokens["before_upper"] > tokens["trigger"]
    if mode in {"auto", "plan"} and not is_over:
        assert tokens["limit"] == tokens["trigger"]
        assert status in {"unchanged", "repaired", "compacted", "planned", "prepared"}, answer
    if mode in {"auto", "plan", "micro", "full"} and is_over:
        assert tokens["limit"] == tokens["target"]
        assert status not in {"unchanged", "repaired"}, answer
    if status != "no_progress":  # its list may contain repairs
        assert answer["changed"] == CHANGED[status], answer
    assert ("messages" in answer) == answer["changed"]
    assert (status == "planned") <= (mode == "plan")
    assert (mode == "plan") <= (status in {"unchanged", "planned", "no_progress"})
    if answer["changed"]:
        assert answer["messages"] != messages
    elif status in {"unchanged", "no_progress", "needs_summary"}:
        assert (tokens["after"], tokens["upper"]) == (tokens["before"], tokens["before_upper"])
