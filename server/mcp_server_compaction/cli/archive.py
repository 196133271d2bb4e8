"""`persist`, `search`, `read` and `sessions`: the archive from the command line."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import click
from context_compaction.archive import SearchPage, SessionInfo
from context_compaction.archive.opening import open_archive
from context_compaction.archive.snippets import SNIPPET_CHARS
from context_compaction.errors import NotFoundError, QueryError, SettingsError
from context_compaction.messages.edits import make_blob
from context_compaction.settings import Settings

from mcp_server_compaction.cli.short_names import (
    all_sessions,
    short_pointer,
    whole_pointer,
    whole_session,
)
from mcp_server_compaction.cli.terminal import config_of, say, short_time, shown
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.schemas import ReadArguments, SearchArguments
from mcp_server_compaction.protocol.searching import query_of, search_answer, unfound
from mcp_server_compaction.protocol.sessions import (
    Member,
    family_document,
    family_of,
    iso_time,
    session_document,
)
from mcp_server_compaction.protocol.tools.persist_large_output import (
    UNFILED_SESSION,
    UNNAMED_TOOL,
    marker_of,
)
from mcp_server_compaction.reading.json_path import source_at
from mcp_server_compaction.reading.slices import read_part
from mcp_server_compaction.reading.text_source import open_source

_LINES = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?\Z")
_CHUNK_CHARS = 1_000_000
_TITLE_CHARS = 78

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), default="-")
@click.option("--tool", metavar="NAME", help="The tool that printed it.")
@click.option("--session", metavar="S", help="The session it belongs to.")
@_json
@click.pass_context
def persist(
    context: click.Context, file: str, tool: str | None, session: str | None, as_json: bool
) -> None:
    """Store the text of FILE, or of standard input, and print a marker with a preview of it."""
    config = config_of(context)
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        name = "Standard input" if file == "-" else Path(file).name
        raise SettingsError(
            f"{name} is not text in UTF-8 (byte {error.start}). Only texts are stored so."
        ) from error
    blob = make_blob(text, tool_name=tool)
    session_id = session or UNFILED_SESSION

    async def store() -> None:
        async with open_archive(config.archive, redaction=config.redaction) as archive:
            await archive.commit(session_id, blobs=[blob])

    anyio.run(store)
    marker = marker_of(blob, text, tool or UNNAMED_TOOL, Settings().preview_chars)
    if as_json:
        figures = {
            "output_id": blob.output_id,
            "session_id": session_id,
            "size_bytes": len(blob.data),
            "marker": marker,
        }
        say(json.dumps(figures))
    else:
        say(marker)
        say(f"Read it: mcp-server-compaction read {blob.output_id}", err=True)


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
@_json
@click.pass_context
def search(
    context: click.Context, /, query: tuple[str, ...], as_json: bool, **filters: Any
) -> None:
    """Find QUERY in archived messages and outputs."""
    given = {"query": " ".join(query), **filters}
    page = anyio.run(_search, given, config_of(context))
    answer = search_answer(page, [SNIPPET_CHARS] * len(page.hits))
    if as_json:
        say(json.dumps(answer.model_dump(mode="json", exclude_none=True), indent=1))
        return
    for hit in answer.hits:
        where = f" line {hit.line}" if hit.line else ""
        who = hit.tool_name or hit.role
        say(f"{short_pointer(hit.pointer)}{where}  {who}  {short_time(hit.time)}")
        say(f"    {' '.join(hit.snippet.split())}")
        if hit.next is not None:
            say(f"    then {hit.next.role}: {' '.join(hit.next.snippet.split())}")
    exact = "" if answer.total_is_exact else "at least "
    say(f"{unfound(page)}{exact}{answer.total} hits", err=True)
    if answer.next_cursor:
        say(f"More: --cursor {answer.next_cursor}", err=True)


async def _search(given: Mapping[str, Any], config: Config) -> SearchPage:
    arguments = parse_arguments(SearchArguments, given)
    async with open_archive(config.archive) as archive:
        query = query_of(arguments)
        if query.session_id is not None:
            query = replace(query, session_id=await whole_session(archive, query.session_id))
        return await archive.search(query)


@click.command()
@click.argument("pointer")
@click.option("--lines", metavar="A-B", help="From line A to line B, from 1.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="The last N lines.")
@click.option("--pattern", metavar="P", help="Matching lines, as grep -n shows them.")
@click.option("--json-path", metavar="J", help="Only the value at a path, as $.items[0].name.")
@click.option("--json", "as_json", is_flag=True, help="Messages as exact JSON lines.")
@click.pass_context
def read(context: click.Context, /, pointer: str, **part: Any) -> None:
    """Print what POINTER names, whole: an output, messages, a session's file or plan."""
    if sum(part[option] is not None for option in ("lines", "tail", "pattern")) > 1:
        raise QueryError("Give at most one of --lines, --tail and --pattern.")
    try:
        note = anyio.run(_read, pointer, config_of(context), part)
    except NotFoundError as error:
        hint = "Find what was said with: mcp-server-compaction search WORDS."
        raise NotFoundError(f"{error} {hint}") from error
    if note:
        say(note, err=True)


