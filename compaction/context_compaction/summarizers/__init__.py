"""Summary writers: who writes the prose that stands for history.

`extractive` needs no model and is always there; `host` takes prose that the caller wrote. Both get
a `SummaryInput`; whatever the writer, the machine-made parts of a summary are ours
(summary_message.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from context_compaction.activity.digest import Digest
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.messages.model import Messages

__all__ = ["SummaryInput", "Tally"]


@dataclass(frozen=True, slots=True)
class Tally:
    """The work of turns that are told no more one by one.

    Attributes:
        first: Number of the first message of theirs ...
        last: ... and of the last one; -1 where there are none.
        deeds: By verb how often what was done, the newest last.
        effects: What was done once and must not be done again, the newest last.
    """

    first: int = -1
    last: int = -1
    deeds: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    effects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryInput:
    """What a writer gets.

    Attributes:
        messages: What the summary stands for, originals where the archive has them.
        digest: The inventory of `messages`.
        max_tokens: What the text may count.
        later: What the user says after `messages`, in what stays: it may correct them.
        previous: The text of the summary that stood before, where its originals are not at hand.
        instructions: What the user wants it to dwell on.
        pinned: Texts that stand beside the summary word for word.
        numbers: The number of each message in the transcript, None for one that has none; by
            position where there are none at all.
        tool_kinds: Kinds of tools that the caller named.
        is_turn_prefix: Whether it is the beginning of the running turn, whose request stays in
            full beside it.
        files: The files as the calls leave them; None where `messages` alone tell that.
        beside: Prose that stands before the text, and tells what was done and where that stands;
            empty where the text is all.
        tally: The work of what is older than `messages`.
    """

    messages: Messages
    digest: Digest
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
    tally: Tally = field(default_factory=Tally)
