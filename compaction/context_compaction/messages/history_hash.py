"""Hashes that identify a conversation: one per message, chained into one per branch.

The branch head is the chain hash of the last message and covers all messages before it. Two lists
share a prefix exactly as far as their chain hashes agree, so one lookup per message finds the
prefix that a session already has. All hashes ignore cache markers, because hosts move them.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from context_compaction.messages.cache import MAX_MESSAGES, Key, RecentCache, json_key
from context_compaction.messages.cache_control import canonical_form

# 128 bits, so that branches of one archive never collide by chance.
_HASH_BYTES = 16
_canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
# The chain hash of an empty list.
ROOT = ""
# Length of a branch head in pointers: 48 bits, for the branches of one session.
HEAD_CHARS = 12
_content_hashes: RecentCache[str] = RecentCache(MAX_MESSAGES)


def content_hash(raw: Any, key: Key | None = None) -> str:
    """Return the hex hash of a host's message, independent of key order and cache markers.

    Args:
        raw: The message.
        key: The `json_key` of `raw`, if the caller has it.

    Raises:
        TypeError, ValueError, RecursionError: The value cannot be written as JSON.
    """
    # Cached, because a list is passed again at every turn and sorting keys is slow.
    key = json_key(raw) if key is None else key
    return _content_hashes.get_or_compute(key, lambda: _content_hash(raw))


def _content_hash(raw: Any) -> str:
    text = _canonical_json(canonical_form(raw))
    return blake2b(text.encode("ascii"), digest_size=_HASH_BYTES).hexdigest()


def chain_hash(parent: str, content: str) -> str:
    """Return the head of the branch that adds a message with the hash `content` to `parent`."""
    return blake2b((parent + content).encode("ascii"), digest_size=_HASH_BYTES).hexdigest()


def chain_hashes(contents: Sequence[str], parent: str = ROOT) -> list[str]:
    """Return the branch head after each of `contents`, starting from `parent`."""
    chain: list[str] = []
    for content in contents:
        parent = chain_hash(parent, content)
        chain.append(parent)
    return chain


def history_hash(raws: Iterable[Any]) -> str:
    """Return the head of the branch of the host's messages `raws`.

    It is the ID under which an archive stores that branch.

    Raises:
        TypeError, ValueError, RecursionError: A value cannot be written as JSON.
    """
    parent = ROOT
    for raw in raws:
        parent = chain_hash(parent, content_hash(raw))
    return parent
