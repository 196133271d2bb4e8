"""Output for people, and errors as they see them.

A web page that an agent has read is in the archive as it was. If it were printed raw, its escape
sequences could set titles, move the cursor and hide words. So no text acts on the terminal.
"""

import json
import re
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import anyio
import click
from context_compaction import SettingsError

from mcp_server_compaction.config import Config, load_config

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar
    from context_compaction import Archive

Report: TypeAlias = Callable[[float, str], None]
_T = TypeVar("_T")

# Output that is no terminal gets a line as often as this.
PROGRESS_SECONDS = 5.0

# Control characters but newline and tab, what turns the direction of writing, half surrogates.
_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    "\ud800-\udfff]"
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Failure(click.ClickException):
    """An expected failure: its text on standard error, exit code 1."""


class WrongOption(Failure):
    """What was asked for cannot be: exit code 2, as for an option that does not exist."""

    exit_code = 2


def config_of(context: click.Context, *, over_http: bool = False) -> Config:
    """The configuration that the program's flags, and the environment, give.

    Raises:
        UsageError: They cannot be used.
    """
    try:
        return load_config(**context.obj, over_http=over_http)
    except SettingsError as error:
        raise click.UsageError(shown(str(error))) from error


def with_archive(
    context: click.Context, work: "Callable[[Archive], Awaitable[_T]]", tenant: str | None = None
) -> _T:
    """What `work` gives for the archive that the program's flags name, or for one tenant's."""
    from context_compaction import open_archive  # not for commands that open none, as `serve`

    async def opened() -> _T:
        async with open_archive(config_of(context).archive) as archive:
            return await work(archive if tenant is None else await archive.for_tenant(tenant))

    return anyio.run(opened)


def shown(text: str) -> str:
    """`text` with every character that would act on a terminal spelled out by its number."""
    return _ACTS.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line for a person."""
    click.echo(shown(text), err=err)


def answer(as_json: bool, figures: object, text: str) -> None:
    """Print an answer: `figures` as JSON, or `text` for a person."""
    say(json.dumps(figures) if as_json else text)


def short_time(iso_time: str) -> str:
    """`2026-11-22 06:16` of a time in ISO 8601."""
    return iso_time[:16].replace("T", " ")


@contextmanager
def progress(description: str) -> Generator[Report]:
    """Report the share that is done and the current step: a bar on a terminal, else lines."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def report_line(share: float, step: str) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                say(f"{description}: {share:.0%}  {step}", err=True)

        yield report_line
        return
    bar: ProgressBar[str] = click.progressbar(
        length=1_000,
        label=description,
        file=sys.stderr,
        item_show_func=lambda step: step and shown(step),
    )
    with bar:
        yield lambda share, step: bar.update(int(share * 1_000) - bar.pos, step)


def awaited(report: Report) -> Callable[[float, str], Awaitable[None]]:
    """`report` as the library takes it."""

    async def report_later(share: float, step: str) -> None:
        report(share, step)

    return report_later
