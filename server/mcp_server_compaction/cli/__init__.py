"""The command line: options of the program, and the module of each command.

Only results are printed on standard output; everything else goes to standard error. The module of a
command is imported when the command is called, because hosts start the server through this module.
"""

import errno
import io
import sys
from importlib import import_module
from typing import Any

import click
from context_compaction import CompactionError, QueryError, SettingsError

from mcp_server_compaction.cli.terminal import Failure, WrongOption, escaped, wrapped
from mcp_server_compaction.config import load_config, options_of

# The module that defines each command.
_MODULES = {
    "serve": "serving", "view": "serving", "wrap": "serving", "proxy": "serving",
    "compact": "compacting", "compare": "policies", "policies": "policies",
    "undo": "compacting",
    "search": "archive", "read": "archive", "sessions": "archive",
    "import": "storage", "usage": "storage", "prune": "storage", "pin": "storage",
    "delete": "storage", "migrate": "storage", "token": "storage",
    "install": "hosts", "uninstall": "hosts", "doctor": "hosts", "hook": "hosts",
}  # fmt: skip


class Program(click.Group):
    """The group of all commands: imports their modules, and reports expected errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return sorted(_MODULES)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Return the command with this name, or None. Lists show the first sentence of its help."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"mcp_server_compaction.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, "import_" if cmd_name == "import" else cmd_name)
        text = (command.help or "").partition("\n\n")[0].replace("\n", " ")
        command.short_help = f"{text.partition('. ')[0].rstrip('.')}."
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn expected errors into messages with an exit code."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            message = wrapped(error.format_message(), prefix="Error: ")
            raise click.UsageError(message, error.ctx) from error
        except (SettingsError, QueryError) as error:
            raise WrongOption(escaped(str(error))) from error
        except CompactionError as error:
            raise Failure(escaped(str(error))) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader closed the pipe: click exits without a message
            # The archive raises its own errors, so this error concerns a named file or the output.
            file = "the output" if error.filename is None else error.filename
            raise Failure(escaped(f"Cannot read or write {file}: {error.strerror}.")) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(package_name="mcp-server-compaction", prog_name="mcp-server-compaction")
@options_of(load_config, variables="MCP_COMPACTION_")
@click.pass_context
def main(context: click.Context, /, **flags: Any) -> None:
    """Keep long agent conversations within the model's context window, without losing anything.

    Without a command, serve MCP over standard input and output, as hosts expect. To register the
    server in a host, run: mcp-server-compaction install HOST --hooks
    """
    # Texts and file names may contain lone surrogates, which UTF-8 cannot encode.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    context.obj = flags
    if context.invoked_subcommand is None:
        # On a terminal a person wants help. A host connects both streams to pipes.
        if sys.stdin.isatty() and sys.stdout.isatty():
            click.echo(context.get_help())
            return
        from mcp_server_compaction.cli.serving import serve

        context.invoke(serve)
