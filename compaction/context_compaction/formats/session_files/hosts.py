"""Session files of Claude Code, Codex, pi and Copilot CLI: contexts and histories.

A `Session` has the messages that the host would send to its model next: what follows the last
compaction, with the summary in its place. A row that lacks its message gives an empty one, which is
refused like any other broken message.

A `SessionHistory` leaves nothing out: what a compaction replaced comes as a history of its own
before it, sub-agents as sessions of their own, and an abandoned branch as a history beside the one
that was kept. It can also be read of a part of a file that goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from context_compaction.errors import InvalidMessageError
from context_compaction.formats import parse_one
from context_compaction.formats.anthropic import HOST_MARKS, SYNTHETIC_MODEL
from context_compaction.formats.parsing import (
    dumps,
    list_or_none,
    object_or_none,
    objects_in,
    parse_time,
    text_or_none,
)
from context_compaction.formats.session_files.branches import (
    claude_code_branches,
    claude_code_needs_whole,
    codex_branches,
    rolled_back_turns,
)
from context_compaction.formats.session_files.gemini_cli import is_chat, read_gemini_chats
from context_compaction.formats.session_files.lenient import plain_text
from context_compaction.formats.session_files.model import Entry, Row, Session
from context_compaction.messages.model import (
    JsonObject,
    Messages,
    starts_turn,
    tool_calls,
    tool_results,
)
from context_compaction.messages.speakers import user_text


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """Some messages that are in one row.

    Attributes:
        session_id: The host's name of the session; None where these rows do not name it.
        parent_session_id: The session that started this one, for a sub-agent.
        format: The format of the messages.
        entries: The messages, each with the line where it begins; there may be none.
        start_line: The first line that must be read to find this history again.
        begins_anew: Whether nothing precedes it. Otherwise it goes on with the newest history
            of its session.
        is_aside: Whether it is a sub-agent's, in the file of the session that started it.
        is_taken_back: Whether the user left this branch of the session.
    """

    session_id: str | None
    parent_session_id: str | None
    format: str
    entries: tuple[Entry, ...]
    start_line: int
    begins_anew: bool
    is_aside: bool = False
    is_taken_back: bool = False


Reader: TypeAlias = Callable[[Sequence[Row], bool], list[SessionHistory]]


def read_claude_code_histories(rows: Sequence[Row], is_whole: bool) -> list[SessionHistory]:
    """The histories in rows of a Claude Code file; `is_whole` says that they are its first ones."""
    main = [row for row in rows if not row.value.get("isSidechain")]
    found = [
        history
        for begins, part in _split(main, _is_claude_code_boundary)
        for history in _branch_histories(
            claude_code_branches(part), _claude_code_context, begins_anew=begins or is_whole
        )
    ]
    agents: dict[str, list[Row]] = {}
    for row in rows:
        if row.value.get("isSidechain"):
            agents.setdefault(agent_session_id(row.value), []).append(row)
    for sub_session, part in agents.items():
        shown = [Row(row.line, {**row.value, "isSidechain": False}) for row in part]
        session = _claude_code_context(shown)
        history = _history(session, part, begins_anew=False, parent=session.session_id)
        found.append(replace(history, session_id=sub_session, is_aside=True))
    return found


def _is_claude_code_boundary(row: Row) -> bool:
    """Whether a new context begins here: at the mark of a compaction, or at its summary."""
    is_mark = row.value.get("subtype") == "compact_boundary"
    return is_mark or row.value.get("isCompactSummary") is True


def read_codex_histories(rows: Sequence[Row], is_whole: bool) -> list[SessionHistory]:
    """The histories in rows of a Codex rollout.

    A compaction that recorded only its summary keeps the user's messages before it, which must
    then be among the rows; see `needs_whole`.
    """
    found: list[SessionHistory] = []
    position = 0
    parent = _codex_parent(rows) if is_whole else None
    for begins, part in _split(rows, _is_codex_boundary):
        users = _live_user_rows(rows[:position]) if _lacks_history(part[0]) else ()
        begins_anew = begins or is_whole
        branches = codex_branches([*users, *part])
        found += _branch_histories(branches, read_codex, begins_anew=begins_anew, parent=parent)
        position += len(part)
    return found


def _live_user_rows(rows: Sequence[Row]) -> list[Row]:
    lines = {entry.line for entry in read_codex(rows).entries}
    return [row for row in rows if row.line in lines and _is_user_item(row)]


def _codex_parent(rows: Sequence[Row]) -> str | None:
    """The session that started this one: Codex writes a sub-agent to a file of its own."""
    metas = (row.value.get("payload") for row in rows if row.value.get("type") == "session_meta")
    # The first is the file's own; a fork repeats its parent's after it.
    meta = object_or_none(next(metas, None)) or {}
    found = meta
    for key in ("source", "subagent", "thread_spawn"):
        found = object_or_none(found.get(key)) or {}
    parent = text_or_none(found.get("parent_thread_id") or meta.get("parent_thread_id"))
    return parent if parent != meta.get("id") else None


def _is_codex_boundary(row: Row) -> bool:
    return row.value.get("type") == "compacted"


def needs_whole(rows: Sequence[Row], kind: str) -> bool:
    """Whether rows from the middle of a file cannot be understood without those before them."""
    if kind == "claude-code":
        return claude_code_needs_whole([row for row in rows if not _is_aside(row.value)])
    return any(_lacks_history(row) or rolled_back_turns(row) for row in rows)


def _lacks_history(row: Row) -> bool:
    payload = object_or_none(row.value.get("payload")) or {}
    return _is_codex_boundary(row) and not isinstance(payload.get("replacement_history"), list)


def _is_user_item(row: Row) -> bool:
    payload = object_or_none(row.value.get("payload")) or {}
    return row.value.get("type") == "response_item" and payload.get("role") == "user"


def read_pi_histories(rows: Sequence[Row], is_whole: bool) -> list[SessionHistory]:
    """The branches of a whole pi file, the current one last; summaries stand where they were made.

    Branches are found from the file's end, so the rows must be all there are.
    """
    return [_history(session, rows, begins_anew=is_whole) for session in read_pi_branches(rows)]


def read_gemini_histories(rows: Sequence[Row], is_whole: bool) -> list[SessionHistory]:
    """The branches of a whole chat of Gemini CLI, the live branch last."""
    return [_history(session, rows, begins_anew=is_whole) for session in read_gemini_chats(rows)]


READERS: Mapping[str, Reader] = {
    "gemini-cli": read_gemini_histories,
    "claude-code": read_claude_code_histories,
    "codex": read_codex_histories,
    "pi": read_pi_histories,
}


def settled_count(messages: Messages) -> int:
    """How many leading messages will stay as they are when their file grows.

    The last one may not: a host writes one reply in several lines. Those before it are settled up
    to where no call waits for its result.
    """
    settled = 0
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        if starts_turn(message):
            waiting.clear()  # what was never answered will not be
        if not waiting:
            settled = index
        waiting |= {call.call_id for call in tool_calls(message)}
        waiting -= {result.call_id for result in tool_results(message)}
    return settled


def _split(rows: Sequence[Row], begins: Callable[[Row], bool]) -> list[tuple[bool, Sequence[Row]]]:
    """`rows` cut before each row where something begins, and of each part whether it does so."""
    cuts = [index for index, row in enumerate(rows) if begins(row)]
    starts = cuts if not rows or cuts[:1] == [0] else [0, *cuts]
    stops = [*starts[1:], len(rows)]
    return [
        (begins(rows[start]), rows[start:stop]) for start, stop in zip(starts, stops, strict=False)
    ]


def _branch_histories(
    branches: Sequence[Sequence[Row]],
    read: Callable[[Sequence[Row]], Session],
    *,
    begins_anew: bool,
    parent: str | None = None,
) -> list[SessionHistory]:
    """A history for each branch; the last one is live."""
    found = [
        _history(read(branch), branch, begins_anew=begins_anew, parent=parent)
        for branch in branches
        if branch
    ]
    return [*(replace(history, is_taken_back=True) for history in found[:-1]), *found[-1:]]


def _history(
    session: Session, part: Sequence[Row], *, begins_anew: bool, parent: str | None = None
) -> SessionHistory:
    return SessionHistory(
        session.session_id,
        parent,
        session.format or "",
        session.entries,
        part[0].line,
        begins_anew,
    )


# Stands in every row of a file that `write` made: the archived session that goes on in it, and what
# its message had before fields were added for the host.
MARK = "mcp_server_compaction"

_NO_TEXT = frozenset({"type", "commandMode", "isMeta", "origin", "timestamp"})
_COPILOT_TYPES = ("session.", "system.", "user.", "assistant.", "tool.")
_CODEX_TYPES = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}


def kind_of(rows: Iterable[Row]) -> str:
    """The sort of session file: by the first row that only one host writes, else "messages"."""
    for row in rows:
        value = row.value
        kind = text_or_none(value.get("type"))
        if is_chat(value):
            return "gemini-cli"
        if "role" in value or "parts" in value:
            return "messages"
        if kind in _CODEX_TYPES and "payload" in value:
            return "codex"
        if kind is not None and kind.startswith(_COPILOT_TYPES) and "data" in value:
            return "copilot"
        if "record_type" in value or ("instructions" in value and "id" in value):
            return "codex"  # the first lines of rollouts of 2025
        if kind == "session" or (kind == "message" and "message" in value):
            return "pi"
        if kind in {"user", "assistant"} and "message" in value:
            return "claude-code"
    return "messages"


def read_claude_code(rows: Sequence[Row]) -> Session:
    """Claude Code: the main chain after the last compaction, side chains (sub-agents) left out.

    A sub-agent's own file holds nothing else: its chain is then the conversation.

    The host writes an API message as one line for each block, under one message id; such lines
    that follow one another are joined, as are lines of tool results alone.
    """
    start = 0
    for position, row in enumerate(rows):
        if row.value.get("subtype") == "compact_boundary":
            start = position + 1
        elif row.value.get("isCompactSummary") is True:
            start = position
    main = [row for row in rows[start:] if not _is_aside(row.value)]
    live = {id(row) for row in claude_code_branches(main)[-1]}
    context = [row for row in rows[start:] if id(row) in live or _is_aside(row.value)]
    return _claude_code_context(rows, context)


def _claude_code_context(rows: Sequence[Row], context: Sequence[Row] | None = None) -> Session:
    """The session of `rows` with the messages of `context`, or of all rows."""
    entries: list[Entry] = []
    values = [row.value for row in rows]
    agent = agent_session_id(values[0]) if values and all(map(_is_aside, values)) else None
    for row in rows if context is None else context:
        message = _claude_message(row)
        if message is None or (_is_aside(row.value) and agent is None):
            continue
        # A row of `write` is a whole message.
        joined = _join(entries[-1].raw, message) if entries and MARK not in row.value else None
        if joined is None:
            entries.append(_entry(message, row))
        else:
            entries[-1] = replace(entries[-1], raw=joined)
    models = [entry.raw.get("model") for entry in entries]
    return Session(
        "claude-code",
        "anthropic",
        tuple(entries),
        session_id=origin_of(rows) or agent or _first_text(values, "sessionId"),
        cwd=_first_text(values, "cwd"),
        model=_last_text(model for model in models if model != SYNTHETIC_MODEL),
    )


def _claude_message(row: Row) -> JsonObject | None:
    """The message of a row of Claude Code; None where it has none.

    An attachment has what the user typed while the agent worked, or what the host adds in the
    user's name.
    """
    kind = text_or_none(row.value.get("type"))
    if kind in {"user", "assistant"}:
        marks = {mark: True for mark in HOST_MARKS if row.value.get(mark) is True}
        message = _message_of(row, "message")
        return {"role": kind, **message, **marks} if message else row.value
    attachment = object_or_none(row.value.get("attachment"))
    if kind != "attachment" or attachment is None:
        return None
    content = attachment.get("prompt")
    if attachment.get("type") != "queued_command" or not isinstance(content, str | list):
        text = _attached_text(attachment)
        return {"role": "user", "content": text, "isMeta": True} if text else None
    origin = object_or_none(attachment.get("origin")) or {}
    senders = attachment.get("commandMode", "prompt"), origin.get("kind", "human")
    is_typed = senders == ("prompt", "human") and attachment.get("isMeta") is not True
    return {"role": "user", "content": content, **({} if is_typed else {"isMeta": True})}


def _attached_text(attachment: JsonObject) -> str:
    """What the host adds to the context: files, changes, memory, plans; "" without any words."""
    changed = attachment.get("filename"), attachment.get("snippet")
    if attachment.get("type") == "edited_text_file" and all(isinstance(x, str) for x in changed):
        return (
            f"Note: {changed[0]} was modified, either by the user or by a linter. "
            f"The changed lines:\n{changed[1]}"
        )
    text = plain_text({key: value for key, value in attachment.items() if key not in _NO_TEXT})
    return f"{attachment.get('type')}\n{text}" if text else ""


def _is_aside(value: JsonObject) -> bool:
    return bool(value.get("isSidechain"))


def agent_session_id(value: JsonObject) -> str:
    """The name of the sub-agent's session that a row of Claude Code belongs to."""
    agent = text_or_none(value.get("agentId"))
    session_id = text_or_none(value.get("sessionId")) or ""
    return f"{session_id}:{f'agent-{agent}' if agent else 'sidechain'}"


