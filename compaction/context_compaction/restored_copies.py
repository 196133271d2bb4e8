"""Copies of files that a compaction put back, once the conversation has read or changed them since.

The texts of `restore` stand in one message of ours, framed by the lines "File: …" and "End of
file: …". A copy that is superseded becomes one line; the whole message as it was is kept. Pure.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from context_compaction import markers
from context_compaction.edits import make_blob
from context_compaction.messages import Message, Text
from context_compaction.replacing import Replacement
from context_compaction.tokens import MessageCounter

_COPY = re.compile(r"^File: ([^\n]+)\n(.*?)\nEnd of file: ([^\n]+)$", re.DOTALL | re.MULTILINE)


def without_superseded(
    message: Message, count: MessageCounter, reason_for: Callable[[str], str]
) -> Replacement | None:
    """What takes the place of `message`'s text; None where it holds no copy that may go.

    Args:
        message: Any message.
        count: The token counter.
        reason_for: Why the copy of a path is worth nothing any more; "" where it is not.
    """
    block = message.blocks[0] if markers.is_restored_files(message) else None
    if not isinstance(block, Text):
        return None
    blob = make_blob(block.text)
    reasons: list[str] = []

    def shorter(found: re.Match[str]) -> str:
        head, _, path = found.groups()
        # A text may hold such lines itself; only a frame whose ends agree is ours.
        reason = reason_for(path) if head == path or head.startswith(f"{path} (") else ""
        if not reason:
            return found.group(0)
        reasons.append(reason)
        return f"File: {path} ({reason}; read_persisted_output {blob.output_id})"

    text = replace(block, text=_COPY.sub(shorter, block.text), edited=True)
    saved_tokens = count.block(block) - count.block(text)
    if not reasons or saved_tokens <= 0:
        return None
    note = "; ".join(dict.fromkeys(reasons))
    return Replacement(text, (blob,), saved_tokens, "cleared", None, note)
