"""Tool `persist_large_output`: archive a large output and return a marker with a preview."""

from functools import partial

from anyio import to_thread
from context_compaction import Blob, Settings, counter_for, make_blob, persisted, preview, redact
from mcp_types import CallToolResult

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import PersistArguments, PersistReply
from mcp_server_compaction.protocol.tools.replies import structured

# Session of outputs that belong to no conversation.
OUTPUTS_SESSION = "outputs"
# Tool name in a marker if the call does not name the tool.
UNNAMED_TOOL = "unknown"


async def persist_large_output(
    context: RequestContext, arguments: PersistArguments
) -> CallToolResult:
    """Store the output and return its marker. Every size is stored unless a threshold is passed."""
    deps = context.lifespan_context
    threshold_tokens, text = arguments.threshold_tokens, arguments.output
    if text is None:
        text = await deps.config.roots.read_text(arguments.path or "")
    tokens = await to_thread.run_sync(partial(count_text, text, deps.config.model))
    is_small = threshold_tokens is not None and tokens < threshold_tokens
    reply = PersistReply(
        persisted=not is_small,
        tokens=tokens,
        size_chars=len(text),
        threshold_tokens=threshold_tokens,
    )
    if is_small:
        reply.note = (
            "Nothing was stored, because the output is smaller than threshold_tokens. Keep the "
            "output, or call again without threshold_tokens to store it."
        )
        return structured(reply)
    archive = await deps.archive()
    if archive.redaction == "on":  # so that the preview shows no secret
        text = await to_thread.run_sync(redact, text)
    blob = make_blob(text, tool_name=arguments.tool_name, call_id=arguments.tool_call_id)
    reply.session_id = arguments.session_id or OUTPUTS_SESSION
    await archive.commit(reply.session_id, blobs=[blob])
    await deps.changes.listed(context.session, reply.session_id)
    preview_chars = arguments.preview_chars
    if preview_chars is None:
        preview_chars = Settings().preview_chars
    reply.output_id, reply.size_bytes = blob.output_id, len(blob.data)
    reply.line_count = (await archive.output_info(blob.output_id)).line_count
    reply.marker = marker_of(blob, text, arguments.tool_name or UNNAMED_TOOL, preview_chars)
    # The marker is whole, because the caller puts it into its context.
    return structured(reply, truncate=False)


def count_text(text: str, model: str | None) -> int:
    """Return the tokens of `text`. Call it in a thread, because the first call is slow."""
    return counter_for(model).text(text)


def marker_of(blob: Blob, text: str, tool_name: str, preview_chars: int) -> str:
    """Return the marker that replaces a stored text, in the form that compaction uses."""
    return persisted([blob], preview(text, max_chars=preview_chars), tool_name, len(text))
