"""Layer: make a broken list valid, changing as little as can be.

A valid list is returned as the same object. Otherwise each step below repairs one kind of fault
and records an edit; other messages stay the same objects. No text of the conversation is
dropped: a result without its call becomes text, and the archive contains the original in any case.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import is_

from context_compaction.layers.repair_pairs import RepairLog, paired, unique_call_ids
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import open_ids
from context_compaction.messages.edits import Step
from context_compaction.messages.model import (
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
    make_message,
    tool_calls,
)
from context_compaction.messages.provider_rules import ProviderRules
from context_compaction.messages.server_calls import server_calls
from context_compaction.messages.tool_pairs import (
    has_empty_list,
    has_misplaced_calls,
    has_repeated_ids,
    is_blank,
    misplaced_system,
    problems,
    runs,
)
from context_compaction.messages.tool_results import media_json


def repair(messages: Messages, rules: ProviderRules, *, unique_ids: bool = False) -> Step:
    """A list that the provider accepts, and an edit for every repaired fault.

    With `unique_ids` every call has an id of its own afterwards, also where the provider takes the
    same id again in a later turn: the layers tell calls apart by their ids.
    """
    is_ambiguous = unique_ids and has_repeated_ids(messages)
    if not is_ambiguous and not problems(messages, rules):
        return Step(messages)
    log = RepairLog()
    mended = unique_call_ids(_misplaced_calls_labelled(messages, log), log)
    if rules.refuses_empty_lists:
        mended = _without_empty_lists(mended, log)
    mended = _without_empty(mended, rules, log)
    mended = paired(mended, rules, log, may_end_open=bool(open_ids(messages)))
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
        mended = log.follow(alternate_roles(mended))
    if messages and not mended:
        mended = (make_message("user", placeholders.NO_CONTENT),)
    return Step(mended, tuple(log.edits))


def repairs_beside_a_gap(rules: ProviderRules) -> Iterator[Callable[[Messages], Step]]:
    """What makes legal what stood beside messages that were taken out, in order."""
    if rules.system_follows_user:
        yield _label_misplaced_system
    if rules.first_role_user:
        yield _open_with_user
    if rules.roles_alternate:
        yield alternate_roles


def _label_misplaced_system(messages: Messages) -> Step:
    """Replace system messages at positions where none is allowed by labelled user messages."""
    misplaced = frozenset(misplaced_system(messages))
    if not misplaced:
        return Step(messages)
    log = RepairLog()
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
        log = RepairLog()
        log.add(message, "a user message was put before the assistant's first one")
        opening = make_message("user", placeholders.CONVERSATION_STARTS)
        return Step((*messages[:position], opening, *messages[position:]), tuple(log.edits))
    return Step(messages)


def alternate_roles(messages: Messages) -> Step:
    """Put a message of the other role between two of the same.

    They are not joined: a message of ours is known by standing alone, and the host's own objects
    are returned unchanged.
    """
    log = RepairLog()
    out: list[Message] = []
    for message in messages:
        if out and out[-1].role == message.role:
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


def _misplaced_calls_labelled(messages: Messages, log: RepairLog) -> Messages:
    """Turn calls in messages that are not the assistant's into text."""
    out: list[Message] = []
    for message in messages:
        if has_misplaced_calls(message):
            blocks = (
                Text(f"{placeholders.ORPHAN_CALL}{block.name} {json.dumps(block.arguments)}")
                if isinstance(block, ToolCall)
                else block
                for block in message.blocks
            )
            log.add(message, "a tool call outside of the assistant's messages was turned into text")
            message = edit_message(message, tuple(blocks))
        out.append(message)
    return tuple(out)


def _server_calls_labelled(messages: Messages, log: RepairLog) -> Messages:
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


def _without_empty_lists(messages: Messages, log: RepairLog) -> Messages:
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


def _without_empty(messages: Messages, rules: ProviderRules, log: RepairLog) -> Messages:
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
        out.append(message)
    return tuple(out)


def _without_trailing(messages: Messages, rules: ProviderRules, log: RepairLog) -> Messages:
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


def _calls_after_user(messages: Messages, log: RepairLog) -> Messages:
    out: list[Message] = []
    for message in messages:
        if out and out[-1].role == "assistant" and tool_calls(message):
            log.add(message, "a user message was put before calls that follow the assistant")
            out.append(make_message("user", placeholders.NO_CONTENT))
        out.append(message)
    return tuple(out)
