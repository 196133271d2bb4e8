"""A caller's regular expression, at a guarded cost, wherever texts are searched for one.

A short pattern can take exponential time, or gigabytes once it is compiled, and no thread can be
stopped in it: the engine's own time limit counts the processor's time, not the clock's, and is not
heeded while it compiles. So a pattern is compiled and matched in a process of its own, which has a
bound on its memory and is killed when the time is up or the call is cancelled.
"""

import json
import math
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import RunVar
from anyio.streams.buffered import BufferedByteReceiveStream

from context_compaction.errors import QueryError

MAX_PATTERN_CHARS = 1000
# The counts of a pattern's braces, multiplied, times its length: the engine writes `x{1000}` out
# as it compiles, and nested counts multiply.
MAX_WRITTEN_CHARS = 200_000
COMPILE_SECONDS = 5.0
# What one search of an archive reads; its cursor goes on from there.
SCAN_BYTES = 64 * 1024 * 1024
SCAN_SECONDS = 5.0
MAX_PROCESSES = 8  # at once; further calls wait

_WORKER = Path(__file__).with_name("pattern_worker.py")
_REPETITION = re.compile(r"\{(?:[0-9]+,?[0-9]*|,[0-9]+)\}")
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
        slots = anyio.CapacityLimiter(MAX_PROCESSES)
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
    counts = (max(map(int, re.findall("[0-9]+", part))) for part in _REPETITION.findall(pattern))
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
