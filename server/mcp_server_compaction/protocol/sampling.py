"""The summary model that the MCP client offers: sampling, in both eras of the protocol.

Up to 2025-11-25 the server sends the client a request while the tool runs. Since 2026-07-28 it
cannot: the call ends with the questions it has, and the client makes it again with the answers.
Compaction is deterministic, so the repeated call comes to the same questions; answers of earlier
rounds come back in the request state. That state is what the client's own model wrote, and is
checked like any model's text, so it needs no seal.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from context_compaction import (
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SettingsError,
    SummaryError,
    TellChars,
)
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from mcp_server_compaction.protocol.deps import RequestContext

_STATE = TypeAdapter(dict[str, CreateMessageResult])
# Answers of a few thousand tokens each; a longer state is none of ours.
_MAX_STATE_CHARS = 500_000
_MAX_REASON_CHARS = 200


class AnswersPendingError(Exception):
    """The client has to answer questions before the call can go on; it will make it again."""

    def __init__(self, model: "SamplingModel") -> None:
        super().__init__("The client has questions to answer.")
        self._model = model

    @property
    def result(self) -> InputRequiredResult:
        """The questions that are known by now, with the answers so far."""
        model = self._model
        state = _STATE.dump_json(dict(model.answers), by_alias=True, exclude_none=True)
        return InputRequiredResult(
            input_requests=dict(model.questions), request_state=state.decode("utf-8")
        )


@dataclass(frozen=True, slots=True)
class SamplingModel:
    """The model of the client of one call.

    Attributes:
        session: The client.
        request_id: The call that the questions belong to.
        answers: What the client has answered already, by question (2026-07-28 and later).
        questions: What it has to answer next (2026-07-28 and later).
        timeout_seconds: How long the call waits; a person may have to approve.
    """

    session: ServerSession
    request_id: str | int | None
    timeout_seconds: float
    answers: Mapping[str, CreateMessageResult] = field(
        default_factory=dict[str, CreateMessageResult]
    )
    questions: dict[str, CreateMessageRequest] = field(
        default_factory=dict[str, CreateMessageRequest]
    )

    @property
    def writer(self) -> str:
        """The name in receipts."""
        return "sampling"

    @property
    def model(self) -> str:
        """Which model it is, only the client knows."""
        return "the client's model"

    @property
    def window_tokens(self) -> int:
        """That of a model that is not known."""
        from context_compaction import profile_for

        return profile_for(None).context_window

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        """See `SummaryModel.write`.

        Raises:
            AnswersPendingError: The client has to answer first.
        """
        request = _request(prompt)
        if is_modern(self.session):
            key = _key(request)
            if key not in self.answers:
                self.questions[key] = request
                raise AnswersPendingError(self)
            result = self.answers[key]
        else:
            result = await self._ask(request)
        await tell(len(_text(result)))
        return _answer(result, prompt)

    async def _ask(self, request: CreateMessageRequest) -> CreateMessageResult:
        try:
            return await self.session.send_request(
                request,
                CreateMessageResult,
                metadata=ServerMessageMetadata(related_request_id=self.request_id),
            )
        except MCPError as error:
            reason = " ".join(str(error).split())[:_MAX_REASON_CHARS]
            raise SummaryError(f"The client did not let its model write: {reason}") from error
        except ValidationError as error:
            raise SummaryError("The client's answer is not one of a model") from error


def is_modern(session: ServerSession) -> bool:
    """Whether questions travel in results."""
    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


def sampling_model(context: RequestContext, timeout_seconds: float) -> SamplingModel | None:
    """The client's model, where the client declares that it has one.

    Raises:
        SettingsError: The answers that the client brings cannot be read.
    """
    session = context.session
    capabilities = session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        return None
    if is_modern(session):
        answers = _answers(context.params or {})
        return SamplingModel(session, context.request_id, timeout_seconds, answers)
    if not session.can_send_request:
        return None
    return SamplingModel(session, context.request_id, timeout_seconds)


def _answers(params: Mapping[str, Any]) -> dict[str, CreateMessageResult]:
    """The answers of all rounds: earlier ones in the state, the newest beside it."""
    call = CallToolRequestParams.model_validate(params)
    state = call.request_state or "{}"
    try:
        if len(state) > _MAX_STATE_CHARS:
            raise SettingsError(f"requestState has {len(state)} characters: it is none of ours.")
        answers = _STATE.validate_json(state)
    except ValidationError as error:
        raise SettingsError(
            "requestState is not what this server gave. Make the call again without it."
        ) from error
    for key, response in (call.input_responses or {}).items():
        if isinstance(response, CreateMessageResult):
            answers[key] = response
    return answers


def _request(prompt: ModelPrompt) -> CreateMessageRequest:
    from context_compaction import answer_tokens

    return CreateMessageRequest(
        params=CreateMessageRequestParams(
            messages=[
                SamplingMessage(role="user", content=TextContent(type="text", text=prompt.user))
            ],
            system_prompt=prompt.system,
            max_tokens=answer_tokens(prompt.max_tokens),
            include_context="none",
        )
    )


def _key(request: CreateMessageRequest) -> str:
    """A name for a question that is the same in every round."""
    rendered = json.dumps(request.model_dump(mode="json"), sort_keys=True)
    return f"summary_{hashlib.blake2b(rendered.encode('ascii'), digest_size=12).hexdigest()}"


def _answer(result: CreateMessageResult, prompt: ModelPrompt) -> ModelAnswer:
    from context_compaction import counter_for

    text = _text(result)
    # Clients report no tokens: these are ours.
    count = counter_for()
    read = count.text(prompt.system) + count.text(prompt.user)
    usage = ModelUsage(1, read, count.text(text) if text else 0, is_estimated=True)
    failure = ""
    if not isinstance(result.content, TextContent):
        failure = "The client's model answered with something else than text"
    elif result.stop_reason in {"toolUse", "refusal"}:
        failure = f"The client's model did not write ({result.stop_reason})"
    return ModelAnswer(text, usage, result.stop_reason == "maxTokens", failure)


def _text(result: CreateMessageResult) -> str:
    return result.content.text if isinstance(result.content, TextContent) else ""
