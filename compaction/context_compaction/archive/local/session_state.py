"""What is known of a session whose log lies in a folder, and how much of that is on the device."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from context_compaction.archive.histories import is_message
from context_compaction.archive.local.log import read_segment, segment_sizes
from context_compaction.archive.session_state import TranscriptState
from context_compaction.messages.history_hash import ROOT

# A list goes on from one of the newest; from an older one it is looked through once.
_DURABLE_HISTORIES = 16


@dataclass(slots=True)
class LocalState(TranscriptState):
    """The heads of one session, kept up to date by `refresh`.

    Attributes:
        folder: Where its segments lie.
        sizes: By segment, how large it was when last looked at.
        read_to: By segment, up to where it was read.
        synced_to: By segment, up to where this process knows it to be on the device.
        durable: The newest histories of which this process knows that all of them is on the device.
        to_sync: The segments that the write under way has to bring to the device.
    """

    folder: Path = field(kw_only=True)
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    read_to: dict[str, int] = field(default_factory=dict[str, int])
    synced_to: dict[str, int] = field(default_factory=dict[str, int])
    durable: deque[str] = field(default_factory=lambda: deque(maxlen=_DURABLE_HISTORIES))
    to_sync: set[str] = field(default_factory=set[str])

    def unsynced(self) -> set[str]:
        """The segments that hold what is not known to be on the device."""
        return {name for name, end in self.read_to.items() if self.synced_to.get(name, 0) < end}

    def unsynced_under(self, head: str) -> set[str]:
        """Those of the `unsynced` segments that hold a part of the history `head`."""
        found: set[str] = set()
        while head != ROOT and head not in self.durable:
            node = self.tree.nodes.get(head)
            # A context names messages of any segment, and so does a run.
            if node is None or not is_message(node):
                return self.unsynced()
            place = node.place
            if self.synced_to.get(place.segment, 0) < place.offset + place.length:
                found.add(place.segment)
            head = node.parent
        return found


def refresh(state: LocalState) -> LocalState:
    """`state` with what was logged since; a new one where a segment has shrunk or vanished.

    Raises:
        ArchiveError: The session's folder cannot be read.
    """
    sizes = segment_sizes(state.folder)
    if any(sizes.get(segment, 0) < read_to for segment, read_to in state.read_to.items()):
        state = LocalState(folder=state.folder)
    state.sizes = sizes
    for segment, size in sizes.items():
        read_to = state.read_to.get(segment, 0)
        if size > read_to:
            part = read_segment(state.folder, segment, read_to)
            for record in part.records:
                state.learn(record)
            state.read_to[segment] = part.end
    return state
