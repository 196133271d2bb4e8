"""Large outputs and transcripts by plain HTTP, so that they need not travel inside JSON-RPC.

    POST /upload/outputs?session_id=S&tool_name=T      the text of an output
    POST /upload/transcripts?session_id=S&format=F     a host's session file, or a list of messages

A body is kept only when it is whole: with `Content-Digest` (RFC 9530) its hash is compared first.
"""

import base64
import re
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256

from anyio import to_thread
from context_compaction import (
    Archive,
    ArchiveError,
    ArchiveFullError,
    CompactionError,
    JsonObject,
    NotFoundError,
    QueryError,
    SettingsError,
    make_blob,
)
from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route, request_response

from mcp_server_compaction.access.audit import audit
from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.operations.telemetry import count_archive_error
from mcp_server_compaction.protocol.deps import GetArchive
from mcp_server_compaction.protocol.tools.persist_large_output import UNFILED_SESSION

UPLOAD_PATH = "/upload"
MAX_UPLOAD_BYTES = 256 * 1024 * 1024
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]+):")
_OUTPUT_PARAMETERS = frozenset({"session_id", "tool_name", "tool_call_id"})
_TRANSCRIPT_PARAMETERS = frozenset({"session_id", "parent_session_id", "format", "name"})

_Keep = Callable[[Archive, bytes, Request], Awaitable[JsonObject]]


def upload_routes(archive: GetArchive) -> list[Route]:
    """The two addresses; `archive` gives the one that holds every tenant's."""
    return [
        _route("outputs", partial(_answer, _keep_output, _OUTPUT_PARAMETERS, archive)),
        _route("transcripts", partial(_answer, _keep_transcript, _TRANSCRIPT_PARAMETERS, archive)),
    ]


def _route(name: str, answer: Callable[[Request], Awaitable[JSONResponse]]) -> Route:
    app = RequestBodyLimitMiddleware(request_response(answer), MAX_UPLOAD_BYTES)
    return Route(f"{UPLOAD_PATH}/{name}", app, methods=["POST"])


async def _answer(
    keep: _Keep, known: frozenset[str], archive: GetArchive, request: Request
) -> JSONResponse:
    who = caller.get()
    target = request.query_params.get("session_id", "")
    if "write" not in who.scopes:
        audit(f"POST {request.url.path}", target, "refused")
        return _problem(403, "This token does not allow uploads: it lacks the scope 'write'.")
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        # Else a misspelt session would have its output filed elsewhere, in silence.
        named = ", ".join(sorted(known))
        return _problem(400, f"{unknown[0][:100]!r} is no parameter here. Known are: {named}.")
    if request.headers.get("content-encoding", "identity") != "identity":
        return _problem(415, "Send the body as it is: a packed upload is not read.")
    try:
        data = await request.body()
        digest = await to_thread.run_sync(sha256, data)
        wanted = _DIGEST.search(request.headers.get("content-digest", ""))
        if wanted is not None and wanted[1] != base64.b64encode(digest.digest()).decode():
            return _problem(400, "The body is not what Content-Digest says. Nothing was kept.")
        kept = await keep(await (await archive()).for_tenant(who.tenant), data, request)
    except ClientDisconnect:
        return _problem(400, "The body broke off. Nothing was kept.")
    except CompactionError as error:
        count_archive_error(error)
        return _problem(_status_of(error), str(error))
    audit(f"POST {request.url.path}", target)
    return JSONResponse({**kept, "sha256": digest.hexdigest(), "size_bytes": len(data)}, 201)


def _status_of(error: CompactionError) -> int:
    match error:
        case NotFoundError():
            return 404
        case ArchiveFullError():
            return 507
        case ArchiveError() if not isinstance(error, QueryError):
            return 503
        case _:
            return 400


async def _keep_output(archive: Archive, data: bytes, request: Request) -> JsonObject:
    query = request.query_params
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"The output is no UTF-8 text ({error}).") from error
    blob = make_blob(text, tool_name=query.get("tool_name"), call_id=query.get("tool_call_id"))
    session_id = query.get("session_id") or UNFILED_SESSION
    await archive.commit(session_id, blobs=[blob])
    info = await archive.output_info(blob.output_id)
    return {
        "output_id": blob.output_id,
        "session_id": session_id,
        "line_count": info.line_count,
    }


async def _keep_transcript(archive: Archive, data: bytes, request: Request) -> JsonObject:
    from context_compaction import CompactRequest, compact, read_conversation

    query = request.query_params
    name = query.get("name", "upload.jsonl")
    found = await to_thread.run_sync(partial(read_conversation, data, name=name))
    wish = CompactRequest(
        mode="record",
        format=query.get("format") or found.format,
        session_id=query.get("session_id") or found.session_id,
        parent_session_id=query.get("parent_session_id"),
    )
    result = await compact(found.payload, wish, archive=archive)
    return {
        "session_id": result.session_id,
        "format": result.format,
        "message_count": len(found.payload),
        "notes": list(found.notes),
    }


def _problem(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status)
