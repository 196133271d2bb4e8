"""`search`, `read` and `sessions`: the archive from the command line."""

import json
import sys
from dataclasses import replace
from typing import Any

import click
from context_compaction import SNIPPET_CHARS, Archive, NotFoundError, SearchPage

from mcp_server_compaction.cli.terminal import (
    json_option,
    say,
    short_time,
    shown,
    with_archive,
)
from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.schemas import SearchArguments
from mcp_server_compaction.protocol.sessions import iso_time, session_document
from mcp_server_compaction.protocol.tools.search_transcript import (
    missing_terms_note,
    query_of,
    search_reply,
)
from mcp_server_compaction.reading.text_source import (
    all_sessions,
    find_session,
    open_source,
    short_pointer,
)

_CHUNK_CHARS = 1_000_000
_TITLE_CHARS = 78


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--session", "session_id", metavar="S", help="Only in this session.")
@click.option("--role", type=click.Choice(["system", "user", "assistant", "tool"]))
@click.option("--tool", metavar="NAME", help="Only results of this tool.")
@click.option("--path", metavar="P", help="Only what names this file, or a call on it gave.")
@click.option("--since", metavar="TIME", help="ISO 8601 date or time.")
@click.option("--until", metavar="TIME", help="ISO 8601 date or time.")
@click.option("--kind", type=click.Choice(["words", "phrase", "regex"]), default="words")
@click.option("--order", type=click.Choice(["relevance", "recent"]), default="relevance")
@click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
@click.option("--cursor", metavar="C", help="Goes on where an earlier search ended.")
@json_option
@click.pass_context
def search(
    context: click.Context, /, query: tuple[str, ...], as_json: bool, **filters: Any
) -> None:
    """Find QUERY in archived messages and outputs. As with grep, the code is 1 without a hit."""
    arguments = parse_arguments(SearchArguments, {"query": " ".join(query), **filters})

    async def found(archive: Archive) -> SearchPage:
        wanted = query_of(arguments)
        if wanted.session_id is not None:
            wanted = replace(wanted, session_id=await find_session(archive, wanted.session_id))
        return await archive.search(wanted)

    page = with_archive(context, found)
    answer = search_reply(page, [SNIPPET_CHARS] * len(page.hits))
    if as_json:
        say(json.dumps(answer.model_dump(mode="json", exclude_none=True), indent=1))
    else:
        for hit in answer.hits:
            where = f" line {hit.line}" if hit.line else ""
            who = hit.tool_name or hit.role
            say(f"{short_pointer(hit.pointer)}{where}  {who}  {short_time(hit.time)}")
            say(f"    {' '.join(hit.snippet.split())}")
            if hit.next is not None:
                say(f"    then {hit.next.role}: {' '.join(hit.next.snippet.split())}")
    exact = "" if answer.total_is_exact else "at least "
    say(f"{missing_terms_note(page)}{exact}{answer.total} hit{'s' * (answer.total != 1)}", err=True)
    if answer.next_cursor:
        say(f"More: --cursor {answer.next_cursor}", err=True)
    if not answer.hits:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("pointer")
@click.option("--json", "as_json", is_flag=True, help="Messages as exact JSON lines.")
@click.pass_context
def read(context: click.Context, pointer: str, as_json: bool) -> None:
    """Print what POINTER names, whole: an output, messages, a session's file or plan."""

    async def printed(archive: Archive) -> str:
        source = await open_source(archive, pointer, as_json=as_json)
        # In pieces, since it may be larger than memory; a short text is read in any case.
        for offset in range(0, max(1, source.size_chars), _CHUNK_CHARS):
            _print_exact(await source.characters(offset, _CHUNK_CHARS))
        return source.gap.strip()

    try:
        note = with_archive(context, printed)
    except NotFoundError as error:
        hint = "Find what was said with: mcp-server-compaction search WORDS."
        raise NotFoundError(f"{error} {hint}") from error
    if note:
        say(note, err=True)


def _print_exact(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(shown(text))
        return
    # Not click.echo: the bytes must be those that were stored, on every platform.
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.pass_context
def sessions(context: click.Context, as_json: bool) -> None:
    """List the archived sessions, newest first."""
    found = with_archive(context, all_sessions)
    if not found:
        say(
            "No session is archived here yet: `compact FILE` or `import` archives some, and "
            "`doctor` names the folder of the archive.",
            err=True,
        )
    for info in found:
        if as_json:
            say(json.dumps(session_document(info)))
            continue
        # The id on a line of its own: it may be as long as its host likes.
        is_long = len(info.title) > _TITLE_CHARS
        say((info.title[: _TITLE_CHARS - 1] + "…" if is_long else info.title) or "(no title)")
        say(f"    {info.session_id}")
        last = short_time(iso_time(info.last_seconds))
        say(f"    {info.message_count:,} messages, last {last}")
