"""Summaries by the model that the MCP client offers: sampling, up to protocol version 2025-11-25.

The specification has deprecated sampling. Since 2026-07-28 a client that refuses a request ends the
whole call. A summary must never make a compaction fail, so such clients are not asked.
"""

from dataclasses import dataclass

import mcp_types as types
from context_compaction import (
    ModelAnswer,
    ModelPrompt,
    SummaryError,
    TellChars,
    answer_tokens,
    estimated_usage,
    profile_for,
)
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_server_compaction.protocol.deps import RequestContext


@dataclass(frozen=True, slots=True)
class SamplingModel:
    """The model of the client that makes a call.

    Attributes:
        session: Connection to the client.
        request_id: The call that the sampling requests belong to.
        timeout_seconds: Maximum time to wait, because a person may have to approve the request.
        writer: Name of the writer in receipts.
        model: Name of the model in receipts. Only the client knows the real name.
    """

    session: ServerSession
    request_id: str | int | None
    timeout_seconds: float
    writer: str = "sampling"
    model: str = "the client's model"

    @property
    def window_tokens(self) -> int:
        """The context window of an unknown model, in tokens."""
        return profile_for(None).context_window

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """See `SummaryModel.write`."""
        result = await self._request(prompt)
        text, failure = "", ""
        if isinstance(result.content, types.TextContent):
            text = result.content.text
            if result.stop_reason in {"toolUse", "refusal"}:
                failure = f"The client's model did not write ({result.stop_reason})"
        else:
            failure = "The client's model returned something other than text"
        await tell(len(text))
        usage = estimated_usage(prompt, text)  # because clients report no tokens
        return ModelAnswer(text, usage, result.stop_reason == "maxTokens", failure)

    async def _request(self, prompt: ModelPrompt) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text=prompt.user)
        request = types.CreateMessageRequest(
            params=types.CreateMessageRequestParams(
                messages=[types.SamplingMessage(role="user", content=content)],
                system_prompt=prompt.system,
                max_tokens=answer_tokens(prompt.max_tokens, self.window_tokens),
                include_context="none",
            )
        )
        metadata = ServerMessageMetadata(related_request_id=self.request_id)
        try:
            return await self.session.send_request(
                request, types.CreateMessageResult, metadata=metadata
            )
        except MCPError as error:
            reason = " ".join(str(error).split())[:200]
            raise SummaryError(f"The client did not let its model write: {reason}") from error
        except ValidationError as error:
            raise SummaryError("The client returned an invalid sampling result") from error


def sampling_model(context: RequestContext, timeout_seconds: float) -> SamplingModel | None:
    """Return the client's model. None if the client offers no model or a refusal ends the call."""
    session = context.session
    capabilities = session.client_capabilities
    if capabilities is None or capabilities.sampling is None or not session.can_send_request:
        return None
    if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return SamplingModel(session, context.request_id, timeout_seconds)
