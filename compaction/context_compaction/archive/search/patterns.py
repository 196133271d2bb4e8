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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import RunVar
from anyio.streams.buffered import BufferedByteReceiveStream

from context_compaction.archive.documents import DocText
from context_compaction.archive.search.filters import Row, Rows, encode_cursor
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
_DOCS_PER_READ = 200
# Other searches can run after each batch of this size.
BATCH_CHARS = 250_000

_WORKER = Path(__file__).with_name("pattern_worker.py")
_SPECIAL = frozenset(r".^$*+?{}[]\|()")
_slots = RunVar[anyio.CapacityLimiter]("pattern processes")


class Matcher(Protocol):
    """Finds the matches of one pattern."""

    async def first_matches(self, texts: Sequence[str]) -> list[int]:
        """Return for each text the index of its first match, or -1."""
        ...


@asynccontextmanager
async def open_matcher(
    pattern: str, *, also_as_text: bool = False, skip_empty: bool = False
) -> AsyncGenerator[Matcher]:
    """Yield a matcher for `pattern`, and end its work when the block ends or is cancelled.

    Args:
        pattern: The caller's pattern.
        also_as_text: Whether to search for the plain text too, and only for the plain text if it
            is not a valid pattern.
        skip_empty: Whether to ignore matches without a character.

    Raises:
        QueryError: The pattern is empty, too long, or repeats too often. Or it is invalid and
            `also_as_text` is false.
    """
    _check_pattern(pattern)
    if not _SPECIAL & {*pattern}:
        yield _PlainMatcher(pattern)
        return
    try:
        slots = _slots.get()
    except LookupError:
        slots = anyio.CapacityLimiter(8)  # simultaneous processes; further calls wait
        _slots.set(slots)
    async with slots, _process() as streams:
        matcher = _ProcessMatcher(pattern, *streams)
        problem = await matcher.begin(also_as_text=also_as_text, skip_empty=skip_empty)
        if problem is not None and not also_as_text:
            raise QueryError(
                f"Invalid pattern {pattern[:80]!r}: {problem}. Correct the regular expression, or "
                "use kind='phrase' to search for the plain text."
            )
        yield matcher


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


class _PlainMatcher:
    """A matcher for a pattern without special characters, which is its own text."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def first_matches(self, texts: Sequence[str]) -> list[int]:
        return await to_thread.run_sync(lambda: [text.find(self._text) for text in texts])


class _ProcessMatcher:
    """A matcher in its own process; see `pattern_worker.py`."""

    def __init__(self, pattern: str, requests: ByteSendStream, replies: ByteReceiveStream) -> None:
        self._pattern = pattern
        self._requests = requests
        self._replies = BufferedByteReceiveStream(replies)

    async def begin(self, *, also_as_text: bool, skip_empty: bool) -> str | None:
        """Compile the pattern; return its error, or None if it is valid."""
        request = {
            "pattern": self._pattern,
            "also_as_text": also_as_text,
            "skip_empty": skip_empty,
        }
        try:
            with anyio.fail_after(SCAN_SECONDS):
                problem: str | None = await self._ask(request)
        except TimeoutError as error:
            raise _too_slow(self._pattern, SCAN_SECONDS) from error
        return problem

    async def first_matches(self, texts: Sequence[str]) -> list[int]:
        starts: list[int] = await self._ask(texts)
        return starts

    async def _ask(self, request: object) -> Any:
        # In a thread, because a text may have a hundred megabytes.
        line = await to_thread.run_sync(lambda: json.dumps(request).encode("ascii") + b"\n")
        try:
            await self._requests.send(line)
            reply = await self._replies.receive_until(b"\n", max_bytes=16 * 1024 * 1024)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
            raise QueryError(
                f"The pattern {self._pattern[:80]!r} needs too much memory. "
                "Use a simpler pattern, without nested or counted repetition."
            ) from error
        return json.loads(reply)


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


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows with their texts, newest first.

    Attributes:
        rows: Rows and their contents, without rows that were deleted.
        next_id: Highest ID of the rows after the batch; -1 at the end.
    """

    rows: Sequence[tuple[Row, DocText]]
    next_id: int


