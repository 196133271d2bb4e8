"""Layer: make a broken list valid, changing as little as can be.

A valid list is returned as the same object. Otherwise each step below repairs one kind of fault
and records an edit; other messages stay the same objects. No text of the conversation is
dropped: a result without its call becomes text, and the archive contains the original in any case.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_

from context_compaction.messages import placeholders
from context_compaction.messages.edits import Edit, Step
from context_compaction.messages.model import (
    NO_RESULT,
    Block,
    Message,
    Messages,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    edit_message,
    edit_result,
    is_synthetic_result,
    make_message,
    tool_calls,
)
from context_compaction.messages.tool_pairs import (
    BlockPlace,
    ProviderRules,
    answers_by_call,
    has_empty_list,
    has_misplaced_calls,
    has_repeated_ids,
    has_thinking_alone,
    is_blank,
    item_id,
    misplaced_system,
    open_ids,
    problems,
    run_end,
    runs,
    server_calls,
    with_unique_call_ids,
)
from context_compaction.messages.tool_results import media_json


@dataclass(slots=True)
class _RepairLog:
    """The edits made so far, in order."""

    edits: list[Edit] = field(default_factory=list[Edit])

    def add(self, message: Message, note: str) -> None:
        """Record the edit `note` of `message`."""
        self.edits.append(Edit("repair", "repaired", message.index, 0, 0, note=note))

    def follow(self, step: Step) -> Messages:
        """The messages after `step`, whose edits are recorded."""
        self.edits.extend(step.edits)
        return step.messages


def _unique_item_ids(messages: Messages, log: _RepairLog) -> Messages:
    """Take its id from an item that repeats one; reasoning and hosted tools go, with their id.

    The provider demands the id of these. They say nothing new: a host sent the item again.
    """
    seen: set[str] = set()
    out: list[Message] = []
    for message in messages:
        name = item_id(message)
        if name is not None and name in seen:
            if any(isinstance(block, Thinking | Opaque) for block in message.blocks):
                log.add(message, "an item with the id of an earlier one was left out")
                continue
            log.add(message, "an item had the id of an earlier one; its id was left out")
            message = _without_item_id(message)
        elif name is not None:
            seen.add(name)
        out.append(message)
    return tuple(out)


def _without_item_id(message: Message) -> Message:
    source = {key: value for key, value in (message.source or {}).items() if key != "id"}
    blocks = [
        replace(block, source=source) if block.source is message.source else block
        for block in message.blocks
    ]
    return replace(edit_message(message, blocks), source=source)


def _unique_call_ids(messages: Messages, log: _RepairLog) -> Messages:
    """Give a second call of the same id a name of its own, and its result with it."""
    named = with_unique_call_ids(messages)
    called = {call.call_id for message in named for call in tool_calls(message)}
    for was, message in zip(messages, named, strict=True):
        pairs = zip(was.blocks, message.blocks, strict=True)
        renamed = (block for before, block in pairs if block is not before)
        # What answers no call becomes text, which is told then.
        if any(isinstance(one, ToolCall | ToolResult) and one.call_id in called for one in renamed):
            log.add(message, "a call id was used twice; the later call was renamed")
    return named


def _paired(
    messages: Messages, rules: ProviderRules, log: _RepairLog, *, may_end_open: bool
) -> Messages:
    """Bring every result to its call; answer calls without one; turn the rest into text."""
    pairs = _Pairs(messages, rules, log)
    out: list[Message] = []
    position = 0
    while position < len(messages):
        if messages[position].role != "assistant":
            out += pairs.rest_of(position)
            position += 1
            continue
        stop = run_end(messages, position, rules)
        for at in range(position, stop):
            out += pairs.rest_of(at)
        calls = [call for one in messages[position:stop] for call in tool_calls(one)]
        position = stop
        if calls and not (stop == len(messages) and may_end_open):
            made, position = pairs.answers_at(stop, calls)
            out += made
    return tuple(out)


class _Pairs:
    """The calls of a list with the results that answer them."""

    def __init__(self, messages: Messages, rules: ProviderRules, log: _RepairLog) -> None:
        answers = answers_by_call(messages)
        self._messages, self._rules, self._log = messages, rules, log
        # By call id the place of its result, and the places of results that were moved.
        self._result_at = {
            block.call_id: answers[at, n]
            for at, message in enumerate(messages)
            for n, block in enumerate(message.blocks)
            if isinstance(block, ToolCall) and (at, n) in answers
        }
        self._moved: set[BlockPlace] = set()

    def rest_of(self, position: int) -> Sequence[Message]:
        """The message without results that were moved; a result without its call becomes text."""
        message = self._messages[position]
        blocks: list[Block] = []
        has_orphan = False
        for at, block in enumerate(message.blocks):
            if not isinstance(block, ToolResult):
                blocks.append(block)
            elif self._result_at.get(block.call_id) != (position, at):
                has_orphan = True
                blocks += self._orphan(block, message)
            elif (position, at) not in self._moved:
                blocks.append(block)
        if len(blocks) == len(message.blocks) and not has_orphan:
            return (message,)
        if self._rules.text_after_results:
            blocks.sort(key=lambda block: not isinstance(block, ToolResult))
        if not blocks:
            return ()
        # Where results are messages of their own kind, text cannot take that message's shape.
        if has_orphan and not self._rules.groups_results:
            return (Message(message.role, tuple(blocks), index=message.index),)
        return (edit_message(message, blocks),)

    def answers_at(self, start: int, calls: Sequence[ToolCall]) -> tuple[Sequence[Message], int]:
        """The messages that answer `calls`, whose run ends at `start`, and where to go on."""
        if self._rules.results_follow_call and self._rules.groups_results:
            return self._answers_together(start, calls)
        near = self._messages[start - 1]
        found = sorted(self._result_at[c.call_id] for c in calls if c.call_id in self._result_at)
        made = [] if not self._rules.results_follow_call else self._answers_apart(start, found)
        missing = [call for call in calls if call.call_id not in self._result_at]
        return [*made, *(Message("user", (self._stand_in(c, near),)) for c in missing)], start

    def _answers_apart(self, start: int, places: Sequence[BlockPlace]) -> list[Message]:
        """Each result in a message of its own, directly after the calls."""
        made: list[Message] = []
        for expected, (position, at) in enumerate(places, start):
            message = self._messages[position]
            if position != expected:
                self._log.add(message, "a tool result was moved next to its call")
            self._moved.add((position, at))
            is_whole = len(message.blocks) == 1
            made.append(message if is_whole else Message("user", (message.blocks[at],)))
        return made

    def _answers_together(
        self, start: int, calls: Sequence[ToolCall]
    ) -> tuple[Sequence[Message], int]:
        """All results in the message at `start`, before what else it says."""
        is_last = start == len(self._messages)
        following = make_message("assistant", "") if is_last else self._messages[start]
        places = {call.call_id: self._result_at.get(call.call_id) for call in calls}
        own = sorted(at for place in places.values() if place for p, at in [place] if p == start)
        results: list[Block] = [following.blocks[at] for at in own]
        for call in calls:
            place = places[call.call_id]
            if place is None:
                results.append(self._stand_in(call, following))
            elif place[0] != start:
                source = self._messages[place[0]]
                self._log.add(source, "a tool result was moved next to its call")
                self._moved.add(place)
                results.append(source.blocks[place[1]])
        if following.role != "user":
            return [Message("user", tuple(results))], start
        rest: list[Block] = []
        for at, block in enumerate(following.blocks):
            if at in own or (start, at) in self._moved:
                continue
            rest += self._orphan(block, following) if isinstance(block, ToolResult) else [block]
        blocks = (*results, *rest)
        if len(blocks) == len(following.blocks) and all(map(is_, blocks, following.blocks)):
            return [following], start + 1
        self._log.add(following, "tool results were put first")
        return [edit_message(following, blocks)], start + 1

    def _orphan(self, result: ToolResult, message: Message) -> list[Block]:
        """The parts of a result without its call, its text labelled."""
        if is_synthetic_result(result):
            self._log.add(message, "what stood in for a missing result was left out")
            return []
        self._log.add(message, "a tool result without its call was turned into text")
        texts = [part.text for part in result.content if isinstance(part, Text)]
        others: list[Block] = [part for part in result.content if not isinstance(part, Text)]
        text = placeholders.ORPHAN_RESULT + "\n".join(texts)
        return [Text(text, author="tool"), *others]

    def _stand_in(self, call: ToolCall, near: Message) -> ToolResult:
        self._log.add(near, f"the call {call.name} had no result; one was put in that says so")
        text = (Text(NO_RESULT),)
        kind = self._rules.outputs.get((call.source or {}).get("type", ""))
        if kind is None:
            return ToolResult(call.call_id, text, is_error=True, name=call.name)
        source = {"type": kind}
        return ToolResult(call.call_id, text, True, call.name, source=source, edited=True)


def repair(messages: Messages, rules: ProviderRules, *, unique_ids: bool = False) -> Step:
    """A list that the provider accepts, and an edit for every repaired fault.

    With `unique_ids` every call has an id of its own afterwards, also where the provider takes the
    same id again in a later turn: the layers tell calls apart by their ids.
    """
    is_ambiguous = unique_ids and has_repeated_ids(messages)
    if not is_ambiguous and not problems(messages, rules):
        return alternate_roles(messages, rules) if rules.roles_alternate else Step(messages)
    log = _RepairLog()
    if rules.unique_item_ids:
        messages = _unique_item_ids(messages, log)
    mended = _unique_call_ids(_misplaced_calls_labelled(messages, log), log)
    if rules.refuses_empty_lists:
        mended = _without_empty_lists(mended, log)
    mended = _without_empty(mended, rules, log)
    mended = _paired(mended, rules, log, may_end_open=bool(open_ids(messages)))
    mended = _without_trailing(mended, rules, log)
    mended = _without_empty(mended, rules, log)
    if rules.system_follows_user:
        mended = log.follow(_label_misplaced_system(mended))
    # A user's message ends a turn, and the steps before this one make and move some.
    mended = _server_calls_labelled(mended, log)
    if rules.first_role_user:
        mended = log.follow(_open_with_user(mended))
    if rules.calls_follow_user:
        mended = _calls_after_user(mended, log)
    if rules.roles_alternate:
        mended = log.follow(alternate_roles(mended, rules))
    if messages and not mended:
        mended = (make_message("user", placeholders.NO_CONTENT),)
    return Step(mended, tuple(log.edits))


def repairs_after_removal(rules: ProviderRules) -> Iterator[Callable[[Messages], Step]]:
    """What makes legal what stood beside messages that were taken out, in order."""
    if rules.system_follows_user:
        yield _label_misplaced_system
    if rules.first_role_user:
        yield _open_with_user
    if rules.roles_alternate:
        yield partial(alternate_roles, rules=rules)


def _label_misplaced_system(messages: Messages) -> Step:
    """Replace system messages at positions where none is allowed by labelled user messages."""
    misplaced = frozenset(misplaced_system(messages))
    if not misplaced:
        return Step(messages)
    log = _RepairLog()
    out: list[Message] = []
    for position, message in enumerate(messages):
        if position in misplaced:
            log.add(message, "a system message stood where none is allowed; it is the user's now")
            blocks = (Text(placeholders.SYSTEM_LABEL), *message.blocks)
            message = Message("user", blocks, index=message.index)
        out.append(message)
    return Step(tuple(out), tuple(log.edits))


def _open_with_user(messages: Messages) -> Step:
    """Put a message of the user before an assistant's that would be the first."""
    for position, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "user":
            break
        log = _RepairLog()
        log.add(message, "a user message was put before the assistant's first one")
        opening = make_message("user", placeholders.CONVERSATION_STARTS)
        return Step((*messages[:position], opening, *messages[position:]), tuple(log.edits))
    return Step(messages)