def _join(before: JsonObject, after: JsonObject) -> JsonObject | None:
    """One message of two that the API saw as one; None where they are two."""
    first, second = list_or_none(before.get("content")), list_or_none(after.get("content"))
    if first is None or second is None:
        return None
    same_reply = after.get("role") == "assistant" and after.get("id") is not None
    if same_reply and before.get("id") == after.get("id"):
        return {**before, **after, "content": [*first, *second]}
    if _is_results(first) and _is_results(second):
        return {**before, "content": [*first, *second]}
    return None


def _is_results(content: Sequence[Any]) -> bool:
    types = [(object_or_none(block) or {}).get("type") for block in content]
    return bool(types) and all(kind == "tool_result" for kind in types)


def read_codex(rows: Sequence[Row]) -> Session:
    """Codex rollout: its response items; bare items, one a line, in rollouts of 2025.

    A compaction leaves its replacement history; where the file has only the summary, the user's
    messages stay before it, as in Codex itself.
    """
    entries: list[Entry] = []
    about: JsonObject = {}
    for row in rows:
        kind = text_or_none(row.value.get("type"))
        if kind not in _CODEX_TYPES:
            if kind is None:
                about = {**row.value, **about}
            elif "payload" not in row.value:  # else what newer versions note beside the items
                entries.append(_entry(row.value, row))
            continue
        payload = _message_of(row, "payload") or {}
        if kind == "response_item":
            entries.append(_entry(payload or row.value, row))
        elif kind == "compacted":
            entries = _codex_compacted(payload, entries, row)
        elif turns := rolled_back_turns(row):
            entries = _without_turns(entries, turns)
        elif kind == "session_meta":
            about = {**payload, **about}  # a fork repeats its parent's after its own
        elif kind == "turn_context":
            about = {**about, **payload}
    instructions: Any = about.get("base_instructions") or about.get("instructions")
    return Session(
        "codex",
        "openai-responses",
        tuple(entries),
        session_id=origin_of(rows) or _text(about.get("id")),
        cwd=_text(about.get("cwd")),
        model=_text(about.get("model")),
        system=_text((object_or_none(instructions) or {"text": instructions}).get("text")),
    )