def newest_batch(rows: Rows[Any], pattern: str) -> Batch:
    """Return the newest rows that may match, with about `BATCH_CHARS` characters of text."""
    terms = [phrase_term(words) for words in required_words(pattern)]
    docs = rows.newest_docs([term for term in terms if term is not None], _DOCS_PER_READ)
    batch: list[tuple[Row, DocText]] = []
    size_chars = 0
    for doc in docs:
        if size_chars >= BATCH_CHARS:
            return Batch(batch, doc.doc_id)
        content = rows.read(doc)
        if content is not None:
            batch.append((doc, content))
            size_chars += len(content.text)
    return Batch(batch, docs[-1].doc_id - 1 if len(docs) == _DOCS_PER_READ else -1)


class _Scan:
    """The state of a scan.

    Attributes:
        hits: Hits, newest first.
        next_id: Highest ID of the rows that were not scanned yet; -1 at the end.
        scanned_chars: Number of characters that were matched.
    """

    def __init__(self, matcher: Matcher, limit: int, first_id: int) -> None:
        self.hits: list[Hit] = []
        self.next_id = first_id
        self.scanned_chars = 0
        self._matcher = matcher
        self._limit = limit
        self._groups = Groups()

    async def match(self, batch: Batch) -> bool:
        """Add the hits of a batch; return whether the scan should continue."""
        starts = await self._matcher.first_matches([content.text for _, content in batch.rows])
        for (doc, content), index in zip(batch.rows, starts, strict=True):
            if len(self.hits) == self._limit:
                self.next_id = doc.doc_id
                return False
            self.scanned_chars += len(content.text)
            if index >= 0 and self._groups.has_room(doc):
                self.hits.append(hit_at(doc, content, index, 0.0))
        self.next_id = batch.next_id
        is_full = len(self.hits) == self._limit or self.scanned_chars > SCAN_CHARS
        return not is_full and self.next_id >= 0


async def scan(
    query: Query, first_id: int, read_batch: Callable[[int], Awaitable[Batch]]
) -> SearchPage:
    """Return the newest texts that match a pattern.

    Args:
        query: The query with the pattern.
        first_id: Highest row ID to scan.
        read_batch: Returns the next rows, given the highest row ID.

    Raises:
        QueryError: The pattern is invalid or too slow.
    """
    async with open_matcher(query.text, skip_empty=True) as matcher:
        state = _Scan(matcher, query.limit, first_id)
        # The first batch is outside the time limit, because the index may have to catch up first.
        batch = await read_batch(first_id)
        with anyio.move_on_after(SCAN_SECONDS):
            while await state.match(batch):
                batch = await read_batch(state.next_id)
    if state.next_id == first_id:
        raise _too_slow(query.text, SCAN_SECONDS)
    if state.next_id < 0:
        return SearchPage(tuple(state.hits), len(state.hits), query.cursor is None)
    cursor = encode_cursor([0, state.next_id])
    return SearchPage(tuple(state.hits), len(state.hits), False, cursor)


# No word is required by a pattern with alternatives, inline flags, nested sets, repeated groups or
# an unusual escape.
_UNSUPPORTED = re.compile(r"\||\(\?|\[\[|\][^\]]*\]|\)[?*{]|\\[\\pPNxuULgkKRX\d]")
_SET = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*+\]?")
_SEPARATOR = r"(?:[^\w\0\\.^$*+?{}()|\[\]]|_)"
_REQUIRED = re.compile(
    rf"(?:(?<=\\b)|(?<=\\\W)|(?<={_SEPARATOR}))([A-Za-z0-9]+)(?![A-Za-z0-9?*{{])"
    rf"((?:\\b|\\\W|{_SEPARATOR})(?![?*{{]))?"
)


def required_words(pattern: str) -> Iterator[str]:
    """Yield words that every match of `pattern` contains, or `word*` for the start of a word.

    Not all required words are found: a word is only certain if the pattern shows where it starts.
    """
    if not _UNSUPPORTED.search(pattern):
        for word, end in _REQUIRED.findall(_SET.sub("\0", pattern)):
            yield word if end else f"{word}*"
