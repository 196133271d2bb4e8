"""Layer: make an invalid list valid with the fewest changes.

A valid list is returned as the same object. Otherwise each step repairs one kind of fault and
records an edit. Other messages stay the same objects. No text is lost: a result without its call
becomes text, and the archive contains the original in any case.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from context_compaction.messages import model, placeholders, tool_pairs


@dataclass(slots=True)
class _Repair:
    """A list under repair.

    Attributes:
        messages: The list after the steps so far.
        rules: The provider's rules.
        ends_open: Whether the input ends with calls, which the host is about to answer.
        unique_ids: Whether call IDs must be unique in the list. Otherwise only in a run.
        edits: The edits so far.
    """

    messages: model.Messages
    rules: tool_pairs.ProviderRules
    ends_open: bool = False
    unique_ids: bool = False
    edits: list[model.Edit] = field(default_factory=list[model.Edit])

    def log(self, message: model.Message, note: str) -> None:
        """Record a change of `message`."""
        self.edits.append(model.Edit("repair", "repaired", message.index, 0, 0, note=note))

    def run(self, *steps: "_RepairStep") -> model.Step:
        """Apply `steps` in order; return the list and the edits, or the same object without any."""
        before = self.messages
        for step in steps:
            self.messages = tuple(step(self))
        return model.Step(self.messages, tuple(self.edits)) if self.edits else model.Step(before)


# Yields the messages after one kind of fault was repaired.
_RepairStep: TypeAlias = Callable[[_Repair], Iterable[model.Message]]


def repair(
    messages: model.Messages, rules: tool_pairs.ProviderRules, *, unique_ids: bool = False
) -> model.Step:
    """Return a list that the provider accepts, and an edit for every repaired fault.

    A valid list is returned as the same object without edits. With `unique_ids`, every call gets a
    unique ID even if the provider accepts an ID again in a later turn, because the layers identify
    calls by ID.
    """
    start, stop = tool_pairs.newest_run(messages, rules) or (0, 0)
    ends_open = stop == len(messages) and any(map(model.tool_calls, messages[start:stop]))
    state = _Repair(messages, rules, ends_open, unique_ids or rules.unique_call_ids)
    return state.run(
        *([_drop_repeated_item_ids] if rules.unique_item_ids else []),
        _label_misplaced_calls,
        _rename_repeated_calls,
        *([_drop_empty_lists] if rules.refuses_empty_lists else []),
        _drop_empty_content,
        _pair_results,
        _drop_trailing_thinking,
        _drop_trailing_space,
        # Nothing but an edit leaves a message empty.
        lambda state: _drop_empty_content(state) if state.edits else state.messages,
        _label_misplaced_system,
        _start_with_user,
        _separate_calls_from_assistant,
        _alternate_roles,
        # After the steps that move or add user messages, because a user message ends a turn.
        _label_server_calls,
        lambda state: state.messages or (model.make_message("user", placeholders.NO_CONTENT),),
    )


def repair_after_removal(messages: model.Messages, rules: tool_pairs.ProviderRules) -> model.Step:
    """Return a list that is valid after other messages were removed from it."""
    state = _Repair(messages, rules)
    return state.run(_label_misplaced_system, _start_with_user, _alternate_roles)


def alternate_roles(messages: model.Messages, rules: tool_pairs.ProviderRules) -> model.Step:
    """Insert a message of the other role between two of the same role, as `rules` demand.

    They are not joined, because the host's own objects must be returned unchanged, and this
    library's messages are only recognized if they are alone.
    """
    return _Repair(messages, rules).run(_alternate_roles)


def _drop_repeated_item_ids(state: _Repair) -> Iterator[model.Message]:
    """Drop the repeated ID of an item. Repeated reasoning and hosted tools are dropped as a whole.

    The provider demands the ID of the latter. They add nothing, because a host sent an item twice.
    An item of the model after dropped reasoning loses its ID, too: by its ID the provider would
    demand that reasoning directly before the item.
    """
    seen: set[str] = set()
    last: str | None = None  # ID of the last item that stays
    dropped: str | None = None  # ID of reasoning that was dropped after that item
    for message in state.messages:
        name = _item_id(message)
        is_thinking = any(isinstance(block, model.Thinking) for block in message.blocks)
        hosted = (
            b for b in message.blocks if isinstance(b, model.Opaque) and b.source is message.source
        )
        needs_id = is_thinking or any(hosted)
        lost = message.role == "assistant" and not is_thinking and dropped not in {None, last}
        if name is not None and (name in seen or lost):
            cause = "had the ID of an earlier item" if name in seen else "lost its reasoning"
            if needs_id:
                state.log(message, f"an item that {cause} was removed")
                dropped = name if is_thinking else dropped
                continue
            state.log(message, f"an item {cause}; its ID was removed")
            message, name = _without_item_id(message), None
        if name is not None:
            seen.add(name)
        last, dropped = name, None
        yield message


def _item_id(message: model.Message) -> str | None:
    """Return the provider's ID of the item that `message` represents; None without an ID.

    The ID that joins an older local shell call and its output, which has no `call_id`, is no such
    ID.
    """
    source = message.source or {}
    value = source.get("id")
    joins = "call_id" not in source and (model.tool_calls(message) or model.tool_results(message))
    return value if isinstance(value, str) and not joins else None


def _without_item_id(message: model.Message) -> model.Message:
    source = {key: value for key, value in (message.source or {}).items() if key != "id"}
    blocks = [
        replace(block, source=source) if block.source is message.source else block
        for block in message.blocks
    ]
    return replace(model.edit_message(message, blocks), source=source)


def _label_misplaced_calls(state: _Repair) -> Iterator[model.Message]:
    """Turn calls in messages that are not the assistant's into text."""
    for message in state.messages:
        if message.role != "assistant" and model.tool_calls(message):
            state.log(message, "a tool call outside of assistant messages was turned into text")
            message = model.edit_message(message, list(map(_without_call, message.blocks)))
        yield message


