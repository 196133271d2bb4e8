"""Session files of GitHub's Copilot CLI: one row for each event."""

from collections.abc import Sequence
from typing import Any

from context_compaction.formats import base
from context_compaction.formats.session_files.model import (
    Entry,
    Row,
    Session,
    first_text,
    last_text,
    nonempty_text,
)
from context_compaction.messages.model import JsonObject

_EVENTS = ("session.", "system.", "user.", "assistant.", "tool.")


def is_row(value: JsonObject) -> bool:
    """Whether only Copilot CLI writes such a row."""
    return (base.text_or_none(value.get("type")) or "").startswith(_EVENTS) and "data" in value


def read(rows: Sequence[Row]) -> Session:
    """Return the messages, without messages of sub-agents.

    A user's message is the typed text, without the text that the host adds for the model. All
    messages stay, because the event of a compaction does not say which messages it removed.
    """
    entries: list[Entry] = []
    call_ids: set[str] = set()
    notes: tuple[str, ...] = ()
    # An older event of a sub-agent names the call that started it. A newer event has an `agentId`.
    main = [
        (row, data)
        for row in rows
        if not nonempty_text((data := row.object("data")).get("parentToolCallId"))
        and not nonempty_text(row.value.get("agentId"))
    ]
    for row, data in main:
        message: JsonObject | None = None
        match row.kind:
            case "user.message":
                # A text that is not typed has a `source`, such as the name of a skill.
                is_typed = nonempty_text(data.get("source")) in (None, "user")
                role = "user" if is_typed else "system"
                message = {"role": role, "content": data.get("content")}
            case "assistant.message":
                message = _reply(data)
                calls = base.objects_in((message or {}).get("tool_calls"))
                call_ids |= {str(call.get("id")) for call in calls}
            case "tool.execution_complete" if nonempty_text(data.get("toolCallId")) in call_ids:
                message = _result(data)
            case "session.compaction_complete" if data.get("success") is True:
                notes = (f"line {row.line}: Copilot compacted here; all messages are kept",)
            case _:
                pass
        if message is not None:
            entries.append(row.entry(message))
    about = [data for _, data in main]
    return Session(
        kind="copilot",
        format="openai-chat",
        entries=tuple(entries),
        session_id=first_text(about, "sessionId"),
        cwd=first_text(base.objects_in([data.get("context") for data in about]), "cwd"),
        model=last_text(data.get("newModel") or data.get("model") for data in about),
        system=last_text(data.get("content") for row, data in main if row.kind == "system.message"),
        notes=notes,
    )


def _reply(data: JsonObject) -> JsonObject | None:
    """Return the assistant's message; None if it says and calls nothing."""
    content = data.get("content") or None
    requests: Any = data.get("toolRequests") or []
    if base.list_or_none(requests) is None:  # An unknown shape stays for `parse_entries`.
        return {"role": "assistant", "content": content, "tool_calls": requests}
    calls = [_call(request) for request in requests]
    if calls:
        return {"role": "assistant", "content": content, "tool_calls": calls}
    return None if content is None else {"role": "assistant", "content": content}


def _call(value: Any) -> Any:
    request = base.object_or_none(value)
    if request is None:
        return value
    arguments = base.dumps(request.get("arguments") or {})
    function = {"name": request.get("name"), "arguments": arguments}
    call_id = base.text_or_none(request.get("toolCallId")) or ""
    return {"id": call_id, "type": "function", "function": function}


def _result(data: JsonObject) -> JsonObject:
    error = (base.object_or_none(data.get("error")) or {}).get("message")
    result = base.object_or_none(data.get("result")) or {}
    # The format has no flag for errors, and a bare "Path does not exist" could be a file's text.
    content = result.get("content") or (f"Error: {error}" if error else "")
    return {"role": "tool", "tool_call_id": data["toolCallId"], "content": content}
