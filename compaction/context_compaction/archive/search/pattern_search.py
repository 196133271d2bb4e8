"""Regular expressions, matched with the texts themselves, newest first, whatever index has them.

A scan keeps to a byte budget and a deadline, and reports where to go on. Where the pattern cannot
match without certain whole words, only rows with those words are read. The index is asked for a
batch of texts at a time, so that other searches come in between.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.cursors import encode_cursor
from context_compaction.archive.documents import DocText
from context_compaction.archive.patterns import (
    SCAN_BYTES,
    SCAN_SECONDS,
    Matcher,
    open_matcher,
    too_slow,
)
from context_compaction.archive.search.hits import Groups, Row, hit_at
from context_compaction.archive.search.word_search import Rows
from context_compaction.archive.tokenizer import phrase_term

_DOCS_A_READ = 200
BATCH_CHARS = 250_000  # of texts that are matched before other searches come in between


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with their texts, newest first.

    Attributes:
        rows: Those of which the archive still holds the text.
        next_id: The largest row id that follows them; -1 at the end.
    """

    rows: Sequence[tuple[Row, DocText]]
    next_id: int


def newest_batch(rows: Rows[Any], pattern: str) -> Batch:
    """The newest rows that may match, with their texts, of about `BATCH_CHARS`."""
    terms = [phrase_term(words) for words in required_words(pattern)]
    docs = rows.newest_docs([term for term in terms if term is not None], _DOCS_A_READ)
    found: list[tuple[Row, DocText]] = []
    size_chars = 0
    for doc in docs:
        if size_chars >= BATCH_CHARS:
            return Batch(found, doc.doc_id)
        content = rows.read(doc)
        if content is not None:
            found.append((doc, content))
            size_chars += len(content.text)
    return Batch(found, docs[-1].doc_id - 1 if len(docs) == _DOCS_A_READ else -1)


@dataclass(slots=True)
class _Scan:
    """What a scan has found so far.

    Attributes:
        next_id: The largest row id that was not looked at yet; -1 at the end.
    """

    hits: list[Hit]
    groups: Groups
    next_id: int
    scanned_bytes: int = 0


async def scan(
    query: Query, first_id: int, read_batch: Callable[[int], Awaitable[Batch]]
) -> SearchPage:
    """The newest texts that a pattern matches.

    Args:
        query: The pattern.
        first_id: The largest row id to look at.
        read_batch: Returns the next rows, from a row id downwards.

    Raises:
        QueryError: The pattern is no regular expression, or too slow.
    """
    found = _Scan([], Groups(), first_id)
    async with open_matcher(query.text, skip_empty=True) as matcher:
        # The index may have to catch up first, which is not the pattern's fault.
        rows = await read_batch(first_id)
        with anyio.move_on_after(SCAN_SECONDS):
            while True:
                await _match_batch(found, rows, matcher, query.limit)
                is_full = len(found.hits) == query.limit or found.scanned_bytes > SCAN_BYTES
                if is_full or found.next_id < 0:
                    break
                rows = await read_batch(found.next_id)
    if found.next_id == first_id:
        raise too_slow(query.text, SCAN_SECONDS)
    if found.next_id < 0:
        return SearchPage(tuple(found.hits), len(found.hits), query.cursor is None)
    more = encode_cursor([0, found.next_id])
    return SearchPage(tuple(found.hits), len(found.hits), False, more)


async def _match_batch(found: _Scan, batch: Batch, matcher: Matcher, limit: int) -> None:
    """Take in the hits of a batch, up to `limit` of them."""
    starts = await matcher.first_matches([content.text for _, content in batch.rows])
    for (doc, content), at in zip(batch.rows, starts, strict=True):
        if len(found.hits) == limit:
            found.next_id = doc.doc_id
            return
        found.scanned_bytes += len(content.text)
        if at >= 0 and found.groups.has_room(doc):
            found.hits.append(hit_at(doc, content, at, 0.0))
    found.next_id = batch.next_id


# Alternatives, inline flags, sets within sets and repeated groups: then nothing is required. The
# rest is read as literal characters and unknown ones, and every doubt makes a character unknown.
_TOO_HARD = re.compile(r"\||\(\?|\[\[|\][^\]]*\]|\)[?*{]|\\[^\W_a-zA-Z]|\\[pPNxuULgkKRX]")


_PIECE = re.compile(
    r"(?P<boundary>\\b)|\\[ntr](?![?*{])|\\(?P<escaped>\W)(?![?*{])|\\."
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\\?\Z))|(?P<group>[()])|(?P<anchor>[\^$])"
    r"|(?P<literal>[^\\\[\](){}?*+.^$|])(?![?*{])|(?P<rest>\{[^}]*\}|.)",
    re.DOTALL,
)


_UNKNOWN = "\0"
_EDGE = "\n"  # stands for any character that is no part of a word
_WORD = re.compile(r"[A-Za-z0-9]+")


def required_words(pattern: str) -> Iterator[str]:
    """Words of every text that `pattern` matches, not all of them; `word*` where it may go on.

    A word counts only where what precedes it, in the pattern, ends any word before.
    """
    if _TOO_HARD.search(pattern):
        return
    text = _UNKNOWN + "".join(_pieces(pattern)) + _UNKNOWN
    for word in _WORD.finditer(text):
        before, after = text[word.start() - 1], text[word.end()]
        if _ends_words(before):
            yield word[0] if _ends_words(after) else f"{word[0]}*"


def _pieces(pattern: str) -> Iterator[str]:
    for match in _PIECE.finditer(pattern):
        kind = match.lastgroup
        if kind == "group":
            continue
        if kind == "boundary":
            yield _EDGE
        elif kind in {"literal", "escaped"}:
            yield match[kind]
            if pattern[match.end() : match.end() + 1] == "+":
                yield _UNKNOWN
        else:
            yield _UNKNOWN


def _ends_words(character: str) -> bool:
    return character != _UNKNOWN and (character == "_" or not character.isalnum())
