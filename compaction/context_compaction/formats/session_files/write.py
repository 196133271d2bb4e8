"""Session files of hosts, written: a compacted conversation as the host itself would continue it.

Each writer gives the rows of a new file; nothing is opened here. The rows say whose conversation
goes on in them (`MARK`), so that an import takes what the host adds to it for a continuation, and
archives nothing twice. Where a host needs fields that a message lacks, the row says how to undo
them: what `read` reads of the file are the messages as they were given, to the byte. opencode keeps
another form of messages: there, what was said, called and answered is the same.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from context_compaction.formats.anthropic import HOST_MARKS
from context_compaction.formats.parsing import objects_in, text_or_none
from context_compaction.formats.session_files.hosts import MARK
from context_compaction.formats.session_files.model import NewSession
from context_compaction.formats.session_files.opencode import opencode_document
from context_compaction.messages.model import JsonObject

# The version that the rows look like; the client was tried with them (tests/hosts).
_CLAUDE_CODE_VERSION = "2.1.197"


Writer: TypeAlias = Callable[[Sequence[JsonObject], NewSession], list[JsonObject]]


def claude_code_rows(messages: Sequence[JsonObject], session: NewSession) -> list[JsonObject]:
    """Claude Code: a chain of one row for each message of Anthropic's format."""
    common = {
        "isSidechain": False,
        "userType": "external",
        "cwd": session.cwd,
        "sessionId": session.session_id,
        "version": _CLAUDE_CODE_VERSION,
        "timestamp": session.timestamp,
    }
    last = _last_assistant(messages)
    rows: list[JsonObject] = []
    parent: str | None = None
    for index, message in enumerate(messages):
        marks = {mark: True for mark in HOST_MARKS if message.get(mark) is True}
        spoken = {key: value for key, value in message.items() if key not in marks}
        role = "assistant" if message.get("role") == "assistant" else "user"
        needed: JsonObject = {"role": role}
        if role == "assistant":
            usage = {"input_tokens": session.tokens, "output_tokens": 0}
            needed |= _missing(spoken, _claude_code_reply(index, session, usage))
            needed |= {"usage": usage} if index == last else {}
            needed |= _as_blocks(spoken, "text")
        shown, mark = _with_fields(spoken, needed, session)
        row_id = str(uuid.uuid5(uuid.UUID(session.session_id), str(index)))
        row = {"parentUuid": parent, "type": role, "uuid": row_id, "message": shown}
        rows.append({**row, **marks, **common, MARK: mark})
        parent = row_id
    if session.title:
        title = {"type": "custom-title", "customTitle": session.title}
        rows.append({**title, "sessionId": session.session_id, MARK: _mark(session)})
    return rows


