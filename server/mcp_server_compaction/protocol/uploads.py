"""Large outputs and transcripts by plain HTTP, so that they need not travel inside JSON-RPC.

    POST /upload/outputs?session_id=S&tool_name=T      the text of an output
    POST /upload/transcripts?session_id=S&format=F     a host's session file, or a list of messages

A body is hashed while it comes in and kept only when it is whole: with `Content-Digest` (RFC 9530)
its hash is compared first.
"""

import base64
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from tempfile import SpooledTemporaryFile

from anyio import to_thread
from context_compaction.archive import Archive
from context_compaction.errors import (
    ArchiveError,
    ArchiveFullError,
    CompactionError,
    NotFoundError,
    QueryError,
    SettingsError,
)
from context_compaction.messages.edits import make_blob
from context_compaction.messages.model import JsonObject
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from mcp_server_compaction.access.audit import audit
from mcp_server_compaction.access.principal import caller
from mcp_server_compaction.operations.telemetry import count_archive_error
from mcp_server_compaction.protocol.deps import GetArchive
from mcp_server_compaction.protocol.http_bodies import RefusedBodyError
from mcp_server_compaction.protocol.tools.persist_large_output import UNFILED_SESSION

UPLOAD_PATH = "/upload"
MAX_UPLOAD_BYTES = 256 * 1024 * 1024
_MEMORY_BYTES = 8 * 1024 * 1024  # what is larger waits in a file until it is whole
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/=]+):")
_OUTPUT_PARAMETERS = frozenset({"session_id", "tool_name", "tool_call_id"})
_TRANSCRIPT_PARAMETERS = frozenset({"session_id", "parent_session_id", "format", "name"})


@dataclass(frozen=True, slots=True)
class _Body:
    """A body that came in whole."""

    data: bytes
    sha256: str


def upload_routes(archive: GetArchive) -> list[Route]:
    """The two addresses; `archive` gives the one that holds every tenant's."""
    routes = {
        "outputs": (_keep_output, _OUTPUT_PARAMETERS),
        "transcripts": (_keep_transcript, _TRANSCRIPT_PARAMETERS),
    }
    return [
        Route(f"{UPLOAD_PATH}/{name}", partial(_answer, keep, known, archive), methods=["POST"])
        for name, (keep, known) in routes.items()
    ]


async def _answer(
    keep: Callable[[Archive, _Body, Request], Awaitable[JsonObject]],
    known: frozenset[str],
    archive: GetArchive,
    request: Request,
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
    try:
        body = await _received(request)
        kept = await keep(await (await archive()).for_tenant(who.tenant), body, request)
    except RefusedBodyError as error:
        return _problem(error.status, str(error))
    except ClientDisconnect:
        return _problem(400, "The body broke off. Nothing was kept.")
    except NotFoundError as error:
        return _problem(404, str(error))
    except (QueryError, SettingsError) as error:
        return _problem(400, str(error))
    except ArchiveFullError as error:
        return _problem(507, str(error))
    except ArchiveError as error:
        count_archive_error(error)
        return _problem(503, str(error))
    except CompactionError as error:
        return _problem(400, str(error))
    audit(f"POST {request.url.path}", target)
    return JSONResponse({**kept, "sha256": body.sha256, "size_bytes": len(body.data)}, 201)


async def _received(request: Request) -> _Body:
    """The body, hashed as it comes in."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedBodyError(415, "Send the body as it is: a packed upload is not taken.")
    digest = sha256()
    size_bytes = 0
    with SpooledTemporaryFile(_MEMORY_BYTES) as file:
        async for piece in request.stream():
            size_bytes += len(piece)
            if size_bytes > MAX_UPLOAD_BYTES:
                raise RefusedBodyError(
                    413,
                    f"The body has more than {MAX_UPLOAD_BYTES // 1024**2} MiB. Split it, and "
                    "upload the parts.",
                )
            digest.update(piece)
            await to_thread.run_sync(file.write, piece)
        wanted = _DIGEST.search(request.headers.get("content-digest", ""))
        if wanted is not None and wanted[1] != base64.b64encode(digest.digest()).decode():
            raise RefusedBodyError(
                400, "The body is not what Content-Digest says. Nothing was kept."
            )
        file.seek(0)
        return _Body(await to_thread.run_sync(file.read), digest.hexdigest())


async def _keep_output(archive: Archive, body: _Body, request: Request) -> JsonObject:
    query = request.query_params
    try:
        text = body.data.decode("utf-8")
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


async def _keep_transcript(archive: Archive, body: _Body, request: Request) -> JsonObject:
    from context_compaction.formats.session_files.read import read_conversation
    from context_compaction.pipeline.compact import compact
    from context_compaction.request import CompactRequest

    query = request.query_params
    name = query.get("name", "upload.jsonl")
    found = await to_thread.run_sync(partial(read_conversation, body.data, name=name))
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
