"""What people see: text of a transcript may not act on the terminal that it is shown on.

A web page that an agent has read is in the archive as it was; printed raw, its escape sequences
set titles, move the cursor and hide words.
"""

import re
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

import click

Tell: TypeAlias = Callable[[float, str], None]

# Below this a command is over before a progress bar could be read.
_PATIENCE_SECONDS = 1.0

# Control characters but newline and tab, what turns the direction of writing, half surrogates.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


def shown(text: str) -> str:
    """`text` with every character that would act on a terminal spelled out by its number."""
    return _ACTS.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line for a person."""
    click.echo(shown(text), err=err)


def short_time(iso_time: str) -> str:
    """`2026-11-22 06:16` of a time in ISO 8601."""
    return iso_time[:16].replace("T", " ")


@contextmanager
def progress(description: str) -> Generator[Tell]:
    """Reports the part that is done, and the step at hand, to a bar on standard error.

    It appears after a second, and only where somebody watches.
    """
    if not sys.stderr.isatty():
        yield lambda _part, _step: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(description, total=1.0)

    def tell(part: float, step: str) -> None:
        bar.update(task, completed=part, description=f"{description}: {shown(step)}")

    appears = threading.Timer(_PATIENCE_SECONDS, bar.start)
    appears.start()
    try:
        yield tell
    finally:
        appears.cancel()
        appears.join()
        bar.stop()


def awaited(tell: Tell) -> Callable[[float, str], Awaitable[None]]:
    """`tell` as the library takes it."""

    async def report(part: float, step: str) -> None:
        tell(part, step)

    return report
