"""What a later summary needs of messages that were summarised: the same messages, made short.

A summary is not made of the summary before, or facts would erode; nor of the whole conversation, or
a session's compactions would grow dearer with its age. It is made of what came since, and of this:
of the newest messages every call and the two ends of every answer, of older ones what the user said
while it fits, then what binds of it; and what was done there and must not be done again.
The size has a bound, so that the thousandth compaction costs what the tenth did. Pure.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_compaction.activity.command_line import without_heredocs
from context_compaction.activity.commits import commit_lines
from context_compaction.activity.digest import records_in
from context_compaction.activity.json_rows import short_records, shown
from context_compaction.activity.tool_kinds import ToolUse, is_steering
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.edits import Blob, output_id_of
from context_compaction.messages.model import (
    Block,
    JsonObject,
    Message,
    Messages,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    compact_json,
    is_object,
    is_stand_in,
)
from context_compaction.messages.speakers import passages_of, user_text
from context_compaction.messages.tool_results import result_text
from context_compaction.summarizers.extractive.deeds import (
    commits_of,
    effects_of,
    thoughts_on_failures,
)
from context_compaction.summarizers.extractive.said import ends_of, joined
from context_compaction.summarizers.extractive.turns import Action, turns_of
from context_compaction.summarizers.instructions.find import SURE_RANK, find_instructions
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT, sentences_of

# Counted from the newest on, in characters of what is kept: so far back stands the work; of what is
# older so much of the user's words, and so much of those that surely bind.
_WORK_CHARS = 56_000
_WORDS_CHARS = 10_000
_BINDING_CHARS = 8_000
_WORD_CHARS = 6_000  # of one text of the user's
_SAID_CHARS = 1_500  # of one of the agent's
_OTHER_CHARS = 400  # of one that a tool or the host says in the user's name
_OUTPUT_CHARS = 300
_RECORD_CHARS = 2_400  # of an answer in JSON
_ARGUMENT_CHARS = 240
_COMMAND_CHARS = 400
_FIRST_CHARS = 400
_MOST_EFFECTS = 12
# The tool that the archive keeps it under.
SUMMARIZED_MESSAGES = "summarized messages"
_MEDIA_TYPE = "application/zlib"


@dataclass(frozen=True, slots=True)
class Carried:
    """Messages made short, oldest first."""

    messages: Messages = ()
    numbers: tuple[int | None, ...] = ()  # in the transcript
    effects: tuple[str, ...] = ()  # done in what is left out, not to be done again, newest last
    is_short: bool = True  # whole originals are carried in the same form


def carried_of(
    messages: Messages,
    numbers: Sequence[int | None],
    effects: Sequence[str],
    kinds: Mapping[str, str],
) -> Carried:
    """`messages` made short; the oldest may be carried ones already, with these `effects`."""
    messages = with_own_ids(messages)
    turns = turns_of(messages, numbers, kinds)
    actions = {one.call.call_id: one for turn in turns for one in turn.actions if one.call}
    thoughts = {at: one for turn in turns for at, one in thoughts_on_failures(turn).items()}
    kept: list[tuple[int, Message]] = []
    left_chars, first = _WORK_CHARS, len(messages)
    while first and left_chars > 0:
        first -= 1
        number = numbers[first]
        thought = joined(thoughts.get(first if number is None else number, ()))
        blocks = tuple(_shorter(messages[first], actions, thought))
        if blocks and not placeholders.is_synthetic(messages[first]):
            kept.append((first, Message(messages[first].role, blocks)))
            left_chars -= len(compact_json([*map(_row, blocks)]))
    kept += _older_words(messages[:first])
    kept.reverse()
    told = {at if number is None else number for at, number in [*enumerate(numbers)][first:]}
    older = (one for turn in turns for one in turn.actions if one.number not in told)
    done = effects_of(older, commits_of(turns))
    return Carried(
        tuple(message for _, message in kept),
        tuple(numbers[at] for at, _ in kept),
        tuple(dict.fromkeys((*effects, *done)))[-_MOST_EFFECTS:],
    )


def as_json(carried: Carried) -> JsonObject:
    """`carried` as the archive keeps it: {"messages": [[number, role, blocks]], "effects"}."""
    pairs = zip(carried.numbers, carried.messages, strict=True)
    messages = [[number, one.role, [*map(_row, one.blocks)]] for number, one in pairs]
    return {"messages": messages, "effects": list(carried.effects)}


def packed(told: JsonObject) -> Blob:
    """The archive's blob of `as_json`'s value; packed, so that a search finds nothing twice."""
    data = zlib.compress(json.dumps(told, separators=(",", ":")).encode("ascii"))
    return Blob(output_id_of(data), data, _MEDIA_TYPE, SUMMARIZED_MESSAGES)


def unpacked(data: bytes) -> Carried:
    """The messages that the data of a blob of `packed` contain.

    Raises:
        ValueError: `data` is not of such a blob.
    """
    try:
        told = json.loads(zlib.decompress(data))
        rows: list[list[Any]] = told["messages"]
        # An earlier version had them in a tally.
        effects = told["effects"] if "effects" in told else told["tally"]["effects"]
        return Carried(
            tuple(Message(role, tuple(map(_block, blocks))) for _, role, blocks in rows),
            tuple(number for number, _, _ in rows),
            tuple(effects),
        )
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"These are no shortened messages: {error}.") from error


def _row(block: Block) -> list[Any]:
    match block:
        case ToolCall():
            return ["call", block.call_id, block.name, block.arguments]
        case ToolResult():
            hidden = placeholders.is_placeholder(block)
            return ["result", block.call_id, result_text(block), block.is_error, hidden]
        case Text():
            return ["text", block.text, block.author]
        case Thinking():
            return ["thought", block.text]
        case _:  # nothing else is carried
            return []


def _block(row: Sequence[Any]) -> Block:
    kind, *rest = row
    if kind == "text":
        return Text(rest[0], author=rest[1])
    if kind == "thought":
        return Thinking(rest[0])
    if kind == "call":
        return ToolCall(*rest)
    call_id, text, is_error, hidden = rest
    return ToolResult(call_id, (Text(text, author="compaction" if hidden else None),), is_error)


def _shorter(message: Message, actions: Mapping[str, Action], thought: str) -> Iterator[Block]:
    """What its agent `thought`, and its blocks, shortened; `actions` by the ids of their calls."""
    if thought:
        yield Thinking(thought)
    for block in message.blocks:
        match block:
            case Text() if message.role == "user":
                # An extract of a long request says line by line who speaks.
                for author, text in passages_of(message, block):
                    if author == "user":
                        yield Text(ends_of(text, _WORD_CHARS), author=block.author)
                    elif text.strip():
                        yield Text(ends_of(text, _OTHER_CHARS), author=author)
            case Text() if block.text.strip():
                yield replace(block, text=ends_of(block.text, _SAID_CHARS), source=None)
            case ToolCall() if (made := actions.get(block.call_id)) and made.call:
                yield ToolCall(block.call_id, made.name, _arguments(made.call, made.use))
            case ToolResult():
                yield _result(block, actions.get(block.call_id))
            case _:  # nothing else is carried
                pass


def _arguments(call: ToolCall, use: ToolUse) -> Any:
    """The arguments of a call; of long ones commands and records are shortened, the others None.

    A part of a text would be taken for the whole.
    """
    command, has_records = use.command, records_in(call, use)
    most_chars = _RECORD_CHARS if is_steering(call.name) else _ARGUMENT_CHARS

    def short(value: Any, *, is_command: bool) -> Any:
        if len(compact_json(value)) <= most_chars:
            return value
        if not is_command:
            return short_records(value, _ARGUMENT_CHARS) if has_records else None
        text = value if isinstance(value, str) else shown(value)
        return ends_of(without_heredocs(text), _COMMAND_CHARS)

    if not is_object(call.arguments):
        return short(call.arguments, is_command=True)
    return {key: short(value, is_command=value == command) for key, value in call.arguments.items()}


def _result(result: ToolResult, action: Action | None) -> ToolResult:
    """An answer: whole where it is short or a record, else its two ends and what stood between."""
    if is_stand_in(result) or placeholders.is_placeholder(result):
        return ToolResult(result.call_id, result.content, result.is_error)
    text = action.text if action else result_text(result)
    if action and action.is_refused:
        return ToolResult(result.call_id, (Text(ends_of(text, _WORD_CHARS)),), is_error=True)
    is_record = text.lstrip()[:1] in ("{", "[")
    if len(text) > (_RECORD_CHARS if is_record else _OUTPUT_CHARS):
        # What a file says of commits is none of the work's.
        lines = [*commit_lines(text)] if action and action.use.kind == "execute" else []
        lines += [action.error] if action else []
        half = _OUTPUT_CHARS // 2
        middle = "\n".join(line for line in lines if line and line not in text[:half])
        text = f"{text[:half]}\n{LEFT_OUT}\n{middle}\n{text[len(text) - half :]}"
    if action and action.running_head:  # a call that sees more of it may be yet to come
        text = f"{action.running_head}{text}\n"
    failed = action.failed if action else result.is_error
    return ToolResult(result.call_id, (Text(text),), bool(failed))


def _older_words(messages: Messages) -> Iterator[tuple[int, Message]]:
    """What the user said in older messages, newest first: all while it fits, then what binds.

    And the beginning of the first of all.
    """
    said = [(at, text) for at, one in enumerate(messages) if (text := user_text(one))]
    words_chars, binding_chars = _WORDS_CHARS, _BINDING_CHARS
    while said and (words_chars := words_chars - len(ends_of(said[-1][1], _WORD_CHARS))) >= 0:
        at, text = said.pop()
        yield at, Message("user", (Text(ends_of(text, _WORD_CHARS)),))
    found = find_instructions(tuple(messages[at] for at, _ in said))
    sure = {item.text for item in found.standing if item.rank >= SURE_RANK}
    for at, text in reversed(said):
        told = " ".join(one.text for one in sentences_of(text) if one.text in sure)
        if at == said[0][0]:
            told = told or ends_of(text, _FIRST_CHARS)
        binding_chars -= len(told)
        if told and binding_chars >= 0:
            yield at, Message("user", (Text(told),))
