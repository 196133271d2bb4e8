"""Recognize a conversation in a request, its session, and the options of its compaction."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from context_compaction import JsonObject, history_hash, is_list, is_object, profile_for

from mcp_server_compaction.proxy.request_body import Body, read_body

# A shorter list is a title, a quota check or the start of a conversation.
_MIN_MESSAGES = 3
# The host's own compaction comes later, because the window is taken as smaller by this factor.
WINDOW_SHARE = 0.8
# The window that Claude Code assumes behind an address that is not Anthropic's.
_CLAUDE_CODE_WINDOW_TOKENS = 200_000
_LONG_WINDOW_TOKENS = 1_000_000
_ID_CHARS = 50
_NO_ID_CHARS = re.compile(r"[^A-Za-z0-9_.:-]")

Headers: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Api:
    """One API of a provider.

    Attributes:
        path_end: The end of the request's path.
        format: Name of the message format.
        list_name: Field with the messages.
        system_name: Field with the system prompt.
        output_names: Fields with the token limit of the response.
    """

    path_end: str
    format: str
    list_name: str
    system_name: str
    output_names: tuple[str, ...]


_APIS = (
    Api("/messages", "anthropic", "messages", "system", ("max_tokens",)),
    Api("/responses", "openai-responses", "input", "instructions", ("max_output_tokens",)),
    Api(
        "/chat/completions", "openai-chat", "messages", "", ("max_completion_tokens", "max_tokens")
    ),
)
# A header that only one host sends.
_HOST_MARKS = {
    "x-claude-code-session-id": "claude-code",
    "x-codex-turn-metadata": "codex",
    "x-session-affinity": "opencode",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request with a conversation that can be compacted.

    Attributes:
        api: The API.
        data: The request as it came.
        body: The same request, read.
        headers: The request's headers, with names in lower case.
        session_id: ID of the session in the archive; None if the request names no session.
        parent_session_id: ID of the session that started a sub-agent's session.
    """

    api: Api
    data: bytes
    body: Body
    headers: Headers
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
    def host(self) -> str:
        """The host that sent the request; "" if it is unknown."""
        return next((host for name, host in _HOST_MARKS.items() if name in self.headers), "")

    @property
    def tool_names(self) -> str:
        """The names of the offered tools, in one text."""
        return _names_of(self.body.fields.get("tools"))

    @property
    def has_bound_thinking(self) -> bool:
        """Whether the provider may refuse thinking after an edit of earlier messages.

        Thinking of the type "enabled" is not bound, and a running tool loop needs it.
        """
        if self.api.format != "anthropic":
            return False
        thinking = self.body.fields.get("thinking")
        return not (is_object(thinking) and thinking.get("type") == "enabled")

    @property
    def max_output_tokens(self) -> int | None:
        """The token limit of the response; None if the request has none."""
        limits = (self.body.fields.get(name) for name in self.api.output_names)
        return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)

    def window_tokens(self, host_window: int | None = None) -> int:
        """Return the window to compact for, below the one at which the host compacts itself."""
        window = profile_for(self.model).context_window
        beta = self.headers.get("anthropic-beta", "")
        if "context-1m" in beta or (self.model or "").endswith("[1m]"):
            window = _LONG_WINDOW_TOKENS
        elif self.host == "claude-code":
            window = min(window, _CLAUDE_CODE_WINDOW_TOKENS)
        return int(min(window, host_window or window) * WINDOW_SHARE)


def api_of(method: str, path: str) -> Api | None:
    """Return the API of a request that may contain a conversation, or None."""
    if method != "POST":
        return None
    return next((api for api in _APIS if path.endswith(api.path_end)), None)


def read_conversation(data: bytes, headers: Headers, api: Api) -> Conversation | str:
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
    return Conversation(api, data, body, headers, *_session_of(headers, fields))


def _session_of(headers: Headers, fields: JsonObject) -> tuple[str | None, str | None]:
    """Return the IDs of the session and of its parent in the archive."""
    if session := headers.get("x-claude-code-session-id") or _user_session(fields):
        agent = headers.get("x-claude-code-agent-id")
        if not agent:
            return _id(session), None
        parent = headers.get("x-claude-code-parent-agent-id")
        return _id(session, agent), _id(session, parent) if parent else _id(session)
    session, thread = headers.get("session-id"), headers.get("thread-id")
    if thread:
        return _id(thread), _id(session) if session and session != thread else None
    names = session, headers.get("x-session-id"), fields.get("prompt_cache_key")
    return next((_id(name) for name in names if isinstance(name, str) and name), None), None


def _user_session(fields: JsonObject) -> str | None:
    """Return the session in the metadata of a request by Claude Code, or None."""
    try:
        session = json.loads(fields["metadata"]["user_id"])["session_id"]
    except (LookupError, TypeError, ValueError):
        return None
    return session if isinstance(session, str) and session else None


def _id(*names: str) -> str:
    """Return the ID of a session in the archive, from the host's names."""
    name = ":".join(names)
    if len(name) > _ID_CHARS * 2 or _NO_ID_CHARS.search(name):
        name = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"proxy-{name}"


def _names_of(tools: Any) -> str:
    """Return the names of tools, also of those in groups, in one text."""
    objects = [tool for tool in tools if is_object(tool)] if is_list(tools) else []
    inner = [f"{_names_of([t.get('function')])} {_names_of(t.get('tools'))}" for t in objects]
    return " ".join([*(str(tool.get("name")) for tool in objects), *inner])