def _without_turns(entries: list[Entry], turns: int) -> list[Entry]:
    """`entries` without the last `turns` turns; what precedes the first turn stays."""
    begins = [index for index, entry in enumerate(entries) if _is_typed_item(entry.raw)]
    return entries[: begins[-turns:][0]] if begins else entries


def _is_typed_item(item: JsonObject) -> bool:
    """Whether the user typed this Responses item; Codex sends its own texts as the user too."""
    if item.get("role") != "user":
        return False
    try:
        return bool(user_text(parse_one(item, 0, "openai-responses")))
    except InvalidMessageError:
        return False


def _codex_compacted(payload: JsonObject, before: list[Entry], row: Row) -> list[Entry]:
    history = list_or_none(payload.get("replacement_history"))
    if history is not None:
        return [_entry(object_or_none(item) or {"item": item}, row) for item in history]
    text = _text(payload.get("message")) or plain_text(payload or row.value.get("payload"))
    summary = {"type": "input_text", "text": text}
    message = {"type": "message", "role": "user", "content": [summary]}
    return [*(entry for entry in before if entry.raw.get("role") == "user"), _entry(message, row)]


def read_pi(rows: Sequence[Row]) -> Session:
    """pi: the branch that ends in the last entry, after its last compaction."""
    branch = _pi_branches(rows)[-1]
    start, summary, notes = _pi_start(branch)
    spoken = [row for row in branch[start:] if row.value.get("type") != "compaction"]
    entries = [*([summary] if summary else []), *_pi_entries(spoken)]
    return _pi_session(rows, entries, notes)


