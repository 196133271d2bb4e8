"""Sessions of opencode, which keeps them in a database: `opencode export` and `import` use files.

An export is one document, {"info", "messages"}. A message has `info` and `parts`, and a call and
its result are one part. They are read as messages of Anthropic's format, without thinking.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from context_compaction.formats.base import object_or_none, objects_in, sane_seconds, text_or_none
from context_compaction.formats.session_files.model import (
    MARK,
    Entry,
    NewSession,
    Row,
    Session,
    call_block,
    origin_of,
    result_block,
)
from context_compaction.messages.model import JsonObject

_AGENT = "build"
_VERSION = "1.18.33"  # The host was tested with this version (tests/hosts).
_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "gemini": "google"}


def is_row(document: JsonObject) -> bool:
    """Whether `opencode export` wrote a document."""
    info = object_or_none(document.get("info")) or {}
    return "directory" in info and isinstance(document.get("messages"), list)


def read(rows: Sequence[Row]) -> Session:
    """Return the messages of the first export of a file, and a note on each other export."""
    first, *others = (row for row in rows if is_row(row.value))
    document = first.value
    info = object_or_none(document.get("info")) or {}
    entries: list[Entry] = []
    model: str | None = None
    provider: str | None = None
    for message in objects_in(document.get("messages")):
        about = object_or_none(message.get("info")) or {}
        chosen = object_or_none(about.get("model")) or about
        if model_id := text_or_none(chosen.get("modelID")):
            model, provider = model_id, text_or_none(chosen.get("providerID"))
        created = (object_or_none(about.get("time")) or {}).get("created")
        seconds = sane_seconds(created, per_second=1000)
        entries += [Entry(raw, seconds) for raw in _messages_of(message)]
    return Session(
        kind="opencode",
        format="anthropic",
        entries=tuple(entries),
        session_id=origin_of(rows) or text_or_none(info.get("id")),
        cwd=text_or_none(info.get("directory")),
        model=model,
        provider=provider,
        notes=tuple(
            f"line {row.line} is another export and becomes text (give each export its own file)"
            for row in others
        ),
    )


def _messages_of(message: JsonObject) -> Iterator[JsonObject]:
    """Yield the messages of Anthropic's format for one message of opencode.

    No model sees an ignored part. A synthetic part was written by opencode for the model, such as
    the text of a file that the user named. It becomes a separate message, marked as the host's.
    """
    info = object_or_none(message.get("info")) or {}
    role = "user" if info.get("role") == "user" else "assistant"
    own_blocks: list[JsonObject] = []
    host_blocks: list[JsonObject] = []
    results: list[JsonObject] = []
    for part in objects_in(message.get("parts")):
        if part.get("type") == "text" and part.get("text") and not part.get("ignored"):
            block: JsonObject = {"type": "text", "text": part["text"]}
            is_host = role == "user" and part.get("synthetic")
            (host_blocks if is_host else own_blocks).append(block)
        state = object_or_none(part.get("state")) or {}
        if part.get("type") == "tool" and state.get("status") in ("completed", "error"):
            is_error = state["status"] == "error"
            call_id = part.get("callID")
            own_blocks.append(call_block(call_id, part.get("tool"), state.get("input")))
            text = str(state.get("error" if is_error else "output") or "")
            results.append(result_block(call_id, text, is_error=is_error))
    if own_blocks:
        yield {"role": role, "content": own_blocks}
    if host_blocks:
        yield {"role": role, "content": host_blocks, "isMeta": True}
    if results:
        yield {"role": "user", "content": results}


def write(messages: Sequence[JsonObject], session: NewSession) -> list[JsonObject]:
    """Return one document that `opencode import` accepts, from messages of Anthropic's format."""
    results = {
        str(block.get("tool_use_id")): block
        for message in messages
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    }
    now = round(session.seconds * 1000)
    numbers = count()
    written: list[JsonObject] = []
    request_id = ""
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        ids = {"id": _new_id("msg", now, next(numbers)), "sessionID": session.session_id}
        parts = [
            {**part, **ids, "id": _new_id("prt", now, next(numbers)), "messageID": ids["id"]}
            for block in _blocks(message)
            for part in _parts(block, results, now)
        ]
        if message.get("isMeta"):
            parts = [{**part, "synthetic": True} for part in parts]
        if not parts:
            continue  # The message has only results, which are written with their calls.
        request_id = ids["id"] if role == "user" else request_id
        info = _user_info(session, now) if role == "user" else _reply_info(session, now, request_id)
        written.append({"info": {**info, **ids}, "parts": parts})
    mark = {"session_id": session.origin}
    return [{"info": _session_info(session, now), "messages": written, MARK: mark}]


def _session_info(session: NewSession, now: int) -> JsonObject:
    return {
        "id": session.session_id,
        "slug": session.session_id[-12:].lower(),
        "projectID": "global",
        "directory": session.cwd,
        "title": session.title,
        "version": _VERSION,
        "time": {"created": now, "updated": now},
    }


def _user_info(session: NewSession, now: int) -> JsonObject:
    model = {"providerID": _provider(session), "modelID": session.model or "unknown"}
    return {"role": "user", "time": {"created": now}, "agent": _AGENT, "model": model}


def _reply_info(session: NewSession, now: int, request_id: str) -> JsonObject:
    cache = {"read": 0, "write": 0}
    return {
        "role": "assistant",
        "parentID": request_id,
        "mode": _AGENT,
        "agent": _AGENT,
        "path": {"cwd": session.cwd, "root": "/"},
        "cost": 0,
        "tokens": {"input": session.tokens, "output": 0, "reasoning": 0, "cache": cache},
        "modelID": session.model or "unknown",
        "providerID": _provider(session),
        "time": {"created": now, "completed": now},
        "finish": "stop",
    }


def _parts(block: JsonObject, results: Mapping[str, JsonObject], now: int) -> Iterator[JsonObject]:
    if block.get("type") == "text" and block.get("text"):
        yield {"type": "text", "text": block["text"]}
    if block.get("type") in ("image", "document"):
        yield {"type": "text", "text": f"[{block['type']} removed]"}
    if block.get("type") == "tool_use":
        result = results.get(str(block.get("id")), {})
        texts = (text_or_none(part.get("text")) for part in _blocks(result))
        text = "\n".join(text for text in texts if text)
        state: JsonObject = {"input": block.get("input"), "time": {"start": now, "end": now}}
        if result.get("is_error"):
            state |= {"status": "error", "error": text}
        else:
            name = str(block.get("name"))
            state |= {"status": "completed", "output": text, "title": name, "metadata": {}}
        yield {"type": "tool", "callID": block.get("id"), "tool": block.get("name"), "state": state}


def _new_id(kind: str, now: int, number: int) -> str:
    """Return an ID in opencode's form, which sorts before the IDs that it makes later."""
    return f"{kind}_{((now - 60_000) * 4_096 + number) & (2**48 - 1):012x}{number:014}"


def _provider(session: NewSession) -> str:
    if session.provider is not None:
        return session.provider
    model = session.model or ""
    return next((name for start, name in _PROVIDERS.items() if model.startswith(start)), "opencode")


def _blocks(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects_in(content)
