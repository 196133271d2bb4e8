"""Make the conversation of each request fit, and remember per session what the provider got.

Every session has one lock. The archive stores compacted lists, so a restarted proxy goes on with
the same bytes. A small file per session stores how fallbacks must treat its thinking.

If a compaction fails after an earlier edit, the original list is not enough: the provider would
refuse thinking that was written after the edited list. So the thinking up to that place is removed,
now and in all later requests.
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from cachetools import LRUCache
from context_compaction import (
    CompactionError,
    CompactRequest,
    CompactResult,
    JsonObject,
    Mode,
    compact,
    history_hash,
    is_list,
    is_object,
    make_folder,
    put_file,
)

from mcp_server_compaction.protocol.deps import GetArchive
from mcp_server_compaction.proxy.request_body import names_in
from mcp_server_compaction.proxy.requests import Conversation
from mcp_server_compaction.proxy.status import Status

_SESSIONS = 1_000
_READ_TOOL = "read_persisted_output"
_THINKING = ("thinking", "redacted_thinking")
# The pointers in a list, and their form for a model without the tools that read them.
_POINTERS = (
    (
        re.compile(rf"; {_READ_TOOL} (o_[0-9a-f]{{24}}(?: o_[0-9a-f]{{24}})*)\]"),
        r"; archived as \1]",
    ),
    (re.compile(rf": {_READ_TOOL}\. Preview:"), " is archived. Preview:"),
    (re.compile(r" search_transcript finds the originals\."), " The originals are archived."),
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of all compactions.

    Attributes:
        policy: Name of the policy.
        context_window: Tokens of the window; None to derive it from the request.
        host_window: The window for which the host compacts its context, if it is known.
        trigger_tokens: Token count at which a compaction starts; None for the policy's.
        is_observing: Whether requests are only archived and counted.
        patience_seconds: Time limit of one compaction. Then the request is sent unedited.
    """

    policy: str = "default"
    context_window: int | None = None
    trigger_tokens: int | None = None
    is_observing: bool = False
    patience_seconds: float = 20.0
    host_window: int | None = None


@dataclass(slots=True)
class State:
    """What the proxy must know about a session after a restart.

    Attributes:
        is_edited: Whether an edited list was sent.
        is_original: Whether the original list was sent since then.
        strip_before: The number of messages whose thinking is removed from every list.
        refused: Why nothing is edited any more; "" if lists are edited.
        names_tools: Whether placeholders name the tools that read the archive; None before the
            first edit.
    """

    is_edited: bool = False
    is_original: bool = False
    strip_before: int = 0
    refused: str = ""
    names_tools: bool | None = None


