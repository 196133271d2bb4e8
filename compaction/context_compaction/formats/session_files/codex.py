"""Session files of Codex, which it calls rollouts."""

from collections.abc import Sequence

from context_compaction.errors import InvalidMessageError
from context_compaction.formats import parse_message
from context_compaction.formats.base import (
    list_or_none,
    object_or_none,
    objects_in,
    plain_text,
    text_or_none,
)
from context_compaction.formats.session_files import model
from context_compaction.messages.model import JsonObject
from context_compaction.messages.speakers import user_text

_ROW_TYPES = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
_EVENT_ROLES = {"user_message": "user", "agent_message": "assistant"}


def is_row(value: JsonObject) -> bool:
    """Whether only Codex writes such a row; rollouts of 2025 start with a row without a type."""
    is_typed = text_or_none(value.get("type")) in _ROW_TYPES and "payload" in value
    return is_typed or "record_type" in value or ("instructions" in value and "id" in value)


def read(rows: Sequence[model.Row]) -> model.Session:
    """Return the Responses items of the live branch; rollouts of 2025 have them without a wrapper.

    A compaction writes the items that replace earlier items. If the file has only its summary, the
    user's messages stay before it, as in Codex itself. A file without items, for example of a
    review, has its texts in events.
    """
    about = _about(rows)
    instructions = about.get("base_instructions") or about.get("instructions")
    holder = object_or_none(instructions) or {"text": instructions}
    return model.Session(
        kind="codex",
        format="openai-responses",
        entries=tuple(_entries(rows)),
        session_id=model.origin_of(rows) or model.nonempty_text(about.get("id")),
        cwd=model.nonempty_text(about.get("cwd")),
        model=model.nonempty_text(about.get("model")),
        system=model.nonempty_text(holder.get("text")),
    )


def _about(rows: Sequence[model.Row]) -> JsonObject:
    """Return the fields that describe the session."""
    about: JsonObject = {}
    for row in rows:
        if row.kind is None:
            about = {**row.value, **about}
        elif row.kind == "session_meta":
            # A fork repeats the row of its parent after its own.
            about = {**(row.original_message("payload") or {}), **about}
        elif row.kind == "turn_context":
            about |= row.object("payload")
    return about


def _entries(rows: Sequence[model.Row]) -> list[model.Entry]:
    """Return the items of the live branch."""
    if _has_only_events(rows):
        return [row.entry(item) for row in rows if (item := _item_of_event(row))]
    entries: list[model.Entry] = []
    for row in rows:
        if row.kind == "response_item":
            entries.append(row.entry(row.original_message("payload") or row.value))
        elif row.kind == "compacted":
            entries = _compacted(row.object("payload"), entries, row)
        elif turns := _rollback_turns(row):
            entries = _without_turns(entries, turns)
        elif _is_unwrapped_item(row):
            entries.append(row.entry(row.value))
    return entries


def _is_unwrapped_item(row: model.Row) -> bool:
    """Whether the row is an item without a wrapper; newer rows of other types have a payload."""
    return row.kind not in {*_ROW_TYPES, None} and "payload" not in row.value


def read_histories(rows: Sequence[model.Row], from_start: bool) -> list[model.Session]:
    """Return the histories in rows of a file.

    Args:
        rows: Rows of the file. If a compaction among them recorded only its summary, they must
            include the user's messages before it; see `needs_earlier_rows`.
        from_start: Whether they start with the first row of the file.
    """
    starts = [index for index, row in enumerate(rows) if row.kind == "compacted"]
    parent = _parent_session(rows) if from_start else None
    histories: list[model.Session] = []
    for start, stop in zip([0, *starts], [*starts, len(rows)], strict=True):
        part = list(rows[start:stop])
        if not part:
            continue
        if _lacks_replacement(part[0]):
            part = [*_live_user_rows(rows[:start]), *part]
        is_new_start = from_start or start in starts
        histories += model.histories_of(
            _branches(part), read, is_new_start=is_new_start, parent_session_id=parent
        )
    return histories


def needs_earlier_rows(rows: Sequence[model.Row]) -> bool:
    """Whether rows from the middle of a file depend on rows before them."""
    depends = any(_lacks_replacement(row) or _rollback_turns(row) for row in rows)
    return depends or _has_only_events(rows)


def _lacks_replacement(row: model.Row) -> bool:
    """Whether the row is a compaction that did not record the items after it."""
    history = row.object("payload").get("replacement_history")
    return row.kind == "compacted" and not isinstance(history, list)


def _compacted(
    payload: JsonObject, entries: list[model.Entry], row: model.Row
) -> list[model.Entry]:
    """Return the entries after the compaction in `row`."""
    history = list_or_none(payload.get("replacement_history"))
    if history is not None:
        return [row.entry(object_or_none(item) or {"item": item}) for item in history]
    text = model.nonempty_text(payload.get("message")) or plain_text(
        payload or row.value.get("payload")
    )
    user_entries = (entry for entry in entries if entry.raw.get("role") == "user")
    return [*user_entries, row.entry(_message("user", text))]


