"""What a session file holds once it is read, and what is said of one that is written."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from context_compaction.messages.model import JsonObject, Messages

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_.:-]")
_MAX_ID_CHARS = 128


def archive_id(name: str) -> str:
    """Return `name` if it can be a session ID of the archive, else an ID made from it."""
    cleaned = _NOT_IN_IDS.sub("-", name)
    if cleaned == name and 0 < len(name) <= _MAX_ID_CHARS:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{cleaned[:100]}-{digest}"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as it stood in its host's context when the file was written.

    Attributes:
        kind: "claude-code", "codex", "copilot", "gemini-cli", "pi", "opencode" or "messages".
        format: The format of its messages.
        payload: The messages as the host wrote them, one for each of `messages`.
        messages: The same, parsed, with timestamps where the file has them.
        session_id: The host's name of the session.
        cwd: The folder that the host worked in.
        model: The model that was used last.
        provider: The provider of that model, as opencode names it.
        system: The system prompt, where it is beside the messages.
        tools: The tool definitions, where the file has them.
        notes: What was left out in reading, for people.
        asides: The words of rows that are no messages: the type of each row, and its text.
    """

    kind: str
    format: str
    payload: list[JsonObject]
    messages: Messages
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    system: str | None = None
    tools: list[Any] | None = None
    notes: tuple[str, ...] = ()
    provider: str | None = None
    asides: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One JSON object of a session file and the number of its line, from 1."""

    line: int
    value: JsonObject


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a file, when it was written (Unix time), and its line, from 1."""

    raw: JsonObject
    timestamp_seconds: float | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """What a reader of one kind of file found, before its messages are parsed.

    `format` is None where it must be found from the messages.
    """

    kind: str
    format: str | None
    entries: tuple[Entry, ...]
    session_id: str | None = None
    cwd: str | None = None
    model: str | None = None
    system: str | None = None
    tools: list[Any] | None = None
    notes: tuple[str, ...] = ()
    provider: str | None = None
    asides: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a host's file says of a session beside its messages.

    Attributes:
        session_id: The host's name of it, which no other session has.
        origin: The archived session that goes on in it.
        cwd: The folder that the host works in.
        seconds: When it is written, in Unix time.
        tokens: What its messages are estimated to take. The host must not take an old report of
            the provider's, made before the compaction, for the present.
        title: How people find it in a list.
        model: The model that was used last.
        provider: The provider of that model, as opencode names it.
    """

    session_id: str
    origin: str
    cwd: str
    seconds: float
    tokens: int
    title: str = ""
    model: str | None = None
    provider: str | None = None

    @property
    def timestamp(self) -> str:
        """ISO 8601 in UTC, in milliseconds."""
        return self.later(0)

    def later(self, milliseconds: int) -> str:
        """The same of so many milliseconds later."""
        moment = datetime.fromtimestamp(self.seconds + milliseconds / 1_000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
