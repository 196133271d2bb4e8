"""Tool: put a large output into the archive and keep a marker with a preview of it."""

from functools import partial

from anyio import to_thread
from context_compaction import Blob, Settings, counter_for, make_blob, persisted, preview, redact
from mcp_types import CallToolResult

from mcp_server_compaction.protocol.deps import RequestContext
from mcp_server_compaction.protocol.schemas import PersistAnswer, PersistArguments
from mcp_server_compaction.protocol.tools.answers import structured

# Outputs that belong to no conversation are filed under this session.
UNFILED_SESSION = "outputs"
# What stands in a marker for a tool that the call does not name.
UNNAMED_TOOL = "unknown"


async def persist_large_output(
    context: RequestContext, arguments: PersistArguments
) -> CallToolResult:
    """Store the output, and answer with what to put in its place.

    Who calls this has decided that it is large; only a threshold of the call's own is weighed.
    """
    deps = context.lifespan_context
    threshold_tokens, text = arguments.threshold_tokens, arguments.output
    if text is None:
        text = await deps.config.roots.read_text(arguments.path or "")
    tokens = await to_thread.run_sync(partial(count_text, text, deps.config.model))
    if threshold_tokens is not None and tokens < threshold_tokens:
        return structured(
            PersistAnswer(
                persisted=False,
                tokens=tokens,
                size_chars=len(text),
                threshold_tokens=threshold_tokens,
                note="Below the threshold_tokens of this call: nothing was stored. Keep the output "
                "as it is, or call without threshold_tokens to store it all the same.",
            )
        )
    archive = await deps.archive()
    size_chars = len(text)
    if archive.redaction == "on":  # the preview shows no secret either
        text = await to_thread.run_sync(redact, text)
    blob = make_blob(text, tool_name=arguments.tool_name, call_id=arguments.tool_call_id)
    session_id = arguments.session_id or UNFILED_SESSION
    await archive.commit(session_id, blobs=[blob])
    await deps.changes.listed(context.session, session_id)
    info = await archive.output_info(blob.output_id)
    preview_chars = arguments.preview_chars
    if preview_chars is None:
        preview_chars = Settings().preview_chars
    return structured(
        PersistAnswer(
            persisted=True,
            tokens=tokens,
            size_chars=size_chars,
            threshold_tokens=threshold_tokens,
            output_id=blob.output_id,
            size_bytes=len(blob.data),
            line_count=info.line_count,
            session_id=session_id,
            marker=marker_of(blob, text, arguments.tool_name or UNNAMED_TOOL, preview_chars),
        ),
        cut=False,  # the marker is for the context: it must come whole
    )


def count_text(text: str, model: str | None) -> int:
    """Tokens of `text`. The first call of a process loads the vocabulary: use a thread."""
    return counter_for(model).text(text)


def marker_of(blob: Blob, text: str, tool_name: str, preview_chars: int) -> str:
    """The marker that replaces a stored text, the same that a compaction leaves."""
    return persisted([blob], preview(text, max_chars=preview_chars), tool_name, len(text))
