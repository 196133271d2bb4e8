"""Match a caller's regular expression against archived texts at a limited cost.

A short pattern can take exponential time, or gigabytes of memory when it is compiled, and a thread
cannot be stopped meanwhile. The time limit of the regex module counts the processor's time instead
of the clock's, and it does not apply to compilation. So each pattern has its own process with a
memory limit, which is killed when the time is up or the call is cancelled.

A scan of an archive stops at a number of characters or at a deadline, and its cursor says where to
continue.
If a pattern cannot match without certain words, only rows with these words are read. The index
returns one batch of texts at a time, so that other searches run in between.
"""

import json
import math
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import RunVar
from anyio.streams.buffered import BufferedByteReceiveStream

from context_compaction.archive.documents import DocText
from context_compaction.archive.search.filters import Filter, OnRows, Row, RowsOf, encode_cursor
from context_compaction.archive.search.hits import Groups, hit_at
from context_compaction.archive.tokenizer import phrase_term
from context_compaction.archive.values import Hit, Query, SearchPage
from context_compaction.errors import QueryError
from context_compaction.system import without_window

MAX_PATTERN_CHARS = 1000
# Length of a pattern times all counts in its braces: the regex module compiles `x{1000}` into 1,000
# copies, and nested counts multiply.
MAX_EXPANDED_CHARS = 200_000
# Limits of one scan; the compilation may take as long.
SCAN_CHARS = 64 * 1024 * 1024
SCAN_SECONDS = 5.0
ROWS_PER_BATCH = 200  # other searches can run after each batch

_WORKER = Path(__file__).with_name("pattern_worker.py")
_SPECIAL = frozenset(r".^$*+?{}[]\|()")
_slots = RunVar[anyio.CapacityLimiter]("pattern processes")


# Returns for each text the index of its first match, or -1.
Matcher: TypeAlias = Callable[[Sequence[str]], Awaitable[list[int]]]


@asynccontextmanager
async def open_matcher(pattern: str, *, also_as_text: bool = False) -> AsyncGenerator[Matcher]:
    """Yield a matcher for `pattern`, and end its work when the block ends or is cancelled.

    Args:
        pattern: The caller's pattern.
        also_as_text: Whether to search for the plain text too, and only for the plain text if it
            is not a valid pattern. Otherwise matches without a character are ignored.

    Raises:
        QueryError: The pattern is empty, too long, or repeats too often. Or it is invalid and
            `also_as_text` is false.
    """
    _check_pattern(pattern)
    if not _SPECIAL & {*pattern}:
        yield lambda texts: to_thread.run_sync(lambda: [text.find(pattern) for text in texts])
        return
    try:
        slots = _slots.get()
    except LookupError:
        slots = anyio.CapacityLimiter(8)  # simultaneous processes; further calls wait
        _slots.set(slots)
    async with slots, _process() as (requests, replies):
        ask = partial(_ask, pattern, requests, BufferedByteReceiveStream(replies))
        try:
            with anyio.fail_after(SCAN_SECONDS):
                problem = await ask({"pattern": pattern, "also_as_text": also_as_text})
        except TimeoutError as error:
            raise _too_slow(pattern, SCAN_SECONDS) from error
        if problem is not None and not also_as_text:
            raise QueryError(
                f"Invalid pattern {pattern[:80]!r}: {problem}. Correct the regular expression, or "
                "use kind='phrase' to search for the plain text."
            )
        yield ask


async def _ask(
    pattern: str, requests: ByteSendStream, replies: BufferedByteReceiveStream, request: object
) -> Any:
    """Send a request to the process of a pattern, and return the reply; see `pattern_worker.py`."""
    # In a thread, because a text may have a hundred megabytes.
    line = await to_thread.run_sync(lambda: json.dumps(request).encode("ascii") + b"\n")
    try:
        await requests.send(line)
        reply = await replies.receive_until(b"\n", max_bytes=16 * 1024 * 1024)
    except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
        raise QueryError(
            f"The pattern {pattern[:80]!r} needs too much memory. "
            "Use a simpler pattern, without nested or counted repetition."
        ) from error
    return json.loads(reply)


def _too_slow(pattern: str, limit_seconds: float) -> QueryError:
    return QueryError(
        f"The pattern {pattern[:80]!r} takes longer than {limit_seconds:g} seconds. Use a simpler "
        "pattern, without nested repetition such as (a+)+, or plain text."
    )


def _check_pattern(pattern: str) -> None:
    """Refuse a pattern that is too long, also with its counted repetitions written out."""
    if not 0 < len(pattern) <= MAX_PATTERN_CHARS:
        raise QueryError(
            f"The pattern has {len(pattern)} characters. Use 1 to {MAX_PATTERN_CHARS}."
        )
    counts = map(int, re.findall(r"([0-9]+),?\}", pattern))
    if math.prod(max(count, 1) for count in counts) * len(pattern) > MAX_EXPANDED_CHARS:
        raise QueryError(
            f"The pattern {pattern[:80]!r} repeats too often: the counts in its braces times its "
            f"length exceed {MAX_EXPANDED_CHARS}. Use * or + instead."
        )