def _without_call(block: model.Block) -> model.Block:
    if not isinstance(block, model.ToolCall):
        return block
    text = f"{placeholders.ORPHAN_CALL}{block.name} {json.dumps(block.arguments)}"
    return model.Text(text, author="tool")


def _rename_repeated_calls(state: _Repair) -> model.Messages:
    """Give a later call with a repeated ID an ID of its own, and its result the same ID."""
    if not (state.unique_ids or _has_repeated_ids_in_run(state)):
        return state.messages
    renamed = tool_pairs.with_unique_call_ids(state.messages)
    if renamed is state.messages:
        return renamed
    call_ids = {call.call_id for message in renamed for call in model.tool_calls(message)}
    for before, after in zip(state.messages, renamed, strict=True):
        pairs = zip(before.blocks, after.blocks, strict=True)
        changed = (block for old, block in pairs if block is not old)
        # Results without a call become text in a later step, which records its own edit.
        if any(
            isinstance(b, model.ToolCall | model.ToolResult) and b.call_id in call_ids
            for b in changed
        ):
            state.log(after, "a call ID was used twice; the later call was renamed")
    return renamed


def _has_repeated_ids_in_run(state: _Repair) -> bool:
    for start, stop in tool_pairs.runs(state.messages, state.rules):
        ids = [call.call_id for m in state.messages[start:stop] for call in model.tool_calls(m)]
        if len(set(ids)) < len(ids):
            return True
    return False


def _drop_empty_lists(state: _Repair) -> Iterator[model.Message]:
    """Render messages again whose JSON contains an empty list, which the provider refuses."""
    for message in state.messages:
        if _has_empty_list(message):
            if not (message.blocks or state.rules.refuses_empty_messages):
                yield message
                continue
            state.log(message, "an empty list of content or calls was removed")
            if not message.blocks:
                continue
            # An empty result is rendered as an empty text instead.
            blocks = [
                model.edit_result(b, "") if isinstance(b, model.ToolResult) else b
                for b in message.blocks
            ]
            message = model.edit_message(message, blocks)
        yield message


def _has_empty_list(message: model.Message) -> bool:
    """Whether the host's object has an empty list of content or calls, and is not edited yet."""
    if message.source is None or message.edited:
        return False
    return message.source.get("tool_calls") == [] or message.source.get("content") == []


