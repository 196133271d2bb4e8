"""The command line: the program's own options, and where each command is defined.

Standard output carries the answer alone; everything else goes to standard error. A command's file
is imported when that command is called, because hosts start the server through this file.
"""

import errno
import io
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
from context_compaction import CompactionError, QueryError, SettingsError

from mcp_server_compaction.cli.terminal import Failure, WrongOption, say, shown
from mcp_server_compaction.config import (
    ARCHIVE_VARIABLE,
    IMPORT_VARIABLE,
    REDACTION_VARIABLE,
    ROOTS_VARIABLE,
    SUMMARIZER_VARIABLE,
    SUMMARY_MODEL_VARIABLE,
    SUMMARY_TIMEOUT_VARIABLE,
    URL_VARIABLE,
    WriterName,
)

# The file of each command; the command has its own name there, with a _ behind reserved words.
_FILES = {
    "serve": "serving", "view": "serving", "wrap": "serving",
    "compact": "compacting", "compare": "compare", "policies": "compacting",
    "search": "archive", "read": "archive", "sessions": "archive",
    "import": "keeping", "usage": "keeping", "prune": "keeping", "pin": "keeping",
    "delete": "keeping", "migrate": "keeping", "token": "access",
    "install": "hosts", "uninstall": "hosts", "doctor": "hosts", "hook": "hosts",
}  # fmt: skip


class Program(click.Group):
    """Loads a command when it is called, and reports an expected failure in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of all commands."""
        return sorted(_FILES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in _FILES:
            return None
        module = import_module(f"mcp_server_compaction.cli.{_FILES[cmd_name]}")
        command = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (SettingsError, QueryError) as error:
            raise WrongOption(shown(str(error))) from error
        except CompactionError as error:
            raise Failure(shown(str(error))) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read has enough: click ends quietly
            # The archive's failures are errors of its own. Others concern a file that was named,
            # or the output.
            what = "What was to be printed" if error.filename is None else error.filename
            raise Failure(shown(f"{what} cannot be read or written: {error.strerror}.")) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None


def _read_options(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Take from a file what neither a flag nor a variable says."""
    if path is not None:
        from mcp_server_compaction.cli.options_file import options_of

        try:
            context.default_map = options_of(path, context)
        except SettingsError as error:
            raise WrongOption(str(error)) from error


# Also taken from a variable, which help and errors name.
_setting = partial(click.option, show_envvar=True)


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="mcp-server-compaction", prog_name="mcp-server-compaction")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_read_options,
    is_eager=True,
    expose_value=False,
    help="Options of every command, as TOML.",
)
@_setting(
    "--archive",
    envvar=ARCHIVE_VARIABLE,
    metavar="DIR",
    help="Where the archive is, or postgresql://….",
)
@_setting(
    "--root",
    "roots",
    envvar=ROOTS_VARIABLE,
    metavar="DIR",
    type=click.Path(),
    multiple=True,
    help="A folder that tools may read files in.",
)
@_setting(
    "--summarizer",
    envvar=SUMMARIZER_VARIABLE,
    metavar="W",
    type=click.Choice(get_args(WriterName)),
    help="auto, extractive, host, anthropic or sampling.",
)
@_setting(
    "--summary-model",
    envvar=SUMMARY_MODEL_VARIABLE,
    metavar="M",
    help="Model of Anthropic's API that summarizes.",
)
@_setting("--summary-url", envvar=URL_VARIABLE, metavar="URL", help="Address of that API.")
@_setting(
    "--redaction",
    envvar=REDACTION_VARIABLE,
    metavar="R",
    type=click.Choice(("off", "warn", "on")),
    help="Secrets: off, warn, on (warn; over HTTP on).",
)
@_setting(
    "--import-sessions",
    "imports",
    envvar=IMPORT_VARIABLE,
    metavar="I",
    type=click.Choice(("on", "off")),
    help="Archive hosts' sessions: on or off (on).",
)
@_setting(
    "--summary-timeout",
    envvar=SUMMARY_TIMEOUT_VARIABLE,
    metavar="S",
    type=click.IntRange(1, 3_600),
    help="Seconds to wait for a model (120).",
)
@click.pass_context
def main(context: click.Context, /, **flags: Any) -> None:
    """Make conversations fit their context window: nothing lost, always valid, no LLM needed.

    Hosts start it without a command: it then serves MCP over standard input and output. To
    register it in one: install HOST --hooks.
    """
    # Texts and file names may hold half a surrogate pair, which UTF-8 cannot carry: escaped.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    context.obj = flags
    if context.invoked_subcommand is None:
        # A person who types the bare name expects help; a host holds both ends of a pipe.
        if sys.stdin.isatty() and sys.stdout.isatty():
            say(context.get_help())
            return
        from mcp_server_compaction.cli.serving import serve

        context.invoke(serve)
