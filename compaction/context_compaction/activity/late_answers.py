"""Commands that a host lets run on: what they answer comes with later calls, which wait for it.

Codex answers `exec_command` after a while with "Process running with session ID 8", and what the
command printed since is the answer of `write_stdin` with that id; `wait` does so for its scripts.
"""

import re
from dataclasses import replace

from context_compaction.activity.script_calls import made_call
from context_compaction.activity.shown_text import without_head
from context_compaction.messages.model import (
    Messages,
    Text,
    ToolResult,
    named_arguments,
    tool_calls,
    tool_results,
)
from context_compaction.messages.tool_results import result_text

_RUNS_ON = re.compile(r"^(?:Process|Script) running with (?:session|cell) ID (\w+)$", re.MULTILINE)
_RUNNING = " running with "
_HEAD_CHARS = 300  # it stands above what was printed so far
_WAITS_FOR = ("session_id", "cell_id")
# Of all that a command printed while it ran, the end; else many waits would cost by the square.
_MOST_CHARS = 100_000


def answers_of(messages: Messages) -> dict[str, ToolResult]:
    """The result of each call by its id, which no other has; see `with_own_ids`.

    What a command printed while later calls waited for it is its own, and so is how it ended;
    those calls answered nothing.
    """
    results = {one.call_id: one for message in messages for one in tool_results(message)}
    runs_on: dict[str, str] = {}  # by the id that it runs under the call that began it
    for call in (call for message in messages for call in tool_calls(message)):
        result = results.get(call.call_id)
        if result is None:
            continue
        text = result_text(result)
        began = call.call_id
        if runs_on:
            given = named_arguments(made_call(call))
            waits = (runs_on.get(str(given.get(name))) for name in _WAITS_FOR)
            began = next(filter(None, waits), began)
        if found := _running(text):
            runs_on[found[1]] = began
        if began != call.call_id:
            head, printed = _parted(text)
            head_before, before = _parted(result_text(results[began]))
            head = head or head_before  # one that was told of before, and carried on
            whole = f"{head}{f'{before}{printed}'[-_MOST_CHARS:]}"
            results[began] = replace(result, call_id=began, content=(Text(whole),))
            results[call.call_id] = replace(result, is_error=False, content=())
    return results


def running_head(text: str) -> str:
    """What the host put above an answer of a command that runs on; "" above any other."""
    head, _ = _parted(text) if _running(text) else ("", text)
    return head


def _running(text: str) -> re.Match[str] | None:
    """The host's line above an answer of a command that runs on."""
    # A word of it is found far sooner, and hardly any answer has it.
    is_told = text.find(_RUNNING, 0, _HEAD_CHARS) >= 0
    return _RUNS_ON.search(text, 0, _HEAD_CHARS) if is_told else None


def _parted(text: str) -> tuple[str, str]:
    printed = without_head(text)[0]
    return text.removesuffix(printed), printed
