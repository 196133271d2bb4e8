"""The commands `search`, `read` and `sessions`, which read the archive."""

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

import anyio
import click
from context_compaction import SNIPPET_CHARS, Archive, NotFoundError, SearchPage

from mcp_server_compaction.cli.terminal import escaped, say, say_exactly, short_time, with_archive
from mcp_server_compaction.config import NewFile, options_of, own_options
from mcp_server_compaction.program import own_command
from mcp_server_compaction.protocol.schemas import SearchArguments, parse_arguments
from mcp_server_compaction.protocol.searching import missing_terms_note, query_of, search_reply
from mcp_server_compaction.protocol.sessions import session_document
from mcp_server_compaction.reading import text_source
from mcp_server_compaction.viewer.formatting import plural

_CHUNK_CHARS = 1_000_000
_TITLE_CHARS = 78


class _SearchOptions(SearchArguments, defer_build=False):
    """Options of `search`: the arguments of the tool, and the form of the output.

    Options:
        session_id (S): Search this session and its sub-agents only (default: all sessions).
        role: Search messages of this role only (default: all roles).
        tool (NAME): Search results of this tool only (default: all).
        path (P): Search only messages that mention this file, and results of calls on it (default:
            all).
        since (TIME): Search from this ISO 8601 date or time (default: no limit).
        until (TIME): Search to this ISO 8601 date or time (default: no limit).
        kind: Match any of the words, the exact phrase, or a regular expression.
        order: Print the best or the newest match first.
        limit: Print at most this many matches.
        cursor (C): Continue an earlier search (default: start).
        as_json: Print JSON instead of text.
    """

    limit: Annotated[int, click.IntRange(1, 50)] = 10
    as_json: bool = False


@click.command()
@click.argument("query", nargs=-1, required=True)
@options_of(_SearchOptions)
@click.pass_context
def search(
    context: click.Context, /, query: tuple[str, ...], as_json: bool, **filters: Any
) -> None:
    """Search archived messages and outputs. The exit code is 1 if nothing matches."""
    arguments = parse_arguments(SearchArguments, {"query": " ".join(query), **filters})

    async def run(archive: Archive) -> SearchPage:
        query = query_of(arguments)
        if query.session_id is not None:
            query = replace(
                query, session_id=await text_source.find_session(archive, query.session_id)
            )
        return await archive.search(query)

    page = with_archive(context, run)
    result = search_reply(page, [SNIPPET_CHARS] * len(page.hits))
    if as_json:
        say_exactly(json.dumps(result.model_dump(mode="json", exclude_none=True), indent=1))
    else:
        shown: dict[str, str] = {}
        for hit in result.hits:
            line = f" line {hit.line}" if hit.line else ""
            time = hit.time.replace("T", " ")
            place = text_source.short_pointer(hit.pointer) + line
            heading = f"{place}  {hit.tool_name or hit.role}  {time}"
            snippet = " ".join(hit.snippet.split())
            if snippet in shown:
                say(f"{heading}  same text as {shown[snippet]}")
                continue
            shown[snippet] = place
            say(heading)
            say(f"    {snippet}")
            if hit.note:
                say(f"    {hit.note}")
            if hit.next is not None:
                say(f"    next, {hit.next.role}: {' '.join(hit.next.snippet.split())}")
    at_least = "" if result.total_is_exact else "at least "
    say(f"{missing_terms_note(page)}Matches: {at_least}{result.total}", err=True)
    if result.next_cursor:
        say(f"More matches: add --cursor {result.next_cursor}", err=True)
    if not result.hits:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("pointer")
@own_options
@click.pass_context
def read(
    context: click.Context, pointer: str, *, as_json: bool = False, save: NewFile | None = None
) -> None:
    """Print the full content at POINTER: an output, messages, a file or a plan.

    Options:
        as_json: Print messages as exact JSON lines, not as text.
        save: Restore the content to this new file (default: printed).
    """

    async def print_source(archive: Archive) -> str:
        source = await text_source.open_source(archive, pointer, as_json=as_json)
        async with nullcontext() if save is None else await anyio.open_file(save, "xb") as file:
            # An output may be larger than memory. An empty output is read to check that it exists.
            for offset in range(0, max(1, source.size_chars), _CHUNK_CHARS):
                text = await source.characters(offset, _CHUNK_CHARS)
                if file is None:
                    _print_exactly(text)
                else:
                    await file.write(text.encode("utf-8", "surrogatepass"))
        return source.gap.strip()

    try:
        note = with_archive(context, print_source)
    except NotFoundError as error:
        hint = f"To find what you need, run: {own_command()} search WORDS"
        raise NotFoundError(f"{error} {hint}") from error
    if note:
        say(note, err=True)
    if save is not None:
        say(f"Restored to: {save}")


def _print_exactly(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(escaped(text))
        return
    # click.echo would change the bytes on some platforms.
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


@click.command()
@own_options
@click.pass_context
def sessions(context: click.Context, *, as_json: bool = False) -> None:
    """List the archived sessions, newest first.

    Options:
        as_json: Print JSON lines instead of text.
    """
    infos = with_archive(context, text_source.all_sessions)
    if not infos:
        say(f"No archived sessions. To archive some, run: {own_command()} import", err=True)
    for info in infos:
        if as_json:
            say_exactly(json.dumps(session_document(info)))
            continue
        title = info.title or "(no title)"
        if len(title) > _TITLE_CHARS:
            title = title[: _TITLE_CHARS - 1] + "…"
        say(title)
        # The ID has its own line, because hosts may choose long IDs.
        say(f"    {info.session_id}")
        say(f"    {plural(info.message_count, 'message')}, last {short_time(info.last_seconds)}")
