"""Undo a compaction from its page, and show what to do with the list."""

from context_compaction import CompactRequest, JsonObject, SettingsError, compact
from starlette.responses import RedirectResponse, Response

from mcp_server_compaction.hosts.resume import RESUME_FORMATS
from mcp_server_compaction.viewer.formatting import counted_model
from mcp_server_compaction.viewer.marks import is_compaction
from mcp_server_compaction.viewer.web import Page, PageRequest, number_field


async def undo(request: PageRequest) -> Page | Response:
    """`POST /sessions/ID/compactions/N/undo`: undo compaction N and all later ones of the list.

    A list that does not fit the window is refused with its figures; the form then asks for the
    window, in tokens.
    """
    session_id = request.path("session_id")
    number = int(request.http.path_params["number"])
    info = await request.archive.session_info(session_id)
    form = await request.form()
    receipts = await request.archive.receipts(session_id)
    newest: JsonObject = next(filter(is_compaction, reversed(receipts)), JsonObject())
    window = number_field(form, "window") or newest.get("context_window")
    format, context = await request.archive.context(session_id)
    undo_request = CompactRequest(
        mode="undo",
        undo=number,
        session_id=session_id,
        format=format,
        model=counted_model(newest) or request.config.model,
        context_window=window,
        policy=newest.get("policy") or request.config.policy,
    )
    try:
        await compact(context, undo_request, archive=request.archive)
    except SettingsError as error:
        document = {"session_id": session_id, "number": number, "error": str(error)}
        return Page("undo.html", document, {"info": info, "window": window}, status=409)
    return RedirectResponse(f"/sessions/{session_id}/undone", 303)


async def undone(request: PageRequest) -> Page:
    """`/sessions/ID/undone`: the newest undo of a session, and how to continue from it."""
    info = await request.archive.session_info(request.path("session_id"))
    receipts = await request.archive.receipts(info.session_id)
    receipt = next((r for r in reversed(receipts) if r.get("status") == "undone"), None)
    document = {"session_id": info.session_id, "receipt": receipt}
    return Page("undone.html", document, {"info": info, "hosts": tuple(RESUME_FORMATS)})
