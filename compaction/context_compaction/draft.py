"""A conversation on its way through the layers, with what each of them did. Pure, immutable."""

from dataclasses import dataclass, replace

from context_compaction.compaction import LayerReport
from context_compaction.edits import Blob, Edit, Step
from context_compaction.messages import Messages
from context_compaction.tokens import MessageCounter


@dataclass(frozen=True, slots=True)
class Draft:
    """What the layers have made so far.

    Attributes:
        messages: The list as it stands.
        edits: Every change, in order.
        blobs: What must be kept before the list may be given back.
        layers: The report of each layer that changed anything.
    """

    messages: Messages
    edits: tuple[Edit, ...] = ()
    blobs: tuple[Blob, ...] = ()
    layers: tuple[LayerReport, ...] = ()

    def then(self, name: str, step: Step, count: MessageCounter) -> "Draft":
        """The draft after one more layer; the same one where the layer changed nothing."""
        if step.messages is self.messages:
            return self
        report = LayerReport(
            name, count.messages(self.messages), count.messages(step.messages), len(step.edits)
        )
        return replace(
            self,
            messages=step.messages,
            edits=(*self.edits, *step.edits),
            blobs=(*self.blobs, *step.blobs),
            layers=(*self.layers, report),
        )
