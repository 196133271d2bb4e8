"""Layer: clear what a later result supersedes, before anything of value.

Five cases: an older read of a file that a later read (of the whole, or of the same range) or a
later edit supersedes; an unchanged repeated read, whatever tool made it; a copy that
`restore_files` inserted of a file that was read or changed since; any call repeated with the same
arguments and the same answer; and a long argument that a later call is given again, as a plan that
is written and then handed over. The newest of equals stays, where the model's attention is.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from context_compaction.activity.tool_kinds import ToolUse, classify, is_steering
from context_compaction.layers.replace_blocks import (
    Place,
    Replacement,
    clear_result,
    clip_call,
    protected_names,
    replace_blocks,
)
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.edits import Step, make_blob
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    named_arguments,
)
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.messages.tool_results import newest_results, result_text
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter

# True for ever, whatever becomes of the newer one: these bytes stay when that is cleared, too.
SAME_AGAIN = "FILE_UNCHANGED: read again further down with the same content"
SAME_BEFORE = "read before with the same content"
UNCHANGED_STUB = "FILE_UNCHANGED: the content is that of the earlier read further up"
REPEATED = "the same call gave the same output further down"
GIVEN_AGAIN = "a call further down is given the same text"


@dataclass(frozen=True, slots=True)
class _Seen:
    place: Place
    call: ToolCall
    result: ToolResult
    use: ToolUse


def dedupe(
    messages: Messages, *, count: MessageCounter, settings: Settings, limit_tokens: int = 0
) -> Step:
    """Clear superseded reads and repeated outputs. Linear in the number of results.

    Oldest first until the messages are within `limit_tokens`; 0 clears all of them.
    """
    index = index_calls(messages)
    seen = _answered_calls(messages, messages, index, settings)
    chosen: dict[Place, Replacement] = {}
    for item, reason in _superseded(seen):
        done = clear_result(item.result, item.call.name, count, reason)
        if done is not None:
            chosen[item.place] = done
    chosen |= _restored_copies(messages, seen, count)
    chosen |= _given_again(messages, index, count, settings)
    excess_tokens = count.messages(messages) - limit_tokens
    needed: dict[Place, Replacement] = {}
    for place in sorted(chosen):
        if excess_tokens <= 0:
            break
        needed[place] = chosen[place]
        excess_tokens -= chosen[place].saved_tokens
    return replace_blocks(messages, needed, count, layer="dedupe")


def unchanged_reads(messages: Messages, *, count: MessageCounter, settings: Settings) -> Step:
    """Replace an unchanged repeated read by a pointer to the earlier text.

    Only among the newest results, which are not cached yet: what was sent is never rewritten.
    """
    newest = newest_results(messages)
    named = with_own_ids(messages)
    seen = _answered_calls(messages, named, index_calls(named), settings)
    standing: set[tuple[str, str, str]] = set()
    chosen: dict[Place, Replacement] = {}
    for item in seen:
        use = item.use
        if use.kind != "read" or use.path is None or item.result.is_error:
            continue
        if placeholders.is_placeholder(item.result):
            continue
        shown = (use.path, use.range, result_text(item.result))
        if shown not in standing:
            standing.add(shown)
        elif item.place.message in newest:
            done = clear_result(item.result, item.call.name, count, SAME_BEFORE, UNCHANGED_STUB)
            if done is not None:
                chosen[item.place] = done
    return replace_blocks(messages, chosen, count, layer="unchanged")


def _answered_calls(
    messages: Messages, named: Messages, index: CallIndex, settings: Settings
) -> list[_Seen]:
    """The results with their calls; `named` are the same messages, with ids as `index` has them."""
    protected = protected_names(settings)
    seen: list[_Seen] = []
    for position, message in enumerate(messages):
        for at, block in enumerate(message.blocks):
            own = named[position].blocks[at]
            if not (isinstance(block, ToolResult) and isinstance(own, ToolResult)):
                continue
            call = index.calls.get(own.call_id)
            if call is None or call.name.lower() in protected or is_steering(call.name):
                continue
            use = classify(call, settings.tool_kinds)
            seen.append(_Seen(Place(position, at), call, block, use))
    return seen


@dataclass(slots=True)
class _Newer:
    """What the results that follow the inspected one contain.

    Attributes:
        texts: By path and range ("" is the whole) the text of the newest read.
        contents: Path and text of every read, whatever its range was called.
        changed: Paths that were edited or written.
        outputs: By tool and text of an answer, the calls that got it: as they came, and then the
            JSON of their arguments, which is made only where an answer comes again.
    """

    texts: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    contents: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    changed: set[str] = field(default_factory=set[str])
    outputs: dict[tuple[str, str], tuple[list[ToolCall], set[str]]] = field(
        default_factory=dict[tuple[str, str], tuple[list[ToolCall], set[str]]]
    )

    def learn(self, item: _Seen) -> None:
        path, text = item.use.path, result_text(item.result)
        if path and item.use.kind in ("edit", "write", "notebook"):
            self.changed.add(path)
        elif placeholders.seems_placeholder(item.result):
            return  # its text stands here no more
        elif path and item.use.kind == "read":
            self.texts.setdefault((path, item.use.range), text)
            self.contents.add((path, text))
        calls, _ = self.outputs.setdefault((item.call.name, text), ([], set()))
        calls.append(item.call)

    def repeats(self, item: _Seen) -> bool:
        """Whether a call like that of `item` gave the same answer."""
        calls, known = self.outputs.get((item.call.name, result_text(item.result)), ([], set()))
        known.update(map(_arguments, calls))
        calls.clear()
        return bool(known) and _arguments(item.call) in known


def _superseded(seen: list[_Seen]) -> list[tuple[_Seen, str]]:
    """Walk from the newest to the oldest, and return what a newer one supersedes."""
    newer = _Newer()
    found: list[tuple[_Seen, str]] = []
    for item in reversed(seen):
        if item.result.is_error:
            continue  # nothing was read or changed
        reason = _reason(item, newer)
        if reason:
            found.append((item, reason))
        newer.learn(item)
    return found


def _restored_copies(
    messages: Messages, seen: list[_Seen], count: MessageCounter
) -> dict[Place, Replacement]:
    chosen: dict[Place, Replacement] = {}
    for position, message in enumerate(messages):
        if not placeholders.is_restored_files(message):
            continue
        newer = _Newer()
        for item in reversed(seen):
            if item.place.message > position and not item.result.is_error:
                newer.learn(item)
        done = without_superseded(message, count, partial(_copy_reason, newer))
        if done is not None:
            chosen[Place(position, 0)] = done
    return chosen


def _given_again(
    messages: Messages, index: CallIndex, count: MessageCounter, settings: Settings
) -> dict[Place, Replacement]:
    """The answered calls with a long argument that a later call has word for word."""
    protected = protected_names(settings)
    chosen: dict[Place, Replacement] = {}
    newer: set[str] = set()
    for position in range(len(messages) - 1, -1, -1):
        for at, call in enumerate(messages[position].blocks):
            if not isinstance(call, ToolCall):
                continue
            given = [value for value in named_arguments(call).values() if isinstance(value, str)]
            long = {value for value in given if len(value) > settings.clip_argument_chars}
            is_free = call.call_id in index.result_at and call.name.lower() not in protected
            if is_free and not newer.isdisjoint(long):
                done = clip_call(call, count, settings, texts=newer, reason=GIVEN_AGAIN)
                if done is not None:
                    chosen[Place(position, at)] = done
            newer |= long
    return chosen


def _copy_reason(newer: _Newer, path: str) -> str:
    if (path, "") in newer.texts:
        return "read again further down"
    return "changed further down" if path in newer.changed else ""


def _reason(item: _Seen, newer: _Newer) -> str:
    path = item.use.path
    if item.use.kind == "read" and path:
        if (path, result_text(item.result)) in newer.contents:
            return SAME_AGAIN
        if (path, "") in newer.texts or (path, item.use.range) in newer.texts:
            return f"superseded by a later read of {path}"
        if path in newer.changed:
            return f"superseded by a later edit of {path}"
    return REPEATED if newer.repeats(item) else ""


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments, sort_keys=True, default=str)


def without_superseded(
    message: Message, count: MessageCounter, reason_for: Callable[[str], str]
) -> Replacement | None:
    """The replacement of `message`'s text; None where it contains no copy that may be cleared.

    Args:
        message: Any message.
        count: The token counter.
        reason_for: Returns why the copy of a path is superseded; "" where it is current.
    """
    block = message.blocks[0] if placeholders.is_restored_files(message) else None
    if not isinstance(block, Text):
        return None
    blob = make_blob(block.text)
    reasons: list[str] = []

    def shorter(found: re.Match[str]) -> str:
        path = placeholders.restored_path(found)
        reason = reason_for(path) if path else ""
        if not reason:
            return found.group(0)
        reasons.append(reason)
        return f"File: {path} ({reason}; read_persisted_output {blob.output_id})"

    text = replace(block, text=placeholders.RESTORED_FILE.sub(shorter, block.text), edited=True)
    saved_tokens = count.block(block) - count.block(text)
    if not reasons or saved_tokens <= 0:
        return None
    note = "; ".join(dict.fromkeys(reasons))
    return Replacement(text, (blob,), saved_tokens, "cleared", None, note)
