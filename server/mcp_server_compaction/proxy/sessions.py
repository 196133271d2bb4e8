"""Make the conversation of each request fit, and remember per session what the provider got.

Every session has one lock. The archive stores compacted lists, so a restarted proxy goes on with
the same bytes. A small file per session stores how fallbacks must treat its thinking.

If a compaction fails after an earlier edit, the original list is not enough: the provider would
refuse thinking that was written after the edited list. So the thinking up to that place is removed,
now and in all later requests.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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
    compact,
    history_hash,
    is_list,
    is_object,
    make_folder,
    put_file,
)  # fmt: skip

from mcp_server_compaction.protocol.deps import GetArchive
from mcp_server_compaction.proxy.requests import Conversation
from mcp_server_compaction.proxy.status import Status
from mcp_server_compaction.proxy.summaries import Ask, CallerModel

_SESSIONS = 1_000
# Share of the trigger at which the caller's model is asked for a summary, if it may be.
_SUMMARY_SHARE = 0.8
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
        trigger_tokens: Token count at which a compaction starts; None for the policy's.
        is_observing: Whether requests are only archived and counted.
        asks_caller: Whether the caller's own model writes summaries.
        patience_seconds: Time limit of one compaction. Then its request is sent unedited.
        host_window: The window for which the host compacts its context, if it is known.
    """

    policy: str = "default"
    context_window: int | None = None
    trigger_tokens: int | None = None
    is_observing: bool = False
    asks_caller: bool = False
    patience_seconds: float = 20.0
    host_window: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What the proxy must know about a session after a restart.

    Attributes:
        is_edited: Whether an edited list was sent.
        is_original: Whether the original list was sent since then.
        strip_before: The number of messages whose thinking is removed from every list.
        refused: Why nothing is edited any more; "" if lists are edited.
        names_tools: Whether placeholders name the tools that read the archive; None before the
            first edit.
        usages: The provider's usage of the last requests, each with the number of its messages and
            the hash of its last message. The older one is for a request that is sent again.
    """

    is_edited: bool = False
    is_original: bool = False
    strip_before: int = 0
    refused: str = ""
    names_tools: bool | None = None
    usages: Sequence[tuple[JsonObject, int, str]] = ()


@dataclass(slots=True)
class Session:
    """One session in this process.

    Attributes:
        path: File of the state.
        state: The state.
        lock: Held while a list of the session is compacted.
        newest: The newest list to observe.
        is_due: Whether the last list was so near its trigger that a summary is asked for.
        is_asked: Whether a summary was asked for since the last compaction.
        prepared_id: The prepared summary that the next request applies; "" without one.
    """

    path: Path
    state: State
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    newest: Conversation | None = None
    is_due: bool = False
    is_asked: bool = False
    prepared_id: str = ""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the provider gets it.

    Attributes:
        data: The body.
        is_edited: Whether it has a compacted list.
        is_fallback: Whether the list could not be compacted.
    """

    data: bytes
    is_edited: bool = False
    is_fallback: bool = False


