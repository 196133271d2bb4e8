"""Hashes that recognise a conversation: one per message, chained into one per history.

A history is named by the chain hash of its last message, which covers every message before it. Two
lists share a prefix exactly where their chains agree, so the prefix that a session already holds is
found by looking up one hash per message.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

from context_compaction.memo import RecentMemo

HASH_BYTES = 16  # 128 bits: no two histories of one archive will ever meet by chance
_canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
ROOT = ""  # the chain hash of the empty history


def content_hash(raw: Any) -> str:
    """Hex hash of a message; equal ones have equal hashes, whatever the order of their keys.

    Hosts move their cache markers from message to message at every turn, and some write a text
    that carries one as a block; a message is the same with and without.

    Raises:
        TypeError, ValueError, RecursionError: The value cannot be written as JSON.
    """
    # A list comes again at every turn, nearly all of it as before, and sorting keys is dear.
    return _known.figure(raw, _content_hash)


def _content_hash(raw: Any) -> str:
    text = _canonical_json(_without_markers(raw))
    return blake2b(text.encode("ascii"), digest_size=HASH_BYTES).hexdigest()


def _without_markers(raw: Any) -> Any:
    """`raw` with the content that it has where the host sets no cache marker."""
    match raw:
        case {"content": [*blocks]}:
            message = cast("dict[str, Any]", raw)
        case _:
            return raw
    content = [_without_marker(block) for block in blocks]
    match content:
        case [{"type": "text", "text": str(text), **more}] if not more:
            return {**message, "content": text}
        case _:
            return {**message, "content": content}


def _without_marker(block: Any) -> Any:
    match block:
        case {"cache_control": _, **rest}:
            return cast("dict[str, Any]", rest)
        case _:
            return block


_known: RecentMemo[str] = RecentMemo()


def chain_hash(parent: str, content: str) -> str:
    """The name of the history that `parent` names, with one message more."""
    return blake2b((parent + content).encode("ascii"), digest_size=HASH_BYTES).hexdigest()


def chain_hashes(contents: Sequence[str], parent: str = ROOT) -> list[str]:
    """The chain hash after each of `contents`, beginning after `parent`."""
    chain: list[str] = []
    for content in contents:
        parent = chain_hash(parent, content)
        chain.append(parent)
    return chain
