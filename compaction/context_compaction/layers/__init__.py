"""The layers that a policy can name. A new layer is a file and an entry in `LAYERS`."""

from collections.abc import Mapping
from types import MappingProxyType

from context_compaction.layers.base import Layer
from context_compaction.layers.dedupe import clear_unchanged_reads, dedupe
from context_compaction.layers.drop_messages import collapse, snip
from context_compaction.layers.insert_messages import restore_files, summarize
from context_compaction.layers.microcompact import microcompact
from context_compaction.layers.persist import persist

LAYERS: Mapping[str, Layer] = MappingProxyType({
    "unchanged": Layer(clear_unchanged_reads, "replaced unchanged repeated reads by pointers"),
    "persist": Layer(persist, "moved large results to the archive", acts_below_trigger=True),
    "dedupe": Layer(dedupe, "cleared results that a later result supersedes"),
    "snip": Layer(snip, "removed messages from the middle"),
    "microcompact": Layer(microcompact, "cleared old tool results", uses_limit=True),
    "collapse": Layer(collapse, "replaced finished sub-tasks by a line each", stage="fold"),
    "summarize": Layer(summarize, "replaced history by a summary", stage="replace"),
    "restore": Layer(restore_files, "restored recently used files", stage="restore"),
})
