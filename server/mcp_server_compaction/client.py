"""An agent loop's end of `compact_messages`: its list in, the list to send to the model out.

    compaction = CompactionClient(session, context_window=200_000)
    ...
    messages, reply = await compaction.send(messages, ask_model)

It sends only what is new since the last call, and gets back splices. Nothing that it remembers has
to be right: the server refuses new messages that belong behind another list than it has (an answer
was lost, the archive is another, the list was edited), and the whole list is handed in then.

It stands beside the server because it speaks that tool's contract; it needs nothing of `mcp`, so
that any transport and any SDK will do.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

from context_compaction import CompactionError

Json: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["auto", "micro", "full", "reactive", "record"]
Reply = TypeVar("Reply")
T = TypeVar("T")

# What `next_step` of an answer says after the client has done what the server's says.
APPLIED = "The edits were applied: the list that fit() returned is the one to send."

# How providers and local servers say it, in lower case.
_TOO_LONG = (
    "prompt is too long",  # Anthropic
    "exceed context limit",  # Anthropic, together with the room for the answer
    "request_too_large",  # Anthropic, by bytes
    "context_length_exceeded",  # OpenAI's code
    "maximum context length",  # OpenAI Chat, vLLM, Mistral
    "exceeds the context window",  # OpenAI Responses
    "input token count",  # Gemini: "... exceeds the maximum number of tokens allowed"
    "input is too long",  # Bedrock
    "exceeds the available context size",  # llama.cpp
)


# Calls a tool by name; answers with the `CallToolResult` of any SDK, or its JSON.
CallTool: TypeAlias = Callable[[str, Json], Awaitable[Any]]


class ToolSession(Protocol):
    """What `mcp.Client`, `mcp.ClientSession` and other SDKs' clients have in common."""

    def call_tool(self, name: str, arguments: Json, /) -> Awaitable[Any]:
        """Call a tool by name."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last answer left.

    Attributes:
        session_id: The server's session.
        context_hash: Names `context` there; None where new messages cannot be put behind it.
        context: The list that went out ...
        context_digests: ... by message ...
        history_digests: ... and all that it stands for, by message.
    """

    session_id: str
    context_hash: str | None
    context: Sequence[Json]
    context_digests: Sequence[str]
    history_digests: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Given:
    """A list that was handed in, seen from what is known.

    Attributes:
        messages: The known context with what is new, or the list itself where it goes on from
            nothing that is known ...
        new_from: ... and where in it the new messages begin.
        listed_from: Where they begin in the list as it was handed in.
        history_digests: All that `messages` stands for.
        is_known: Whether the list goes on from what is known.
        digests: Of `messages`.
    """

    messages: Sequence[Json]
    new_from: int
    listed_from: int
    history_digests: Sequence[str]
    is_known: bool
    digests: Sequence[str]


