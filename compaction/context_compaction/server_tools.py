"""Tools that the provider runs itself (Anthropic): call and result stand in one message."""

from context_compaction.messages import Message, Opaque

_CALL_KINDS = ("server_tool_use", "mcp_tool_use")


def orphan_server_results(message: Message) -> frozenset[int]:
    """Positions of blocks that answer a call which `message` does not make before them."""
    known: set[object] = set()
    orphans: set[int] = set()
    for position, block in enumerate(message.blocks):
        if not isinstance(block, Opaque):
            continue
        if block.kind in _CALL_KINDS:
            known.add(block.source.get("id"))
        elif block.kind.endswith("_tool_result") and block.source.get("tool_use_id") not in known:
            orphans.add(position)
    return frozenset(orphans)
