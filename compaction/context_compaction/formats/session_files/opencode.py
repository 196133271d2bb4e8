"""opencode keeps sessions in a database: `opencode export` and `opencode import` are its files.

An export is one document, {"info", "messages"}; a message has `info` and `parts`, and a call and
its result are one part. They are read as messages of Anthropic's format, thinking left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from context_compaction.formats.parsing import object_or_none, objects_in, text_or_none
from context_compaction.formats.session_files.model import Entry, NewSession, Session
from context_compaction.messages.model import JsonObject

_AGENT = "build"
_VERSION = "1.18.33"  # the version that was tried with it (tests/hosts)
_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "gemini": "google"}


def is_export(document: JsonObject) -> bool:
    """Whether a document is one that `opencode export` writes."""
    info = object_or_none(document.get("info")) or {}
    return "directory" in info and isinstance(document.get("messages"), list)


def read_opencode(document: JsonObject, origin: str | None) -> Session:
    """The messages of an export; `origin` is the session that goes on in it, where it is ours."""
    info = object_or_none(document.get("info")) or {}
    entries: list[Entry] = []
    model: str | None = None
    provider: str | None = None
    for message in objects_in(document.get("messages")):
        about = object_or_none(message.get("info")) or {}
        chosen = object_or_none(about.get("model")) or about
        if named := text_or_none(chosen.get("modelID")):
            model, provider = named, text_or_none(chosen.get("providerID"))
        seconds = _seconds(about)
        entries += [Entry(raw, seconds) for raw in _messages_of(message)]
    return Session(
        "opencode",
        "anthropic",
        tuple(entries),
        session_id=origin or text_or_none(info.get("id")),
        cwd=text_or_none(info.get("directory")),
        model=model,
        provider=provider,
    )


def messages_in(listed: object) -> list[JsonObject]:
    """The messages of an export, or of a session as a plugin sees it, in Anthropic's format."""
    return [raw for message in objects_in(listed) for raw in _messages_of(message)]


def _messages_of(message: JsonObject) -> Iterator[JsonObject]:
    """The messages that one of opencode becomes.

    A part that is ignored no model sees. One that is synthetic the model sees, but opencode wrote
    it, as the text of a file that the user named: it stands apart, marked as the host's.
    """
    info = object_or_none(message.get("info")) or {}
    role = "user" if info.get("role") == "user" else "assistant"
    said: list[JsonObject] = []
    added: list[JsonObject] = []
    results: list[JsonObject] = []
    for part in objects_in(message.get("parts")):
        if part.get("type") == "text" and part.get("text") and not part.get("ignored"):
            block: JsonObject = {"type": "text", "text": part["text"]}
            (added if role == "user" and part.get("synthetic") else said).append(block)
        state = object_or_none(part.get("state")) or {}
        if part.get("type") == "tool" and state.get("status") in ("completed", "error"):
            failed = state["status"] == "error"
            call_id = str(part.get("callID"))
            given = object_or_none(state.get("input")) or {}
            called: JsonObject = {"type": "tool_use", "id": call_id}
            said.append({**called, "name": str(part.get("tool")), "input": given})
            text = str(state.get("error" if failed else "output") or "")
            result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            results.append({**result, "is_error": True} if failed else result)
    if said:
        yield {"role": role, "content": said}
    if added:
        yield {"role": role, "content": added, "isMeta": True}
    if results:
        yield {"role": "user", "content": results}


def opencode_document(messages: Sequence[JsonObject], session: NewSession) -> JsonObject:
    """An export that `opencode import` takes, of messages of Anthropic's format."""
    results = {
        str(block.get("tool_use_id")): block
        for message in messages
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    }
    now = round(session.seconds * 1000)
    numbers = count()
    written: list[JsonObject] = []
    asked = ""
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        about = {"id": _id("msg", now, next(numbers)), "sessionID": session.session_id}
        parts = [
            {**part, **about, "id": _id("prt", now, next(numbers)), "messageID": about["id"]}
            for block in _blocks(message)
            for part in _parts(block, results, now)
        ]
        if message.get("isMeta"):
            parts = [{**part, "synthetic": True} for part in parts]
        if not parts:
            continue  # results alone: they stand with their calls
        asked = about["id"] if role == "user" else asked
        info = _user_info(session, now) if role == "user" else _reply_info(session, now, asked)
        written.append({"info": {**info, **about}, "parts": parts})
    return {"info": _session_info(session, now), "messages": written}


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


def _reply_info(session: NewSession, now: int, asked: str) -> JsonObject:
    cache = {"read": 0, "write": 0}
    return {
        "role": "assistant",
        "parentID": asked,
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
        yield {"type": "text", "text": f"[{block['type']} left out]"}
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


def _id(kind: str, now: int, number: int) -> str:
    """An id of opencode's form, by which it sorts: those that it makes later come after."""
    return f"{kind}_{((now - 60_000) * 4_096 + number) & (2**48 - 1):012x}{number:014}"


def _provider(session: NewSession) -> str:
    if session.provider is not None:
        return session.provider
    model = session.model or ""
    return next((name for start, name in _PROVIDERS.items() if model.startswith(start)), "opencode")


def _blocks(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects_in(content)


def _seconds(info: JsonObject) -> float | None:
    created = (object_or_none(info.get("time")) or {}).get("created")
    return created / 1000 if isinstance(created, int | float) else None