def _drop_empty_content(state: _Repair) -> Iterator[model.Message]:
    """Drop text blocks without a visible character, and messages without blocks.

    An empty assistant message at the end stays if the provider accepts it.
    """
    rules = state.rules
    last = len(state.messages) - 1
    for index, message in enumerate(state.messages):
        blocks = message.blocks
        if rules.refuses_empty_text:
            blocks = tuple(
                b for b in blocks if not (isinstance(b, model.Text) and _is_blank(b.text))
            )
        may_be_empty = rules.may_end_empty and index == last and message.role == "assistant"
        if (
            not blocks
            and rules.refuses_empty_messages
            and not (may_be_empty and not message.blocks)
        ):
            state.log(message, "an empty message was removed")
            continue
        if len(blocks) != len(message.blocks):
            state.log(message, "an empty text block was removed")
            message = model.edit_message(message, blocks)
        kinds = {type(block) for block in blocks}
        if rules.refuses_thinking_alone and kinds == {model.Thinking}:
            state.log(message, "a message with thinking alone got an empty text")
            message = model.edit_message(message, (*message.blocks, model.Text("")))
        if rules.documents_need_text and model.Document in kinds and model.Text not in kinds:
            state.log(message, "a document without a text got one")
            message = model.edit_message(message, (*message.blocks, model.Text("(document)")))
        yield message


def _is_blank(text: str) -> bool:
    """Whether `text` has no visible character."""
    return not text or text.isspace()  # isspace stops at the first visible character


def _pair_results(state: _Repair) -> Iterator[model.Message]:
    """Move every result to its call, add missing results, and turn other results into text."""
    pairs = _Pairs(state)
    messages, rules = state.messages, state.rules
    index = 0
    while index < len(messages):
        if messages[index].role != "assistant":
            yield from pairs.without_moved_results(index)
            index += 1
            continue
        stop = tool_pairs.run_end(messages, index, rules)
        for run_index in range(index, stop):
            yield from pairs.without_moved_results(run_index)
        calls = [
            (call, pairs.results.get((run_index, number)))
            for run_index in range(index, stop)
            for number, call in enumerate(messages[run_index].blocks)
            if isinstance(call, model.ToolCall)
        ]
        index = stop
        if not calls or (stop == len(messages) and state.ends_open):
            continue
        if not (rules.results_follow_call and rules.groups_results):
            yield from pairs.separate_results(stop, calls)
        elif not pairs.has_results_after(stop, calls):
            index = stop + (stop < len(messages) and messages[stop].role == "user")
            yield pairs.grouped_results(stop, calls)


# A call, and the place of its result.
_CallWithResult: TypeAlias = tuple[model.ToolCall, tool_pairs.BlockPlace | None]


