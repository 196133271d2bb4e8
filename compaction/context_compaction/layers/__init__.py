"""The layers that a policy can name. A new one is its own file and a line in `LAYERS`."""

from collections.abc import Mapping
from types import MappingProxyType

from context_compaction.layers.base import Layer
from context_compaction.layers.collapse import collapse
from context_compaction.layers.dedupe import clear_unchanged_reads, dedupe
from context_compaction.layers.drop_messages import drop_waits, snip
from context_compaction.layers.microcompact import microcompact
from context_compaction.layers.persist import persist
from context_compaction.layers.restore import restore_files
from context_compaction.layers.summary_message import summarize

LAYERS: Mapping[str, Layer] = MappingProxyType({
    "unchanged": Layer(
        clear_unchanged_reads, "put a pointer in the place of what was read again unchanged"
    ),
    "persist": Layer(persist, "moved large results to the archive", acts_below_trigger=True),
    "waits": Layer(drop_waits, "left out waits but the last of each series"),
    "dedupe": Layer(dedupe, "cleared results that a later one supersedes"),
    "snip": Layer(snip, "left out messages of the middle"),
    "microcompact": Layer(microcompact, "cleared old results of tools", uses_limit=True),
    "collapse": Layer(collapse, "folded finished sub-tasks to a line each", stage="fold"),
    "summarize": Layer(summarize, "put a summary in the place of history", stage="replace"),
    "restore": Layer(restore_files, "put back files that were in use", stage="restore"),
})
