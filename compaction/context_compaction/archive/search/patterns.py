"""A caller's regular expression, matched with the texts themselves at a guarded cost.

A short pattern can take exponential time, or gigabytes once it is compiled, and no thread can be
stopped in it: the engine's own time limit counts the processor's time, not the clock's, and is not
heeded while it compiles. So a pattern is compiled and matched in a process of its own, which has a
bound on its memory and is killed when the time is up or the call is cancelled.

A scan of an archive keeps to a byte budget and a deadline, and reports where to go on. Where the
pattern cannot match without certain whole words, only rows with those words are read. The index is
asked for a batch of texts at a time, so that other searches come in between.
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

from context_compaction.archive import Hit, Query, SearchPage
from context_compaction.archive.documents import DocText
from context_compaction.archive.search.filters import encode_cursor
from context_compaction.archive.search.hits import Groups, Row, hit_at
from context_compaction.archive.search.word_search import Rows
from context_compaction.archive.tokenizer import phrase_term
from context_compaction.errors import QueryError

MAX_PATTERN_CHARS = 1000
# The counts of a pattern's braces, multiplied, times its length: the engine writes `x{1000}` out
# as it compiles, and nested counts multiply.
MAX_WRITTEN_CHARS = 200_000
COMPILE_SECONDS = 5.0
# What one search of an archive reads; its cursor goes on from there.
SCAN_BYTES = 64 * 1024 * 1024
SCAN_SECONDS = 5.0

_WORKER = Path(__file__).with_name("pattern_worker.py")
_SPECIAL = frozenset(r".^$*+?{}[]\|()")
_slots = RunVar[anyio.CapacityLimiter]("pattern processes")


class Matcher(Protocol):
    """Looks for one pattern."""

    async def first_matches(self, texts: Sequence[str]) -> list[int]:
        """Where the first match begins in each text; -1 where there is none."""
        ...


@asynccontextmanager
async def open_matcher(
    pattern: str, *, also_as_text: bool = False, skip_empty: bool = False
) -> AsyncGenerator[Matcher]:
    """A matcher for `pattern`. What is going on in it ends with the block, however that is left.

    Args:
        pattern: The caller's pattern.
        also_as_text: Whether the plain text is looked for too, and alone where it is no pattern.
        skip_empty: Whether a match without a character counts for none.

    Raises:
        QueryError: The pattern is empty, too long or repeats too often; or it is no regular
            expression, unless it is looked for as text.
    """
    check_pattern(pattern)
    if not _SPECIAL & {*pattern}:
        yield _Plain(pattern)
        return
    try:
        slots = _slots.get()
    except LookupError:
        slots = anyio.CapacityLimiter(8)  # processes at once; further calls wait
        _slots.set(slots)
    async with slots, _process() as streams:
        matcher = _Worker(pattern, *streams)
        problem = await matcher.begin(also_as_text=also_as_text, skip_empty=skip_empty)
        if problem is not None and not also_as_text:
            raise QueryError(
                f"The pattern {pattern[:80]!r} is no regular expression: {problem}. "
                "Correct it, or use kind='phrase' to look for the text as it is."
            )
        yield matcher


def too_slow(pattern: str, limit_seconds: float) -> QueryError:
    """The error for a pattern that was stopped."""
    return QueryError(
        f"The pattern {pattern[:80]!r} takes longer than {limit_seconds:g} seconds. Give a simpler "
        "one, without nested repetition such as (a+)+, or plain text."
    )


def check_pattern(pattern: str) -> None:
    """Refuse what is too long, or would be once its repetitions are written out.

    Raises:
        QueryError: It is.
    """
    if not 0 < len(pattern) <= MAX_PATTERN_CHARS:
        raise QueryError(
            f"The pattern has {len(pattern)} characters. Give 1 to {MAX_PATTERN_CHARS}."
        )
    repetitions = re.findall(r"\{(?:[0-9]+,?[0-9]*|,[0-9]+)\}", pattern)
    counts = (max(map(int, re.findall("[0-9]+", part))) for part in repetitions)
    if math.prod(max(count, 1) for count in counts) * len(pattern) > MAX_WRITTEN_CHARS:
        raise QueryError(
            f"The pattern {pattern[:80]!r} repeats too often: the counts in its braces, multiplied "
            f"with its length, exceed {MAX_WRITTEN_CHARS}. Use * or + instead."
        )


class _Plain:
    """A pattern without any special character is its own text."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def first_matches(self, texts: Sequence[str]) -> list[int]:
        return await to_thread.run_sync(lambda: [text.find(self._text) for text in texts])


