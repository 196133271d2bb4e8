"""A script that calls a host's tools is told as the calls that it makes."""

import json
from typing import Any

import pytest
from context_compaction import CompactRequest, compact, open_archive
from context_compaction.activity.file_changes import changes_of
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.tool_kinds import classify
from context_compaction.messages.model import JsonObject, ToolCall
from hypothesis import given
from hypothesis import strategies as st

PATCH = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x = 1\n+x = 2\n*** End Patch\n"
# "tools.x(" and field names inside of strings are text, not calls.
COMMANDS = st.text(min_size=1) | st.sampled_from([
    "echo 'tools.y(1)'",
    'rg "cmd: \\"a\\"" src',
    "printf '{cmd:\"x\"}'",
    "ls\ngit status",
])


def _script(command: str, folder: str = "/app") -> str:
    """As Codex' models write it, the first field without quotation marks."""
    told = f'{{cmd:{json.dumps(command)},"workdir":"{folder}","yield_time_ms":10000}}'
    return f"const r = await tools.exec_command({told}); text(r.output);\n"


@given(COMMANDS)
def test_a_command_in_a_script_is_the_command(command: str) -> None:
    plain = ToolCall("c", "exec_command", {"cmd": command, "workdir": "/app"})
    scripted = ToolCall("c", "exec", _script(command))
    assert classify(scripted) == classify(plain)
    assert made_call(scripted).name == "exec_command"


def test_a_patch_in_a_script_changes_what_the_patch_does() -> None:
    plain = ToolCall("c", "apply_patch", PATCH)
    for script in (
        f"const patch = {json.dumps(PATCH)};\ntext(await tools.apply_patch(patch));",
        f"text(await tools.apply_patch({json.dumps(PATCH)}));",
    ):
        scripted = ToolCall("c", "exec", script)
        assert classify(scripted) == classify(plain)
        assert changes_of(scripted, classify(scripted)) == changes_of(plain, classify(plain))


def test_a_patch_of_code_that_calls_tools_is_a_patch() -> None:
    patch = PATCH.replace("+x = 2", '+await tools.exec_command({cmd:"rm src/b.py"})')
    plain = ToolCall("c", "apply_patch", patch)
    scripted = ToolCall("c", "exec", f"text(await tools.apply_patch({json.dumps(patch)}));")
    assert made_call(plain) is plain
    assert made_call(scripted) == plain


def test_commands_of_one_script_are_told_one_after_the_other() -> None:
    script = (
        "const results = await Promise.all([\n"
        '  tools.exec_command({cmd:"make test","workdir":"/app"}),\n'
        '  tools.exec_command({cmd:"git status","workdir":"/app"})\n'
        "]); results.forEach(r => text(r.output));"
    )
    made = made_call(ToolCall("c", "exec", script))
    assert made.arguments == {"cmd": "make test\ngit status", "workdir": "/app"}


@pytest.mark.parametrize(
    "script",
    [
        "await tools.exec_command(options);",
        "await tools.exec_command({cmd: `ls ${folder}`});",
        "let p = 'one'; let p2 = \"x\"; await tools.apply_patch(p);",
        'await tools.exec_command({cmd:"ls"}); await tools.web__run({open:"x"});',
        "await tools.exec_command(",
        'tools["exec_command"]({cmd: "ls"})',
        "print('nothing of the kind')",
    ],
)
def test_a_script_that_does_not_spell_out_what_it_calls_stays_a_script(script: str) -> None:
    call = ToolCall("c", "exec", script)
    assert made_call(call) is call
    assert classify(call).command == script


def _session(*, scripted: bool) -> list[JsonObject]:
    rows: list[JsonObject] = [_said("user", "Make the tests pass.")]
    for number in range(30):
        command = f"pytest tests/test_{number}.py"
        arguments = {"cmd": command, "workdir": "/app"}
        call: dict[str, Any] = {"call_id": f"c{number}"}
        if scripted:
            call |= {"type": "custom_tool_call", "name": "exec", "input": _script(command)}
        else:
            arguments_text = json.dumps(arguments)
            call |= {"type": "function_call", "name": "exec_command", "arguments": arguments_text}
        kind = "custom_tool_call_output" if scripted else "function_call_output"
        output = "E   ValueError: no such port 7001\n" + "collected 1 item\n" * 200
        rows += [call, {"type": kind, "call_id": f"c{number}", "output": output}]
    return [*rows, _said("assistant", "Done."), _said("user", "Now write the notes.")]


def _said(role: str, text: str) -> JsonObject:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


@pytest.mark.anyio
async def test_a_memory_of_scripts_says_what_one_of_plain_calls_says(tmp_path: Any) -> None:
    told: list[str] = []
    async with open_archive(tmp_path) as archive:
        for scripted in (False, True):
            request = CompactRequest(
                format="openai-responses", target_tokens=1_500, session_id=f"s{scripted}"
            )
            result = await compact(_session(scripted=scripted), request, archive=archive)
            summary = json.dumps(result.messages)
            assert "tools.exec_command" not in summary.split("</context_summary>")[0]
            told.append(summary)
    assert all("pytest tests/test_" in text for text in told)
