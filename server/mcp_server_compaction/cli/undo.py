"""The command `undo`."""

import json
from dataclasses import replace

import anyio
import click
from context_compaction import CompactRequest, CompactResult, compact, open_archive

from mcp_server_compaction.cli.compacting import (
    HostName,
    check_out,
    open_input,
    print_resume,
    write_messages,
)
from mcp_server_compaction.cli.terminal import config_of, say, say_exactly
from mcp_server_compaction.config import Config
from mcp_server_compaction.hosts.resume import RESUME_FORMATS, Resumable
from mcp_server_compaction.options import NewFile, Positive, own_options
from mcp_server_compaction.protocol.compaction_call import converted, resumable_of
from mcp_server_compaction.reading.text_source import short_session


@click.command()
@click.argument("source", metavar="SESSION")
@click.argument("number", metavar="[N]", required=False, type=click.IntRange(0))
@own_options
@click.pass_context
def undo(
    context: click.Context,
    /,
    source: str,
    number: int | None,
    *,
    resume: HostName | None = None,
    window: Positive | None = None,
    as_json: bool = False,
    out: NewFile | None = None,
) -> None:
    """Take compaction N of a conversation back, or the newest one.

    The result is the list as it was before that compaction, followed by everything since. Nothing
    is deleted. Later calls with the mode auto leave the list alone until it exceeds the window.
    SESSION is as for `compact`; the viewer shows the number of each compaction.

    Options:
        resume: Write a new session that this host can continue (default: none).
        window (N): Refuse a list that does not fit a context window of N tokens (default: of the
            model).
        as_json: Print the receipt as JSON.
        out: Write the messages to this .json or .jsonl file (default: not written).
    """
    check_out(out, source)
    config = config_of(context)
    result, resumable = anyio.run(_undo, source, number, window, resume, config)
    if out is not None:
        write_messages(out, result.messages)
    if as_json:
        say_exactly(json.dumps(result.receipt, ensure_ascii=True, indent=1))
        return
    say(
        f"Compaction {result.receipt['undone']} was taken back: {len(result.messages):,} messages, "
        f"{result.tokens.after:,} tokens (up to {result.tokens.upper:,}). Nothing was deleted."
    )
    if out is not None:
        say(f"Messages written to: {out}")
    if resume is not None:
        print_resume(resumable, is_plan=False)
    if out is None and resume is None:
        command = f"mcp-server-compaction undo {short_session(result.session_id)}"
        say("Save the messages: add --out FILE. Write a session for a host: add --resume HOST")
        say(f"Take an earlier compaction back as well: {command}")


async def _undo(
    source: str, number: int | None, window: int | None, resume: str | None, config: Config
) -> tuple[CompactResult, Resumable | None]:
    async with open_archive(config.archive, redaction=config.redaction) as archive:
        given = await open_input(source, archive)
        request = CompactRequest(
            mode="undo",
            undo=number,
            format=given.format,
            session_id=given.session_id,
            model=given.model or config.model,
            context_window=window,
            system=given.system,
            tools=given.tools,
        )
        result = await compact(given.payload, request, archive=archive)
        if resume is None:
            return result, None
        undone = replace(given, payload=result.messages, format=result.format)
        undone, _ = await converted(undone, request, RESUME_FORMATS[resume])
        result = replace(result, messages=list(undone.payload))
        return result, await resumable_of(result, resume, undone, archive)
