"""Resources: transcripts, ranges of them, receipts and outputs, and what `options` may hold."""

import base64
import re
from dataclasses import fields
from inspect import cleandoc
from typing import Any

from context_compaction.archive import Archive, History, SessionInfo
from context_compaction.errors import CompactionError, NotFoundError, QueryError
from context_compaction.settings import Settings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    EmptyResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    SubscribeRequestParams,
    TextResourceContents,
    UnsubscribeRequestParams,
)

from mcp_server_compaction.protocol.arguments import short_schema
from mcp_server_compaction.protocol.schemas import CompactOptions
from mcp_server_compaction.protocol.session_tree import family_document, family_of
from mcp_server_compaction.protocol.sessions import (
    branches_document,
    iso_time,
    pointer_to,
    session_document,
)
from mcp_server_compaction.protocol.tools.spec import RequestContext, dump
from mcp_server_compaction.reading.text_source import json_line, open_source, rest_of

OPTIONS_URI = "options://compact_messages"
POLICIES_URI = "policies://compact_messages"
PAGE_SIZE = 25
# Clients of the handshake era refuse events of more than 1 MiB over HTTP.
MAX_RESOURCE_BYTES = 900_000
_NEWEST_CHARS = 7_000
_JSON = "application/json"
_JSON_LINES = "application/jsonl"
_TRANSCRIPT = re.compile(r"transcript://([A-Za-z0-9_.:-]+)/?\Z")

TEMPLATES = (
    ResourceTemplate(
        name="transcript",
        title="Transcript",
        uri_template="transcript://{session_id}",
        description="What is known of a session, and its newest messages.",
        mime_type=_JSON,
    ),
    ResourceTemplate(
        name="messages",
        title="Messages of a transcript",
        uri_template="transcript://{session_id}/messages/{start}-{stop}",
        description="Archived messages, both ends included, as exact JSON lines.",
        mime_type=_JSON_LINES,
    ),
    ResourceTemplate(
        name="receipts",
        title="Receipts of a session",
        uri_template="transcript://{session_id}/receipts",
        description="What each compaction did, oldest first, as JSON lines.",
        mime_type=_JSON_LINES,
    ),
    ResourceTemplate(
        name="output",
        title="Persisted output",
        uri_template="output://{output_id}",
        description="A stored output, whole; the first part of a very large one.",
        mime_type="text/plain",
    ),
    ResourceTemplate(
        name="output lines",
        title="Lines of a persisted output",
        uri_template="output://{output_id}/lines/{start}-{stop}",
        description="Some lines of a stored output, both ends included.",
        mime_type="text/plain",
    ),
)


async def list_resources(
    context: RequestContext, params: PaginatedRequestParams | None
) -> ListResourcesResult:
    """Handle `resources/list`: names for `options` and `policy`, then sessions, newest first."""
    cursor = params.cursor if params else None
    archive = await _archive(context)
    try:
        sessions, next_cursor = await archive.sessions(
            limit=PAGE_SIZE, cursor=_decode_cursor(cursor) if cursor else None
        )
    except CompactionError as error:
        raise MCPError(INVALID_PARAMS, f"{error} Start again without a cursor.") from error
    first = [] if cursor else [_options_resource(), _policies_resource()]
    return ListResourcesResult(
        resources=[*first, *(_session_resource(session) for session in sessions)],
        next_cursor=_encode_cursor(next_cursor) if next_cursor else None,
    )


