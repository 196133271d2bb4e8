"""Session files of pi: a tree of entries, in which each names its parent."""

from collections.abc import Mapping, Sequence

from context_compaction.formats.session_files import model
from context_compaction.messages.model import JsonObject


def is_row(value: JsonObject) -> bool:
    """Whether only pi writes such a row."""
    kind = value.get("type")
    return kind == "session" or (kind == "message" and "message" in value)


def read(rows: Sequence[model.Row]) -> model.Session:
    """Return the branch that ends in the last entry, from its last compaction on."""
    branch = _branches(rows)[-1]
    start, summary, notes = _start(branch)
    recent = _entries([row for row in branch[start:] if row.kind != "compaction"])
    return _session(rows, [*summary, *recent], notes)


def read_histories(rows: Sequence[model.Row], _from_start: bool) -> list[model.Session]:
    """Return the branches of a complete file, the current branch last.

    Each has all its messages, with the summary of a compaction at its place in the branch.
    """
    return [_session(rows, _entries(branch)) for branch in _branches(rows)]


def _session(
    rows: Sequence[model.Row], entries: Sequence[model.Entry], notes: tuple[str, ...] = ()
) -> model.Session:
    heads = [row.value for row in rows if row.kind == "session"]
    return model.Session(
        kind="pi",
        format="pi",
        entries=tuple(entries),
        session_id=model.origin_of(rows) or model.first_text(heads, "id"),
        cwd=model.first_text(heads, "cwd"),
        model=model.last_text(row.value.get("modelId") for row in rows),
        notes=notes,
    )


def _branches(rows: Sequence[model.Row]) -> list[list[model.Row]]:
    """Return the rows from the root to each leaf, the last leaf last.

    An entry without a usable ID or parent continues the entry before it.
    """
    by_id: dict[str, tuple[model.Row, str | None]] = {}
    last: str | None = None
    for row in rows:
        if row.kind == "session":
            continue
        entry_id = model.nonempty_text(row.value.get("id"))
        parent = row.value.get("parentId", last)
        if entry_id is None or entry_id in by_id:
            entry_id = f"line {row.line}"
        if parent is not None and not (isinstance(parent, str) and parent in by_id):
            parent = last
        by_id[entry_id] = row, parent
        last = entry_id
    if last is None:
        return [[]]
    parents = {parent for _, parent in by_id.values()}
    leaves = [entry_id for entry_id in by_id if entry_id not in parents and entry_id != last]
    return [_path(by_id, leaf) for leaf in (*leaves, last)]


def _path(by_id: Mapping[str, tuple[model.Row, str | None]], leaf: str) -> list[model.Row]:
    path: list[model.Row] = []
    entry_id: str | None = leaf
    while entry_id is not None:
        row, entry_id = by_id[entry_id]
        path.append(row)
    return path[::-1]


def _start(branch: Sequence[model.Row]) -> tuple[int, list[model.Entry], tuple[str, ...]]:
    """Return the position where the context starts, its summary, and notes."""
    compactions = [row for row in branch if row.kind == "compaction"]
    if not compactions:
        return 0, [], ()
    last = compactions[-1]
    first_id = last.value.get("firstKeptEntryId")
    for position, row in enumerate(branch):
        if first_id is not None and row.value.get("id") == first_id:
            return position, _entries([last]), ()
    note = f"line {last.line}: the compaction names no entry of this file; all messages are kept"
    return 0, [], (note,)


def _entries(branch: Sequence[model.Row]) -> list[model.Entry]:
    messages = ((row, _message_of(row)) for row in branch)
    return [row.entry(message) for row, message in messages if message is not None]


def _message_of(row: model.Row) -> JsonObject | None:
    """Return the message of a row; None for a row that the model never sees."""
    value = row.value
    match row.kind:
        case "message":
            return row.original_message("message") or value
        case "custom_message":
            return {"role": "custom", "content": value.get("content")}
        case "compaction":
            summary = model.nonempty_text(value.get("summary")) or ""
            return {"role": "compactionSummary", "summary": summary}
        case "branch_summary":
            return {"role": "branchSummary", "summary": value.get("summary")}
        case _:
            return None


def write(messages: Sequence[JsonObject], session: model.NewSession) -> list[JsonObject]:
    """Return the rows of a new file: its head, the model, and one row for each message."""
    stamp = {"timestamp": session.timestamp()}
    head = {"type": "session", "version": 3, "id": session.session_id}
    mark: JsonObject = {"session_id": session.origin}
    rows: list[JsonObject] = [{**head, **stamp, "cwd": session.cwd, model.MARK: mark}]
    last = model.last_reply(messages)
    parent: str | None = None
    if last is not None and "provider" in messages[last]:
        reply = messages[last]
        chosen = {"provider": reply["provider"], "modelId": reply.get("model")}
        parent = "0" * 8
        rows.append({"type": "model_change", "id": parent, "parentId": None, **stamp, **chosen})
    for index, message in enumerate(messages):
        fields = model.missing_fields(message, {"timestamp": round(session.seconds * 1000)})
        if message.get("role") == "assistant":
            usage = _usage(session.tokens)
            fields |= model.missing_fields(message, _reply_fields(session, usage))
            fields |= model.content_in_blocks(message, "text")
            fields |= {"usage": usage} if index == last else {}
        written, mark = session.with_fields(message, fields)
        row_id = f"{index + 1:08x}"
        row = {"type": "message", "id": row_id, "parentId": parent, **stamp, "message": written}
        rows.append({**row, model.MARK: mark})
        parent = row_id
    return rows


def _reply_fields(session: model.NewSession, usage: JsonObject) -> JsonObject:
    return {
        "api": "unknown",
        "provider": "unknown",
        "model": session.model or "unknown",
        "usage": usage,
        "stopReason": "stop",
    }


def _usage(tokens: int) -> JsonObject:
    counts = {"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0}
    costs = {**dict.fromkeys(counts, 0), "total": 0}
    return {**counts, "totalTokens": tokens, "cost": costs}