def alternate_roles(messages: Messages, rules: ProviderRules) -> Step:
    """Put a message of the other role between two of the same, as `rules` demand.

    They are not joined: a message of ours is known by standing alone, and the host's own objects
    are returned unchanged.
    """
    log = _RepairLog()
    out: list[Message] = []
    for message in messages:
        if (
            out
            and out[-1].role == message.role
            and (
                rules.roles_alternate == "all"
                or placeholders.is_synthetic(out[-1])
                or placeholders.is_synthetic(message)
            )
        ):
            log.add(message, f"a message was put before a second one of the role {message.role}")
            out.append(_between(out[-1]))
        out.append(message)
    return Step(tuple(out), tuple(log.edits)) if log.edits else Step(messages)


def _between(before: Message) -> Message:
    if placeholders.summary_text(before) is not None:
        return make_message("assistant", placeholders.ACKNOWLEDGED)
    return make_message(
        "user" if before.role == "assistant" else "assistant", placeholders.NO_CONTENT
    )


def _misplaced_calls_labelled(messages: Messages, log: _RepairLog) -> Messages:
    """Turn calls in messages that are not the assistant's into text."""
    out: list[Message] = []
    for message in messages:
        if has_misplaced_calls(message):
            blocks = (
                Text(
                    f"{placeholders.ORPHAN_CALL}{block.name} {json.dumps(block.arguments)}",
                    author="tool",
                )
                if isinstance(block, ToolCall)
                else block
                for block in message.blocks
            )
            log.add(message, "a tool call outside of the assistant's messages was turned into text")
            message = edit_message(message, tuple(blocks))
        out.append(message)
    return tuple(out)


