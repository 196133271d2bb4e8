"""Calls that a script makes: newer versions of Codex let the model write JavaScript for its tools.

The one tool, `exec`, is given `const r = await tools.exec_command({cmd: "ls", "workdir": "/app"});
text(r.output);` where older versions called `exec_command` itself. What such a script runs is told
as if it had been called.
"""

import json
import re
from dataclasses import replace
from typing import Any

from context_compaction.messages.model import ToolCall, is_object

# A string, to its end or that of the script: what stands in it is text, no call and no field.
_STRING = r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)'
_CALLED = re.compile(_STRING + r"|\btools\.([A-Za-z_]\w*)\(\s*", re.DOTALL)
_BOUND = re.compile(r"\b(?:const|let|var)\s+([A-Za-z_$][\w$]*)\s*=\s*(?=\")")
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
# JavaScript leaves the names of fields unquoted; strings are passed over.
_STRING_OR_FIELD = re.compile(_STRING + r"|(?<![\w$])([A-Za-z_$][\w$]*)(?=\s{0,9}:)", re.DOTALL)
_DECODER = json.JSONDecoder()
_COMMANDS = {"exec_command": "cmd", "shell_command": "command"}
_PATCHING = "apply_patch"
_SCRIPT_TOOL = "exec"


def made_call(call: ToolCall) -> ToolCall:
    """The call that the script in `call` makes, commands and patches of several as one command.

    `call` itself where it is no such script, or one whose arguments are not spelt out.
    """
    script = call.arguments
    if call.name != _SCRIPT_TOOL or not isinstance(script, str):
        return call  # a patch of code that calls "tools.x(" is a patch
    made = [
        (found[1], _argument(script, found.end())) for found in _CALLED.finditer(script) if found[1]
    ]
    if not made or any(argument is None for _, argument in made):
        return call
    if len(made) == 1:
        return replace(call, name=made[0][0], arguments=made[0][1])
    commands = [_command(name, argument) for name, argument in made]
    if not all(commands):
        return call
    folders = {given.get("workdir") for _, given in made if is_object(given)}
    folder = {"workdir": folders.pop()} if len(folders) == 1 else {}
    return replace(call, name="exec_command", arguments={"cmd": "\n".join(commands), **folder})


def makes_several(call: ToolCall) -> bool:
    """Whether a script in `call` makes several calls, whose answers it may join in its own way."""
    script = call.arguments
    if call.name != _SCRIPT_TOOL or not isinstance(script, str):
        return False
    return sum(bool(found[1]) for found in _CALLED.finditer(script)) > 1


def _argument(script: str, at: int) -> Any:
    """The value that stands at `at`, or that the name there was given; None if it is neither."""
    if name := _NAME.match(script, at):
        bound = [found.end() for found in _BOUND.finditer(script) if found[1] == name[0]]
        return _value(script[bound[0] :]) if len(bound) == 1 else None
    return _value(_STRING_OR_FIELD.sub(_quoted, script[at:]))


def _quoted(found: re.Match[str]) -> str:
    return f'"{found[1]}"' if found[1] else found[0]


def _value(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _command(name: str, argument: Any) -> str:
    """The command line that a call runs; "" if it runs none."""
    if name == _PATCHING and isinstance(argument, str):
        return f"apply_patch <<'PATCH'\n{argument}\nPATCH"
    command = argument.get(_COMMANDS.get(name, "")) if is_object(argument) else None
    return command if isinstance(command, str) else ""
