"""Values that the readers and writers of session files share."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from context_compaction.formats.session_files.rows import Entry, Row
from context_compaction.messages.model import JsonObject, Messages

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.:-]")
# Each branch repeats the messages before its fork. A file with more gives all its rows as one
# branch, so that the work stays linear.
MAX_BRANCHES = 20
_MAX_ID_CHARS = 128


def archive_id(name: str) -> str:
    """Return `name` if it can be a session ID of the archive, else an ID made from it."""
    cleaned = _NOT_IN_IDS.sub("-", name)
    if cleaned == name and 0 < len(name) <= _MAX_ID_CHARS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{cleaned[:100]}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """Metadata of a conversation in a session file.

    Attributes:
        kind: "claude-code", "codex", "copilot", "gemini-cli", "pi", "opencode" or "messages".
        session_id: The host's ID of the session; None if the file has none.
        cwd: Working folder of the host; None if the file does not say.
        model: The model that was used last; None if the file does not say.
        provider: Provider of that model, as opencode names it.
        system: The system prompt, if it is separate from the messages.
        tools: The tool definitions, if the file has them.
        notes: A sentence for each line or message that was skipped or changed, for people.
        extra_texts: Texts of rows that are no messages, such as titles: the type of the row and
            its text.
    """

    kind: str
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    provider: str | None = None
    system: str | None = None
    tools: list[Any] | None = None
    notes: tuple[str, ...] = ()
    extra_texts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(SessionInfo):
    """The content of a session file before its messages are parsed.

    Attributes:
        format: The format of its messages; None if it must be detected.
        entries: The messages that the host would send to its model next.
    """

    format: str | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation(SessionInfo):
    """A conversation as it was in its host's context when the file was written.

    Attributes:
        format: The format of its messages.
        payload: The messages as the host wrote them, one for each of `messages`.
        messages: The parsed messages, with timestamps if the file has them.
    """

    format: str
    payload: list[JsonObject]
    messages: Messages


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """Messages of one session, or of one branch of it, in a part of a file.

    Attributes:
        session_id: The host's ID of the session; None if the rows do not name it.
        parent_session_id: The session that started this one, for a sub-agent.
        format: The format of the messages.
        entries: The messages; may be empty.
        start_line: First line that must be read to find this history again.
        is_new_start: Whether nothing precedes it. Otherwise it continues the newest history of
            its session.
        is_subagent: Whether it belongs to a sub-agent, in the file of its parent session.
        is_abandoned: Whether the user left this branch of the session.
    """

    session_id: str | None
    parent_session_id: str | None
    format: str
    entries: tuple[Entry, ...]
    start_line: int
    is_new_start: bool
    is_subagent: bool = False
    is_abandoned: bool = False


def history_of(
    session: Session,
    rows: list[Row],
    *,
    is_new_start: bool,
    parent_session_id: str | None = None,
    is_abandoned: bool = False,
) -> SessionHistory:
    """Return the messages of `session`, read from `rows`, as a history."""
    return SessionHistory(
        session.session_id,
        parent_session_id,
        session.format or "",
        session.entries,
        rows[0].line,
        is_new_start,
        is_abandoned=is_abandoned,
    )


@dataclass(frozen=True, slots=True)
class NewSession:
    """Metadata that a new session file gets in addition to its messages.

    Attributes:
        session_id: The host's ID of the session, which no other session has.
        origin: The archived session that continues in the file.
        cwd: Working folder of the host.
        seconds: When the file is written, in Unix time.
        tokens: Estimated tokens of its messages. Without this figure the host would trust a usage
            report that its provider made before the compaction.
        title: Title under which people find the session in a list.
        model: The model that was used last.
        provider: Provider of that model, as opencode names it.
    """

    session_id: str
    origin: str
    cwd: str
    seconds: float
    tokens: int
    title: str = ""
    model: str | None = None
    provider: str | None = None

    def timestamp(self, offset_milliseconds: int = 0) -> str:
        """Return the time of writing plus an offset, as ISO 8601 in UTC with milliseconds."""
        moment = datetime.fromtimestamp(self.seconds + offset_milliseconds / 1_000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
