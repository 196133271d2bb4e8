"""The layers that a policy can name. A new one is its own file and a line in `LAYERS`."""

from collections.abc import Mapping
from types import MappingProxyType

from context_compaction.layers.base import Layer
from context_compaction.layers.collapse import collapse
from context_compaction.layers.dedupe import clear_unchanged_reads, dedupe
from context_compaction.layers.microcompact import microcompact
from context_compaction.layers.persist import persist
from context_compaction.layers.restore import restore_files
from context_compaction.layers.snip import snip
from context_compaction.layers.summary_message import summarize
from context_compaction.layers.waits import drop_waits

LAYERS: Mapping[str, Layer] = MappingProxyType({
    "unchanged": Layer(clear_unchanged_reads),
    "persist": Layer(persist, acts_below_trigger=True),
    "waits": Layer(drop_waits),
    "dedupe": Layer(dedupe),
    "snip": Layer(snip),
    "microcompact": Layer(microcompact, weighs_limit=True),
    "collapse": Layer(collapse, stage="fold"),
    "summarize": Layer(summarize, stage="replace"),
    "restore": Layer(restore_files, stage="restore"),
})