def _message(role: str, text: str) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _has_only_events(rows: Sequence[model.Row]) -> bool:
    """Whether rows have texts in events and no item of the conversation."""
    has_items = any(
        row.kind in {"response_item", "compacted"} or _is_unwrapped_item(row) for row in rows
    )
    return not has_items and any(_item_of_event(row) for row in rows)


def _item_of_event(row: model.Row) -> JsonObject | None:
    """Return the Responses item with the text of an event; None if it has no text."""
    payload = row.object("payload")
    kind = text_or_none(payload.get("type")) or ""
    if row.kind != "event_msg":
        return None
    message = model.nonempty_text(payload.get("message"))
    if message and kind in _EVENT_ROLES:
        return _message(_EVENT_ROLES[kind], message)
    text = model.text_of_row(row)
    return _message("developer", text) if text else None


def _branches(rows: list[model.Row]) -> list[list[model.Row]]:
    """Return the rows up to each rollback, and all rows last."""
    cuts = [index for index, row in enumerate(rows) if _rollback_turns(row)]
    if len(cuts) > model.MAX_BRANCHES:
        return [[row for row in rows if not _rollback_turns(row)], rows]
    return [*(rows[:cut] for cut in cuts), rows]


def _rollback_turns(row: model.Row) -> int:
    """Return how many turns the user took back in this row."""
    payload = row.object("payload")
    turns = payload.get("num_turns")
    is_rollback = row.kind == "event_msg" and payload.get("type") == "thread_rolled_back"
    return turns if is_rollback and isinstance(turns, int) and turns > 0 else 0


def _without_turns(entries: list[model.Entry], turns: int) -> list[model.Entry]:
    """Return the entries before the last `turns` turns; entries before the first turn stay."""
    starts = [index for index, entry in enumerate(entries) if _is_typed(entry.raw)]
    return entries[: starts[-turns:][0]] if starts else entries


def _is_typed(item: JsonObject) -> bool:
    """Whether the user typed this item; Codex sends its own texts under the user's role too."""
    if item.get("role") != "user":
        return False
    try:
        return bool(user_text(parse_message(item, 0, "openai-responses")))
    except InvalidMessageError:
        return False


def _live_user_rows(rows: Sequence[model.Row]) -> list[model.Row]:
    """Return the rows with messages of the user that were not rolled back."""
    lines = {entry.line for entry in read(rows).entries}
    return [
        row
        for row in rows
        if row.line in lines
        and row.kind == "response_item"
        and row.object("payload").get("role") == "user"
    ]


def _parent_session(rows: Sequence[model.Row]) -> str | None:
    """Return the session that started this one: Codex writes a sub-agent to a separate file."""
    # The first such row is the file's own. A fork repeats the row of its parent after it.
    payloads = (row.object("payload") for row in rows if row.kind == "session_meta")
    meta = next(payloads, JsonObject())
    spawn = meta
    for key in ("source", "subagent", "thread_spawn"):
        spawn = object_or_none(spawn.get(key)) or {}
    parent = text_or_none(spawn.get("parent_thread_id") or meta.get("parent_thread_id"))
    return parent if parent != meta.get("id") else None


def write(messages: Sequence[JsonObject], session: model.NewSession) -> list[JsonObject]:
    """Return the rows of a new file: its head, and one row for each item.

    Codex adds its instructions and environment itself, because no turn of this file has any.
    """
    head = {
        "id": session.session_id,
        "timestamp": session.timestamp(),
        "cwd": session.cwd,
        "originator": "mcp-server-compaction",
        "cli_version": "0.0.0",
        "source": "cli",
    }
    origin: JsonObject = {"session_id": session.origin}
    rows: list[JsonObject] = []

    def add_row(kind: str, payload: JsonObject, mark: JsonObject) -> None:
        # Each row has a different time, because equal adjacent lines count as one line.
        stamp = {"timestamp": session.timestamp(len(rows))}
        rows.append({**stamp, "type": kind, "payload": payload, model.MARK: mark})

    add_row("session_meta", head, origin)
    for item in messages:
        add_row("response_item", *session.with_fields(item, _message_fields(item)))
        text = _text_of_user(item)
        if text is not None:  # Codex shows the text of this event in its list of sessions.
            event = {"type": "user_message", "message": text, "kind": "plain"}
            add_row("event_msg", event, origin)
    return rows


def _message_fields(item: JsonObject) -> JsonObject:
    """Return the fields that a message in the short form lacks: its type, and content in blocks."""
    if "role" not in item or item.get("type", "message") != "message":
        return {}
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    return {"type": "message", **model.content_in_blocks(item, kind)}


def _text_of_user(item: JsonObject) -> str | None:
    """Return the text of a message of the user; None for other items."""
    if item.get("role") != "user":
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    texts = [text for block in objects_in(content) if (text := text_or_none(block.get("text")))]
    return "\n".join(texts) or None