def _claude_code_reply(index: int, session: NewSession, usage: JsonObject) -> JsonObject:
    """The fields of a reply of the API, where a message has its role and content alone."""
    return {
        "id": f"msg_{session.session_id.replace('-', '')[:20]}{index:04}",
        "type": "message",
        "model": session.model or "unknown",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def codex_rows(messages: Sequence[JsonObject], session: NewSession) -> list[JsonObject]:
    """Codex: its head, and one row for each Responses item.

    Codex adds its instructions and the environment itself, since no turn of this file has any.
    """
    head = {
        "id": session.session_id,
        "timestamp": session.timestamp,
        "cwd": session.cwd,
        "originator": "mcp-server-compaction",
        "cli_version": "0.0.0",
        "source": "cli",
    }
    rows: list[JsonObject] = []

    def write(kind: str, payload: JsonObject, mark: JsonObject) -> None:
        # Each at a time of its own: a line that is the one before it counts for that.
        stamp = {"timestamp": session.later(len(rows))}
        rows.append({**stamp, "type": kind, "payload": payload, MARK: mark})

    write("session_meta", head, _mark(session))
    for item in messages:
        shown, mark = _with_fields(item, _codex_fields(item), session)
        write("response_item", shown, mark)
        said = _user_text(item)
        if said is not None:  # what Codex shows of a session, in lists and when it goes on
            event = {"type": "user_message", "message": said, "kind": "plain"}
            write("event_msg", event, _mark(session))
    return rows


def _codex_fields(item: JsonObject) -> JsonObject:
    """What a message of the short form lacks: its type, and content in blocks."""
    if "role" not in item or item.get("type", "message") != "message":
        return {}
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {"type": "message", **_as_blocks(item, kind)}


def _user_text(item: JsonObject) -> str | None:
    if item.get("role") != "user":
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    texts = [text for block in objects_in(content) if (text := text_or_none(block.get("text")))]
    return "\n".join(texts) or None


def pi_rows(messages: Sequence[JsonObject], session: NewSession) -> list[JsonObject]:
    """pi: its head, the model, and a branch of one row for each message."""
    stamp = {"timestamp": session.timestamp}
    head = {"type": "session", "version": 3, "id": session.session_id}
    rows: list[JsonObject] = [{**head, **stamp, "cwd": session.cwd, MARK: _mark(session)}]
    last = _last_assistant(messages)
    parent: str | None = None
    if last is not None and "provider" in messages[last]:
        spoke = messages[last]
        model = {"provider": spoke["provider"], "modelId": spoke.get("model")}
        parent = "0" * 8
        rows.append({"type": "model_change", "id": parent, "parentId": None, **stamp, **model})
    for index, message in enumerate(messages):
        needed: JsonObject = _missing(message, {"timestamp": round(session.seconds * 1000)})
        if message.get("role") == "assistant":
            usage = _pi_usage(session.tokens)
            needed |= _missing(message, _pi_reply(session, usage)) | _as_blocks(message, "text")
            needed |= {"usage": usage} if index == last else {}
        shown, mark = _with_fields(message, needed, session)
        row_id = f"{index + 1:08x}"
        row = {"type": "message", "id": row_id, "parentId": parent, **stamp, "message": shown}
        rows.append({**row, MARK: mark})
        parent = row_id
    return rows


def _pi_reply(session: NewSession, usage: JsonObject) -> JsonObject:
    return {
        "api": "unknown",
        "provider": "unknown",
        "model": session.model or "unknown",
        "usage": usage,
        "stopReason": "stop",
    }


def _pi_usage(tokens: int) -> JsonObject:
    counts = {"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    costs = {**dict.fromkeys(counts, 0), "total": 0}
    return {**counts, "totalTokens": tokens, "cost": costs}


def opencode_rows(messages: Sequence[JsonObject], session: NewSession) -> list[JsonObject]:
    """opencode: one document, to be imported by the host itself."""
    return [{**opencode_document(messages, session), MARK: _mark(session)}]


WRITERS: Mapping[str, Writer] = {
    "claude-code": claude_code_rows,
    "codex": codex_rows,
    "pi": pi_rows,
    "opencode": opencode_rows,
}


def _last_assistant(messages: Sequence[JsonObject]) -> int | None:
    indexes = range(len(messages) - 1, -1, -1)
    return next((at for at in indexes if messages[at].get("role") == "assistant"), None)


def _as_blocks(message: JsonObject, kind: str) -> JsonObject:
    """The content of a message in blocks, where it is a plain string."""
    content = message.get("content")
    return {"content": [{"type": kind, "text": content}]} if isinstance(content, str) else {}


def _missing(message: JsonObject, fields: JsonObject) -> JsonObject:
    return {key: value for key, value in fields.items() if key not in message}


def _mark(session: NewSession) -> JsonObject:
    return {"session_id": session.origin}


def _with_fields(
    message: JsonObject, fields: JsonObject, session: NewSession
) -> tuple[JsonObject, JsonObject]:
    """The message with `fields`, and the mark of its row, which says what it had instead."""
    mark: JsonObject = _mark(session)
    added: list[Any] = [key for key in fields if key not in message]
    replaced = {
        key: message[key] for key in fields if key in message and message[key] != fields[key]
    }
    mark |= {"added": added} if added else {}
    mark |= {"replaced": replaced} if replaced else {}
    return {**message, **fields}, mark