def read_pi_branches(rows: Sequence[Row]) -> list[Session]:
    """pi: every branch from its root, the one that ends in the last entry last.

    Nothing is left out: the summary of a compaction stands where it was made.
    """
    return [_pi_session(rows, _pi_entries(branch), ()) for branch in _pi_branches(rows)]


def _pi_entries(branch: Sequence[Row]) -> list[Entry]:
    entries: list[Entry] = []
    for row in branch:
        raw = _pi_message(row)
        if raw is not None:
            entries.append(_entry(raw, row))
    return entries


def _pi_session(rows: Sequence[Row], entries: Sequence[Entry], notes: tuple[str, ...]) -> Session:
    heads = [row.value for row in rows if row.value.get("type") == "session"]
    models = [row.value.get("modelId") for row in rows]
    return Session(
        "pi",
        "pi",
        tuple(entries),
        session_id=origin_of(rows) or _first_text(heads, "id"),
        cwd=_first_text(heads, "cwd"),
        model=_last_text(models),
        notes=notes,
    )


def _pi_branches(rows: Sequence[Row]) -> list[list[Row]]:
    """The entries from the root to each leaf, the last one last.

    An entry without a usable ID or parent continues the entry before it.
    """
    by_id: dict[str, tuple[Row, str | None]] = {}
    last: str | None = None
    for row in rows:
        if row.value.get("type") == "session":
            continue
        entry_id, parent = _text(row.value.get("id")), row.value.get("parentId", last)
        if entry_id is None or entry_id in by_id:
            entry_id = f"line {row.line}"
        if parent is not None and not (isinstance(parent, str) and parent in by_id):
            parent = last
        by_id[entry_id] = row, parent
        last = entry_id
    if last is None:
        return [[]]
    parents = {parent for _, parent in by_id.values()}
    leaves = [found for found in by_id if found not in parents and found != last]
    return [_pi_path(by_id, leaf) for leaf in (*leaves, last)]


