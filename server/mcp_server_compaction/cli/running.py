"""Running a command: its configuration, its exit code, and expected failures in one line."""

import errno
from collections.abc import Callable

import click
from context_compaction.errors import CompactionError, QueryError, SettingsError

from mcp_server_compaction.cli.terminal import shown
from mcp_server_compaction.config import Config, load_config


class Failure(click.ClickException):
    """An expected failure: its text on standard error, exit code 1."""


class WrongOption(Failure):
    """What was asked for cannot be: exit code 2, as for an option that does not exist."""

    exit_code = 2


def config_of(context: click.Context, *, over_http: bool = False) -> Config:
    """The configuration that the flags before the command, and the environment, give.

    Raises:
        UsageError: They cannot be used.
    """
    try:
        return load_config(**context.obj, over_http=over_http)
    except SettingsError as error:
        raise click.UsageError(shown(str(error))) from error


def finish(succeeded: bool) -> None:
    """Exit with code 1 where a command has said what failed."""
    if not succeeded:
        raise click.exceptions.Exit(1)


def run(command: Callable[[], None]) -> None:
    """Run a command; expected failures become a line on standard error."""
    try:
        command()
    except CompactionError as error:
        kind = WrongOption if isinstance(error, SettingsError | QueryError) else Failure
        raise kind(shown(str(error))) from error
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # whoever read has enough: click ends quietly
        # The archive's failures are errors of its own: what is left are files that were named, and
        # what was being printed.
        what = "What was to be printed" if error.filename is None else error.filename
        raise Failure(shown(f"{what} cannot be read or written: {error.strerror}.")) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