async def _read(pointer: str, config: Config, part: Mapping[str, Any]) -> str:
    """Print a part of a text exactly; the note about it."""
    async with open_archive(config.archive) as archive:
        pointer = await whole_pointer(archive, pointer)
        path = part["json_path"]
        source = await open_source(archive, pointer, as_json=part["as_json"] or path is not None)
        gap = source.gap
        if path is not None:
            source = await source_at(source, path)
        if part["pattern"] is not None:
            arguments = ReadArguments(output_id=pointer, pattern=part["pattern"])
            found = await read_part(source, arguments)
            _print_exact(found.text + "\n" if found.text else "")
            return found.note + gap
        if part["lines"] is not None:
            start, count = _line_range(part["lines"])
            _print_exact((await source.lines(start, count)).text)
        elif part["tail"] is not None:
            _print_exact((await source.lines(-part["tail"], part["tail"])).text)
        else:
            # In pieces, since it may be larger than memory; a short text is read in any case.
            for offset in range(0, max(1, source.size_chars), _CHUNK_CHARS):
                _print_exact(await source.characters(offset, _CHUNK_CHARS))
        return gap.strip()


def _line_range(text: str) -> tuple[int, int]:
    found = _LINES.match(text)
    start = int(found.group(1)) if found else 0
    stop = int(found.group(2) or start) if found else 0
    if not 1 <= start <= stop:
        raise QueryError(f"--lines is {text!r}. Give a range as 10-20; lines count from 1.")
    return start, stop - start + 1


def _print_exact(text: str) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(shown(text))
        return
    # Not click.echo: the bytes must be those that were stored, on every platform.
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


@click.command()
@click.option(
    "--of", "session", metavar="S", help="Only this session and its sub-agents, with their tokens."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.pass_context
def sessions(context: click.Context, session: str | None, as_json: bool) -> None:
    """List the archived sessions, newest first."""
    config = config_of(context)
    if session is not None:
        _print_family(anyio.run(_family, session, config), as_json=as_json)
        return
    found = anyio.run(_sessions, config)
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


def _print_family(members: list[Member], *, as_json: bool) -> None:
    document = family_document(members)
    if as_json:
        for member in document["sessions"]:
            say(json.dumps(member))
        return
    for member in members:
        compacts = "never compacted"
        if member.trigger_tokens is not None:
            compacts = f"compacts at {member.trigger_tokens:,} to {member.target_tokens:,}"
        say(member.info.session_id)
        if member.info.parent_session_id:
            say(f"    of {member.info.parent_session_id}")
        say(
            f"    {member.info.message_count:,} messages, {member.context_tokens:,} tokens in "
            f"context, {compacts}"
        )
    say(
        f"{document['message_count']} messages, {document['context_tokens']:,} tokens in "
        f"{len(members)} contexts."
    )


async def _family(session_id: str, config: Config) -> list[Member]:
    async with open_archive(config.archive) as archive:
        return await family_of(archive, await whole_session(archive, session_id))


async def _sessions(config: Config) -> list[SessionInfo]:
    async with open_archive(config.archive) as archive:
        return await all_sessions(archive)
