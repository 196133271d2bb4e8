"""The command line: what it takes. What each command does is in the file of its name.

Standard output carries the answer alone; everything else goes to standard error. Nothing heavy is
imported before a command needs it, since hosts start the server through this file.
"""

import gc
import io
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from context_compaction.errors import SettingsError

from mcp_server_compaction.cli.completion import (
    HostName,
    files_and_sessions_for,
    formats_for,
    policies_for,
    sessions_for,
)
from mcp_server_compaction.cli.running import WrongOption, config_of, finish, run
from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.cli.token_group import token
from mcp_server_compaction.config import VARIABLES

if TYPE_CHECKING:
    from mcp_server_compaction.hosts.catalog import ConfigScope


def _read_options(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Take from a file what neither a flag nor a variable says."""
    if path is not None:
        from mcp_server_compaction.cli.options_file import options_of

        try:
            context.default_map = options_of(path, main)
        except SettingsError as error:
            raise WrongOption(str(error)) from error


def _is_overruled(context: click.Context, name: str) -> bool:
    """Whether a flag stands in the file alone, and a variable says otherwise."""
    is_of_file = context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP
    return is_of_file and bool(os.environ.get(VARIABLES[name]))


# "-" is standard input.
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
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
@click.option("--archive", metavar="DIR", help="Where the archive lies, or postgresql://….")
@click.option(
    "--root", "roots", metavar="DIR", multiple=True, help="A folder that tools may read files in."
)
@click.option("--summarizer", metavar="W", help="auto, extractive, host, anthropic or sampling.")
@click.option("--summary-model", metavar="M", help="Model of Anthropic's API that summarizes.")
@click.option("--summary-url", metavar="URL", help="Address of that API.")
@click.option("--redaction", metavar="R", help="Secrets: off, warn, on (warn; over HTTP on).")
@click.option(
    "--import-sessions", "imports", metavar="I", help="Archive hosts' sessions: on or off (on)."
)
@click.option("--summary-timeout", metavar="S", help="Seconds to wait for a model (120).")
@click.pass_context
def main(context: click.Context, /, **flags: Any) -> None:
    """Make conversations fit their context window: nothing lost, always valid, no LLM needed.

    Hosts start it without a command: it then serves MCP over standard input and output. To
    register it in one: install HOST --hooks.
    """
    # Texts and file names may hold half a surrogate pair, which UTF-8 cannot carry: spelt out.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    context.obj = {name: value for name, value in flags.items() if not _is_overruled(context, name)}
    if context.invoked_subcommand is None:
        # A person who types the bare name waits for words; a host holds both ends of a pipe.
        if sys.stdin.isatty() and sys.stdout.isatty():
            say(context.get_help())
            return
        context.invoke(serve)


@main.command(context_settings={"auto_envvar_prefix": "MCP_COMPACTION_SERVE"})
@click.option("--http", is_flag=True, help="Serve Streamable HTTP at /mcp instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65_535))
@click.option(
    "--unix-socket",
    type=click.Path(path_type=Path),
    help="With --http: serve on this path, for this user alone, without a token.",
)
@click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="With --http: how many processes answer.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="With --http: what a team's callers call the service, behind a proxy that has TLS.",
)
@click.option("--oauth-issuer", metavar="URL", help="Take tokens of this authorization server.")
@click.option(
    "--oauth-audience", metavar="NAME", help="What they are made for; by default the public URL."
)
@click.option("--oauth-jwks-url", metavar="URL", help="Its keys; by default what its metadata say.")
@click.option(
    "--oauth-tenant-claim",
    metavar="NAME",
    default="tenant",
    show_default=True,
    help="The claim that names the tenant.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --http: write down here who read and deleted what.",
)
@click.option(
    "--log",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="With --http: what standard error gets.",
)
@click.option(
    "--metrics", "has_metrics", is_flag=True, help="With --http: show Prometheus /metrics."
)
@click.pass_context
def serve(context: click.Context, /, http: bool, **options: Any) -> None:
    """Serve MCP: over stdio, or with --http on a loopback address or a Unix socket.

    On an address, callers must send a token. It is made by the first start, in a file that only
    you may read, whose place is shown. For a team, name the service with --public-url: callers
    then show tokens of theirs, made by `token create` or by an OAuth server.
    """
    config = config_of(context, over_http=http)
    if http:
        from mcp_server_compaction.cli.service import run_service

        run(lambda: run_service(config, **options))
    else:
        for name in options:
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                flag = next(one.opts[0] for one in context.command.params if one.name == name)
                raise WrongOption(f"{flag} is for serving over HTTP. Add --http, or leave it out.")
        # What is imported stays: looking for garbage in it would be a tenth of the start.
        gc.disable()
        from mcp_server_compaction.protocol.app import collect_seldom
        from mcp_server_compaction.protocol.serve import serve_stdio

        collect_seldom()
        gc.enable()
        run(lambda: serve_stdio(config))


@main.command()
@click.option("--port", default=0, type=click.IntRange(0, 65_535), help="A free one if left out.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.pass_context
def view(context: click.Context, port: int, no_browser: bool) -> None:
    """Look into the archive with a browser: sessions, compactions, what fills the context."""
    from mcp_server_compaction.protocol.http_service import serve_pages

    config = config_of(context)
    run(lambda: serve_pages(config, port=port, opens=not no_browser))


@main.command()
@click.option("--url", metavar="URL", help="A server that answers Streamable HTTP.")
@click.option("--header", "headers", metavar="H", multiple=True, help="For URL, as 'Name: value'.")
@click.option(
    "--threshold-tokens",
    type=click.IntRange(1),
    # About 16 KB of English: hosts warn of results, or cut them, from 10,000 tokens on, and a
    # preview takes 600.
    default=4_000,
    show_default=True,
    metavar="N",
    help="Results above it are demoted.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def wrap(
    context: click.Context,
    url: str | None,
    headers: tuple[str, ...],
    threshold_tokens: int,
    command: tuple[str, ...],
) -> None:
    """Serve another MCP server over stdio, its large results demoted to preview and pointer.

    COMMAND, after --, starts that server. All else passes as it is; read_persisted_output is added.
    """
    from mcp_server_compaction.wrap.serve import Behind, run_wrap

    config = config_of(context)
    behind = Behind(command, url, dict(map(_header, headers)))
    run(lambda: run_wrap(behind, config, threshold_tokens))


@main.command()
@click.argument("source", metavar="SESSION", shell_complete=files_and_sessions_for)
@click.option(
    "--resume",
    type=click.Choice(["claude-code", "codex", "pi", "opencode"]),
    help="Write a session that this host goes on with, beside the original.",
)
@click.option("--window", type=click.IntRange(1), metavar="N", help="Context window in tokens.")
@click.option("--target", metavar="N|P%", help="Bring it down to N tokens, or its messages to P%.")
@click.option("--model", metavar="M", help="Model, for its window and tokenizer.")
@click.option("--policy", metavar="P", shell_complete=policies_for, help="Name of the policy.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "plan", "micro", "full", "reactive", "record"]),
    help="auto if left out; then --resume aims for 30%.",
)
@click.option(
    "--session",
    metavar="S",
    shell_complete=sessions_for,
    help="Name of the session in the archive.",
)
@click.option("--instructions", metavar="T", help="What the summary should keep.")
@click.option("--pin", "pins", metavar="T", multiple=True, help="Text kept word for word.")
@click.option(
    "--format",
    "format_name",
    metavar="F",
    shell_complete=formats_for,
    help="Format of the messages in FILE.",
)
@click.option(
    "--to",
    "to_format",
    metavar="FORMAT",
    shell_complete=formats_for,
    help="Convert to this format first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help=".json or .jsonl")
@click.pass_context
def compact(context: click.Context, /, **options: Any) -> None:
    """Compact a conversation and show what went where.

    SESSION is a file (- is standard input), an archived session or the beginning of its id, or
    "current": the newest session of a host in this folder.
    """
    from mcp_server_compaction.cli.compact import CompactJob, run_compact

    job = CompactJob(**options)
    config = config_of(context)
    run(lambda: run_compact(job, config))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def policies(as_json: bool) -> None:
    """List the policies with their layers, constants and sources."""
    from mcp_server_compaction.cli.policies import run_policies

    run(lambda: run_policies(as_json=as_json))


@main.command()
@click.argument("file", type=_FILE)
@click.option(
    "--policies",
    "names",
    metavar="A,B",
    shell_complete=policies_for,
    help="Names; all if left out.",
)
@click.option(
    "--window", type=click.IntRange(1), metavar="N", help="Tokens; half of the file's if left out."
)
@click.option("--model", metavar="M", help="Model, for its tokenizer.")
@click.option(
    "--price",
    type=click.FloatRange(0),
    default=3.0,
    show_default=True,
    metavar="USD",
    help="Of a million input tokens.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with charts."
)
@click.pass_context
def compare(context: click.Context, /, file: Path, **options: Any) -> None:
    """Show side by side what each policy makes of the conversation in FILE."""
    from mcp_server_compaction.cli.compare import CompareFile, run_compare

    job = CompareFile(file=file, **options)
    config = config_of(context)
    run(lambda: run_compare(job, config))


@main.command()
@click.argument("file", type=_FILE, default="-")
@click.option("--tool", metavar="NAME", help="The tool that printed it.")
@click.option(
    "--session", metavar="S", shell_complete=sessions_for, help="The session it belongs to."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def persist(context: click.Context, /, file: Path, **options: Any) -> None:
    """Store the text of FILE, or of standard input, and print a marker with a preview of it."""
    from mcp_server_compaction.cli.persist import run_persist

    config = config_of(context)
    run(lambda: run_persist(file, config, **options))


@main.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--session", metavar="S", shell_complete=sessions_for, help="Only in this session.")
@click.option("--role", type=click.Choice(["system", "user", "assistant", "tool"]))
@click.option("--tool", metavar="NAME", help="Only results of this tool.")
@click.option("--path", metavar="P", help="Only what names this file, or a call on it gave.")
@click.option("--since", metavar="TIME", help="ISO 8601 date or time.")
@click.option("--until", metavar="TIME", help="ISO 8601 date or time.")
@click.option("--kind", type=click.Choice(["words", "phrase", "regex"]), default="words")
@click.option("--order", type=click.Choice(["relevance", "recent"]), default="relevance")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
@click.option("--cursor", metavar="C", help="Goes on where an earlier search ended.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def search(
    context: click.Context,
    /,
    query: tuple[str, ...],
    session: str | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """Find QUERY in archived messages and outputs."""
    from mcp_server_compaction.cli.archive import run_search

    given = {"query": " ".join(query), "session_id": session, **filters}
    config = config_of(context)
    run(lambda: run_search(given, config, as_json=as_json))


@main.command()
@click.argument("pointer")
@click.option("--lines", metavar="A-B", help="From line A to line B, from 1.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="The last N lines.")
@click.option("--pattern", metavar="P", help="Matching lines, as grep -n shows them.")
@click.option("--json-path", metavar="J", help="Only the value at a path, as $.items[0].name.")
@click.option("--json", "as_json", is_flag=True, help="Messages as exact JSON lines.")
@click.pass_context
def read(context: click.Context, /, pointer: str, **part: Any) -> None:
    """Print what POINTER names, whole: an output, messages, a session's file or plan."""
    from mcp_server_compaction.cli.archive import run_read

    config = config_of(context)
    run(lambda: run_read(pointer, config, **part))


@main.command()
@click.option(
    "--of",
    "session",
    metavar="S",
    shell_complete=sessions_for,
    help="Only this session and its sub-agents, with their tokens.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.pass_context
def sessions(context: click.Context, session: str | None, as_json: bool) -> None:
    """List the archived sessions, newest first."""
    from mcp_server_compaction.cli.archive import run_family, run_sessions

    config = config_of(context)
    if session is not None:
        run(lambda: run_family(session, config, as_json=as_json))
    else:
        run(lambda: run_sessions(config, as_json=as_json))


@main.command("import")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def import_(context: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Archive session files of Claude Code, Codex and pi, and message lists.

    PATHS are files or folders; without any, the folders where these hosts keep their transcripts.
    Call it again at any time: only what is new is read.
    """
    from mcp_server_compaction.cli.import_sessions import run_import

    config = config_of(context)
    run(lambda: finish(run_import(paths, config, as_json=as_json)))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def usage(context: click.Context, as_json: bool) -> None:
    """Show how much room each archived session takes."""
    from mcp_server_compaction.cli.retention import run_usage

    config = config_of(context)
    run(lambda: run_usage(config, as_json=as_json))


@main.command()
@click.option("--older-than", metavar="DAYS", help="Sessions last used so long ago, as 90d.")
@click.option("--max-size", metavar="SIZE", help="Then the oldest, until the rest fits: 5GB.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def prune(context: click.Context, /, **bounds: Any) -> None:
    """Delete old sessions with all their bytes. Pinned ones stay."""
    from mcp_server_compaction.cli.retention import run_prune

    config = config_of(context)
    run(lambda: run_prune(config, **bounds))


@main.command()
@click.argument("sessions", nargs=-1, required=True, shell_complete=sessions_for)
@click.option("--off", is_flag=True, help="Take the pin off.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def pin(context: click.Context, sessions: tuple[str, ...], off: bool, as_json: bool) -> None:
    """Keep SESSIONS, and those that they started, from being pruned."""
    from mcp_server_compaction.cli.retention import run_pin

    config = config_of(context)
    run(lambda: run_pin(config, sessions, pinned=not off, as_json=as_json))


@main.command()
@click.argument("sessions", nargs=-1, required=True, shell_complete=sessions_for)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def delete(context: click.Context, sessions: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete SESSIONS with all their bytes, pinned or not."""
    from mcp_server_compaction.cli.retention import run_delete

    config = config_of(context)
    run(lambda: run_delete(config, sessions, without_asking=yes, as_json=as_json))


main.add_command(token)


@main.command("version")
def version_() -> None:
    """Show the version."""
    click.echo(f"mcp-server-compaction {version('mcp-server-compaction')}")


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, policies, formats and sessions.

    For bash: mcp-server-compaction completion bash >> ~/.bashrc
    """
    from mcp_server_compaction.cli.completion import script

    click.echo(script(main, shell))


@main.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("--tenant", metavar="NAME", help="Whose sessions, of a team's archives.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def migrate(source: str, target: str, tenant: str | None, as_json: bool) -> None:
    """Copy all sessions of the archive SOURCE into TARGET, and compare them.

    Each is a folder or postgresql://…. What TARGET holds already is passed over: run it again to go
    on, or to take over what is new. Of a team's archive, one tenant is copied at a time.
    """
    from mcp_server_compaction.cli.migrate import run_migrate

    run(lambda: run_migrate(source, target, tenant=tenant, as_json=as_json))


@main.command()
@click.argument("host", metavar="[HOST]", required=False, type=HostName())
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(context: click.Context, host: str | None, as_json: bool) -> None:
    """Check versions, vocabulary, archive, roots and summary writers.

    With HOST, start the server as that host would, and say what is missing there.
    """
    from mcp_server_compaction.cli.doctor import run_doctor
    from mcp_server_compaction.cli.install import run_doctor_of_host

    config = config_of(context)
    if host is not None:
        run(lambda: finish(run_doctor_of_host(host, as_json=as_json)))
    else:
        run(lambda: finish(run_doctor(config, as_json=as_json)))


@main.command()
@click.argument("host", metavar="HOST", type=HostName())
@click.option(
    "--scope", type=click.Choice(["user", "project"]), default="user", show_default=True,
    help="For every project, or for the one in this folder.",
)  # fmt: skip
@click.option("--hooks", is_flag=True, help="Archive outputs and sessions without being asked.")
@click.option(
    "--root", "roots", multiple=True, metavar="DIR", type=click.Path(path_type=Path),
    help="A folder that the server's tools may read files in.",
)  # fmt: skip
@click.option("--print", "print_only", is_flag=True, help="Show what to write; write nothing.")
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
@click.pass_context
def install(context: click.Context, /, **options: Any) -> None:
    """Register the server in HOST, with its absolute path.

    What else the host's file holds stays as it is, comments too, and `uninstall` takes back what
    was written. Again at any time: it changes what is not yet so.
    """
    from mcp_server_compaction.cli.install import InstallOptions, run_install

    run(lambda: run_install(InstallOptions(**options), context.obj))


@main.command()
@click.argument("host", metavar="HOST", type=HostName())
@click.option("--scope", type=click.Choice(["user", "project"]), default="user", show_default=True)
@click.option("--dry-run", is_flag=True, help="Show what would change; write nothing.")
def uninstall(host: str, scope: "ConfigScope", dry_run: bool) -> None:
    """Take the server and its hooks out of HOST's configuration. The archive stays."""
    from mcp_server_compaction.cli.install import run_uninstall

    run(lambda: run_uninstall(host, scope, dry_run=dry_run))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("event")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def hook(flags: Mapping[str, Any], event: str, rest: tuple[str, ...]) -> None:
    """Answer EVENT of a host, as `install --hooks` registers it; its JSON on standard input."""
    from mcp_server_compaction.hosts.hook import run_hook

    before = [f"--{name}={flags[name]}" for name in ("archive", "redaction") if flags.get(name)]
    run_hook([event, *before, *rest])


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header has no name. Give it as 'Name: value'.")
    return name.strip(), value.strip()