@asynccontextmanager
async def _process() -> AsyncGenerator[tuple[ByteSendStream, ByteReceiveStream]]:
    """Yield the input and output of a new process, and kill the process after the block."""
    try:
        # -P, so that the worker cannot import a file of this folder instead of a module.
        process = await anyio.open_process([sys.executable, "-P", str(_WORKER)], **without_window())
    except OSError as error:
        raise QueryError(
            f"Cannot start a process for the pattern: {error.strerror}. Use a plain text without "
            "special characters, or call again later."
        ) from error
    try:
        if process.stdin is not None and process.stdout is not None:  # both are pipes by default
            yield process.stdin, process.stdout
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()


# Rows and their contents, newest first, and the highest ID of the rows after them; -1 at the end.
_Batch: TypeAlias = tuple[Sequence[tuple[Row, DocText]], int]


async def scan(query: Query, allowed: Filter, on_rows: OnRows) -> SearchPage:
    """Return the newest texts that match a pattern.

    Args:
        query: The query with the pattern.
        allowed: The filter of the query.
        on_rows: The method `Archive.on_rows`.

    Raises:
        QueryError: The pattern is invalid or too slow.
    """
    groups, hits, scanned_chars = Groups(), list[Hit](), 0
    next_id = allowed.last_id
    terms = [*filter(None, map(phrase_term, required_words(query.text)))]

    def newest_batch(rows_of: RowsOf) -> _Batch:
        """Return the newest rows that may match."""
        rows = rows_of(replace(allowed, last_id=next_id))
        ids = [*rows.newest(terms, ROWS_PER_BATCH, every=True)]
        read = ((doc, rows.read(doc)) for doc in rows.docs(ids))
        batch = [(doc, content) for doc, content in read if content is not None]
        return batch, ids[-1] - 1 if len(ids) == ROWS_PER_BATCH else -1

    def no_check() -> None:
        """Do nothing, because this function has its own time limit."""

    async with open_matcher(query.text) as matcher:
        # The first batch is outside the time limit, because the index may have to catch up first.
        rows, rest_id = await on_rows(newest_batch, no_check)
        with anyio.move_on_after(SCAN_SECONDS):
            while True:
                starts = await matcher([content.text for _, content in rows])
                for (doc, content), index in zip(rows, starts, strict=True):
                    if len(hits) == query.limit:
                        next_id = doc.doc_id
                        break
                    scanned_chars += len(content.text)
                    if index >= 0 and groups.has_room(doc):
                        hits.append(hit_at(doc, content, index, 0.0))
                else:
                    next_id = rest_id
                if next_id < 0 or len(hits) == query.limit or scanned_chars > SCAN_CHARS:
                    break
                rows, rest_id = await on_rows(newest_batch, no_check)
    if next_id == allowed.last_id:
        raise _too_slow(query.text, SCAN_SECONDS)
    if next_id < 0:
        return SearchPage(tuple(hits), len(hits), query.cursor is None)
    return SearchPage(tuple(hits), len(hits), False, encode_cursor([0, next_id]))


# No word is required for certain by a pattern with alternatives, sets, inline flags, groups that
# may be absent, or one of these escapes.
_UNCERTAIN = ("|", "[", "(?", ")?", ")*", "){")
_UNCERTAIN_ESCAPES = "\\pPNxuULgkKRX0123456789"
_SEPARATOR = r"(?:[^\w\0\\.^$*+?{}()|\[\]]|_)"
_REQUIRED = re.compile(
    rf"(?:(?<=\\b)|(?<=\\\W)|(?<={_SEPARATOR}))([A-Za-z0-9]+)(?![A-Za-z0-9?*{{])"
    rf"((?:\\b|\\\W|{_SEPARATOR})(?![?*{{]))?"
)


def required_words(pattern: str) -> Iterator[str]:
    """Yield words that every match of `pattern` contains, or `word*` for the start of a word.

    Not all required words are found: a word is only certain if the pattern shows where it starts.
    """
    first, *escaped = pattern.split("\\")
    plain = "\0".join([first, *(part[1:] for part in escaped)])
    # A part is empty after an escaped backslash, and every text contains an empty one.
    is_uncertain = any(part[:1] in _UNCERTAIN_ESCAPES for part in escaped)
    if not is_uncertain and not any(sign in plain for sign in _UNCERTAIN):
        for word, end in _REQUIRED.findall(pattern):
            yield word if end else f"{word}*"
