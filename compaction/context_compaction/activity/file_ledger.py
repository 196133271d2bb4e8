"""What was done to each file in a part of a conversation, and its last text.

A conversation contains the text of a file after a full read or a write of the whole: then its hash
is known, the same as in the read state. After an edit or a command the text is unknown.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

from context_compaction.messages import placeholders
from context_compaction.messages.model import ToolCall, ToolResult, named_arguments
from context_compaction.messages.tool_results import result_text

FileAction: TypeAlias = Literal["read", "created", "changed", "deleted"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file.

    Attributes:
        path: The path as the calls name it.
        states: What was done to it, the last thing last, each once.
        text: Its last text; None where it is not known.
    """

    path: str
    states: tuple[FileAction, ...]
    text: str | None = None

    @property
    def sha256(self) -> str:
        """The hash of its text; "" where that is not known."""
        return "" if self.text is None else sha256_of(self.text)

    @property
    def is_only_read(self) -> bool:
        """Whether it was only read."""
        return self.states == ("read",)


def touch(ledger: dict[str, FileEntry], path: str, state: FileAction, text: str | None) -> None:
    """Note in `ledger`, whose newest use is last, what was done to a file.

    Args:
        ledger: The files so far, by path.
        path: The file.
        state: What was done.
        text: Its whole text, where the call or its result shows that.
    """
    before = ledger.pop(path, None)
    if before is None or state == "deleted" or before.states[-1] == "deleted":
        ledger[path] = FileEntry(path, (state,), text)
        return
    states: tuple[FileAction, ...] = (*(known for known in before.states if known != state), state)
    # To read a part leaves what is known of the whole.
    keeps = state == "read" and text is None
    ledger[path] = FileEntry(
        path,
        states,
        before.text if keeps else text,
    )


def file_content(call: ToolCall, result: ToolResult | None, kind: str) -> str | None:
    """The text of the file that this call or its result contains; None where there is none."""
    if kind == "read":
        if result is None or placeholders.seems_placeholder(result):
            return None
        return result_text(result)
    if kind == "write":
        arguments = named_arguments(call)
        for key in ("content", "file_text", "contents", "text"):
            value = arguments.get(key)
            if isinstance(value, str) and not placeholders.is_clipped(value):
                return value
    return None


def sha256_of(text: str) -> str:
    """The hash of a file's text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
