"""Tool calls with unusual arguments raise nothing, and every output named is archived."""

import json
import re
from typing import Any

import anyio
import pytest
from context_compaction.activity import calls, outcome
from context_compaction.pipeline.compact import compact
from context_compaction.policies import POLICIES
from context_compaction.request import CompactRequest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.json_types import Json
from tests.support.promises import temporary_archive
from tests.support.provider_rules import problems
from tests.support.small import answered, assistant, call, chat_calls, lines, result, user

NAMES = [
    "Bash", "Read", "Edit", "Write", "apply_patch", "str_replace_based_edit_tool", "MultiEdit",
    "NotebookEdit", "shell", "view", "exec_command", "TodoWrite", "Task", "AskUserQuestion",
    "mcp__a__read", "update_plan", "create_file", "glob", "Skill",
]  # fmt: skip
KEYS = [
    "command", "cmd", "file_path", "path", "old_string", "new_string", "content", "patch",
    "input", "edits", "offset", "limit", "view_range", "start_line", "lines", "replace_all",
    "workdir", "insert_line", "old_str", "file_text", "cells", "todos", "plan", "questions",
    "range", "url",
]  # fmt: skip
TEXTS = [
    "", "/", "~", "a.py", "/w/a.py", "a.py:1-", "a.py:9999999999", "a.py:5-2,3", "C:\\x", "\ud800",
    "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch", "*** Begin Patch\n*** Add",
    "*** Begin Patch\n*** Update File: \n*** Move to: x", "--- a\n+++ b\n@@ -1,0 +1 @@\n", "@@ -1",
    "cat <<'EOF' > a.py\nx\nEOF", "cat <<", "sed -n 1,", "sed -n '5,2p' a.py", "echo 'x", "$((",
    "head -n -5 a", "tail -n +x a", "cd '", "> ", "<<<", "[", "(?P<", "{", "\x00", "1e999",
]  # fmt: skip
OUTPUTS = [
    "", "ok", "     1\tx\n     2\ty", "Error: no", "[]", "{}", "exit code: 1", "\n" * 500,
    "99999999999999999999\tx\n1\ty", '{"metadata": {"exit_code": null}}', "<returncode>x",
]  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(TEXTS) | st.sampled_from([None, True, -1, 2**70, 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=5,
)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
        st.sampled_from(OUTPUTS),
        st.sampled_from([0, 5, 60]),
    ),
    min_size=8,
    max_size=20,
)


@given(CALLS, st.sampled_from(list(POLICIES)), st.sampled_from([1_000, 4_000]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_odd_tool_calls_never_stop_compaction(
    calls_and_results: list[tuple[str, Json, str, int]],
    policy: str,
    target_tokens: int,
    is_chat: bool,
) -> None:
    payload = [user("Do the work on /w/a.py please.")]
    for index, (name, arguments, output, count) in enumerate(calls_and_results):
        text = f"{output}{lines(f'n{index}', count)}"
        if is_chat:
            payload += chat_calls((f"c{index}", name, arguments, text))
        else:
            tool = {"type": "tool_use", "id": f"c{index}", "name": name, "input": arguments}
            payload += [assistant(tool), user([result(f"c{index}", text)])]
    format = "openai-chat" if is_chat else "anthropic"
    request = CompactRequest(format=format, policy=policy, target_tokens=target_tokens)

    async def run() -> None:
        async with temporary_archive() as archive:
            compaction = await compact(payload, request, archive=archive)
            assert problems(compaction.messages, format) == []
            for output_id in set(re.findall(r"o_[0-9a-f]{24}", json.dumps(compaction.messages))):
                await archive.read_output(output_id)  # raises NotFoundError

    anyio.run(run)


@pytest.mark.parametrize("reader", [(calls, "_use_of"), (outcome, "parsed_json")])
async def test_error_in_a_call_reader_is_logged_and_ignored(
    reader: tuple[Any, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("zip() argument 2 is longer than argument 1")

    monkeypatch.setattr(*reader, fails)
    payload = [user("Look.")]
    for index in range(12):
        output = json.dumps({"output": lines(f"n{index}", 60), "exit_code": 0})
        payload += answered(f"c{index}", "lookup_rows", output, topic=f"rows {index}")
    async with temporary_archive() as archive:
        compaction = await compact(payload, CompactRequest(target_tokens=2_000), archive=archive)
    assert compaction.status == "compacted"
    assert "zip() argument" in caplog.text


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_parallel_calls_in_separate_messages_compact_like_joined_calls(mode: Any) -> None:
    names = [f"p{n}" for n in range(4)]

    def turn(number: int, *, joined: bool) -> list[Json]:
        parallel_calls = [
            call(f"{name}_{number}", "Bash", command=f"{name} {number}") for name in names
        ]
        results = [result(f"{name}_{number}", lines(f"{name}{number}", 40)) for name in names]
        if joined:
            return [assistant(*parallel_calls), user(results)]
        return [*map(assistant, parallel_calls), *(user([item]) for item in results)]

    sizes: list[int] = []
    for joined in (True, False):
        payload = [user("Run all of them."), *(m for n in range(8) for m in turn(n, joined=joined))]
        request = CompactRequest(format="anthropic", mode=mode, target_tokens=6_000)
        async with temporary_archive() as archive:
            compaction = await compact(payload, request, archive=archive)
        assert compaction.status == "compacted"
        assert compaction.fits
        assert problems(compaction.messages, "anthropic") == []
        sizes.append(compaction.tokens.after)
    assert 0.8 < sizes[0] / sizes[1] < 1.25
