"""Output and errors of the command line, for people and scripts.

Archived text may contain control characters, for example from a web page that an agent read. They
could set the title of the terminal, move the cursor or hide words, so they are printed as escapes.
"""

import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import click
from context_compaction import SettingsError

from mcp_server_compaction.config import Config, load_config
from mcp_server_compaction.protocol.sessions import iso_time

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar
    from context_compaction import Archive

Report: TypeAlias = Callable[[float, str], None]
_T = TypeVar("_T")

# Minimum time between two progress lines if standard error is not a terminal.
PROGRESS_SECONDS = 5.0

# Control characters except newline and tab, characters that change the direction of writing, and
# lone surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


class Failure(click.ClickException):
    """An expected failure: its text is printed on standard error, and the exit code is 1."""

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        """Print the text, wrapped between words on a terminal."""
        say(f"Error: {self.format_message()}", err=True)


class WrongOption(Failure):
    """An invalid request: the exit code is 2, as for an unknown option."""

    exit_code = 2


def config_of(context: click.Context, *, over_http: bool = False) -> Config:
    """Return the configuration from the program's options and the environment.

    Raises:
        UsageError: The options or variables are invalid.
    """
    try:
        return load_config(**context.obj, over_http=over_http)
    except SettingsError as error:
        raise click.UsageError(escaped(str(error))) from error


def with_archive(
    context: click.Context, work: "Callable[[Archive], Awaitable[_T]]", tenant: str | None = None
) -> _T:
    """Open the archive that the program's options name, and return the result of `work`."""
    from context_compaction import open_archive  # slow, and `serve` does not need it here

    async def run() -> _T:
        async with open_archive(config_of(context).archive) as archive:
            return await work(archive if tenant is None else await archive.for_tenant(tenant))

    return anyio.run(run)


def escaped(text: str) -> str:
    """Return `text` with an escape sequence instead of each control character."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print text for people. On a terminal, long lines are wrapped between words."""
    click.echo(wrapped(text, err=err), err=err)


def wrapped(text: str, *, prefix: str = "", err: bool = True) -> str:
    """Return text for people, wrapped between words if the stream is a terminal.

    Args:
        text: The text.
        prefix: What is printed before it on the first line.
        err: Whether it is printed on standard error, or else on standard output.
    """
    text = escaped(text)
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (prefix + text).split("\n")
    return "\n".join(_wrapped(line, width) for line in lines).removeprefix(prefix)


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    # Commands and pointers must stay whole, so that they can be copied.
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def grouped(notes: Sequence[str]) -> list[str]:
    """Return notes, with those that differ only in the number of their message as one line."""
    numbers: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        number, _, text = note.removeprefix("Message ").partition(": ")
        if number.isdecimal() and note.startswith("Message "):
            numbers.setdefault(text, []).append(number)
        else:
            numbers[note] = []
    lines: list[str] = []
    for text, found in numbers.items():
        listed = ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")
        prefixes = ["", f"Message {listed}: ", f"{len(found)} messages ({listed}): "]
        lines.append(prefixes[min(len(found), 2)] + text)
    return lines


def say_exactly(text: str, *, err: bool = False) -> None:
    """Print text whose lines matter, as JSON or part of a file: it is not wrapped."""
    click.echo(escaped(text), err=err)


def answer(as_json: bool, figures: object, text: str) -> None:
    """Print `figures` as JSON, or `text` for people."""
    if as_json:
        say_exactly(json.dumps(figures, indent=1))
    else:
        say(text)


def short_time(seconds: float) -> str:
    """Return a Unix time as `2026-11-22 06:16` in UTC."""
    return iso_time(seconds)[:16].replace("T", " ")


@contextmanager
def progress(description: str) -> Generator[Report]:
    """Show progress on standard error: a bar on a terminal, otherwise lines.

    The report takes the finished share of the work and the name of the current step.
    """
    if not sys.stderr.isatty():
        last_seconds = time.monotonic()

        def report_line(share: float, step: str) -> None:
            nonlocal last_seconds
            if time.monotonic() - last_seconds >= PROGRESS_SECONDS:
                last_seconds = time.monotonic()
                say(f"{description}: {share:.0%}  {step}", err=True)

        yield report_line
        return
    # The rest of the line is for the step, whose figures are cut if they do not fit.
    width = max(10, shutil.get_terminal_size().columns - len(description) - 36)

    def shown(step: str | None) -> str | None:
        return step and textwrap.shorten(escaped(step), width, placeholder=" …")

    bar: ProgressBar[str] = click.progressbar(
        length=1_000, label=description, file=sys.stderr, width=12, item_show_func=shown
    )
    with bar:
        yield lambda share, step: bar.update(int(share * 1_000) - bar.pos, step)


def async_report(report: Report) -> Callable[[float, str], Awaitable[None]]:
    """Return `report` as an async function, which the library calls."""

    async def report_progress(share: float, step: str) -> None:
        report(share, step)

    return report_progress