class _Worker:
    """A pattern in its process."""

    def __init__(self, pattern: str, requests: ByteSendStream, answers: ByteReceiveStream) -> None:
        self._pattern = pattern
        self._requests = requests
        self._answers = BufferedByteReceiveStream(answers)

    async def begin(self, *, also_as_text: bool, skip_empty: bool) -> str | None:
        """Have the pattern compiled; return its error, None where it has none."""
        request = {
            "pattern": self._pattern,
            "also_as_text": also_as_text,
            "skip_empty": skip_empty,
        }
        try:
            with anyio.fail_after(COMPILE_SECONDS):
                problem: str | None = await self._ask(request)
        except TimeoutError as error:
            raise too_slow(self._pattern, COMPILE_SECONDS) from error
        return problem

    async def first_matches(self, texts: Sequence[str]) -> list[int]:
        starts: list[int] = await self._ask(texts)
        return starts

    async def _ask(self, request: object) -> Any:
        # In a thread, since a text may have a hundred megabytes.
        line = await to_thread.run_sync(lambda: json.dumps(request).encode("ascii") + b"\n")
        try:
            await self._requests.send(line)
            answer = await self._answers.receive_until(b"\n", max_bytes=16 * 1024 * 1024)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead) as error:
            raise self._too_much() from error
        return json.loads(answer)

    def _too_much(self) -> QueryError:
        return QueryError(
            f"The pattern {self._pattern[:80]!r} needs more memory than a search may have. "
            "Give a simpler one, without nested or counted repetition."
        )


@asynccontextmanager
async def _process() -> AsyncGenerator[tuple[ByteSendStream, ByteReceiveStream]]:
    """The input and output of a new process, which is ended after the block."""
    try:
        # -P: no file beside ours is taken for a module of that name.
        process = await anyio.open_process([sys.executable, "-P", str(_WORKER)])
    except OSError as error:
        raise QueryError(
            f"No process could be started for the pattern: {error.strerror}. Give a plain text "
            "without special characters, or call again later."
        ) from error
    try:
        if process.stdin is not None and process.stdout is not None:  # both are asked for
            yield process.stdin, process.stdout
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.aclose()


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


class _Scan:
    """What a scan has found so far.

    Attributes:
        next_id: The largest row id that was not looked at yet; -1 at the end.
    """

    def __init__(self, matcher: Matcher, limit: int, first_id: int) -> None:
        self.hits: list[Hit] = []
        self.next_id = first_id
        self.scanned_bytes = 0
        self._matcher = matcher
        self._limit = limit
        self._groups = Groups()

    async def match(self, batch: Batch) -> bool:
        """Take in the hits of a batch; return whether the scan should go on."""
        starts = await self._matcher.first_matches([content.text for _, content in batch.rows])
        for (doc, content), at in zip(batch.rows, starts, strict=True):
            if len(self.hits) == self._limit:
                self.next_id = doc.doc_id
                return False
            self.scanned_bytes += len(content.text)
            if at >= 0 and self._groups.has_room(doc):
                self.hits.append(hit_at(doc, content, at, 0.0))
        self.next_id = batch.next_id
        is_full = len(self.hits) == self._limit or self.scanned_bytes > SCAN_BYTES
        return not is_full and self.next_id >= 0


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
    async with open_matcher(query.text, skip_empty=True) as matcher:
        found = _Scan(matcher, query.limit, first_id)
        # The index may have to catch up first, which is not the pattern's fault.
        rows = await read_batch(first_id)
        with anyio.move_on_after(SCAN_SECONDS):
            while await found.match(rows):
                rows = await read_batch(found.next_id)
    if found.next_id == first_id:
        raise too_slow(query.text, SCAN_SECONDS)
    if found.next_id < 0:
        return SearchPage(tuple(found.hits), len(found.hits), query.cursor is None)
    more = encode_cursor([0, found.next_id])
    return SearchPage(tuple(found.hits), len(found.hits), False, more)


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


def required_words(pattern: str) -> Iterator[str]:
    """Words of every text that `pattern` matches, not all of them; `word*` where it may go on.

    A word counts only where what precedes it, in the pattern, ends any word before.
    """
    if _TOO_HARD.search(pattern):
        return
    text = _UNKNOWN + "".join(_pieces(pattern)) + _UNKNOWN
    for word in re.finditer("[A-Za-z0-9]+", text):
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