class _Pairs:
    """The calls of a list with the places of their results."""

    def __init__(self, state: _Repair) -> None:
        self._state, self._messages, self._rules = state, state.messages, state.rules
        self.results = tool_pairs.results_by_call(state.messages)
        self._matched = frozenset(self.results.values())
        self._moved: set[tool_pairs.BlockPlace] = set()

    def has_results_after(self, start: int, calls: Sequence[_CallWithResult]) -> bool:
        """Whether the messages from `start` begin with exactly the results of `calls`."""
        places = {place for _, place in calls}
        near = list(tool_pairs.results_after(self._messages, start))
        if not self._rules.joins_results:
            near = [place for place in near if place[0] == start]
        return places == set(near)

    def without_moved_results(self, index: int) -> Sequence[model.Message]:
        """Return the message without moved results, and with results without a call as text."""
        message = self._messages[index]
        blocks = self._remaining_blocks(index)
        if model.is_same(blocks, message.blocks):
            return (message,)
        if self._rules.text_after_results:
            blocks.sort(key=lambda block: not isinstance(block, model.ToolResult))
        if not blocks:
            return ()
        # If results are messages of their own, text cannot keep the JSON of such a message.
        has_orphan = any(
            isinstance(block, model.ToolResult) and (index, number) not in self._matched
            for number, block in enumerate(message.blocks)
        )
        if has_orphan and not self._rules.groups_results:
            return (model.Message(message.role, tuple(blocks), index=message.index),)
        return (model.edit_message(message, blocks),)

    def _remaining_blocks(self, index: int) -> list[model.Block]:
        """Return the blocks of a message without moved results, with orphans as text."""
        message = self._messages[index]
        blocks: list[model.Block] = []
        for number, block in enumerate(message.blocks):
            if not isinstance(block, model.ToolResult):
                blocks.append(block)
            elif (index, number) not in self._matched:
                blocks += self._orphan_parts(block, message)
            elif (index, number) not in self._moved:
                blocks.append(block)
        return blocks

    def separate_results(
        self, start: int, calls: Sequence[_CallWithResult]
    ) -> Iterator[model.Message]:
        """Yield each result of `calls`, whose run ends at `start`, as a message of its own.

        If results may be anywhere after the call, only missing results are added.
        """
        if self._rules.results_follow_call:
            places = sorted(place for _, place in calls if place is not None)
            for expected, (index, number) in enumerate(places, start):
                message = self._messages[index]
                if index != expected:
                    self._state.log(message, "a tool result was moved next to its call")
                self._moved.add((index, number))
                is_alone = len(message.blocks) == 1
                yield message if is_alone else model.Message("user", (message.blocks[number],))
        for call, place in calls:
            if place is None:
                yield model.Message(
                    "user", (self._missing_result(call, self._messages[start - 1]),)
                )

    def grouped_results(self, start: int, calls: Sequence[_CallWithResult]) -> model.Message:
        """Return the message at `start` with all results of `calls` before its other content.

        If that is not a user message, return a new message with the results.
        """
        is_user = start < len(self._messages) and self._messages[start].role == "user"
        following = self._messages[min(start, len(self._messages) - 1)]
        own = sorted(place for _, place in calls if place is not None and place[0] == start)
        results: list[model.Block] = [following.blocks[number] for _, number in own]
        for call, place in calls:
            if place is None:
                results.append(self._missing_result(call, following))
            elif place[0] != start:
                source = self._messages[place[0]]
                self._state.log(source, "a tool result was moved next to its call")
                results.append(source.blocks[place[1]])
                self._moved.add(place)
        if not is_user:
            return model.Message("user", tuple(results))
        self._moved.update(own)
        self._state.log(following, "tool results were moved before other content")
        return model.edit_message(following, (*results, *self._remaining_blocks(start)))

    def _orphan_parts(self, result: model.ToolResult, message: model.Message) -> list[model.Block]:
        """Return the parts of a result without its call, with a label before its text."""
        if model.is_synthetic_result(result):
            self._state.log(message, "a synthetic result without its call was removed")
            return []
        self._state.log(message, "a tool result without its call was turned into text")
        texts = [part.text for part in result.content if isinstance(part, model.Text)]
        media: list[model.Block] = [
            part for part in result.content if not isinstance(part, model.Text)
        ]
        text = placeholders.ORPHAN_RESULT + "\n".join(texts)
        return [model.Text(text, author="tool"), *media]

    def _missing_result(self, call: model.ToolCall, near: model.Message) -> model.ToolResult:
        """Return a synthetic result for `call`."""
        self._state.log(near, f"the call {call.name} had no result; a synthetic one was added")
        text = (model.Text(model.NO_RESULT),)
        kind = self._rules.outputs.get((call.source or {}).get("type", ""))
        if kind is None:
            return model.ToolResult(call.call_id, text, is_error=True, name=call.name)
        source = {"type": kind}
        return model.ToolResult(call.call_id, text, True, call.name, source=source, edited=True)


def _drop_trailing_thinking(state: _Repair) -> Iterable[model.Message]:
    """Drop thinking at the end of an assistant's turn, and messages that it leaves empty."""
    before = state.messages
    if not state.rules.refuses_trailing_thinking:
        return before
    out = list(before)
    for start, stop in tool_pairs.runs(before, state.rules):
        for index in range(stop - 1, start - 1, -1):
            blocks = _without_trailing_thinking(out[index].blocks)
            if len(blocks) != len(out[index].blocks):
                state.log(out[index], "thinking at the end of an assistant turn was removed")
                out[index] = model.edit_message(out[index], blocks)
            # A message that was empty before is no thinking, so the search ends there.
            if blocks or not before[index].blocks:
                break
    return (m for m, old in zip(out, before, strict=True) if m.blocks or not old.blocks)


def _without_trailing_thinking(blocks: tuple[model.Block, ...]) -> tuple[model.Block, ...]:
    end = len(blocks)
    while end and isinstance(blocks[end - 1], model.Thinking):
        end -= 1
    return blocks[:end]


