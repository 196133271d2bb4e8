"""Description of a session, learned from the heads of its records.

A state in memory, the index of a local archive and the database each keep one. The heads may come
in any order, because several processes write records.
"""

import json
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from context_compaction.archive.values import SessionInfo, SessionUsage
from context_compaction.messages.model import JsonObject


@dataclass(slots=True)
class Description:
    """What is known of one session without reading the body of a record.

    Attributes:
        session_id: ID of the session.
        parent_session_id: Session that started this one, if any.
        format: Format of the newest message; "" without messages.
        next_seq: Number of the next message.
        message_count: Number of messages, without the copies of damaged ones.
        copy_count: Number of messages that were stored again because their records are damaged.
        first_seconds: Time of the earliest record in Unix seconds; infinite without records.
        last_seconds: Time of the latest record in Unix seconds.
        title: Newest title from the host, or else the title of the first user message that has one.
        text_chars: Length of the messages in characters.
        saved_tokens: Tokens that compactions removed from the context.
        host: Name of the host that ran the session; "" if unknown.
        folder: Working folder of the host; "" if unknown.
        archived_seconds: When the latest record was written, by this machine's clock.
        is_retained: Whether the session is protected from pruning.
        ranks: For each attribute with one of several values, the rank of its value.
    """

    session_id: str = ""
    parent_session_id: str | None = None
    format: str = ""
    next_seq: int = 0
    message_count: int = 0
    copy_count: int = 0
    first_seconds: float = inf
    last_seconds: float = 0.0
    title: str = ""
    text_chars: int = 0
    saved_tokens: int = 0
    host: str = ""
    folder: str = ""
    archived_seconds: float = 0.0
    is_retained: bool = False
    ranks: dict[str, int] = field(default_factory=dict[str, int])

    def learn_head(self, head: JsonObject) -> None:
        """Add the head of one record."""
        seconds, number = float(head["ts"]), int(head["n"])
        self.first_seconds = min(self.first_seconds, seconds)
        self.last_seconds = max(self.last_seconds, seconds)
        self.archived_seconds = max(self.archived_seconds, head.get("at", seconds))
        match head["kind"]:
            case "session":
                self.session_id = head["session"]
                self.parent_session_id = self.parent_session_id or head["parent"]
            case "message":
                # Not the number of heads, because an index may have learned a damaged record.
                self.next_seq = max(self.next_seq, head["seq"] + 1)
                self.copy_count += head.get("copy", False)
                self.message_count = self.next_seq - self.copy_count
                self.text_chars += head["chars"]
                self._choose("format", head["format"], head["seq"])
                if "title" in head:
                    self._choose("title", head["title"], -1 - head["seq"])
            case "output":
                for name in {"title", "host", "folder"} & head.keys():
                    self._choose(name, head[name], number)
            case "receipt":
                self.saved_tokens += head.get("saved", 0)
            case "pin":
                self._choose("is_retained", head["pinned"], number)
            case _:
                pass

    def _choose(self, name: str, value: Any, rank: int) -> None:
        """Set an attribute unless it has a value of a higher rank."""
        if rank >= self.ranks.get(name, rank):
            self.ranks[name] = rank
            setattr(self, name, value)

    def info(self) -> SessionInfo:
        """Return the values that callers see."""
        return SessionInfo(**{item.name: getattr(self, item.name) for item in fields(SessionInfo)})

    def usage(self, log_bytes: int) -> SessionUsage:
        """Return the size of the session, given that of its log."""
        return SessionUsage(
            self.session_id,
            self.parent_session_id,
            self.is_retained,
            self.message_count,
            self.archived_seconds,
            log_bytes,
            self.title,
        )

    def to_json(self) -> str:
        """Return the description as `from_json` reads it, without what a subclass adds."""
        return json.dumps({item.name: getattr(self, item.name) for item in fields(Description)})

    @classmethod
    def from_json(cls, text: str) -> "Description":
        """Return the description that `to_json` wrote."""
        return cls(**json.loads(text))