class CompactionClient:
    """Keeps one conversation within its window, by a server reached over any transport.

    Whoever holds the conversation may hand in the list that it was given back, with what came
    since, or its own whole history at every call: both are recognised, both send only what is new,
    and both get back the same list. Lists handed in are never changed. Calls may be cancelled or
    run at once: what is remembered is replaced only by an answer that has arrived whole.

    Args:
        server: `mcp.Client`, a `ClientSession` or anything else with `call_tool(name, arguments)`;
            or that function itself.
        session_id: Names a new session, or one to go on with; else it comes from the messages.
        context_window: Of the model, in tokens; else by `options["model"]`.
        target_tokens: What a compaction brings the list down to.
        policy: The policy's name.
        summarizer: Who writes summaries.
        instructions: What summaries should keep.
        options: As the resource `options://compact_messages` describes them: `model`, `system`,
            `tools` and more. They go along with every call, so none may name places in a list.

    Attributes:
        answer: The server's last answer, for its figures and warnings; empty before the first.
    """

    def __init__(
        self,
        server: ToolSession | CallTool,
        *,
        session_id: str | None = None,
        context_window: int | None = None,
        target_tokens: int | None = None,
        policy: str | None = None,
        summarizer: Literal["auto", "extractive", "anthropic", "sampling"] | None = None,
        instructions: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._call_tool = cast("CallTool", getattr(server, "call_tool", server))
        wishes = {
            "session_id": session_id,
            "context_window": context_window,
            "target_tokens": target_tokens,
            "policy": policy,
            "summarizer": summarizer,
            "instructions": instructions,
        }
        self._wishes: Json = {name: value for name, value in wishes.items() if value is not None}
        self._options: Json = dict(options or {})
        self._known: _Known | None = None
        self._usage: tuple[Mapping[str, Any], int] | None = None
        self.answer: Json = {}

    async def fit(self, messages: Sequence[Json], *, mode: Mode = "auto") -> list[Json]:
        """The list to send instead of `messages`; those that nobody touched are the same objects.

        Args:
            messages: The conversation, as the provider's API takes it.
            mode: "reactive" after the provider said that the prompt is too long, "full" to
                summarise now, "micro" to clear now, "record" only to archive.

        Raises:
            CompactionError: The server refused the list; the text says what to do.
            TypeError: A message is no JSON.

        Whatever the transport raises passes through. After any failure `messages` are as they
        were, and the next call needs no repair.
        """
        known, digests = self._known, _digests(messages)
        given = _given(known, messages, digests)
        if known is not None and known.context_hash is not None and given.is_known:
            new = given.messages[given.new_from :]
            about: Json = {"new_messages": list(new), "session_id": known.session_id}
            options = {"context_hash": known.context_hash, **self._anchor(given.new_from, new)}
            result = await self._call(about, options, mode)
            if not _is_refused(result):  # else the server has another list: hand in this one
                return self._learned(result, given.messages, given.digests, given.history_digests)
        about = {"messages": list(messages)}
        if known is not None:
            about["session_id"] = known.session_id
        new = messages[given.listed_from :]
        result = await self._call(about, self._anchor(given.listed_from, new), mode)
        if _is_refused(result):
            raise CompactionError(_text(result))
        return self._learned(result, messages, digests, given.history_digests)

    async def send(
        self,
        messages: Sequence[Json],
        request: Callable[[list[Json]], Awaitable[Reply]],
        *,
        is_too_long: Callable[[Exception], bool] | None = None,
    ) -> tuple[list[Json], Reply]:
        """Fit the list and send it; once more, made smaller, if the provider finds it too long.

        Args:
            messages: The conversation.
            request: Sends a list to the model.
            is_too_long: Tells that refusal from other errors; else the words of the known
                providers do.

        Returns:
            The list that the model has seen, and what `request` returned.

        Raises:
            CompactionError: See `fit`.

        Whatever `request` raises passes through, but for that first refusal.
        """
        fitted = await self.fit(messages)
        try:
            return fitted, await request(fitted)
        except Exception as error:
            if not (is_too_long or says_too_long)(error):
                raise
        fitted = await self.fit(fitted, mode="reactive")
        return fitted, await request(fitted)

    def learn(self, usage: Mapping[str, Any], message_count: int = 1) -> None:
        """Anchor the next count at what the provider counted.

        Args:
            usage: Its report, for the request with the list of the last call.
            message_count: How many messages or items its answer is; they directly follow
                that list in the next call.
        """
        self._usage = (usage, message_count)

    def _anchor(self, start: int, new: Sequence[Json]) -> Json:
        if self._usage is None or self._known is None or self._usage[1] > len(new):
            return {}
        usage, count = self._usage
        return {"usage": usage, "usage_message_index": start + count - 1}

    async def _call(self, about: Json, options: Json, mode: Mode) -> Any:
        arguments = {**self._wishes, **about, "mode": mode, "reply": "edits"}
        if both := {**self._options, **options}:
            arguments["options"] = both
        return await self._call_tool("compact_messages", arguments)

    def _learned(
        self,
        result: Any,
        base: Sequence[Json],
        digests: Sequence[str],
        history_digests: Sequence[str],
    ) -> list[Json]:
        """The list that goes out: `base` with the answer's edits. It is remembered."""
        answer = _structured(result)
        edits = answer.get("edits") or ()
        fitted = _spliced(base, edits, list)
        # Digests are those of what was sent: the caller may have written into it meanwhile.
        if edits:
            answer["next_step"] = APPLIED
        self.answer, self._usage = answer, None
        self._known = _Known(
            answer["session_id"],
            answer.get("context_hash"),
            tuple(fitted),
            _spliced(digests, edits, _digests),
            history_digests,
        )
        return fitted


def says_too_long(error: Exception) -> bool:
    """Whether a provider's error says that the prompt is too long for the model."""
    text = str(error).lower()
    return any(words in text for words in _TOO_LONG)


def _given(known: _Known | None, messages: Sequence[Json], digests: list[str]) -> _Given:
    """`messages` as they go on from the known context, or from the history it stands for."""
    if known is not None:
        count = len(known.context_digests)
        if digests[:count] == known.context_digests:
            history = [*known.history_digests, *digests[count:]]
            return _Given(messages, count, count, history, is_known=True, digests=digests)
        count = len(known.history_digests)
        # A caller may have written into the list that it was given back.
        is_intact = _digests(known.context) == known.context_digests
        if is_intact and digests[:count] == known.history_digests:
            new, new_from = messages[count:], len(known.context)
            grown = [*known.context_digests, *digests[count:]]
            return _Given(
                [*known.context, *new], new_from, count, digests, is_known=True, digests=grown
            )
    count = len(messages)
    return _Given(messages, count, count, digests, is_known=False, digests=digests)


def _spliced(
    items: Sequence[T], edits: Sequence[Json], inserted: Callable[[list[Json]], Sequence[T]]
) -> list[T]:
    """`items` with the server's edits, from the last to the first."""
    result = list(items)
    for edit in reversed(edits):
        start = edit["start"]
        result[start : start + edit["delete_count"]] = inserted(edit["insert"])
    return result


def _digests(messages: Sequence[Json]) -> list[str]:
    """One for each message: a list may be changed in place, so no object is proof of itself."""
    return [
        blake2b(json.dumps(message, sort_keys=True).encode(), digest_size=16).hexdigest()
        for message in messages
    ]


def _is_refused(result: Any) -> bool:
    return bool(_field(result, "is_error", "isError"))


def _structured(result: Any) -> Json:
    answer = _field(result, "structured_content", "structuredContent")
    if not isinstance(answer, Mapping):
        raise CompactionError(
            "The answer of compact_messages has no structured content. Pass the `call_tool` that "
            "returns the whole result, not only its text."
        )
    return {**answer}


def _text(result: Any) -> str:
    blocks = _field(result, "content", "content") or ()
    return "\n".join(text for block in blocks if (text := _field(block, "text", "text")))


def _field(value: Any, name: str, json_name: str) -> Any:
    """A field of an SDK's object, in its old or new spelling, or of plain JSON."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return fields.get(json_name, fields.get(name))
    return getattr(value, name, getattr(value, json_name, None))