def _server_calls_labelled(messages: Messages, log: _RepairLog) -> Messages:
    """Turn calls of a provider's own tools without their result, and the reverse, into text."""
    found = server_calls(messages)
    if not (found.orphans or found.unanswered):
        return messages
    out: list[Message] = []
    for position, message in enumerate(messages):
        blocks: list[Block] = []
        for at, block in enumerate(message.blocks):
            if isinstance(block, Opaque) and (position, at) in found.orphans:
                log.add(message, "a server tool's result without its call was turned into text")
                block = Text(placeholders.ORPHAN_RESULT + media_json(block))
            elif isinstance(block, Opaque) and (position, at) in found.unanswered:
                log.add(message, "a server tool's call without its result was turned into text")
                block = Text(placeholders.UNANSWERED_CALL + media_json(block))
            blocks.append(block)
        is_same = all(map(is_, blocks, message.blocks))
        out.append(message if is_same else edit_message(message, tuple(blocks)))
    return tuple(out)


def _without_empty_lists(messages: Messages, log: _RepairLog) -> Messages:
    out: list[Message] = []
    for message in messages:
        if has_empty_list(message):
            log.add(message, "an empty list of content or of calls was left out")
            # Rendered anew, without the list; a result says by an empty text that it is empty.
            blocks = (
                edit_result(b, "") if isinstance(b, ToolResult) else b for b in message.blocks
            )
            message = edit_message(message, tuple(blocks))
        out.append(message)
    return tuple(out)


