"""The wire forms of a scripted answer: Messages, Responses and Chat Completions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .json_types import Json
from .strict_rules import encrypted

_PIECE_CHARS = 400


@dataclass(frozen=True)
class Says:
    """An answer of the model.

    Attributes:
        text: Its text.
        calls: Name and input of each tool call.
        thinking: Thinking before the text. "" for none.
        stop_reason: Reason for the end in Anthropic's words. "" for the usual one.
        encoding: Content encoding of the body: "", "gzip" or "zstd".
        broken: "close" ends a stream before its last event, "cut" ends it within a chunk, and
            "error" ends it with an error event. "" for a whole answer.
        headers: More headers of the response.
    """

    text: str = ""
    calls: Sequence[tuple[str, Json]] = ()
    thinking: str = ""
    stop_reason: str = ""
    encoding: Literal["", "gzip", "zstd"] = ""
    broken: Literal["", "close", "cut", "error"] = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Usage:
    """Input tokens of one request, at 4 bytes each.

    Attributes:
        read: Tokens read from the prompt cache.
        written: Tokens written to it.
        other: Tokens that no cache breakpoint covers.
    """

    read: int
    written: int
    other: int

    @property
    def total(self) -> int:
        """All input tokens."""
        return self.read + self.written + self.other


@dataclass(frozen=True)
class Answer:
    """What one request gets.

    Attributes:
        says: The script's answer.
        number: Number of the answer, which makes its IDs unique.
        model: Name of the model in the request.
        signature: Signature of the thinking.
        usage: Input tokens.
    """

    says: Says
    number: int
    model: str
    signature: str
    usage: Usage

    @property
    def call_ids(self) -> list[str]:
        """The part after the prefix of each tool call's ID."""
        return [f"{self.number:06}_{place}" for place in range(len(self.says.calls))]


def message_of(answer: Answer) -> Json:
    """Return the answer of Messages without streaming."""
    says = answer.says
    content: list[Json] = []
    if says.thinking:
        block = {"type": "thinking", "thinking": says.thinking, "signature": answer.signature}
        content.append(block)
    if says.text:
        content.append({"type": "text", "text": says.text})
    for id_, (name, arguments) in zip(answer.call_ids, says.calls, strict=True):
        content.append({
            "type": "tool_use", "id": f"toolu_{id_}", "name": name, "input": arguments,
        })  # fmt: skip
    return {
        "id": f"msg_{answer.number:06}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": says.stop_reason or ("tool_use" if says.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.usage.other,
            "cache_creation_input_tokens": answer.usage.written,
            "cache_read_input_tokens": answer.usage.read,
            "output_tokens": max(1, len(json.dumps(content)) // 4),
        },
    }


def message_events(answer: Answer) -> list[Json]:
    """Return the events of Messages."""
    message = message_of(answer)
    usage = {**message["usage"], "output_tokens": 1}
    start: Json = {**message, "content": [], "stop_reason": None, "usage": usage}
    events: list[Json] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        begun, deltas = _block_parts(block)
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": message["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": end, "usage": usage})
    events.append({"type": "message_stop"})
    return events


def _block_parts(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as it starts, and the deltas that complete it."""
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": p} for p in _pieces(block["thinking"])]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if block["type"] == "text":
        texts = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        return {"type": "text", "text": ""}, texts
    arguments = _pieces(json.dumps(block["input"]))
    parts = [{"type": "input_json_delta", "partial_json": piece} for piece in arguments]
    return {**block, "input": {}}, parts


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS)]


def response_of(answer: Answer) -> Json:
    """Return the answer of Responses without streaming."""
    says, number = answer.says, answer.number
    items: list[Json] = []
    if says.thinking:
        items.append({
            "type": "reasoning",
            "id": f"rs_{number:06}",
            "summary": [],
            "encrypted_content": encrypted(says.thinking),
        })
    if says.text:
        part: Json = {"type": "output_text", "text": says.text, "annotations": []}
        item: Json = {"type": "message", "id": f"msg_{number:06}", "role": "assistant"}
        items.append({**item, "status": "completed", "content": [part]})
    for id_, (name, arguments) in zip(answer.call_ids, says.calls, strict=True):
        items.append({
            "type": "function_call",
            "id": f"fc_{id_}",
            "call_id": f"call_{id_}",
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        })
    output_tokens = len(json.dumps(items)) // 4
    reasons = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
    reason = reasons.get(says.stop_reason)
    return {
        "id": f"resp_{number:06}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "model": answer.model,
        "output": items,
        "usage": {
            "input_tokens": answer.usage.total,
            "input_tokens_details": {"cached_tokens": answer.usage.read},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.usage.total + output_tokens,
        },
    }


def response_events(answer: Answer) -> list[Json]:
    """Return the events of Responses."""
    response = response_of(answer)
    started: Json = {**response, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(response["output"]):
        place: Json = {"output_index": index}
        begun = {**item, "status": "in_progress"}
        events.append({"type": "response.output_item.added", **place, "item": begun})
        where = {**place, "item_id": item["id"], "content_index": 0}
        if item["type"] == "message":
            events += [
                {"type": "response.output_text.delta", **where, "delta": piece}
                for piece in _pieces(item["content"][0]["text"])
            ]
        events.append({"type": "response.output_item.done", **place, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def completion_of(answer: Answer) -> Json:
    """Return the answer of Chat Completions without streaming."""
    says = answer.says
    message: Json = {"role": "assistant", "content": says.text or None}
    if says.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{id_}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for id_, (name, arguments) in zip(answer.call_ids, says.calls, strict=True)
        ]
    reasons = {"max_tokens": "length", "refusal": "content_filter"}
    finish = "tool_calls" if says.calls else reasons.get(says.stop_reason, "stop")
    return {
        "id": f"chatcmpl_{answer.number:06}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": answer.usage.total,
            "prompt_tokens_details": {"cached_tokens": answer.usage.read},
            "completion_tokens": len(json.dumps(message)) // 4,
            "total_tokens": answer.usage.total + len(json.dumps(message)) // 4,
        },
    }


def completion_events(answer: Answer) -> list[Json]:
    """Return the chunks of Chat Completions. The last one has the usage."""
    whole = completion_of(answer)
    [choice] = whole["choices"]
    message: Json = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(message["content"] or "")]
    for index, call in enumerate(message.get("tool_calls", [])):
        deltas.append({"tool_calls": [{"index": index, **call}]})
    head = {key: whole[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"

    def chunk(delta: Json, finish: Any = None) -> Json:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    chunks = [*map(chunk, deltas), chunk({}, choice["finish_reason"])]
    return [*chunks, {**head, "choices": [], "usage": whole["usage"]}]
