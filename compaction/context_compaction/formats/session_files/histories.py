"""Everything that a session file ever held, as histories; also of a part of a file that goes on.

`files` gives what is in a host's context now. Here nothing is left out: what a compaction
replaced comes as a history of its own before it, sub-agents as sessions of their own, and an
abandoned branch as a history beside the one that was kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from context_compaction.formats.parsing import object_or_none, text_or_none
from context_compaction.formats.session_files.hosts import (
    agent_session_id,
    read_claude_code,
    read_codex,
    read_pi_branches,
)
from context_compaction.formats.session_files.model import Entry, Row, Session
from context_compaction.messages.model import Messages, starts_turn, tool_calls, tool_results


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
    """

    session_id: str | None
    parent_session_id: str | None
    format: str
    entries: tuple[Entry, ...]
    start_line: int
    begins_anew: bool
    is_aside: bool = False


Reader: TypeAlias = Callable[[Sequence[Row], bool], list[SessionHistory]]


def read_claude_code_histories(rows: Sequence[Row], is_whole: bool) -> list[SessionHistory]:
    """The histories in rows of a Claude Code file; `is_whole` says that they are its first ones."""
    main = [row for row in rows if not row.value.get("isSidechain")]
    found = [
        _history(read_claude_code(part), part, begins_anew=begins or is_whole)
        for begins, part in _split(main, _is_claude_code_boundary)
    ]
    agents: dict[str, list[Row]] = {}
    for row in rows:
        if row.value.get("isSidechain"):
            agents.setdefault(agent_session_id(row.value), []).append(row)
    for sub_session, part in agents.items():
        shown = [Row(row.line, {**row.value, "isSidechain": False}) for row in part]
        session = read_claude_code(shown)
        found.append(
            SessionHistory(
                sub_session,
                session.session_id,
                session.format or "",
                session.entries,
                part[0].line,
                begins_anew=False,
                is_aside=True,
            )
        )
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
        users = filter(_is_user_item, rows[:position]) if _lacks_history(part[0]) else ()
        session = read_codex([*users, *part])
        found.append(_history(session, part, begins_anew=begins or is_whole, parent=parent))
        position += len(part)
    return found


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


def needs_whole(rows: Sequence[Row]) -> bool:
    """Whether rows from the middle of a file cannot be understood without those before them."""
    return any(map(_lacks_history, rows))


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


READERS: Mapping[str, Reader] = {
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
