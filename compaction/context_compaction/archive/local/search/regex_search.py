"""Regular expressions, matched with the texts themselves, newest first.

A scan keeps to a byte budget and a deadline, and reports where to go on. Where the pattern cannot
match without certain whole words, only rows with those words are read. The index is asked for a
batch of texts at a time, so that other searches come in between.
"""

import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import anyio

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.cursors import encode_cursor
from context_compaction.archive.local.search.fts_tables import (
    Filter,
    expression_of,
    load_partitions,
    newest_ids,
)
from context_compaction.archive.local.search.hits import Groups, hit_at
from context_compaction.archive.local.search.index import Doc, DocText, SearchIndex
from context_compaction.archive.patterns import (
    SCAN_BYTES,
    SCAN_SECONDS,
    Matcher,
    open_matcher,
    too_slow,
)
from context_compaction.archive.records import BLOB_MARK
from context_compaction.archive.tokenizer import phrase_term

_BATCH_CHARS = 250_000
_BATCH_BYTES = 8_000_000  # of lines that are passed over, since a thread cannot be stopped
_DOCS_A_READ = 200


# Gives a function the index in a thread.
OnIndex = Callable[[Callable[[SearchIndex], "_Batch"]], Awaitable["_Batch"]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows with their texts, newest first.

    Attributes:
        rows: Those of which the log still holds the text.
        next_id: The largest row id that comes after them; -1 at the end.
    """

    rows: Sequence[tuple[Doc, DocText]]
    next_id: int


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
    on_index: OnIndex,
    query: Query,
    filter_of: Callable[[sqlite3.Connection], Filter],
    cursor: tuple[float, int] | None,
) -> SearchPage:
    """The newest texts that a pattern matches.

    Raises:
        QueryError: The pattern is no regular expression, or too slow.
    """
    words = [phrase_term(words) for words in required_words(query.text)]
    expression = " AND ".join(expression_of(term) for term in words if term is not None)
    first_id = Filter(()).last_id if cursor is None else cursor[1]
    literals = required_literals(query.text)
    found = _Scan([], Groups(), first_id)

    def batch(index: SearchIndex) -> _Batch:
        def read(connection: sqlite3.Connection) -> _Batch:
            allowed = replace(filter_of(connection), last_id=found.next_id)
            return _read_batch(index, connection, allowed, expression, literals)

        return index.run(read)

    async with open_matcher(query.text, skip_empty=True) as matcher:
        # The index may have to catch up first, which is not the pattern's fault.
        rows = await on_index(batch)
        with anyio.move_on_after(SCAN_SECONDS):
            while True:
                await _match_batch(found, rows, matcher, query.limit)
                is_full = len(found.hits) == query.limit or found.scanned_bytes > SCAN_BYTES
                if is_full or found.next_id < 0:
                    break
                rows = await on_index(batch)
    if found.next_id == first_id:
        raise too_slow(query.text, SCAN_SECONDS)
    if found.next_id < 0:
        return SearchPage(tuple(found.hits), len(found.hits), cursor is None)
    more = encode_cursor([0, found.next_id])
    return SearchPage(tuple(found.hits), len(found.hits), False, more)


async def _match_batch(found: _Scan, batch: _Batch, matcher: Matcher, limit: int) -> None:
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


def _read_batch(
    index: SearchIndex,
    connection: sqlite3.Connection,
    allowed: Filter,
    expression: str,
    literals: Sequence[Sequence[bytes]],
) -> _Batch:
    """The newest rows that `allowed` and `expression` let through, of about `_BATCH_CHARS`.

    Messages without any of the lists of `literals` are passed over: they stand in a line as in
    its text.
    """
    rows: list[tuple[Doc, DocText]] = []
    read_bytes = size_chars = 0
    for doc, line in index.lines(_newest_docs(index, connection, allowed, expression)):
        if size_chars >= min(_BATCH_CHARS, SCAN_BYTES) or read_bytes >= _BATCH_BYTES:
            return _Batch(rows, doc.doc_id)
        read_bytes += doc.length
        if doc.output_id is None and not _may_match(line, literals):
            continue
        content = index.text(doc, line)
        if content is not None and not (content.is_own and allowed.without_own):
            rows.append((doc, content))
            size_chars += len(content.text)
    return _Batch(rows, -1)


def _may_match(line: bytes, literals: Sequence[Sequence[bytes]]) -> bool:
    """Whether the text of a message's line may contain what one of the lists requires."""
    found = any(all(literal in line for literal in every) for every in literals)
    return found or any(mark in line for mark in _HIDING)


def _newest_docs(
    index: SearchIndex, connection: sqlite3.Connection, allowed: Filter, expression: str
) -> Iterator[Doc]:
    """Every row that `allowed` and `expression` let through, the last one first."""
    partitions = load_partitions(connection)
    is_open = not allowed.match(expression)
    while True:
        if is_open:
            rows = connection.execute(
                "SELECT id FROM doc WHERE id <= ? ORDER BY id DESC LIMIT ?",
                (allowed.last_id, _DOCS_A_READ),
            )
            ids = [doc_id for (doc_id,) in rows]
        else:
            ids = newest_ids(connection, partitions, allowed, expression, _DOCS_A_READ)
        yield from index.docs(connection, allowed.in_time(connection, ids))
        if not ids:
            return
        allowed = replace(allowed, last_id=min(ids) - 1)


# Text of a message that does not stand in its line: kept elsewhere, or escaped by who wrote it.
_HIDING = (BLOB_MARK, rb"\\u00")

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

    A word counts only where what stands before it, in the pattern, ends any word before.
    """
    if _TOO_HARD.search(pattern):
        return
    text = _UNKNOWN + "".join(_pieces(pattern)) + _UNKNOWN
    for word in _WORD.finditer(text):
        before, after = text[word.start() - 1], text[word.end()]
        if _ends_words(before):
            yield word[0] if _ends_words(after) else f"{word[0]}*"


def required_literals(pattern: str) -> list[list[bytes]]:
    """Runs of ASCII letters and digits; a text that `pattern` matches has all of one list."""
    # What a "|" parts in a set requires no more than the whole: what stands before it, at most.
    branches = [pattern] if "(" in pattern else pattern.split("|")
    return [
        []
        if _TOO_HARD.search(branch)
        else [word.encode("ascii") for word in _WORD.findall("".join(_pieces(branch)))]
        for branch in branches
    ]


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
