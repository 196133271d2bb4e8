"""Render a script of turns as the messages of each provider. IDs count up, so examples shrink."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from .json_types import Json
from .script import TINY_PDF, TINY_PNG, Call, Part, Step, Turn

_USAGE = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0}


def render(turns: Sequence[Turn], format: str) -> list[Json]:
    """Return the messages of `turns`. Only the last turn may have no response."""
    numbers = count(1)
    writer = _WRITERS[format]
    return [message for turn in turns for message in writer(turn, numbers)]


def _anthropic(turn: Turn, numbers: Iterator[int]) -> Iterator[Json]:
    request = [_anthropic_part(part) for part in turn.request]
    if turn.extras:
        request.append({"type": "x_note", "payload": {"deep": [1, None, True]}})
    yield {"role": "user", "content": _either(_only_text(turn.request, turn.extras), request)}
    if turn.instruction:
        yield {"role": "system", "content": turn.instruction}
    owed: list[Json] = []
    for step in turn.steps:
        number = next(numbers)
        ids = [f"toolu_{number:04}_{place}" for place in range(len(step.calls))]
        search, owed_before = (_server_search(number) if turn.extras else []), owed
        # A server call next to host calls gets its result after their results.
        search, owed = (search[:1], search[1:]) if number % 2 else (search, [])
        yield {"role": "assistant", "content": [
            *owed_before,
            *_anthropic_thinking(step.thinking, number),
            *([{"type": "text", "text": step.text}] if step.text else []),
            *search,
            *({"type": "tool_use", "id": id_, "name": call.name, "input": call.arguments}
              for id_, call in zip(ids, step.calls, strict=True)),
        ]}  # fmt: skip
        results = [_anthropic_result(id_, call) for id_, call in zip(ids, step.calls, strict=True)]
        aside = [{"type": "text", "text": step.aside}] if step.aside else []
        yield {"role": "user", "content": [*results, *aside]}
    if turn.answer:
        number = next(numbers)
        blocks = [*owed, *_anthropic_thinking(turn.thinking, number)]
        if blocks or turn.extras:
            answer = {"type": "text", "text": turn.answer, **({"x": 1} if turn.extras else {})}
            yield {"role": "assistant", "content": [*blocks, answer]}
        else:
            yield {"role": "assistant", "content": turn.answer}


def _anthropic_part(part: Part) -> Json:
    source = {"type": "base64", "media_type": "image/png", "data": TINY_PNG}
    if part.kind == "image":
        return {"type": "image", "source": source}
    if part.kind == "document":
        source = {"type": "base64", "media_type": "application/pdf", "data": TINY_PDF}
        return {"type": "document", "source": source, "title": part.text}
    if part.kind == "unknown":
        return {"type": "x_widget", "body": part.text}
    return {"type": "text", "text": part.text}


def _anthropic_thinking(thinking: str | None, number: int) -> list[Json]:
    if thinking is None:
        return []
    if not thinking:
        return [{"type": "redacted_thinking", "data": f"EuYBredacted{number:04}"}]
    return [{"type": "thinking", "thinking": thinking, "signature": f"EqQBsigned{number:04}"}]


def _anthropic_result(id_: str, call: Call) -> Json:
    return {
        "type": "tool_result",
        "tool_use_id": id_,
        "content": _either(_result_text(call), [_anthropic_part(part) for part in call.result]),
        **({"is_error": True} if call.is_error else {}),
    }


def _server_search(number: int) -> list[Json]:
    id_ = f"srvtoolu_{number:04}"
    query = {"query": "release notes"}
    found = [{"type": "web_search_result", "url": "https://example.com", "encrypted_content": "Eq"}]
    return [
        {"type": "server_tool_use", "id": id_, "name": "web_search", "input": query},
        {"type": "web_search_tool_result", "tool_use_id": id_, "content": found},
    ]


def _chat(turn: Turn, numbers: Iterator[int]) -> Iterator[Json]:
    name = {"name": "operator"} if turn.extras else {}
    request = [_chat_part(part) for part in turn.request]
    yield {"role": "user", "content": _either(_only_text(turn.request), request), **name}
    if turn.instruction:
        yield {"role": "developer", "content": turn.instruction}
    for step in turn.steps:
        number = next(numbers)
        ids = [f"call_{number:04}_{place}" for place in range(len(step.calls))]
        calls = [
            {"id": id_, "type": "function",
             "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for id_, call in zip(ids, step.calls, strict=True)
        ]  # fmt: skip
        thought = {"reasoning_content": step.thinking} if step.thinking is not None else {}
        yield {"role": "assistant", "content": step.text or None, "tool_calls": calls, **thought}
        for id_, call in zip(ids, step.calls, strict=True):
            texts = [{"type": "text", "text": part.text} for part in call.result]
            content = _either(_result_text(call), texts)
            yield {"role": "tool", "tool_call_id": id_, "content": content}
        if step.aside:
            yield {"role": "user", "content": step.aside}
    if turn.answer:
        yield {"role": "assistant", "content": turn.answer, **({"x": 1} if turn.extras else {})}


def _chat_part(part: Part) -> Json:
    if part.kind == "image":
        url = {"url": f"data:image/png;base64,{TINY_PNG}", "detail": "low"}
        return {"type": "image_url", "image_url": url}
    if part.kind == "document":
        file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{TINY_PDF}"}
        return {"type": "file", "file": file}
    if part.kind == "unknown":
        return {"type": "x_widget", "body": part.text}
    return {"type": "text", "text": part.text}


def _responses(turn: Turn, numbers: Iterator[int]) -> Iterator[Json]:
    typed = {"type": "message"} if turn.extras else {}
    request = [_responses_part(part) for part in turn.request]
    yield {**typed, "role": "user", "content": _either(_only_text(turn.request), request)}
    if turn.instruction:
        yield {"role": "developer", "content": turn.instruction}
    for step in turn.steps:
        yield from _responses_step(step, turn.extras, next(numbers))
    if turn.answer:
        number = next(numbers)
        yield from _reasoning(turn.thinking, number)
        yield _responses_answer(turn.answer, number)


def _responses_step(step: Step, has_extras: bool, number: int) -> Iterator[Json]:
    yield from _reasoning(step.thinking, number)
    if step.text:
        yield _responses_answer(step.text, number)
    if has_extras:
        yield {"type": "web_search_call", "id": f"ws_{number:04}", "status": "completed"}
    ids = [f"call_{number:04}_{place}" for place in range(len(step.calls))]
    for id_, call in zip(ids, step.calls, strict=True):
        arguments = json.dumps(call.arguments)
        yield {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": call.name,
               "arguments": arguments, "status": "completed"}  # fmt: skip
    for id_, call in zip(ids, step.calls, strict=True):
        output = _either(_result_text(call), [_responses_part(part) for part in call.result])
        yield {"type": "function_call_output", "call_id": id_, "output": output}
    if step.aside:
        yield {"role": "user", "content": step.aside}


def _reasoning(thinking: str | None, number: int) -> Iterator[Json]:
    if thinking is not None:
        summary = [{"type": "summary_text", "text": thinking}] if thinking else []
        yield {"type": "reasoning", "id": f"rs_{number:04}", "summary": summary,
               "encrypted_content": f"gAAAAAB{number:04}"}  # fmt: skip


def _responses_answer(text: str, number: int) -> Json:
    content: list[Json] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": f"msg_{number:04}",
            "status": "completed", "content": content}  # fmt: skip


def _responses_part(part: Part) -> Json:
    if part.kind == "image":
        return {"type": "input_image", "image_url": f"data:image/png;base64,{TINY_PNG}"}
    if part.kind == "document":
        data = f"data:application/pdf;base64,{TINY_PDF}"
        return {"type": "input_file", "filename": "a.pdf", "file_data": data}
    if part.kind == "unknown":
        return {"type": "x_widget", "body": part.text}
    return {"type": "input_text", "text": part.text}


def _gemini(turn: Turn, numbers: Iterator[int]) -> Iterator[Json]:
    extra = {"videoMetadata": {"fps": 1}} if turn.extras else {}
    yield {"role": "user", "parts": [{**_gemini_part(part), **extra} for part in turn.request]}
    for step in turn.steps:
        number = next(numbers)
        calls: list[Json] = [{"functionCall": {"name": call.name, "args": call.arguments}}
                 for call in step.calls]  # fmt: skip
        if step.thinking is not None:
            calls[0]["thoughtSignature"] = f"CiQBsigned{number:04}"
        yield {"role": "model", "parts": [
            *([{"text": step.thinking, "thought": True}] if step.thinking else []),
            *([{"text": step.text}] if step.text else []),
            *calls,
        ]}  # fmt: skip
        aside = [{"text": step.aside}] if step.aside else []
        yield {"role": "user", "parts": [*map(_gemini_response, step.calls), *aside]}
    if turn.answer:
        thought = [{"text": turn.thinking, "thought": True}] if turn.thinking else []
        yield {"role": "model", "parts": [*thought, {"text": turn.answer}]}


def _gemini_part(part: Part) -> Json:
    if part.kind == "image":
        return {"inlineData": {"mimeType": "image/png", "data": TINY_PNG}}
    if part.kind == "document":
        return {"inlineData": {"mimeType": "application/pdf", "data": TINY_PDF}}
    if part.kind == "unknown":
        return {"xWidget": {"body": part.text}}
    return {"text": part.text}


def _gemini_response(call: Call) -> Json:
    key = "error" if call.is_error else "output"
    text = "\n".join(part.text for part in call.result)
    return {"functionResponse": {"name": call.name, "response": {key: text}}}


def _pi(turn: Turn, numbers: Iterator[int]) -> Iterator[Json]:
    stamp = 1_760_000_000_000
    yield {"role": "user", "content": [_pi_part(part) for part in turn.request], "timestamp": stamp}
    if turn.extras:
        yield {"role": "bashExecution", "command": "git status", "output": "clean", "exitCode": 0,
               "cancelled": False, "truncated": False, "timestamp": stamp}  # fmt: skip
    for step in turn.steps:
        number = next(numbers)
        ids = [f"toolu_{number:04}_{place}" for place in range(len(step.calls))]
        calls = [{"type": "toolCall", "id": id_, "name": call.name, "arguments": call.arguments}
                 for id_, call in zip(ids, step.calls, strict=True)]  # fmt: skip
        text = [{"type": "text", "text": step.text}] if step.text else []
        content = [*_pi_thinking(step.thinking, number), *text, *calls]
        yield _pi_answer(content, "toolUse", stamp)
        for id_, call in zip(ids, step.calls, strict=True):
            parts = [_pi_part(part) for part in call.result]
            yield {"role": "toolResult", "toolCallId": id_, "toolName": call.name,
                   "content": parts, "isError": call.is_error, "timestamp": stamp}  # fmt: skip
        if step.aside:
            aside = [{"type": "text", "text": step.aside}]
            yield {"role": "user", "content": aside, "timestamp": stamp}
    if turn.answer:
        number = next(numbers)
        answer = {"type": "text", "text": turn.answer}
        yield _pi_answer([*_pi_thinking(turn.thinking, number), answer], "stop", stamp)


def _pi_answer(content: list[Json], stop_reason: str, stamp: int) -> Json:
    return {"role": "assistant", "content": content, "api": "anthropic-messages",
            "provider": "anthropic", "model": "claude-sonnet-4-5", "usage": _USAGE,
            "stopReason": stop_reason, "timestamp": stamp}  # fmt: skip


def _pi_thinking(thinking: str | None, number: int) -> list[Json]:
    if thinking is None:
        return []
    signature = f"EqQBsigned{number:04}"
    return [{"type": "thinking", "thinking": thinking, "thinkingSignature": signature}]


def _pi_part(part: Part) -> Json:
    if part.kind == "image":
        return {"type": "image", "data": TINY_PNG, "mimeType": "image/png"}
    if part.kind == "unknown":
        return {"type": "x_widget", "body": part.text}
    return {"type": "text", "text": part.text or "(document)"}


def _converse(turn: Turn, numbers: Iterator[int]) -> Iterator[Json]:
    point: list[Json] = [{"cachePoint": {"type": "default"}}] if turn.extras else []
    request = [_converse_part(part) for part in turn.request]
    if turn.extras:
        request.append({"xNote": {"deep": [1, None, True]}})
    if any("document" in block for block in request):
        request.append({"text": "See the file."})
    yield {"role": "user", "content": [*request, *point]}
    for step in turn.steps:
        number = next(numbers)
        ids = [f"tooluse_{number:04}_{place}" for place in range(len(step.calls))]
        yield {"role": "assistant", "content": [
            *_converse_thinking(step.thinking, number),
            *([{"text": step.text}] if step.text else []),
            *({"toolUse": {"toolUseId": id_, "name": call.name, "input": call.arguments}}
              for id_, call in zip(ids, step.calls, strict=True)),
        ]}  # fmt: skip
        results = [_converse_result(id_, call) for id_, call in zip(ids, step.calls, strict=True)]
        yield {
            "role": "user",
            "content": [*results, *([{"text": step.aside}] if step.aside else [])],
        }
    if turn.answer:
        thought = _converse_thinking(turn.thinking, next(numbers))
        yield {"role": "assistant", "content": [*thought, {"text": turn.answer}]}


def _converse_part(part: Part) -> Json:
    if part.kind == "image":
        return {"image": {"format": "png", "source": {"bytes": TINY_PNG}}}
    if part.kind == "document":
        return {"document": {"format": "pdf", "name": "notes", "source": {"bytes": TINY_PDF}}}
    if part.kind == "unknown":
        return {"xWidget": {"body": part.text}}
    return {"text": part.text}


def _converse_thinking(thinking: str | None, number: int) -> list[Json]:
    if thinking is None:
        return []
    if not thinking:
        return [{"reasoningContent": {"redactedContent": f"EuYBredacted{number:04}"}}]
    reasoning = {"text": thinking, "signature": f"EqQBsigned{number:04}"}
    return [{"reasoningContent": {"reasoningText": reasoning}}]


def _converse_result(id_: str, call: Call) -> Json:
    parts = [_converse_part(part) for part in call.result]
    if call.as_list:
        parts = [{"json": {"lines": [part.text for part in call.result]}}]
    status = {"status": "error"} if call.is_error else {}
    return {"toolResult": {"toolUseId": id_, "content": parts, **status}}


def _only_text(parts: tuple[Part, ...], has_extras: bool = False) -> str | None:
    """Return the text of a request that consists of one text."""
    if len(parts) == 1 and parts[0].kind == "text" and not has_extras:
        return parts[0].text
    return None


def _either(text: str | None, parts: list[Json]) -> str | list[Json]:
    return parts if text is None else text


def _result_text(call: Call) -> str | None:
    return None if call.as_list else _only_text(call.result)


_WRITERS: dict[str, Callable[[Turn, Iterator[int]], Iterator[Json]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
    "pi": _pi,
    "bedrock-converse": _converse,
}
