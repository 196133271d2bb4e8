"""Progress of long reads of an archive, for programs that show it to people."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

# Receives how many units are done, how many there are, and their name; may be called in a thread.
# With no units, the name is that of the work that must end first, or "".
ReportWork: TypeAlias = Callable[[int, int, str], None]

_reporter: ContextVar[ReportWork | None] = ContextVar("reporter", default=None)


@contextmanager
def reporting_work(reporter: ReportWork) -> Generator[None]:
    """Report the progress of all work in the block.

    Args:
        reporter: Receives how many units are done, how many there are, and the name of the units,
            for example `3_000, 10_000, "sessions indexed"`. While the work waits, `0, 0` and what
            it waits for, and then `0, 0, ""`. Threads may call it.
    """
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def report_work(done: int, total: int, unit: str) -> None:
    """Report that `done` of `total` units are done, if somebody wants to know."""
    reporter = _reporter.get()
    if reporter is not None:
        reporter(done, total, unit)


def report_waiting(is_waiting: bool) -> None:
    """Report that the work must wait for other work, or that it has begun."""
    report_work(0, 0, "other work on this archive" if is_waiting else "")
