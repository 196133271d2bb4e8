"""Tools that the provider runs itself (Anthropic): call and result stand in one message."""

from collections.abc import Iterator

from context_compaction.messages import Message, Messages, Opaque


def server_call_ids(message: Message) -> frozenset[str]:
    """The ids of the calls of the provider's own tools in `message` (Anthropic)."""
    return frozenset(
        str(block.source.get("id"))
        for block in message.blocks
        if isinstance(block, Opaque) and block.kind in ("server_tool_use", "mcp_tool_use")
    )


def is_orphan_server_result(block: Opaque, known: frozenset[str]) -> bool:
    """Whether `block` answers a call of a server tool that is not among `known`."""
    call_id = block.source.get("tool_use_id")
    return block.kind.endswith("_tool_result") and call_id is not None and call_id not in known


def orphan_server_results(messages: Messages) -> Iterator[int]:
    """Positions of messages with a server tool's result whose call the message does not make."""
    for position, message in enumerate(messages):
        opaque = [block for block in message.blocks if isinstance(block, Opaque)]
        if opaque and any(is_orphan_server_result(b, server_call_ids(message)) for b in opaque):
            yield position