async def list_resource_templates(
    _context: RequestContext, _params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """Handle `resources/templates/list`."""
    return ListResourceTemplatesResult(resource_templates=list(TEMPLATES))


async def read_resource(
    context: RequestContext, params: ReadResourceRequestParams
) -> ReadResourceResult:
    """Handle `resources/read`."""
    uri = params.uri
    try:
        return ReadResourceResult(contents=await _contents(context, uri))
    except (NotFoundError, QueryError) as error:
        raise MCPError(INVALID_PARAMS, str(error), data={"uri": uri}) from error
    except CompactionError as error:
        raise MCPError(INTERNAL_ERROR, str(error), data={"uri": uri}) from error


async def subscribe(context: RequestContext, params: SubscribeRequestParams) -> EmptyResult:
    """Handle `resources/subscribe` of the handshake era."""
    context.lifespan_context.changes.subscribe(context.session, params.uri)
    return EmptyResult()


async def unsubscribe(context: RequestContext, params: UnsubscribeRequestParams) -> EmptyResult:
    """Handle `resources/unsubscribe` of the handshake era."""
    context.lifespan_context.changes.unsubscribe(context.session, params.uri)
    return EmptyResult()


async def _contents(context: RequestContext, uri: str) -> list[Any]:
    if uri == OPTIONS_URI:
        return [TextResourceContents(uri=uri, mime_type=_JSON, text=dump(options_document()))]
    if uri == POLICIES_URI:
        from mcp_server_compaction.protocol.policy_list import policies_document  # all layers

        return [TextResourceContents(uri=uri, mime_type=_JSON, text=dump(policies_document()))]
    archive = await context.lifespan_context.archive()
    if found := _TRANSCRIPT.match(uri):
        return await _transcript(archive, uri, found.group(1))
    source = await open_source(archive, uri, as_json=True)
    mime_type = "text/plain" if uri.startswith("output://") else _JSON_LINES
    # No text of so many characters has fewer bytes.
    text = await source.characters(0, min(source.size_chars, MAX_RESOURCE_BYTES))
    shown = text.encode("utf-8", "backslashreplace")
    if len(text) == source.size_chars and len(shown) <= MAX_RESOURCE_BYTES:
        whole = TextResourceContents(uri=uri, mime_type=mime_type, text=shown.decode())
        told = TextResourceContents(uri=uri, mime_type="text/plain", text=source.gap.strip())
        return [whole, told] if source.gap else [whole]
    page = shown[: shown.rfind(b"\n", 0, MAX_RESOURCE_BYTES) + 1]
    count = page.count(b"\n")
    rest = rest_of(source, count)
    if not page or rest is None:
        raise QueryError(
            f"{uri} has {source.size_chars} characters, too many for one answer. Read it in parts "
            "with the tool read_persisted_output."
        )
    note = f"The first {count} of {source.line_count} lines. Go on with {rest}"
    return [
        TextResourceContents(uri=uri, mime_type=mime_type, text=page.decode()),
        TextResourceContents(uri=rest, mime_type="text/plain", text=note),
    ]


async def _transcript(archive: Archive, uri: str, session_id: str) -> list[TextResourceContents]:
    """What is known of the session, and of its newest branch as much as an answer may hold."""
    info = await archive.session_info(session_id)
    branches, count = await archive.branches(session_id)
    document = session_document(info) | branches_document(session_id, branches, count)
    members = await family_of(archive, session_id)
    if len(members) > 1:
        document["family"] = family_document(members)
    about = TextResourceContents(uri=uri, mime_type=_JSON, text=dump(document))
    lines: list[str] = []
    used_chars = 0
    newest = branches[0] if branches else History("", ())
    for seq in reversed(newest.seqs):
        found = await archive.read_messages(session_id, seq, seq)
        if not found:  # damaged: a read of the range says so
            continue
        line = json_line(found[0].raw)
        used_chars += len(line) + 1
        if used_chars > _NEWEST_CHARS:
            break
        lines.insert(0, line)
    if not lines:
        return [about]
    return [
        about,
        TextResourceContents(
            uri=pointer_to(session_id, newest, len(lines)),
            mime_type=_JSON_LINES,
            text="".join(f"{line}\n" for line in lines),
        ),
    ]


def options_document() -> dict[str, Any]:
    """What the `options` of `compact_messages` may hold."""
    defaults = Settings()
    return {
        "about": "Fields of `options` of the tool compact_messages. All may be left out; an "
        "unknown name is an error.",
        "options": short_schema(CompactOptions)["properties"],
        "constants_of_the_policy": {
            item.name: {
                "default": getattr(defaults, item.name),
                "description": _setting_descriptions()[item.name],
            }
            for item in fields(Settings)
        },
    }


def _setting_descriptions() -> dict[str, str]:
    """The text of each attribute in the docstring of `Settings`."""
    # Python 3.13 takes the indentation from docstrings, earlier ones leave it.
    attributes = cleandoc(Settings.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.+(?:\n {8,}.+)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _options_resource() -> Resource:
    return Resource(
        uri=OPTIONS_URI,
        name="options",
        title="Options of compact_messages",
        description="Every field of `options`, with its default.",
        mime_type=_JSON,
    )


def _policies_resource() -> Resource:
    return Resource(
        uri=POLICIES_URI,
        name="policies",
        title="Policies of compact_messages",
        description="What `policy` may name: layers, constants, sources.",
        mime_type=_JSON,
    )


def _session_resource(session: SessionInfo) -> Resource:
    last_time = iso_time(session.last_seconds)
    return Resource(
        uri=f"transcript://{session.session_id}",
        name=session.session_id,
        title=session.title or session.session_id,
        description=f"{session.message_count} messages, last {last_time}",
        mime_type=_JSON,
    )


async def _archive(context: RequestContext) -> Archive:
    try:
        return await context.lifespan_context.archive()
    except CompactionError as error:
        raise MCPError(INTERNAL_ERROR, str(error)) from error


# A cursor of the archive may hold anything; clients get one that is safe to pass about.
def _encode_cursor(cursor: str) -> str:
    return base64.urlsafe_b64encode(cursor.encode()).decode()


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.urlsafe_b64decode(cursor.encode()).decode()
    except ValueError as error:
        raise MCPError(
            INVALID_PARAMS, f"{cursor!r} is no cursor of this list. Start again without one."
        ) from error
