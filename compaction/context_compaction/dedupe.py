"""Layer: clear what a later result makes worthless, before anything of value goes.

Three cases: an older read of a file that a later whole read or a later edit supersedes; an
unchanged repeated read; and any call repeated with the same arguments and the same answer. The
newest of equals stays, where the model's attention is.
"""

import json
from dataclasses import dataclass

from context_compaction.edits import Step
from context_compaction.kept_results import result_text
from context_compaction.messages import Messages, ToolCall, ToolResult
from context_compaction.pairing import CallIndex, index_calls
from context_compaction.replacing import Place, Replacement, clear_result, replace_blocks
from context_compaction.settings import Settings
from context_compaction.tokens import MessageCounter
from context_compaction.tool_kinds import ToolUse, classify, is_steering

SAME_AGAIN = "FILE_UNCHANGED: the same content stands further down"
REPEATED = "the same output stands further down"


@dataclass(frozen=True, slots=True)
class _Seen:
    place: Place
    call: ToolCall
    result: ToolResult
    use: ToolUse


def dedupe(messages: Messages, *, count: MessageCounter, settings: Settings) -> Step:
    """Clear superseded reads and repeated outputs. Linear in the number of results."""
    index = index_calls(messages)
    seen = _answered_calls(messages, index, settings)
    chosen: dict[Place, Replacement] = {}
    for item, reason in _superseded(seen):
        done = clear_result(item.result, item.call.name, count, reason)
        if done is not None:
            chosen[item.place] = done
    return replace_blocks(messages, chosen, count, layer="dedupe")


def _answered_calls(messages: Messages, index: CallIndex, settings: Settings) -> list[_Seen]:
    protected = {name.lower() for name in settings.protected_tools}
    seen: list[_Seen] = []
    for position, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            if not isinstance(block, ToolResult):
                continue
            call = index.calls.get(block.call_id)
            if call is None or call.name.lower() in protected or is_steering(call.name):
                continue
            use = classify(call, settings.tool_kinds)
            seen.append(_Seen(Place(position, at), call, block, use))
    return seen


def _superseded(seen: list[_Seen]) -> list[tuple[_Seen, str]]:
    """Walk from the newest to the oldest, and name what something newer makes worthless."""
    read_whole: dict[str, str] = {}  # path -> text of the newest whole read
    changed: set[str] = set()
    outputs: set[tuple[str, str, str]] = set()
    found: list[tuple[_Seen, str]] = []
    for item in reversed(seen):
        reason = _reason(item, read_whole, changed, outputs)
        if reason:
            found.append((item, reason))
        if item.result.is_error:
            continue
        path = item.use.path
        if path and item.use.kind in ("edit", "write", "notebook"):
            changed.add(path)
        elif path and item.use.kind == "read" and not item.use.is_partial:
            read_whole.setdefault(path, result_text(item.result))
        outputs.add(_signature(item))
    return found


def _reason(
    item: _Seen,
    read_whole: dict[str, str],
    changed: set[str],
    outputs: set[tuple[str, str, str]],
) -> str:
    if item.result.is_error:
        return ""
    path = item.use.path
    if item.use.kind == "read" and path:
        if path in read_whole:
            same = read_whole[path] == result_text(item.result)
            return SAME_AGAIN if same else f"superseded by a later read of {path}"
        if path in changed:
            return f"superseded by a later edit of {path}"
    return REPEATED if _signature(item) in outputs else ""


def _signature(item: _Seen) -> tuple[str, str, str]:
    arguments = json.dumps(item.call.arguments, sort_keys=True, default=str)
    return item.call.name, arguments, result_text(item.result)
