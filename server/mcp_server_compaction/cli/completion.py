"""What a shell offers for an option while somebody types it, and the script that asks for it."""

from typing import TYPE_CHECKING, Any

import click
from context_compaction.errors import CompactionError

if TYPE_CHECKING:  # loaded by a shell that asks, not by every start
    from click.shell_completion import CompletionItem

_PROGRAM = "mcp-server-compaction"
_VARIABLE = "_MCP_SERVER_COMPACTION_COMPLETE"
_MOST_SESSIONS = 200


def script(main: click.Command, shell: str) -> str:
    """The lines that a shell's start-up file takes up."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:  # the command offers only those that click knows
        raise click.UsageError(f"There is no completion for {shell}.")
    return found(main, {}, _PROGRAM, _VARIABLE).source()


class HostName(click.types.StringParamType):
    """A host that the server can be registered in. Their list is loaded when one is asked for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, if there is such a host."""
        return _host_choice().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Hosts whose names begin with what was typed."""
        return _host_choice().shell_complete(ctx, param, incomplete)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """The names to choose from."""
        return _host_choice().get_missing_message(param, ctx)


def _host_choice() -> "click.Choice[str]":
    from mcp_server_compaction.hosts.catalog import HOSTS

    return click.Choice(tuple(HOSTS))


def files_and_sessions_for(
    context: click.Context, option: click.Parameter, typed: str
) -> "list[CompletionItem]":
    """Whatever files the shell finds, and sessions."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(typed, type="file"), *sessions_for(context, option, typed)]


def policies_for(_context: click.Context, _option: click.Parameter, typed: str) -> list[str]:
    """Policies whose names begin with what was typed, behind those of a list that end in commas."""
    from context_compaction.policies import POLICIES

    before, comma, last = typed.rpartition(",")
    return [f"{before}{comma}{name}" for name in POLICIES if name.startswith(last)]


def formats_for(_context: click.Context, _option: click.Parameter, typed: str) -> list[str]:
    """Formats whose names begin with what was typed."""
    from context_compaction.formats import FORMATS

    return [name for name in FORMATS if name.startswith(typed)]


def sessions_for(
    context: click.Context, _option: click.Parameter, typed: str
) -> "list[CompletionItem]":
    """The newest sessions whose ids begin with what was typed, with their titles."""
    import anyio
    from click.shell_completion import CompletionItem
    from context_compaction.archive import SessionInfo
    from context_compaction.archive.opening import open_archive

    from mcp_server_compaction.config import load_config

    flags = context.find_root().params

    async def newest() -> list[SessionInfo]:
        async with open_archive(load_config(archive=flags.get("archive")).archive) as archive:
            found, _ = await archive.sessions(limit=_MOST_SESSIONS)
            return found

    try:
        found = anyio.run(newest)
    except CompactionError:
        return []  # nothing to offer: the command itself will say what is wrong
    return [
        CompletionItem(session.session_id, help=session.title)
        for session in found
        if session.session_id.startswith(typed)
    ]
