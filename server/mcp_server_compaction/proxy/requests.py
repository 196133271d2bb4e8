"""Recognize a conversation in a request, its session, and the options of its compaction.

The place of each message in the text is known, so that only the list changes. An unchanged message
keeps the bytes that the host sent, and so does every other field.

Answers of the provider have the usage, or a summary by the caller's own model. The question for a
summary is one more message behind the list that the provider has just read, so nearly everything is
read from its prompt cache. The request has the caller's own fields and credentials.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
from context_compaction import (
    JsonObject,
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SummaryError,
    TellChars,
    history_hash,
    is_list,
    is_object,
    profile_for,
)

# A shorter list is a title, a quota check or the start of a conversation.
_MIN_MESSAGES = 3
# The host's own compaction comes later, because the window is taken as smaller by this factor.
WINDOW_SHARE = 0.8
# The window that Claude Code assumes behind an address that is not Anthropic's.
_CLAUDE_CODE_WINDOW_TOKENS = 200_000
_LONG_WINDOW_TOKENS = 1_000_000
_ID_CHARS = 100
_NO_ID_CHARS = re.compile(r"[^A-Za-z0-9_.-]")
# NaN and Infinity are not JSON; int refuses them.
_READ = json.JSONDecoder(parse_constant=int).raw_decode
_SPACE = re.compile(r"[ \t\n\r]*")
# Sends a body with the caller's path and headers.
Ask = Callable[[bytes], Awaitable[httpx2.Response]]
_QUESTION = (
    "Write a summary of this conversation for the engineer who continues the work. Call no tool. "
    "Use these headings: ## Task, ## Rules of the user, ## Work done, ## Files and results, "
    "## Problems, ## Current state and next step. Keep names, paths, numbers and the user's rules "
    "exact. Do not describe finished work as open. Write at most {} words, and nothing else."
)


@dataclass(frozen=True, slots=True)
class Api:
    """One API of a provider.

    Attributes:
        path_end: The end of the request's path.
        format: Name of the message format.
        list_name: Field with the messages.
        system_name: Field with the system prompt.
    """

    path_end: str
    format: str
    list_name: str
    system_name: str


_APIS = (
    Api("/messages", "anthropic", "messages", "system"),
    Api("/responses", "openai-responses", "input", "instructions"),
    Api("/chat/completions", "openai-chat", "messages", ""),
)


@dataclass(frozen=True, slots=True)
class Body:
    """A request whose message list can be replaced.

    Attributes:
        text: The whole request.
        fields: Its other fields by name.
        messages: The message list.
        spans: The place of each message in `text`.
        place: The place of the list in `text`.
    """

    text: str
    fields: JsonObject
    messages: list[JsonObject]
    spans: list[slice]
    place: slice

    def with_messages(self, messages: Sequence[JsonObject], reword: Callable[[str], str]) -> bytes:
        """Return the request with another list. `reword` may change the JSON of new messages."""
        spans = dict(zip(map(id, self.messages), self.spans, strict=True))
        # JSON in ASCII also carries lone surrogates.
        texts = (
            self.text[spans[id(m)]] if id(m) in spans else reword(json.dumps(m)) for m in messages
        )
        head, tail = self.text[: self.place.start], self.text[self.place.stop :]
        return f"{head}[{','.join(texts)}]{tail}".encode()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request with a conversation that can be compacted.

    Attributes:
        api: The API.
        data: The bytes of the request.
        body: The same request, read.
        headers: The request's headers, with names in lower case.
        session_id: ID of the session in the archive; None if the request names no session.
        parent_session_id: ID of the session that started a sub-agent's session.
    """

    api: Api
    data: bytes
    body: Body
    headers: Mapping[str, str]
    session_id: str | None
    parent_session_id: str | None

    @property
    def messages(self) -> list[JsonObject]:
        """The message list."""
        return self.body.messages

    @property
    def key(self) -> str:
        """A name of the session that is also set if the request names none."""
        if self.session_id is not None:
            return self.session_id
        roles = ("system", "developer")
        first = next((m for m in self.messages if m.get("role") not in roles), self.messages[0])
        return f"list-{history_hash((first,))}"

    @property
    def model(self) -> str | None:
        """The name of the model."""
        model = self.body.fields.get("model")
        return model if isinstance(model, str) else None

    @property
    def is_of_claude_code(self) -> bool:
        """Whether Claude Code sent the request."""
        return "x-claude-code-session-id" in self.headers

    def has_tool(self, name: str) -> bool:
        """Whether a tool is offered whose name ends with `name`."""
        return f'{name}"' in json.dumps(self.body.fields["tools"])

    @property
    def has_bound_thinking(self) -> bool:
        """Whether the provider may refuse thinking after an edit of earlier messages.

        Thinking of the type "enabled" is not bound, and a running tool loop needs it.
        """
        thinking = self.body.fields.get("thinking")
        kind = thinking.get("type") if is_object(thinking) else None
        return self.api.format == "anthropic" and kind != "enabled"

    def window_tokens(self, host_window: int | None = None) -> int:
        """Return the window to compact for, below the one at which the host compacts itself."""
        window = profile_for(self.model).context_window
        beta = self.headers.get("anthropic-beta", "")
        if "context-1m" in beta or (self.model or "").endswith("[1m]"):
            window = _LONG_WINDOW_TOKENS
        elif self.is_of_claude_code:
            window = min(window, _CLAUDE_CODE_WINDOW_TOKENS)
        return int(min(window, host_window or window) * WINDOW_SHARE)


