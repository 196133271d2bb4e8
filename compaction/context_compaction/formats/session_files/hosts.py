"""The hosts whose session files are read and written, by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from context_compaction.formats.session_files import (
    claude_code,
    codex,
    copilot,
    gemini_cli,
    opencode,
    pi,
)
from context_compaction.formats.session_files.model import Entry, NewSession, Row, Session
from context_compaction.messages import model


def _is_cursor_row(value: model.JsonObject) -> bool:
    """Whether only Cursor writes such a row."""
    return "role" in value and "message" in value and "type" not in value


def _read_cursor(rows: Sequence[Row]) -> Session:
    """Return all messages of Cursor's rows, which have `role` and `message`.

    A row without content is kept whole, and becomes text.
    """
    entries: list[Entry] = []
    for row in rows:
        content = row.object("message").get("content")
        is_known = isinstance(content, str | list)
        message: model.JsonObject = {"role": row.value.get("role"), "content": content}
        raw = message if is_known else row.value
        entries += [row.entry(raw)] if "message" in row.value else []
    return Session(kind="cursor", format="anthropic", entries=tuple(entries))


SessionReader: TypeAlias = Callable[[Sequence[Row]], Session]
HistoryReader: TypeAlias = Callable[[Sequence[Row], bool], list[Session]]
Writer: TypeAlias = Callable[[Sequence[model.JsonObject], NewSession], list[model.JsonObject]]

# In the order in which a row is tried. Plain messages have a role or parts.
_ROW_TESTS: Mapping[str, Callable[[model.JsonObject], bool]] = {
    "gemini-cli": gemini_cli.is_row,
    "cursor": _is_cursor_row,
    "opencode": opencode.is_row,
    "messages": lambda row: "role" in row or "parts" in row,
    "codex": codex.is_row,
    "copilot": copilot.is_row,
    "pi": pi.is_row,
    "claude-code": claude_code.is_row,
}
# Each returns the messages that the host would send to its model next: those after the last
# compaction, with the summary in their place.
SESSION_READERS: Mapping[str, SessionReader] = {
    "claude-code": claude_code.read,
    "codex": codex.read,
    "copilot": copilot.read,
    "cursor": _read_cursor,
    "gemini-cli": gemini_cli.read,
    "opencode": opencode.read,
    "pi": pi.read,
}
# Each returns every message of a file. Messages that a compaction replaced, sub-agents and
# abandoned branches are separate histories, in the order in which they must be archived.
HISTORY_READERS: Mapping[str, HistoryReader] = {
    "claude-code": claude_code.read_histories,
    "codex": codex.read_histories,
    "gemini-cli": gemini_cli.read_histories,
    "pi": pi.read_histories,
}
# Each returns the rows of a new file in which the host can continue a compacted conversation. The
# rows have a mark (`model.MARK`), so that an import recognises the continued session and archives
# nothing twice. The readers return exactly the given messages, except for opencode: its message
# format preserves texts, calls and results.
WRITERS: Mapping[str, Writer] = {
    "claude-code": claude_code.write,
    "codex": codex.write,
    "pi": pi.write,
    "opencode": opencode.write,
}


def kind_of(rows: Iterable[Row]) -> str:
    """Return the host of a session file, by the first row that only one host writes.

    "messages" if no host writes such rows.
    """
    kinds = (kind for row in rows for kind, is_row in _ROW_TESTS.items() if is_row(row.value))
    return next(kinds, "messages")


def needs_earlier_rows(rows: Sequence[Row], kind: str) -> bool:
    """Whether rows from the middle of a file cannot be understood without the rows before them."""
    if kind == "claude-code":
        return claude_code.needs_earlier_rows(rows)
    return codex.needs_earlier_rows(rows)


def settled_count(messages: model.Messages) -> int:
    """Return how many leading messages do not change when their file grows.

    The last message may change, because a host writes one reply in several lines. The others are
    settled up to the point where no call waits for its result.
    """
    settled = 0
    waiting: set[str] = set()
    for index, message in enumerate(messages):
        if model.starts_turn(message):
            waiting.clear()  # Calls of an earlier turn get no result any more.
        if not waiting:
            settled = index
        waiting |= {call.call_id for call in model.tool_calls(message)}
        waiting -= {result.call_id for result in model.tool_results(message)}
    return settled
