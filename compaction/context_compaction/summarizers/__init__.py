"""Summary writers: what writes the prose that replaces history.

`extractive` needs no model and is always available; `host` takes prose that the caller wrote. Both
get a `SummaryInput`; whatever the writer, the machine-made parts of a summary are ours
(summary_message.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from context_compaction.activity.known_file import ReplayedFile
from context_compaction.messages.model import Messages

__all__ = ["SummaryInput"]


@dataclass(frozen=True, slots=True)
class SummaryInput:
    """The input of a summary writer.

    Attributes:
        messages: What the summary replaces, originals where the archive has them.
        max_tokens: Most tokens of the text.
        later: The messages that stay after `messages`: the user may correct these there, and what
            is run again there is known better.
        previous: The text of the previous summary, where its originals are not available.
        instructions: The subjects that the user wants weighed most.
        pinned: Texts that the summary message contains verbatim.
        numbers: The number of each message in the transcript, None for one that has none; by
            position where there are none at all.
        tool_kinds: Kinds of tools that the caller named.
        is_turn_prefix: Whether it is the beginning of the running turn, whose request stays in
            full beside it.
        files: The files as the calls leave them; None where they are replayed from `messages`.
        beside: Prose that precedes the text and reports the work and its state; empty where there
            is none.
        effects: What was done before `messages` and must not be done again, newest last.
    """

    messages: Messages
    max_tokens: int
    later: Messages = ()
    previous: str = ""
    instructions: str = ""
    pinned: tuple[str, ...] = ()
    numbers: tuple[int | None, ...] = ()
    tool_kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    is_turn_prefix: bool = False
    files: Mapping[str, ReplayedFile] | None = None
    beside: str = ""
    effects: tuple[str, ...] = ()
