"""Session files of Claude Code.

The host writes one API message as one row for each block, under one message ID. Each row names its
parent. The user's rewind starts a second branch of that tree, but parallel calls and missing
parents split the tree too. So only a prompt of the user starts a branch here, and a prompt whose
parent is unknown continues the prompt before it.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace

from context_compaction.formats.anthropic import HOST_MARKS, SYNTHETIC_MODEL
from context_compaction.formats.base import (
    list_or_none,
    object_or_none,
    objects_in,
    plain_text,
    text_or_none,
)
from context_compaction.formats.session_files import model
from context_compaction.messages.model import JsonObject

# The version that written rows name. The host was tested with them (tests/hosts).
_VERSION = "2.1.197"
# Texts of the host in rows that look like prompts.
_HOST_PREFIXES = ("[Request interrupted", "<local-command-", "<bash-std")
_ATTACHMENT_LABELS = frozenset({"type", "commandMode", "isMeta", "origin", "timestamp"})


def is_row(value: JsonObject) -> bool:
    """Whether only Claude Code writes such a row."""
    return value.get("type") in ("user", "assistant") and "message" in value


def read(rows: Sequence[model.Row]) -> model.Session:
    """Return the live branch after the last compaction, without the sub-agents' side chains.

    A sub-agent's own file contains nothing but a side chain, which is then the conversation.
    """
    start = 0
    for position, row in enumerate(rows):
        if row.value.get("subtype") == "compact_boundary":
            start = position + 1
        elif row.value.get("isCompactSummary") is True:
            start = position
    is_subagent_file = bool(rows) and all(map(_is_sidechain, rows))
    context = rows[start:]
    if not is_subagent_file:
        context = _branches([row for row in context if not _is_sidechain(row)])[-1]
    session = _session(rows, context)
    return replace(session, session_id=_agent_id(rows[0], rows)) if is_subagent_file else session


def read_histories(rows: Sequence[model.Row], from_start: bool) -> list[model.Session]:
    """Return the histories in rows of a file.

    Args:
        rows: Rows of the file.
        from_start: Whether they start with the first row of the file.
    """
    main = [row for row in rows if not _is_sidechain(row)]
    starts = [index for index, row in enumerate(main) if _starts_context(row)]
    histories: list[model.Session] = []
    for start, stop in zip([0, *starts], [*starts, len(main)], strict=True):
        is_new_start = from_start or start in starts
        histories += model.histories_of(
            _branches(main[start:stop]), _session, is_new_start=is_new_start
        )
    return [*histories, *_subagents(rows)]


def _starts_context(row: model.Row) -> bool:
    """Whether a new context starts here: at the mark of a compaction, or at its summary."""
    is_mark = row.value.get("subtype") == "compact_boundary"
    return is_mark or row.value.get("isCompactSummary") is True


def _is_sidechain(row: model.Row) -> bool:
    return bool(row.value.get("isSidechain"))


def _subagents(rows: Sequence[model.Row]) -> list[model.Session]:
    """Return a history for each sub-agent whose messages are in these rows."""
    chains: dict[str, list[model.Row]] = {}
    sidechain = [row for row in rows if _is_sidechain(row)]
    for row, agent_id in zip(sidechain, _agent_ids(sidechain), strict=True):
        chains.setdefault(agent_id, []).append(row)
    histories: list[model.Session] = []
    for agent_id, chain in chains.items():
        session = _session(chain)
        histories.append(
            replace(
                session,
                session_id=agent_id,
                parent_session_id=session.session_id,
                start_line=chain[0].line,
                is_new_start=False,
                is_subagent=True,
            )
        )
    return histories


def _agent_id(row: model.Row, rows: Sequence[model.Row]) -> str:
    """Return the session ID of the sub-agent to which the first row of a file belongs."""
    return model.origin_of(rows) or _agent_ids([row])[0]


def _agent_ids(sidechain: Sequence[model.Row]) -> list[str]:
    """Return for each row the session ID of its sub-agent.

    Files of 2025 give sub-agents no `agentId`. There a row without a parent starts a sub-agent,
    and every other row belongs to the sub-agent of its parent.
    """
    roots: dict[str, str] = {}  # By `uuid` of a row: the `uuid` of the row that starts its chain.
    ids: list[str] = []
    latest = ""
    for row in sidechain:
        own_id, parent = (text_or_none(row.value.get(key)) for key in ("uuid", "parentUuid"))
        latest = roots.get(parent, latest) if parent is not None else own_id or latest
        if own_id is not None:
            roots[own_id] = latest
        agent = text_or_none(row.value.get("agentId"))
        name = f"agent-{agent}" if agent else f"sidechain-{latest}".removesuffix("-")
        ids.append(f"{text_or_none(row.value.get('sessionId')) or ''}:{name}")
    return ids


def _session(
    rows: Sequence[model.Row], context: Sequence[model.Row] | None = None
) -> model.Session:
    """Return the session of `rows` with the messages of `context`, by default of all rows."""
    entries: list[model.Entry] = []
    for row in rows if context is None else context:
        message = _message_of(row)
        if message is None:
            continue
        # A row that this library wrote is a complete message.
        joined = (
            _join(entries[-1].raw, message) if entries and model.MARK not in row.value else None
        )
        if joined is None:
            entries.append(row.entry(message))
        else:
            entries[-1] = replace(entries[-1], raw=joined)
    values = [row.value for row in rows]
    models = (entry.raw.get("model") for entry in entries)
    return model.Session(
        kind="claude-code",
        format="anthropic",
        entries=tuple(entries),
        session_id=model.origin_of(rows) or model.first_text(values, "sessionId"),
        cwd=model.first_text(values, "cwd"),
        model=model.last_text(name for name in models if name != SYNTHETIC_MODEL),
    )


def _join(earlier: JsonObject, later: JsonObject) -> JsonObject | None:
    """Return two messages that the API saw as one as that message; None if they are two."""
    first, second = list_or_none(earlier.get("content")), list_or_none(later.get("content"))
    if first is None or second is None:
        return None
    is_reply = later.get("role") == "assistant" and later.get("id") is not None
    if is_reply and earlier.get("id") == later.get("id"):
        return {**earlier, **later, "content": [*first, *second]}
    if _has_only_results(first) and _has_only_results(second):
        return {**earlier, "content": [*first, *second]}
    return None


def _has_only_results(content: Sequence[object]) -> bool:
    types = [(object_or_none(block) or {}).get("type") for block in content]
    return bool(types) and all(kind == "tool_result" for kind in types)


def _message_of(row: model.Row) -> JsonObject | None:
    """Return the message of a row; None if it has none.

    An attachment contains text that the user typed while the agent worked, or text that the host
    adds in the user's name.
    """
    if row.kind in {"user", "assistant"}:
        marks = {mark: True for mark in HOST_MARKS if row.value.get(mark) is True}
        message = row.original_message("message")
        return {"role": row.kind, **message, **marks} if message else row.value
    attachment = row.object("attachment")
    if row.kind != "attachment" or not attachment:
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
    """Return the text that the host adds to the context: files, changes, memory, plans."""
    name, snippet = attachment.get("filename"), attachment.get("snippet")
    is_change = attachment.get("type") == "edited_text_file"
    if is_change and isinstance(name, str) and isinstance(snippet, str):
        return (
            f"Note: {name} was modified, either by the user or by a linter. "
            f"The changed lines:\n{snippet}"
        )
    fields = {key: item for key, item in attachment.items() if key not in _ATTACHMENT_LABELS}
    text = plain_text(fields)
    return f"{attachment.get('type')}\n{text}" if text else ""


def _branches(rows: Sequence[model.Row]) -> list[list[model.Row]]:
    """Return the rows of each branch, the live branch last."""
    has_single_root = _has_single_root(rows)
    prompts: dict[str, int] = {}  # By `uuid` of a row: the position of its prompt.
    row_prompts: list[int] = []
    parents: dict[int, int] = {}  # By position of a prompt: the prompt that it continues.
    latest = -1
    for position, row in enumerate(rows):
        parent = row.value.get("parentUuid")
        prompt = prompts.get(parent, latest) if isinstance(parent, str) else latest
        if _is_prompt(row):
            parents[position] = -1 if parent is None and has_single_root else prompt
            prompt = latest = position
        own_id = text_or_none(row.value.get("uuid"))
        if own_id is not None:
            prompts[own_id] = prompt
        row_prompts.append(prompt)
    continued = set(parents.values())
    ends = [position for position in parents if position not in continued]
    if len(ends) < 2:
        return [list(rows)]
    branches = [
        [row for row, prompt in zip(rows, row_prompts, strict=True) if prompt in chain]
        for chain in (_chain(end, parents) for end in ends[-model.MAX_BRANCHES :])
    ]
    return branches if len(ends) <= model.MAX_BRANCHES else [list(rows), branches[-1]]


def _chain(end: int, parents: dict[int, int]) -> set[int]:
    """Return the positions of the prompts from the start of the file to the prompt `end`."""
    chain = {-1}
    while end >= 0:
        chain.add(end)
        end = parents[end]
    return chain


def _has_single_root(rows: Sequence[model.Row]) -> bool:
    """Whether a prompt without a parent starts again from the beginning.

    If other messages have no parent either, the host did not write the tree.
    """
    return all(
        row.value.get("parentUuid") is not None or _is_prompt(row)
        for row in rows
        if row.kind in {"user", "assistant"} and not _is_host_row(row)
    )


def _is_host_row(row: model.Row) -> bool:
    return any(row.value.get(mark) for mark in (*HOST_MARKS, "isSidechain"))


def _is_prompt(row: model.Row) -> bool:
    """Whether the user typed the row and it names its parent."""
    if row.kind != "user" or "parentUuid" not in row.value or _is_host_row(row):
        return False
    content = row.object("message").get("content")
    blocks = objects_in(content)
    text = content if isinstance(content, str) else (blocks[0].get("text") if blocks else "")
    is_answer = any(block.get("type") == "tool_result" for block in blocks)
    return not is_answer and not str(text).startswith(_HOST_PREFIXES)


def needs_earlier_rows(rows: Sequence[model.Row]) -> bool:
    """Whether rows from the middle of a file depend on rows before them.

    They do if they fork, if a prompt continues an earlier row, or if a sub-agent without an ID
    started earlier.
    """
    known: set[str] = set()
    is_first = True  # The first message continues the rows before it or was their last one.
    for row in rows:
        has_known_parent = text_or_none(row.value.get("parentUuid")) in known
        if _is_prompt(row) and not is_first and not has_known_parent:
            return True
        is_unnamed = _is_sidechain(row) and not row.value.get("agentId")
        if is_unnamed and not has_known_parent and row.value.get("parentUuid") is not None:
            return True
        is_first &= _is_sidechain(row) or row.kind not in {"user", "assistant"}
        known.add(text_or_none(row.value.get("uuid")) or "")
    return len(_branches([row for row in rows if not _is_sidechain(row)])) > 1


def write(messages: Sequence[JsonObject], session: model.NewSession) -> list[JsonObject]:
    """Return the rows of a new file: a chain of one row for each message."""
    common = {
        "isSidechain": False,
        "userType": "external",
        "cwd": session.cwd,
        "sessionId": session.session_id,
        "version": _VERSION,
        "timestamp": session.timestamp(),
    }
    last = model.last_reply(messages)
    rows: list[JsonObject] = []
    parent: str | None = None
    for index, message in enumerate(messages):
        marks = {mark: True for mark in HOST_MARKS if message.get(mark) is True}
        unmarked = {key: value for key, value in message.items() if key not in marks}
        role = "assistant" if message.get("role") == "assistant" else "user"
        fields: JsonObject = {"role": role}
        if role == "assistant":
            usage = {"input_tokens": session.tokens, "output_tokens": 0}
            fields |= model.missing_fields(unmarked, _reply_fields(index, session, usage))
            fields |= {"usage": usage} if index == last else {}
            fields |= model.content_in_blocks(unmarked, "text")
        written, mark = session.with_fields(unmarked, fields)
        row_id = str(uuid.uuid5(uuid.UUID(session.session_id), str(index)))
        row = {"parentUuid": parent, "type": role, "uuid": row_id, "message": written}
        rows.append({**row, **marks, **common, model.MARK: mark})
        parent = row_id
    if session.title:
        title = {"type": "custom-title", "customTitle": session.title}
        mark = {"session_id": session.origin}
        rows.append({**title, "sessionId": session.session_id, model.MARK: mark})
    return rows


def _reply_fields(index: int, session: model.NewSession, usage: JsonObject) -> JsonObject:
    """Return the fields that the API gives a reply in addition to role and content."""
    return {
        "id": f"msg_{session.session_id.replace('-', '')[:20]}{index:04}",
        "type": "message",
        "model": session.model or "unknown",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
