"""Small conversations in Anthropic's format, and the calls that tests make with them."""

import json
import re
from typing import Any

from context_compaction.formats import FORMATS, parse
from context_compaction.layers.base import LayerContext
from context_compaction.messages.model import Messages, ToolResult, tool_results
from context_compaction.messages.pins import Pins
from context_compaction.messages.placeholders import Span
from context_compaction.messages.speakers import ProvenTexts, claims_in, with_authors
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest, Settings
from context_compaction.result import CompactResult
from context_compaction.tokens.counter import MessageCounter, counter_for

from .json_types import Json
from .promises import temporary_archive

RULES = FORMATS["anthropic"].rules
COUNT: MessageCounter = counter_for(
    estimator="chars/4"
)  # needs no vocabulary and is easy to predict


def user(content: Any) -> Json:
    """Return a message of the user: a text or blocks."""
    return {"role": "user", "content": content}


def assistant(*blocks: Json | str) -> Json:
    """Return a response of the model with blocks; a string is a text block."""
    content = [text(block) if isinstance(block, str) else block for block in blocks]
    return {"role": "assistant", "content": content}


def agent(content: Any) -> Json:
    """Return a response of the model with unchanged content."""
    return {"role": "assistant", "content": content}


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def thinking(value: str) -> Json:
    return {"type": "thinking", "thinking": value, "signature": "c2lnbmF0dXJl"}


def call(call_id: str, name: str, /, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, *, is_error: bool = False) -> Json:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return block | {"is_error": True} if is_error else block


def image(data: str) -> Json:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def answered(call_id: str, name: str, content: Any, /, **arguments: Any) -> list[Json]:
    """Return a call in one message and its result in the next."""
    return [assistant(call(call_id, name, **arguments)), user([result(call_id, content)])]


def chat_calls(*calls: tuple[str, str, Json, str]) -> list[Json]:
    """Return calls (ID, name, arguments, result) as a response and results in OpenAI's format."""
    tool_calls = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for i, name, given, _ in calls
    ]
    results = [{"role": "tool", "tool_call_id": i, "content": text} for i, _, _, text in calls]
    return [{"role": "assistant", "content": None, "tool_calls": tool_calls}, *results]


def lines(label: str, number: int = 200) -> str:
    """Return distinct lines, so that no line repeats another."""
    return "\n".join(f"{label} line {n}: value_{label}_{n * 37}" for n in range(number))


def session(calls: int = 12, line_count: int = 150) -> list[Json]:
    """Return a finished turn with `calls` results of `line_count` lines, and a new request."""
    steps = [
        message
        for n in range(calls)
        for message in answered(f"c{n}", "Bash", lines(f"n{n}", line_count), command=f"run {n}")
    ]
    return [user("Mend the parser."), *steps, assistant("Mended."), user("Now the docs.")]


def turn_with_call(number: int, request: str, line_count: int = 60) -> list[Json]:
    """Return a request, a command with distinct output, and an answer."""
    output = lines(f"out{number}", line_count)
    return [
        user(request),
        *answered(f"k{number}", "Bash", output, command=f"run {number}"),
        assistant(f"Part {number} is finished."),
    ]


def read(payload: list[Json]) -> Messages:
    """Return `payload` as layers receive it."""
    return parse(payload, format="anthropic")


def with_confirmed_texts(messages: Messages) -> Messages:
    """Return `messages` as if the archive had confirmed all texts of this library."""
    claims = claims_in(messages)
    return with_authors(
        messages, ProvenTexts({name for name, _ in claims.messages}, claims.output_ids)
    )


def layer_context(
    settings: Settings | None = None,
    *,
    limit_tokens: int = 0,
    limit_bytes: int = 1_000_000_000,
    pins: Pins | None = None,
    **more: Any,
) -> LayerContext:
    """Return the values that a layer reads. Without a limit it clears everything that it may."""
    return LayerContext(
        settings or Settings(),
        COUNT,
        RULES,
        _span_of,
        pins or Pins(),
        limit_tokens,
        limit_bytes,
        **more,
    )


def _span_of(part: Messages) -> Span:
    numbers = [message.index for message in part if message.index is not None]
    return Span("s", min(numbers, default=0), max(numbers, default=0))


def result_of(messages: Messages, call_id: str) -> ToolResult:
    """Return the result of one call."""
    results = [result for message in messages for result in tool_results(message)]
    [match] = [result for result in results if result.call_id == call_id]
    return match


async def compacted(payload: list[Json], **options: Any) -> CompactResult:
    """Compact `payload` with a new archive."""
    options.setdefault("format", "anthropic")
    request = CompactRequest(**options)
    async with temporary_archive() as archive:
        return await compact(payload, request, archive=archive)


def user_words(summary: str) -> list[str]:
    """Return the texts of the user in a summary, without message numbers."""
    section = summary.partition("\n## The user, word for word\n")[2]
    texts = re.split(r"\n(?:## |</)", section)[0].splitlines() if section else []
    texts += re.findall(r"^(?:\[\d+\] )?user: .*", summary, re.MULTILINE)
    return [re.sub(r"^(?:- |\[\d+\] )?(?:user: )?", "", line) for line in texts]


_REPLACED = re.compile(r"\(changed(?: by \[\d+\]| later)\) ")


def newer_prevails(older: str, newer: str, text: str) -> bool:
    """Whether `older` is absent, marked as changed, or before `newer` everywhere in `text`."""
    starts = [match.start() for match in re.finditer(re.escape(older), text)]
    marked = {match.end() for match in _REPLACED.finditer(text)}
    plain = [start for start in starts if start not in marked]
    return not plain or plain[-1] < text.rfind(newer)


def is_marked_replaced(sentence: str, text: str) -> bool:
    """Whether `text` contains `sentence` with a mark that it was replaced."""
    return re.search(_REPLACED.pattern + re.escape(sentence), text) is not None