@dataclass(slots=True)
class Session:
    """One session in this process.

    Attributes:
        path: File of the state.
        state: The state.
        lock: Held while a list of the session is compacted.
        usage: The provider's usage of the last request, the number of its messages and the hash of
            the last one; None if it is unknown.
    """

    path: Path
    state: State
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    usage: tuple[JsonObject, int, str] | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the provider gets it.

    Attributes:
        data: The body; None if it is the one that came.
        is_edited: Whether it has a compacted list.
        is_fallback: Whether the list could not be compacted.
    """

    data: bytes | None = None
    is_edited: bool = False
    is_fallback: bool = False


class Sessions:
    """All sessions of one proxy.

    Args:
        options: Options of compactions.
        archives: Opens the archive.
        folder: Folder for local files of the archive.
        status: Counts of this run.
        tasks: Runs compactions, which may outlast their request.
    """

    def __init__(
        self,
        options: Options,
        archives: GetArchive,
        folder: Path,
        status: Status,
        tasks: TaskGroup,
    ) -> None:
        self._options, self._archives, self._status = options, archives, status
        self._folder, self._tasks = folder / "proxy", tasks
        self._sessions: LRUCache[str, Session] = LRUCache(_SESSIONS)

    async def fit(self, conversation: Conversation) -> Outgoing:
        """Return the request with a list that fits, or as it is if that is impossible."""
        session = await self._session(conversation)
        try:
            return await self._fit(conversation, session)
        # Every failure is caught, because the host must get its answer. It is counted.
        except Exception as error:  # noqa: BLE001
            reason = f"a fault of the proxy ({type(error).__name__})"
            return await self._original(conversation, session, reason)

    async def _fit(self, conversation: Conversation, session: Session) -> Outgoing:
        if session.state.refused:
            return await self._original(conversation, session, session.state.refused)
        result = await self._in_time(partial(self._compact, conversation, session, "auto"))
        if isinstance(result, str):
            return await self._original(conversation, session, result)
        if result.status == "no_progress" and not result.changed:
            return await self._original(conversation, session, "nothing useful could be removed")
        is_edited = result.changed and result.status != "repaired"
        if is_edited:
            if result.edits:
                self._status.compactions += 1
            await self._change(
                session,
                is_edited=True,
                is_original=False,
                strip_before=_switched(session.state, conversation, to_original=False),
                names_tools=self._names_tools(session, conversation),
            )
        messages = result.messages if is_edited else conversation.messages
        return await self._outgoing(conversation, session, messages, is_edited=is_edited)

    async def refused(
        self, conversation: Conversation, outgoing: Outgoing, status: int, answer: bytes
    ) -> Outgoing | None:
        """Return what to send once more after the provider refused a request, or None.

        An edited list is sent as the original, and the session is not edited any more. An original
        list whose thinking belongs to an edited list, which this proxy no longer knows, is sent
        without its thinking.
        """
        session = await self._session(conversation)
        if outgoing.is_edited:
            reason = f"the provider refused an edited list ({status})"
            await self._change(session, refused=reason)
            self._status.note(f"{reason}: this session is not edited any more")
            return await self._original(conversation, session, reason)
        is_about_thinking = status == 400 and b"thinking" in answer
        if not (is_about_thinking and conversation.has_bound_thinking):
            return None
        await self._change(session, strip_before=len(conversation.messages))
        again = await self._outgoing(conversation, session, conversation.messages)
        if again.data is None or again.data == outgoing.data:
            return None
        self._status.fell_back("the provider refused thinking that followed other messages")
        return again

    async def observe(self, conversation: Conversation) -> None:
        """Archive a conversation, and count what a compaction would have removed."""
        session = await self._session(conversation)
        if session.lock.statistics().tasks_waiting > 1:
            self._status.fell_back("not observed: the session is busy")
            return
        for mode in ("record", "plan"):
            result = await self._compact(conversation, session, mode)
            if isinstance(result, str):
                self._status.fell_back(result)
            elif result.status == "planned" and result.changed:
                self._status.compactions += 1
                self._status.saved_tokens += max(0, result.tokens.before - result.tokens.after)

    async def answered(
        self, conversation: Conversation, outgoing: Outgoing, usage: JsonObject
    ) -> None:
        """Remember the usage of a request, with which the next request is counted."""
        session = await self._session(conversation)
        messages = conversation.messages
        session.usage = None
        if usage and not outgoing.is_fallback:
            session.usage = usage, len(messages), history_hash(messages[-1:])

    async def _session(self, conversation: Conversation) -> Session:
        key = conversation.key
        if key not in self._sessions:
            name = blake2b(key.encode("utf-8"), digest_size=16).hexdigest()
            path = self._folder / f"session-{name}.json"
            state = await to_thread.run_sync(_read_state, path)
            self._sessions.setdefault(key, Session(path, state))
        return self._sessions[key]

    async def _in_time(
        self, work: Callable[[], Awaitable[CompactResult | str]]
    ) -> CompactResult | str:
        """Return the outcome of `work`, or a reason if it takes too long. It then goes on."""
        done, outcomes = anyio.Event(), list[CompactResult | str]()

        async def run() -> None:
            outcomes.append(await work())
            done.set()

        self._tasks.start_soon(run)
        with anyio.move_on_after(self._options.patience_seconds):
            await done.wait()
        return outcomes[0] if outcomes else "the compaction took too long"

    async def _compact(
        self, conversation: Conversation, session: Session, mode: Mode
    ) -> CompactResult | str:
        """Return the result of the library, or the reason of its failure."""
        try:
            async with session.lock:
                request = self._request(conversation, session, mode)
                archive = await self._archives()
                return await compact(conversation.messages, request, archive=archive)
        except CompactionError as error:
            self._status.note(f"{type(error).__name__}: {str(error)[:300]}")
            return f"the compaction failed ({type(error).__name__})"
        # Every failure is caught, because the host must get its answer. It is counted.
        except Exception as error:  # noqa: BLE001
            return f"the compaction failed ({type(error).__name__})"

    def _request(self, conversation: Conversation, session: Session, mode: Mode) -> CompactRequest:
        options, api, fields = self._options, conversation.api, conversation.body.fields
        settings: dict[str, Any] = {}
        if api.format == "anthropic":
            settings["thinking"] = "strip" if conversation.has_bound_thinking else "keep"
        if options.trigger_tokens:
            settings["trigger_tokens"] = options.trigger_tokens
        usage, index = _usage_for(conversation, session)
        return CompactRequest(
            mode=mode,
            format=api.format,
            session_id=conversation.session_id,
            parent_session_id=conversation.parent_session_id,
            model=conversation.model,
            context_window=options.context_window
            or conversation.window_tokens(options.host_window),
            max_output_tokens=conversation.max_output_tokens,
            system=fields.get(api.system_name),
            tools=fields.get("tools"),
            usage=usage,
            usage_message_index=index,
            policy=options.policy,
            settings=settings,
            summarizer="extractive",
        )

    def _names_tools(self, session: Session, conversation: Conversation) -> bool:
        if session.state.names_tools is None:
            return _READ_TOOL in names_in(conversation.body.fields.get("tools"))
        return session.state.names_tools

    async def _original(
        self, conversation: Conversation, session: Session, reason: str
    ) -> Outgoing:
        """Return the request with the original list, without thinking that is no longer valid."""
        self._status.fell_back(reason)
        if session.state.is_edited:
            strip_before = _switched(session.state, conversation, to_original=True)
            await self._change(session, is_original=True, strip_before=strip_before)
        messages = conversation.messages
        return await self._outgoing(conversation, session, messages, is_fallback=True)

    async def _outgoing(
        self,
        conversation: Conversation,
        session: Session,
        messages: Sequence[JsonObject],
        *,
        is_edited: bool = False,
        is_fallback: bool = False,
    ) -> Outgoing:
        """Return the request with `messages`; its own bytes if the list is the original."""
        given = conversation.messages
        if session.state.strip_before and conversation.has_bound_thinking:
            own = {id(message) for message in given[: session.state.strip_before]}
            messages = [
                m for old in messages for m in ([old] if id(old) not in own else _bare(old))
            ]
        if len(messages) == len(given) and all(map(_is_same, messages, given)):
            return Outgoing(is_fallback=is_fallback)
        reword = str if session.state.names_tools is not False else _reworded
        data = await to_thread.run_sync(conversation.body.with_messages, messages, reword)
        return Outgoing(data, is_edited, is_fallback)

    async def _change(self, session: Session, **values: Any) -> None:
        """Change the state of a session, and write it if it is different."""
        before = asdict(session.state)
        if before | values == before:
            return
        session.state = State(**before | values)
        try:
            await to_thread.run_sync(_write_state, session.path, session.state)
        except OSError as error:
            self._status.note(f"The state of a session cannot be written: {error.strerror}")


def _switched(state: State, conversation: Conversation, *, to_original: bool) -> int:
    """Return the number of messages without thinking, if the list changes its kind now."""
    is_switch = state.is_edited and state.is_original != to_original
    return len(conversation.messages) if is_switch else state.strip_before


def _usage_for(
    conversation: Conversation, session: Session
) -> tuple[JsonObject, int] | tuple[None, None]:
    """Return the usage of the last request and the index of its answer, if the list has both."""
    messages = conversation.messages
    if session.usage is None:
        return None, None
    usage, count, last = session.usage
    if count >= len(messages) or history_hash(messages[count - 1 : count]) != last:
        return None, None
    return usage, count


def _bare(message: JsonObject) -> list[JsonObject]:
    """Return a message without thinking; nothing if it has nothing else."""
    blocks = message.get("content")
    if message.get("role") != "assistant" or not is_list(blocks):
        return [message]
    kept = [b for b in blocks if not (is_object(b) and b.get("type") in _THINKING)]
    if len(kept) == len(blocks):
        return [message]
    return [{**message, "content": kept}] if kept else []


def _is_same(first: object, second: object) -> bool:
    return first is second


def _reworded(text: str) -> str:
    """Return the JSON of an edited message with pointers that name no tool."""
    for pattern, form in _POINTERS:
        text = pattern.sub(form, text)
    return text


def _read_state(path: Path) -> State:
    try:
        return State(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return State()


def _write_state(path: Path, state: State) -> None:
    make_folder(path.parent)
    put_file(path, json.dumps(asdict(state)).encode("ascii"))
