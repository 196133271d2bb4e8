"""`search`, `read` and `sessions`: the archive from the command line."""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
from context_compaction.archive import SearchPage, SessionInfo
from context_compaction.archive.opening import open_archive
from context_compaction.archive.snippets import SNIPPET_CHARS
from context_compaction.errors import NotFoundError, QueryError

from mcp_server_compaction.cli.short_names import short_pointer, whole_pointer, whole_session
from mcp_server_compaction.cli.terminal import say, short_time, shown
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.arguments import parse_arguments
from mcp_server_compaction.protocol.schemas import ReadArguments, SearchArguments
from mcp_server_compaction.protocol.searching import (
    query_of,
    search_answer,
    unfound,
)
from mcp_server_compaction.protocol.session_tree import Member, family_document, family_of
from mcp_server_compaction.protocol.sessions import iso_time, session_document
from mcp_server_compaction.reading.json_path import source_at
from mcp_server_compaction.reading.slices import TextPart, read_part
from mcp_server_compaction.reading.text_source import TextSource, open_source

_LINES = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?\Z")
_CHUNK_CHARS = 1_000_000
_TITLE_CHARS = 78


def run_search(given: Mapping[str, Any], config: Config, *, as_json: bool) -> None:
    """Print the hits of a search.

    Raises:
        CompactionError: The query cannot be used, or the archive fails.
    """
    page = anyio.run(_search, given, config)
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


def run_read(
    pointer: str,
    config: Config,
    *,
    lines: str | None,
    tail: int | None,
    pattern: str | None,
    json_path: str | None,
    as_json: bool,
) -> None:
    """Print what a pointer names on standard output, and nothing else.

    An output is exact; messages are plain text, or with `as_json` the exact lines of JSON.

    Raises:
        CompactionError: There is no such thing, or the options contradict each other.
    """
    if sum(option is not None for option in (lines, tail, pattern)) > 1:
        raise QueryError("Give at most one of --lines, --tail and --pattern.")
    try:
        note = anyio.run(_read, pointer, config, lines, tail, pattern, json_path, as_json)
    except NotFoundError as error:
        hint = "Find what was said with: mcp-server-compaction search WORDS."
        raise NotFoundError(f"{error} {hint}") from error
    if note:
        say(note, err=True)


async def _read(
    pointer: str,
    config: Config,
    lines: str | None,
    tail: int | None,
    pattern: str | None,
    json_path: str | None,
    as_json: bool,
) -> str:
    async with open_archive(config.archive) as archive:
        as_json = as_json or json_path is not None
        pointer = await whole_pointer(archive, pointer)
        source = await open_source(archive, pointer, as_json=as_json)
        gap = source.gap
        if json_path is not None:
            source = await source_at(source, json_path)
        if pattern is not None:
            part: TextPart = await read_part(
                source, ReadArguments(output_id=pointer, pattern=pattern)
            )
            _print_exact(part.text + "\n" if part.text else "")
            return part.note + gap
        if lines is not None:
            start, count = _line_range(lines)
            _print_exact((await source.lines(start, count)).text)
        elif tail is not None:
            _print_exact((await source.lines(-tail, tail)).text)
        else:
            await _print_whole(source)
        return gap.strip()


async def _print_whole(source: TextSource) -> None:
    if source.size_chars <= _CHUNK_CHARS:
        _print_exact(await source.characters(0, source.size_chars))
        return
    for offset in range(0, source.size_chars, _CHUNK_CHARS):
        _print_exact(await source.characters(offset, _CHUNK_CHARS))


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


def run_sessions(config: Config, *, as_json: bool) -> None:
    """Print all sessions, newest first.

    Raises:
        ArchiveError: The archive fails.
    """
    sessions = anyio.run(_sessions, config)
    if not sessions:
        say(
            "No session is archived here yet: `compact FILE` or `import` archives some, and "
            "`doctor` says where the archive lies.",
            err=True,
        )
    for session in sessions:
        if as_json:
            say(json.dumps(session_document(session)))
        else:
            # The id on a line of its own: it may be as long as its host likes.
            is_long = len(session.title) > _TITLE_CHARS
            title = session.title[: _TITLE_CHARS - 1] + "…" if is_long else session.title
            say(title or "(no title)")
            say(f"    {session.session_id}")
            say(
                f"    {session.message_count:,} messages, last "
                f"{short_time(iso_time(session.last_seconds))}"
            )


def run_family(session_id: str, config: Config, *, as_json: bool) -> None:
    """Print a session and those of its sub-agents, what each holds, and all together.

    Raises:
        CompactionError: There is no such session, or the archive fails.
    """
    members = anyio.run(_family, session_id, config)
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
    found: list[SessionInfo] = []
    cursor: str | None = None
    async with open_archive(config.archive) as archive:
        while True:
            page, cursor = await archive.sessions(limit=100, cursor=cursor)
            found += page
            if cursor is None:
                return found