def _without_empty(messages: Messages, rules: ProviderRules, log: _RepairLog) -> Messages:
    """Drop text blocks without a visible character, and messages without any block."""
    out: list[Message] = []
    for message in messages:
        blocks = message.blocks
        if rules.refuses_empty_text:
            blocks = tuple(b for b in blocks if not (isinstance(b, Text) and is_blank(b.text)))
        if not blocks and rules.refuses_empty_messages:
            log.add(message, "an empty message was left out")
            continue
        if len(blocks) != len(message.blocks):
            log.add(message, "an empty text block was left out")
            message = edit_message(message, blocks)
        if rules.refuses_thinking_alone and has_thinking_alone(message):
            log.add(message, "a message with thinking alone got an empty text")
            message = edit_message(message, (*message.blocks, Text("")))
        out.append(message)
    return tuple(out)


def _without_trailing(messages: Messages, rules: ProviderRules, log: _RepairLog) -> Messages:
    """Remove what may not end an assistant's turn: thinking, and trailing white space."""
    out = list(messages)
    if rules.refuses_trailing_thinking:
        for start, stop in runs(messages, rules):
            for at in range(stop - 1, start - 1, -1):
                kept = _before_trailing_thinking(out[at].blocks)
                if len(kept) != len(out[at].blocks):
                    log.add(out[at], "thinking at the end of the assistant's turn was left out")
                    out[at] = edit_message(out[at], kept)
                # A message without content is no thinking; reasoning may well have led to it.
                if kept or not messages[at].blocks:
                    break
    if rules.refuses_trailing_space and out and out[-1].role == "assistant" and out[-1].blocks:
        last = out[-1].blocks[-1]
        if isinstance(last, Text) and last.text != last.text.rstrip():
            log.add(out[-1], "white space at the end of the last message was left out")
            trimmed = replace(last, text=last.text.rstrip(), edited=True)
            out[-1] = edit_message(out[-1], (*out[-1].blocks[:-1], trimmed))
    emptied = (m for m, was in zip(out, messages, strict=True) if m.blocks or not was.blocks)
    return tuple(emptied)


def _before_trailing_thinking(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    end = len(blocks)
    while end and isinstance(blocks[end - 1], Thinking):
        end -= 1
    return blocks[:end]


def _calls_after_user(messages: Messages, log: _RepairLog) -> Messages:
    out: list[Message] = []
    for message in messages:
        if out and out[-1].role == "assistant" and tool_calls(message):
            log.add(message, "a user message was put before calls that follow the assistant")
            out.append(make_message("user", placeholders.NO_CONTENT))
        out.append(message)
    return tuple(out)