def _pi_path(by_id: Mapping[str, tuple[Row, str | None]], leaf: str) -> list[Row]:
    path: list[Row] = []
    entry_id: str | None = leaf
    while entry_id is not None:
        row, entry_id = by_id[entry_id]
        path.append(row)
    return path[::-1]


def _pi_start(branch: Sequence[Row]) -> tuple[int, Entry | None, tuple[str, ...]]:
    """Where the context starts, with the summary that precedes it and notes."""
    compactions = [row for row in branch if row.value.get("type") == "compaction"]
    if not compactions:
        return 0, None, ()
    last = compactions[-1]
    kept = last.value.get("firstKeptEntryId")
    for position, row in enumerate(branch):
        if kept is not None and row.value.get("id") == kept:
            return position, _entry(_pi_summary(last), last), ()
    note = f"line {last.line}: the compaction names no entry of this file; all messages are kept"
    return 0, None, (note,)


def _pi_summary(row: Row) -> JsonObject:
    return {"role": "compactionSummary", "summary": _text(row.value.get("summary")) or ""}


def _pi_message(row: Row) -> JsonObject | None:
    """The message of an entry; None for entries that the model never sees."""
    value = row.value
    match value.get("type"):
        case "message":
            return _message_of(row, "message") or value
        case "custom_message":
            return {"role": "custom", "content": value.get("content")}
        case "compaction":
            return _pi_summary(row)
        case "branch_summary":
            return {"role": "branchSummary", "summary": value.get("summary")}
        case _:
            return None