def api_of(method: str, path: str) -> Api | None:
    """Return the API of a request that may contain a conversation, or None."""
    apis = (api for api in _APIS if method == "POST" and path.endswith(api.path_end))
    return next(apis, None)


def read_conversation(data: bytes, headers: Mapping[str, str], api: Api) -> Conversation | str:
    """Return the conversation in a request, or the reason why it is passed on unchanged."""
    if headers.get("content-encoding", "identity") != "identity":
        return "the body is compressed"
    try:
        body = read_body(data, api.list_name)
    except ValueError as error:
        return str(error)
    fields = body.fields
    if len(body.messages) < _MIN_MESSAGES:
        return "fewer than 3 messages"
    if not is_list(fields.get("tools")) or not fields["tools"]:
        return "no tools"
    if fields.get("previous_response_id") is not None or fields.get("conversation") is not None:
        return "the provider stores the conversation"
    return Conversation(api, data, body, headers, *_session_of(headers))


def _session_of(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the IDs of the session and of its parent in the archive."""
    if session := headers.get("x-claude-code-session-id"):
        agent, parent = (headers.get(f"x-claude-code-{n}agent-id", "") for n in ("", "parent-"))
        return (_id(session, agent), _id(session, parent)) if agent else (_id(session), None)
    session, thread = headers.get("session-id"), headers.get("thread-id")
    if thread:
        return _id(thread), _id(session) if session and session != thread else None
    session = session or headers.get("x-session-id")
    return _id(session) if session else None, None


def _id(*names: str) -> str:
    """Return the ID of a session in the archive, from the host's names."""
    return f"proxy-{_NO_ID_CHARS.sub('_', '.'.join(filter(None, names)))[:_ID_CHARS]}"


def read_body(data: bytes, list_name: str) -> Body:
    """Return the request in `data`, whose message list is in the field `list_name`.

    Each value is decoded once, because this is most of the work of a large request.

    Raises:
        ValueError: The request is no UTF-8 or JSON, a field is repeated, or it has no such list.
            The text gives the reason without any content of the request.
    """
    fields: JsonObject = {}
    messages: list[JsonObject] = []
    spans: list[slice] = []
    place: slice | None = None
    is_repeated = False
    try:
        text = data.decode("utf-8")
        at, mark = _after(text, 0, "{"), ","
        while mark == ",":
            name, at = _READ(text, at)
            at = _after(text, at, ":")
            is_repeated |= name in fields or (place is not None and name == list_name)
            if name == list_name and text[at] == "[" and text[_space_end(text, at + 1)] != "]":
                start = at
                while not spans or text[at] == ",":
                    begin = _space_end(text, at + 1)
                    message, at = _READ(text, begin)
                    messages.append(message)
                    spans.append(slice(begin, at))
                    at = _space_end(text, at)
                place = slice(start, at + 1)
                at = _after(text, at, "]")
            else:
                fields[name], at = _READ(text, at)
                at = _space_end(text, at)
            mark = text[at]
            at = _after(text, at, "," if mark == "," else "}")
    except (ValueError, TypeError, IndexError, RecursionError):
        raise ValueError("the body is not readable JSON") from None
    if at < len(text):
        raise ValueError("the body is not readable JSON")
    if is_repeated:
        raise ValueError("the body has a field twice")
    if place is None or not all(map(is_object, messages)):
        raise ValueError("the body has no list of messages")
    return Body(text, fields, messages, spans, place)


def _after(text: str, at: int, mark: str) -> int:
    """Return the place after white space, `mark` and more white space."""
    at = _space_end(text, at)
    if text[at] != mark:
        raise ValueError("another mark is expected")
    return _space_end(text, at + 1)


def _space_end(text: str, at: int) -> int:
    return next(_SPACE.finditer(text, at)).end()


def usage_in(answer: bytes) -> JsonObject:
    """Return the usage in a complete answer, which may be a stream; empty if it reports none."""
    usage: JsonObject = {}
    is_stream = not answer.lstrip().startswith(b"{")
    for line in answer.split(b"\n") if is_stream else (answer,):
        if b'"usage"' not in line:
            continue
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            continue
        for holder in (event, event.get("message"), event.get("response")):
            found = holder.get("usage") if is_object(holder) else None
            if is_object(found):
                usage |= {name: value for name, value in found.items() if value is not None}
    return usage


@dataclass(slots=True)
class CallerModel:
    """The model of one request.

    Attributes:
        talk: The request.
        sent: The body that the provider got.
        ask: Sends another body.
        model: Name of the model.
        window_tokens: Token limit of a request. The list is sent as it was, so it always fits.
        timeout_seconds: Time limit of the summary.
        writer: Name for receipts.
    """

    talk: Conversation
    sent: bytes
    ask: Ask
    model: str
    window_tokens: int = 1_000_000
    timeout_seconds: float = 180.0
    writer: str = "caller"
    _is_asked: bool = False

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:  # noqa: ARG002
        """Return the model's answer to one question; `prompt` gives its length only."""
        if self._is_asked:
            raise SummaryError("The caller's model is asked only one time")
        self._is_asked = True
        body: JsonObject = json.loads(self.sent)
        question = _QUESTION.format(prompt.max_tokens // 2)
        body[self.talk.api.list_name].append({"role": "user", "content": question})
        body.pop("stream_options", None)
        response = await self.ask(json.dumps({**body, "stream": False}).encode("ascii"))
        answer = await response.aread()
        if response.status_code != 200:
            raise SummaryError(f"The provider answered {response.status_code}")
        return ModelAnswer(_text_of(json.loads(answer)), ModelUsage(requests=1))


def _text_of(value: Any) -> str:
    """Return the text in an answer of any of the three APIs, without thinking and calls."""
    if is_list(value):
        return "".join(map(_text_of, value))
    if not is_object(value):
        return value if isinstance(value, str) else ""
    kind, inner = value.get("type"), ("content", "output", "choices", "message", "text")
    if kind in ("thinking", "reasoning", "tool_use", "function_call"):
        return ""
    return "".join(_text_of(value.get(name)) for name in inner)
