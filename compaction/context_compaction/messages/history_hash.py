"""Hashes that recognise a conversation: one per message, chained into one per history.

A history is named by the chain hash of its last message, which covers every message before it. Two
lists share a prefix exactly where their chains agree, so the prefix that a session already holds is
found by looking up one hash per message. Whatever names a list of messages uses these, and all of
them see messages in their normal form: a cache marker that the host moves names nothing new.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from context_compaction.messages.cache import MAX_MESSAGES, Key, RecentCache, json_key
from context_compaction.messages.cache_control import canonical_form

_HASH_BYTES = 16  # 128 bits: no two histories of one archive will ever meet by chance
_canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
ROOT = ""  # the chain hash of the empty history
# How much of a chain hash names a history in pointers: 48 bits, for the histories of one session.
HEAD_CHARS = 12


def content_hash(raw: Any, key: Key | None = None) -> str:
    """Hex hash of a message; equal ones have equal hashes, whatever the order of their keys.

    A message is the same with and without its host's cache markers. `key` is its `json_key`, where
    the caller has it.

    Raises:
        TypeError, ValueError, RecursionError: The value cannot be written as JSON.
    """
    # A list comes again at every turn, nearly all of it as before, and sorting keys is dear.
    return _known.get_or_compute(key or json_key(raw), lambda: _content_hash(raw))


def _content_hash(raw: Any) -> str:
    text = _canonical_json(canonical_form(raw))
    return blake2b(text.encode("ascii"), digest_size=_HASH_BYTES).hexdigest()


_known: RecentCache[str] = RecentCache(MAX_MESSAGES)


def chain_hash(parent: str, content: str) -> str:
    """The name of the history that `parent` names, with one message more."""
    return blake2b((parent + content).encode("ascii"), digest_size=_HASH_BYTES).hexdigest()


def chain_hashes(contents: Sequence[str], parent: str = ROOT) -> list[str]:
    """The chain hash after each of `contents`, beginning after `parent`."""
    chain: list[str] = []
    for content in contents:
        parent = chain_hash(parent, content)
        chain.append(parent)
    return chain


def history_hash(raws: Iterable[Any], parent: str = ROOT) -> str:
    """The name of the history that `parent` names, with `raws` more: messages as hosts write them.

    It is the chain hash under which an archive knows that history.

    Raises:
        TypeError, ValueError, RecursionError: A value cannot be written as JSON.
    """
    for raw in raws:
        parent = chain_hash(parent, content_hash(raw))
    return parent