def read_copilot(rows: Sequence[Row]) -> Session:
    """GitHub's Copilot CLI: its events, those of sub-agents left out.

    A user's message is what was typed, without what the host wraps around it for the model. All
    messages are kept: a compaction's event does not say which it left out.
    """
    entries: list[Entry] = []
    called: set[str] = set()
    notes: tuple[str, ...] = ()
    values = [(row, object_or_none(row.value.get("data")) or {}) for row in rows]
    # An older sub-agent's event names the call that started it, a newer one's bears its own name.
    main = [
        (row, data)
        for row, data in values
        if not (_text(data.get("parentToolCallId")) or _text(row.value.get("agentId")))
    ]
    for row, data in main:
        raw: JsonObject | None = None
        match row.value.get("type"):
            case "user.message":
                # What a skill, say, puts in names where it is from.
                typed = _text(data.get("source")) in (None, "user")
                raw = {"role": "user" if typed else "system", "content": data.get("content")}
            case "assistant.message":
                raw = _copilot_answer(data)
                called |= {
                    str(call.get("id")) for call in objects_in((raw or {}).get("tool_calls"))
                }
            case "tool.execution_complete" if _text(data.get("toolCallId")) in called:
                raw = _copilot_result(data)
            case "session.compaction_complete" if data.get("success") is True:
                notes = (f"line {row.line}: Copilot compacted here; all messages are kept",)
            case _:
                pass
        if raw is not None:
            entries.append(_entry(raw, row))
    about = [data for _, data in main]
    contexts = [found for data in about if (found := object_or_none(data.get("context")))]
    prompts = (data for row, data in main if row.value.get("type") == "system.message")
    return Session(
        "copilot",
        "openai-chat",
        tuple(entries),
        session_id=_first_text(about, "sessionId"),
        cwd=_first_text(contexts, "cwd"),
        model=_last_text(data.get("newModel") or data.get("model") for data in about),
        system=_last_text(data.get("content") for data in prompts),
        notes=notes,
    )


def _copilot_answer(data: JsonObject) -> JsonObject | None:
    calls: list[Any] = []
    content = data.get("content") or None
    requests: Any = data.get("toolRequests")
    if requests and list_or_none(requests) is None:
        return {
            "role": "assistant",
            "content": content,
            "tool_calls": requests,
        }  # of no known shape
    for value in list_or_none(requests) or ():
        request = object_or_none(value)
        if request is None:
            calls.append(value)
            continue
        given = {"name": request.get("name"), "arguments": dumps(request.get("arguments") or {})}
        call_id = text_or_none(request.get("toolCallId")) or ""
        calls.append({"id": call_id, "type": "function", "function": given})
    if calls:
        return {"role": "assistant", "content": content, "tool_calls": calls}
    return None if content is None else {"role": "assistant", "content": content}


def _copilot_result(data: JsonObject) -> JsonObject:
    failed = (object_or_none(data.get("error")) or {}).get("message")
    result = object_or_none(data.get("result")) or {}
    # The format has no flag for it, and a bare "Path does not exist" may be what a file says.
    content = result.get("content") or (f"Error: {failed}" if failed else "")
    return {"role": "tool", "tool_call_id": data["toolCallId"], "content": content}


def _message_of(row: Row, key: str) -> JsonObject | None:
    """The message under `key`; in a file that `write` made, as it was given to be written."""
    message = object_or_none(row.value.get(key))
    mark = object_or_none(row.value.get(MARK))
    if message is None or mark is None:
        return message
    added = list_or_none(mark.get("added")) or ()
    kept = {name: value for name, value in message.items() if name not in added}
    return {**kept, **(object_or_none(mark.get("replaced")) or {})}


def origin_of(rows: Sequence[Row]) -> str | None:
    """The archived session that goes on in these rows; None where they are not ours."""
    marks = [mark for row in rows if (mark := object_or_none(row.value.get(MARK)))]
    return _first_text(marks, "session_id")


def _entry(raw: JsonObject, row: Row) -> Entry:
    return Entry(raw, parse_time(row.value.get("timestamp")), row.line)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _last_text(values: Iterable[object]) -> str | None:
    texts = [text for text in map(_text, values) if text is not None]
    return texts[-1] if texts else None


def _first_text(values: Iterable[JsonObject], key: str) -> str | None:
    return next((found for value in values if (found := _text(value.get(key)))), None)