@dataclass(slots=True)
class Sessions:
    """All sessions of one proxy.

    Attributes:
        options: Options of compactions.
        archives: Opens the archive.
        folder: Folder for local files of the archive.
        status: Counts of this run.
        tasks: Runs compactions, which may outlast their request.
    """

    options: Options
    archives: GetArchive
    folder: Path
    status: Status
    tasks: TaskGroup
    _sessions: LRUCache[str, Session] = field(
        default_factory=lambda: LRUCache[str, Session](_SESSIONS)
    )

    async def fit(self, talk: Conversation) -> Outgoing:
        """Return the request with a list that fits, or as it is if that is impossible."""
        session = await self._session(talk)
        try:
            return await self._fit(talk, session)
        # Every failure is caught, because the host must get its answer. It is counted.
        except Exception as error:  # noqa: BLE001
            return await self._original(talk, session, f"a fault ({type(error).__name__})")

    async def _fit(self, talk: Conversation, session: Session) -> Outgoing:
        result: CompactResult | str = session.state.refused
        if not result:
            request = self._request(talk, session)
            if session.prepared_id:
                applied, session.prepared_id = replace(request, apply=session.prepared_id), ""
                result = await self._in_time(talk, session, applied)
            if not isinstance(result, CompactResult):
                result = await self._in_time(talk, session, request)
        if isinstance(result, str):
            return await self._original(talk, session, result)
        tokens = result.tokens
        session.is_asked &= not result.edits
        is_near = tokens.upper > _SUMMARY_SHARE * tokens.trigger
        session.is_due = self.options.asks_caller and is_near and not session.is_asked
        if result.status == "no_progress" and not result.changed:
            return await self._original(talk, session, "nothing useful could be removed")
        # Repairs alone are no reason to change a request that the host may always have sent so.
        if not result.changed or result.status == "repaired":
            return await self._outgoing(talk, session, talk.messages)
        self.status.compactions += bool(result.edits)
        if not result.fits:
            self.status.note("A compacted list is still above its limit: see its receipt.")
        state = session.state  # read now, because another request may have changed it
        names_tools = state.names_tools
        if names_tools is None:
            names_tools = _READ_TOOL in talk.tool_names
        strip_before = len(talk.messages) if state.is_original else state.strip_before
        state = replace(state, is_edited=True, is_original=False, names_tools=names_tools)
        await self._change(session, replace(state, strip_before=strip_before))
        return await self._outgoing(talk, session, result.messages, is_edited=True)

    async def refused(
        self, talk: Conversation, sent: Outgoing, status: int, answer: bytes
    ) -> Outgoing | None:
        """Return what to send once more after the provider refused a request, or None.

        A list is sent without its thinking if the provider bound that to another list, system
        prompt or tools. An edited list with another fault is sent as the original, and the session
        is not edited any more.
        """
        session = await self._session(talk)
        if status == 400 and b"thinking" in answer and talk.has_bound_thinking:
            await self._change(session, replace(session.state, strip_before=len(talk.messages)))
            again = await self.fit(talk)
            if again.data != sent.data:
                self.status.fell_back("the provider refused thinking that followed other messages")
                return again
        if not sent.is_edited:
            return None
        reason = f"the provider refused an edited list ({status})"
        await self._change(session, replace(session.state, refused=reason))
        self.status.note(f"{reason}: this session is not edited any more")
        return await self._original(talk, session, reason)

    async def observe(self, talk: Conversation) -> None:
        """Archive a conversation, and count what a compaction would have removed."""
        session = await self._session(talk)
        session.newest = talk
        async with session.lock:
            if session.newest is not talk:
                return  # The newer list contains this one.
            request = self._request(talk, session)
            await self._caught(replace(request, mode="record"), talk)
            result = await self._caught(replace(request, mode="plan"), talk)
        if isinstance(result, str):
            self.status.fell_back(result)
        elif result.status == "planned":
            self.status.compactions += 1
            self.status.saved_tokens += max(0, result.tokens.before - result.tokens.after)

    async def answered(self, talk: Conversation, sent: Outgoing, usage: JsonObject) -> None:
        """Remember the usage of a request, with which the next request is counted."""
        session, count = await self._session(talk), len(talk.messages)
        usages = [known for known in session.state.usages if known[1] < count][-1:]
        if sent.is_fallback or not usage:
            usages = []
        else:
            usages.append((usage, count, history_hash(talk.messages[-1:])))
        await self._change(session, replace(session.state, usages=usages))

    async def prepare(self, talk: Conversation, sent: Outgoing, ask: Ask) -> None:
        """Let the caller's model write a summary for the next request, if the list is long."""
        session = await self._session(talk)
        if not session.is_due or session.is_asked:
            return
        session.is_asked = True
        request = replace(self._request(talk, session), mode="full", prepare=True)
        model = CallerModel(talk, sent.data, ask)
        # Without the session's lock, because requests must not wait for the model.
        result = await self._caught(replace(request, summarizer="auto"), talk, model)
        if isinstance(result, str) or result.prepared is None or _writer(result) != model.writer:
            self.status.fell_back("no summary by the caller's model, so extracts are used")
        else:
            session.prepared_id = result.prepared.prepared_id

    async def _session(self, talk: Conversation) -> Session:
        key = talk.key
        if key not in self._sessions:
            name = blake2b(key.encode("utf-8"), digest_size=16).hexdigest()
            path = self.folder / "proxy" / f"session-{name}.json"
            state = await to_thread.run_sync(_read_state, path)
            self._sessions.setdefault(key, Session(path, state))
        return self._sessions[key]

    async def _in_time(
        self, talk: Conversation, session: Session, request: CompactRequest
    ) -> CompactResult | str:
        """Return the result of the library, or a reason if it takes too long. It then goes on."""
        done, outcomes = anyio.Event(), list[CompactResult | str]()

        async def run() -> None:
            outcomes.append(await self._compact(talk, session, request))
            done.set()

        self.tasks.start_soon(run)
        with anyio.move_on_after(self.options.patience_seconds):
            await done.wait()
        return outcomes[0] if outcomes else "the compaction took too long"

    async def _compact(
        self, talk: Conversation, session: Session, request: CompactRequest
    ) -> CompactResult | str:
        async with session.lock:
            return await self._caught(request, talk)

    async def _caught(
        self, request: CompactRequest, talk: Conversation, model: CallerModel | None = None
    ) -> CompactResult | str:
        """Return the result of the library, or the reason of its failure."""
        try:
            archive = await self.archives()
            return await compact(talk.messages, request, archive=archive, model=model)
        # Every failure is caught, because the host must get its answer. It is counted.
        except Exception as error:  # noqa: BLE001
            if isinstance(error, CompactionError):  # its text has no content of the conversation
                self.status.note(f"{type(error).__name__}: {str(error)[:300]}")
            return f"the compaction failed ({type(error).__name__})"

    def _request(self, talk: Conversation, session: Session) -> CompactRequest:
        options, api, fields = self.options, talk.api, talk.body.fields
        settings: dict[str, Any] = {}
        if api.format == "anthropic":
            settings["thinking"] = "strip" if talk.has_bound_thinking else "keep"
        if options.trigger_tokens:
            settings["trigger_tokens"] = options.trigger_tokens
        usage, count = next(
            (
                (usage, count)
                for usage, count, last in reversed(session.state.usages)
                if count < len(talk.messages)
                and history_hash(talk.messages[count - 1 : count]) == last
            ),
            (None, None),
        )
        return CompactRequest(
            format=api.format,
            session_id=talk.session_id,
            parent_session_id=talk.parent_session_id,
            model=talk.model,
            context_window=options.context_window or talk.window_tokens(options.host_window),
            max_output_tokens=talk.max_output_tokens,
            system=fields.get(api.system_name),
            tools=fields.get("tools"),
            usage=usage,
            usage_message_index=count,
            policy=options.policy,
            settings=settings,
            summarizer="extractive",
        )

    async def _original(self, talk: Conversation, session: Session, reason: str) -> Outgoing:
        """Return the request with the original list, without thinking that is no longer valid."""
        self.status.fell_back(reason)
        state = session.state
        if state.is_edited and not state.is_original:
            state = replace(state, is_original=True, strip_before=len(talk.messages))
            await self._change(session, state)
        return await self._outgoing(talk, session, talk.messages, is_fallback=True)

    async def _outgoing(
        self,
        talk: Conversation,
        session: Session,
        messages: Sequence[JsonObject],
        *,
        is_edited: bool = False,
        is_fallback: bool = False,
    ) -> Outgoing:
        """Return the request with `messages`; its own bytes if the list is the original."""
        state, given = session.state, talk.messages
        if state.strip_before and talk.has_bound_thinking:
            own = {id(message) for message in given[: state.strip_before]}
            messages = [
                m for old in messages for m in ([old] if id(old) not in own else _bare(old))
            ]
        if list(map(id, messages)) == list(map(id, given)):
            return Outgoing(talk.data, is_fallback=is_fallback)
        reword = _without_tool_names if state.names_tools is False else str
        data = await to_thread.run_sync(talk.body.with_messages, messages, reword)
        return Outgoing(data, is_edited, is_fallback)

    async def _change(self, session: Session, state: State) -> None:
        """Change the state of a session, and write it if it is different."""
        if state == session.state:
            return
        session.state = state
        try:
            await to_thread.run_sync(_write_state, session.path, state)
        except OSError as error:
            self.status.note(f"The state of a session cannot be written: {error.strerror}")


def _writer(result: CompactResult) -> str:
    return str(result.receipt.get("writer"))


def _bare(message: JsonObject) -> list[JsonObject]:
    """Return a message without thinking; nothing if it has nothing else."""
    blocks = message.get("content")
    if message.get("role") != "assistant" or not is_list(blocks):
        return [message]
    others = [b for b in blocks if not (is_object(b) and b.get("type") in _THINKING)]
    if len(others) == len(blocks):
        return [message]
    return [{**message, "content": others}] if others else []


def _without_tool_names(text: str) -> str:
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
