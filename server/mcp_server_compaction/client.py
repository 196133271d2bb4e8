"""Client of `compact_messages` for an agent loop: takes a message list, returns the list to send.

    compaction = CompactionClient(session, context_window=200_000)
    ...
    messages, reply = await compaction.send(messages, ask_model)

The client sends only messages added since the last call, and gets splices back. It stays correct
if its memory is wrong (a reply was lost, another archive is used, the list was edited): the server
refuses new messages that do not follow its own context, and the client then sends the whole list.

It is part of the server package because it follows the tool's contract. It does not import `mcp`,
so that any transport and any SDK can be used.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar, Unpack, cast

from context_compaction import CompactionError, is_prompt_too_long

Json: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["auto", "micro", "full", "reactive", "record"]
Reply = TypeVar("Reply")
T = TypeVar("T")

# `next_step` of a reply whose edits the client has applied.
APPLIED = "The edits were applied. Send the list that fit() returned."

# Calls a tool by name. Returns the `CallToolResult` of any SDK, or its JSON.
CallTool: TypeAlias = Callable[[str, Json], Awaitable[Any]]


class ToolSession(Protocol):
    """A connection that calls tools: `mcp.Client`, `mcp.ClientSession` or another SDK's client."""

    def call_tool(self, name: str, arguments: Json, /) -> Awaitable[Any]:
        """Call a tool by name."""
        ...


class CallArguments(TypedDict, total=False):
    """Arguments of `compact_messages` that stay the same for all calls."""

    session_id: str | None
    context_window: int | None
    target_tokens: int | None
    policy: str | None
    summarizer: Literal["auto", "extractive", "model", "sampling"] | None
    instructions: str | None


@dataclass(frozen=True, slots=True)
class _State:
    """State of the conversation after the last reply.

    Attributes:
        session_id: Session of the server.
        context_hash: Hash of `context` for the server. None if it accepts no new messages alone.
        context: The list that was returned.
        context_digests: Digests of `context`, one for each message.
        history_digests: Digests of the full history that `context` replaces.
    """

    session_id: str
    context_hash: str | None
    context: Sequence[Json]
    context_digests: Sequence[str]
    history_digests: Sequence[str]


class CompactionClient:
    """Client that keeps one conversation within its window, through a server on any transport.

    The caller may pass the list that the last call returned plus new messages, or its own full
    history at every call. Both are recognized, send only new messages, and return the same list.
    The client never changes the caller's lists. Calls may be cancelled or run concurrently, because
    only a complete reply replaces the state.

    Args:
        server: `mcp.Client`, a `ClientSession`, another object with `call_tool(name, arguments)`,
            or that function.
        session_id: ID of a new or existing session. None to derive it from the messages.
        context_window: Window of the model in tokens. None to use the model in `options`.
        target_tokens: Token count after a compaction. None for the policy's target.
        policy: Name of the policy.
        summarizer: Writer of summaries.
        instructions: Focus of summaries.
        options: Options that the resource `options://compact_messages` describes, for example
            `model`, `system` and `tools`. Every call sends them, so they must not contain message
            indices.

    Attributes:
        answer: Last reply of the server, for its token counts and warnings. Empty before the first.
    """

    def __init__(
        self,
        server: ToolSession | CallTool,
        *,
        options: Mapping[str, Any] | None = None,
        **arguments: Unpack[CallArguments],
    ) -> None:
        self._call_tool = cast("CallTool", getattr(server, "call_tool", server))
        self._arguments: Json = {
            name: value for name, value in arguments.items() if value is not None
        }
        self._options: Json = dict(options or {})
        self._state: _State | None = None
        self._usage: tuple[Mapping[str, Any], int] | None = None
        self.answer: Json = {}

    async def fit(self, messages: Sequence[Json], *, mode: Mode = "auto") -> list[Json]:
        """Return the list to send instead of `messages`. Unchanged messages are the same objects.

        After any failure `messages` are unchanged and the next call needs no repair. Errors of the
        transport are raised unchanged.

        Args:
            messages: The conversation, in the format of the provider's API.
            mode: "auto" compacts if needed. "reactive" follows a prompt that was too long. "full"
                summarizes now, "micro" clears tool results now, "record" only archives.

        Raises:
            CompactionError: The server refused the list. The text says what to do.
            TypeError: A message is not JSON.
        """
        state, digests = self._state, _digests(messages)
        known = None if state is None else _continued(state, messages, digests)
        base, history, new_count = known or (messages, digests, 0)
        new = list(messages[len(messages) - new_count :])
        if state is not None and state.context_hash is not None and known is not None:
            source: Json = {"new_messages": new, "session_id": state.session_id}
            anchor = self._anchor(len(base) - new_count, new)
            result = await self._call(source, {"context_hash": state.context_hash, **anchor}, mode)
            if not _is_refused(result):  # A refusal means that the server has another context.
                base_digests = [*state.context_digests, *digests[len(digests) - new_count :]]
                return self._update(result, base, base_digests, history)
        source = {"messages": list(messages)}
        if state is not None:
            source["session_id"] = state.session_id
        result = await self._call(source, self._anchor(len(messages) - new_count, new), mode)
        if _is_refused(result):
            raise CompactionError(_text(result))
        return self._update(result, messages, digests, history)

    async def send(
        self,
        messages: Sequence[Json],
        request: Callable[[list[Json]], Awaitable[Reply]],
    ) -> tuple[list[Json], Reply]:
        """Fit the list and send it. If the provider finds it too long, shrink and send it again.

        Every error of `request` is raised unchanged, except the first refusal as too long.

        Args:
            messages: The conversation.
            request: Sends a list to the model.

        Returns:
            The list that the model received, and the return value of `request`.

        Raises:
            CompactionError: See `fit`.
        """
        return await send_fitted(self.fit, messages, request)

    def learn(self, usage: Mapping[str, Any], message_count: int = 1) -> None:
        """Use the provider's token count as the anchor of the next call's estimate.

        Args:
            usage: The provider's report for the request with the last fitted list.
            message_count: Number of messages or items of the model's response. They directly follow
                the fitted list in the next call.
        """
        self._usage = (usage, message_count)

    def _anchor(self, start: int, new: Sequence[Json]) -> Json:
        if self._usage is None or self._state is None or self._usage[1] > len(new):
            return {}
        usage, count = self._usage
        return {"usage": usage, "usage_message_index": start + count - 1}

    async def _call(self, source: Json, options: Json, mode: Mode) -> Any:
        arguments = {**self._arguments, **source, "mode": mode, "reply": "edits"}
        if all_options := {**self._options, **options}:
            arguments["options"] = all_options
        return await self._call_tool("compact_messages", arguments)

    def _update(
        self, result: Any, base: Sequence[Json], digests: list[str], history_digests: list[str]
    ) -> list[Json]:
        """Apply the edits of a reply to `base`, store the new state, and return the list.

        `digests` were computed before the call, because the caller may change `base` meanwhile.
        """
        answer = _structured(result)
        edits = answer.get("edits") or ()
        fitted = _spliced(base, edits, list)
        if edits:
            answer["next_step"] = APPLIED
        self.answer, self._usage = answer, None
        self._state = _State(
            answer["session_id"],
            answer.get("context_hash"),
            tuple(fitted),
            _spliced(digests, edits, _digests),
            history_digests,
        )
        return fitted


