"""Summary writers: what writes the prose that replaces history.

`extractive` needs no model and is always available; `host` takes prose that the caller wrote. Both
get a `SummaryInput`; whatever the writer, the machine-made parts of a summary are ours
(summary_message.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.messages.model import Messages

__all__ = ["SummaryInput"]


@dataclass(frozen=True, slots=True)
class SummaryInput:
    """The input of a summary writer."""

    messages: Messages  # what the summary replaces, originals where the archive has them
    max_tokens: int  # of the text
    # What stays after `messages`: the user may correct these there, and what is run again there is
    # known better.
    later: Messages = ()
    previous: str = ""  # the text of the previous summary, where its originals are not available
    instructions: str = ""  # the subjects that the user wants weighed most
    pinned: tuple[str, ...] = ()  # texts that the summary message contains verbatim
    # For each message its number in the transcript, if it has one; without any, by position.
    numbers: tuple[int | None, ...] = ()
    tool_kinds: Mapping[str, str] = field(default_factory=dict[str, str])  # that the caller named
    is_turn_prefix: bool = False  # of the running turn, whose request stays in full beside it
    # The files as the calls leave them; None where they are replayed from `messages`.
    files: Mapping[str, ReplayedFile] | None = None
    beside: str = ""  # prose that precedes the text and reports the work and its state
    # What was done before `messages` and must not be done again, newest last.
    effects: tuple[str, ...] = ()
