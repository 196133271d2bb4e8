"""The summary model that the MCP client offers: sampling, up to protocol version 2025-11-25.

The specification has deprecated sampling. Since 2026-07-28 a client that refuses would end the
whole call, and compaction must never fail because of a summary: such clients are not asked.
"""

from dataclasses import dataclass

from context_compaction import (
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SummaryError,
    TellChars,
    answer_tokens,
    counter_for,
    profile_for,
)
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_server_compaction.protocol.deps import RequestContext


@dataclass(frozen=True, slots=True)
class SamplingModel:
    """The model of the client of one call.

    Attributes:
        session: The client.
        request_id: The call that the questions belong to.
        timeout_seconds: How long the call waits; a person may have to approve.
        writer: The name in receipts.
        model: Which model it is, only the client knows.
    """

    session: ServerSession
    request_id: str | int | None
    timeout_seconds: float
    writer: str = "sampling"
    model: str = "the client's model"

    @property
    def window_tokens(self) -> int:
        """The context window of an unknown model."""
        return profile_for(None).context_window

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """See `SummaryModel.write`."""
        result = await self._ask(prompt)
        content = result.content
        text, failure = "", ""
        if not isinstance(content, TextContent):
            failure = "The client's model answered with something else than text"
        else:
            text = content.text
            if result.stop_reason in {"toolUse", "refusal"}:
                failure = f"The client's model did not write ({result.stop_reason})"
        await tell(len(text))
        # Clients report no tokens: these are estimates.
        count = counter_for().text
        read = count(prompt.system) + count(prompt.user)
        usage = ModelUsage(1, read, count(text), is_estimated=True)
        return ModelAnswer(text, usage, result.stop_reason == "maxTokens", failure)

    async def _ask(self, prompt: ModelPrompt) -> CreateMessageResult:
        question = TextContent(type="text", text=prompt.user)
        request = CreateMessageRequest(
            params=CreateMessageRequestParams(
                messages=[SamplingMessage(role="user", content=question)],
                system_prompt=prompt.system,
                max_tokens=answer_tokens(prompt.max_tokens),
                include_context="none",
            )
        )
        call = ServerMessageMetadata(related_request_id=self.request_id)
        try:
            return await self.session.send_request(request, CreateMessageResult, metadata=call)
        except MCPError as error:
            reason = " ".join(str(error).split())[:200]
            raise SummaryError(f"The client did not let its model write: {reason}") from error
        except ValidationError as error:
            raise SummaryError("The client's answer is not one of a model") from error


def sampling_model(context: RequestContext, timeout_seconds: float) -> SamplingModel | None:
    """The client's model, if the client offers one and may refuse without ending the call."""
    session = context.session
    offered = session.client_capabilities
    if offered is None or offered.sampling is None or not session.can_send_request:
        return None
    if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return None
    return SamplingModel(session, context.request_id, timeout_seconds)