async def send_fitted(
    fit: Callable[..., Awaitable[list[Json]]],
    messages: Sequence[Json],
    request: Callable[[list[Json]], Awaitable[Reply]],
) -> tuple[list[Json], Reply]:
    """Send the list that `fit` returns, and a smaller one if it is rejected as too long."""
    fitted = await fit(messages)
    try:
        return fitted, await request(fitted)
    except Exception as error:
        if not is_prompt_too_long(error):
            raise
    fitted = await fit(fitted, mode="reactive")
    return fitted, await request(fitted)


def _continued(
    state: _State, messages: Sequence[Json], digests: list[str]
) -> tuple[Sequence[Json], list[str], int] | None:
    """Return what `messages` add to the known context or history, or None if they follow neither.

    Returns:
        The known context followed by the new messages, the digests of the full history, and the
        number of new messages.
    """
    count = len(state.context_digests)
    if digests[:count] == state.context_digests:
        return messages, [*state.history_digests, *digests[count:]], len(messages) - count
    count = len(state.history_digests)
    # The caller may have changed the list that the last call returned.
    is_intact = _digests(state.context) == state.context_digests
    if is_intact and digests[:count] == state.history_digests:
        return [*state.context, *messages[count:]], digests, len(messages) - count
    return None


def _spliced(
    items: Sequence[T], edits: Sequence[Json], convert: Callable[[list[Json]], Sequence[T]]
) -> list[T]:
    """Return `items` with the server's edits, applied from the last to the first."""
    result = list(items)
    for edit in reversed(edits):
        start = edit["start"]
        result[start : start + edit["delete_count"]] = convert(edit["insert"])
    return result


def _digests(messages: Sequence[Json]) -> list[str]:
    """Return a digest of each message. Object identity is no proof, because lists may change."""
    return [
        blake2b(json.dumps(message, sort_keys=True).encode(), digest_size=16).hexdigest()
        for message in messages
    ]


def _is_refused(result: Any) -> bool:
    return bool(_field(result, "is_error", "isError"))


def _structured(result: Any) -> Json:
    content = _field(result, "structured_content", "structuredContent")
    if not isinstance(content, Mapping):
        raise CompactionError(
            "The result of compact_messages has no structured content. Pass a `call_tool` that "
            "returns the whole result, not only its text."
        )
    return {**content}


def _text(result: Any) -> str:
    blocks = _field(result, "content", "content") or ()
    return "\n".join(text for block in blocks if (text := _field(block, "text", "text")))


def _field(value: Any, name: str, json_name: str) -> Any:
    """Return a field of an SDK's object, in its old or new spelling, or of plain JSON."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return fields.get(json_name, fields.get(name))
    return getattr(value, name, getattr(value, json_name, None))