def _drop_trailing_space(state: _Repair) -> model.Messages:
    """Drop white space at the end of a last assistant message."""
    messages = state.messages
    last = messages[-1] if messages and state.rules.refuses_trailing_space else None
    text = last.blocks[-1] if last and last.role == "assistant" and last.blocks else None
    if not isinstance(text, model.Text) or last is None or text.text == text.text.rstrip():
        return messages
    state.log(last, "white space at the end of the last message was removed")
    trimmed = replace(text, text=text.text.rstrip(), edited=True)
    return (*messages[:-1], model.edit_message(last, (*last.blocks[:-1], trimmed)))


def _label_misplaced_system(state: _Repair) -> Iterator[model.Message]:
    """Turn system messages at positions that the provider refuses into labelled user messages."""
    is_bound = state.rules.system_follows_user
    misplaced = frozenset(_misplaced_system(state.messages)) if is_bound else frozenset[int]()
    for index, message in enumerate(state.messages):
        if index in misplaced:
            state.log(message, "a system message at an invalid position became a user message")
            blocks = (model.Text(placeholders.SYSTEM_LABEL), *message.blocks)
            message = model.Message("user", blocks, index=message.index)
        yield message


def _misplaced_system(messages: model.Messages) -> Iterator[int]:
    """Yield the indices of system messages that are not between the user and the assistant."""
    for index, message in enumerate(messages):
        if message.role != "system":
            continue
        follows_user = index > 0 and messages[index - 1].role == "user"
        next_role = messages[index + 1].role if index + 1 < len(messages) else "assistant"
        if not follows_user or next_role != "assistant":
            yield index


def _label_server_calls(state: _Repair) -> model.Messages:
    """Turn calls of the provider's own tools without a result, and the reverse, into text."""
    server = tool_pairs.server_calls(state.messages)
    out = list(state.messages)
    for index, number in sorted(server.orphans | server.unanswered):
        message = out[index]
        block = message.blocks[number]
        if (index, number) in server.orphans:
            state.log(message, "a server tool's result without its call was turned into text")
            label = placeholders.ORPHAN_RESULT
        else:
            state.log(message, "a server tool's call without its result was turned into text")
            label = placeholders.UNANSWERED_CALL
        blocks = list(message.blocks)
        blocks[number] = model.Text(label + json.dumps(block.source, ensure_ascii=False))
        out[index] = model.edit_message(message, blocks)
    return tuple(out)


def _start_with_user(state: _Repair) -> model.Messages:
    """Insert a user message before an assistant message that would be the first."""
    messages = state.messages
    first = next((i for i, message in enumerate(messages) if message.role != "system"), None)
    if not state.rules.first_role_user or first is None or messages[first].role == "user":
        return messages
    state.log(messages[first], "a user message was added before the first assistant message")
    opening = model.make_message("user", placeholders.CONVERSATION_STARTS)
    return (*messages[:first], opening, *messages[first:])


def _separate_calls_from_assistant(state: _Repair) -> Iterator[model.Message]:
    """Insert a user message before calls that follow an assistant message."""
    previous: model.Message | None = None
    for message in state.messages:
        follows = previous is not None and previous.role == "assistant"
        if state.rules.calls_follow_user and follows and model.tool_calls(message):
            state.log(message, "a user message was added before calls that follow the assistant")
            yield model.make_message("user", placeholders.NO_CONTENT)
        previous = message
        yield message


def _alternate_roles(state: _Repair) -> Iterator[model.Message]:
    """Insert a message of the other role between two of the same role, as the rules demand."""
    rule = state.rules.roles_alternate
    previous: model.Message | None = None
    for message in state.messages:
        if rule and previous is not None and previous.role == message.role:
            is_own = placeholders.is_synthetic(previous) or placeholders.is_synthetic(message)
            if rule == "all" or is_own:
                role = message.role
                state.log(message, f"a message was added before a second one of the role {role}")
                yield _between(previous)
        previous = message
        yield message


def _between(before: model.Message) -> model.Message:
    if placeholders.summary_text(before) is not None:
        return model.make_message("assistant", placeholders.ACKNOWLEDGED)
    return model.make_message(
        "user" if before.role == "assistant" else "assistant", placeholders.NO_CONTENT
    )
