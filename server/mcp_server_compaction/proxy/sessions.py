"""Make the conversation of each request fit, and remember per session what the provider got.

Every session has one lock. The archive stores compacted lists, so a restarted proxy goes on with
the same bytes. A small file per session stores how fallbacks must treat its thinking.

If a compaction fails after an earlier edit, the original list is not enough: the provider would
refuse thinking that was written after the edited list. So the thinking up to that place is removed,
now and in all later requests.
"""

import json
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from context_compaction import (
    CompactionError,
    CompactRequest,
    CompactResult,
    JsonObject,
    compact,
    history_hash,
    is_list,
    is_object,
)  # fmt: skip

from mcp_server_compaction.config import ProxyOptions
from mcp_server_compaction.protocol.deps import GetArchive
from mcp_server_compaction.proxy.requests import Ask, CallerModel, Conversation
from mcp_server_compaction.proxy.status import Status, save_json

_T = TypeVar("_T")
# Time limit of one compaction. Then its request is sent unedited.
_PATIENCE_SECONDS = 20.0
# Share of the trigger at which the caller's model is asked for a summary, if it may be.
_SUMMARY_SHARE = 0.8
# Fields with the token limit of the response.
_OUTPUT_NAMES = ("max_tokens", "max_output_tokens", "max_completion_tokens")
_THINKING = ("thinking", "redacted_thinking")
_READ_TOOL = "read_persisted_output"
# Parts of pointers, and their form for a model without the tools that read them.
_POINTERS = {
    f"; {_READ_TOOL} o_": "; archived as o_",
    f": {_READ_TOOL}.": " is archived.",
    " search_transcript finds the originals.": " The originals are archived.",
}


@dataclass(frozen=True, slots=True)
class State:
    """What the proxy must know about a session after a restart.

    Attributes:
        is_edited: Whether the last list that was sent was edited.
        strip_before: The number of messages whose thinking is removed from every list.
        refused: Why nothing is edited any more; "" if lists are edited.
        usages: The provider's usage of the last requests, each with the number of its messages and
            the hash of its last message. The older one is for a request that is sent again.
    """

    is_edited: bool = False
    strip_before: int = 0
    refused: str = ""
    usages: Sequence[tuple[JsonObject, int, str]] = ()

    def usage_for(self, messages: Sequence[JsonObject]) -> tuple[JsonObject | None, int | None]:
        """Return the usage of the longest known beginning of `messages`, and its length."""
        for usage, count, last in reversed(self.usages):
            if count < len(messages) and history_hash(messages[count - 1 : count]) == last:
                return usage, count
        return None, None


@dataclass(slots=True)
class Session:
    """One session in this process.

    Attributes:
        path: File of the state.
        state: The state.
        lock: Held while a list of the session is compacted.
        prepared_id: The prepared summary that the next request applies; "" if one was asked for;
            None if none was since the last compaction.
    """

    path: Path
    state: State
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    prepared_id: str | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the provider gets it.

    Attributes:
        data: The body.
        is_edited: Whether it has a compacted list.
        is_fallback: Whether the list could not be compacted.
        is_near: Whether the list is so near its trigger that a summary is asked for.
    """

    data: bytes
    is_edited: bool = False
    is_fallback: bool = False
    is_near: bool = False


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

    options: ProxyOptions
    archives: GetArchive
    folder: Path
    status: Status
    tasks: TaskGroup
    _sessions: dict[str, Session] = field(default_factory=dict[str, Session])

    async def fit(self, talk: Conversation) -> Outgoing:
        """Return the request with a list that fits, or as it is if that is impossible."""
        session = await self._session(talk)
        done, fitted = anyio.Event(), list[Outgoing | None]()

        async def run() -> None:
            async with session.lock:
                fitted.append(await self._caught(self._fitted(talk, session)))
            done.set()

        self.tasks.start_soon(run)
        if self.options.observe:
            return Outgoing(talk.data)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await done.wait()
        if not fitted:
            self.status.fell_back("the compaction took too long")
        return next(filter(None, fitted), None) or await self._original(talk, session)

    async def _fitted(self, talk: Conversation, session: Session) -> Outgoing:
        """Return the request with a list that fits.

        Raises:
            CompactionError: The original must be sent; the text has no content of the conversation.
        """
        request = self._request(talk, session)
        if self.options.observe:
            return await self._observed(talk, request)
        if session.state.refused:
            raise CompactionError(session.state.refused)
        result: CompactResult | None = None
        if session.prepared_id:
            applied, session.prepared_id = replace(request, apply=session.prepared_id), ""
            result = await self._caught(self._compact(talk, applied))
        result = result or await self._compact(talk, request)
        tokens = result.tokens
        if result.edits:
            self.status.compactions += 1
            session.prepared_id = None
        sent = Outgoing(talk.data, is_near=tokens.upper > _SUMMARY_SHARE * tokens.trigger)
        if result.status == "no_progress" and not result.changed:
            raise CompactionError("nothing useful could be removed")
        # Repairs alone are no reason to change a request that the host may always have sent so.
        if not result.changed or result.status == "repaired":
            return await self._with_messages(talk, session, talk.messages, sent)
        if not result.fits:
            self.status.note("A compacted list is still above its limit: see its receipt.")
        state = replace(session.state, is_edited=True)
        if state.strip_before and not session.state.is_edited:
            state = replace(state, strip_before=len(talk.messages))
        await self._change(session, state)
        sent = replace(sent, is_edited=True)
        return await self._with_messages(talk, session, result.messages, sent)

    async def _observed(self, talk: Conversation, request: CompactRequest) -> Outgoing:
        """Archive a conversation, and count what a compaction would have removed."""
        await self._compact(talk, replace(request, mode="record"))
        plan = await self._compact(talk, replace(request, mode="plan"))
        if plan.status == "planned":
            self.status.compactions += 1
            self.status.kept_out_tokens += max(0, plan.tokens.before - plan.tokens.after)
        return Outgoing(talk.data)

    async def refused(
        self, talk: Conversation, sent: Outgoing, status: int, answer: bytes
    ) -> Outgoing | None:
        """Return what to send once more after the provider refused a request, or None.

        A list is sent without its thinking if the provider bound that to another list, system
        prompt or tools. An edited list with another fault is sent as the original, and the session
        is not edited any more.
        """
        session = await self._session(talk)
        is_bound = talk.has_bound_thinking and not self.options.observe
        if status == 400 and b"thinking" in answer and is_bound:
            await self._change(session, replace(session.state, strip_before=len(talk.messages)))
            again = await self.fit(talk)
            if again.data != sent.data:
                self.status.fell_back("the provider refused thinking that followed other messages")
                return again
        if not sent.is_edited:
            return None
        reason = f"the provider refused an edited list ({status}), so this session is not edited"
        await self._change(session, replace(session.state, refused=reason))
        self.status.fell_back(reason)
        return await self._original(talk, session)

    async def answered(self, talk: Conversation, sent: Outgoing, usage: JsonObject) -> None:
        """Remember the usage of a request, with which the next request is counted."""
        session, count = await self._session(talk), len(talk.messages)
        usages = [known for known in session.state.usages if known[1] < count][-1:]
        last = history_hash(talk.messages[-1:])
        usages = [] if sent.is_fallback or not usage else [*usages, (usage, count, last)]
        await self._change(session, replace(session.state, usages=usages))

    async def prepare(self, talk: Conversation, sent: Outgoing, ask: Ask) -> None:
        """Let the caller's model write a summary for the next request, if the list is long."""
        session = await self._session(talk)
        is_wanted = self.options.summaries == "caller" and sent.is_near
        if not is_wanted or session.prepared_id is not None:
            return
        session.prepared_id = ""
        request = replace(self._request(talk, session), mode="full", prepare=True)
        request = replace(request, summarizer="auto")
        model = CallerModel(talk, sent.data, ask, talk.model or "")
        # Without the session's lock, because requests must not wait for the model.
        result = await self._caught(self._compact(talk, request, model))
        if result and result.prepared and result.receipt.get("writer") == model.writer:
            session.prepared_id = result.prepared.prepared_id
        else:
            self.status.fell_back("no summary by the caller's model, so extracts are used")

    async def _session(self, talk: Conversation) -> Session:
        key = talk.key
        if key not in self._sessions:
            path = self.folder / "proxy" / f"session-{key}.json"
            state = await to_thread.run_sync(_read_state, path)
            self._sessions.setdefault(key, Session(path, state))
        return self._sessions[key]

    def _request(self, talk: Conversation, session: Session) -> CompactRequest:
        options, api, fields = self.options, talk.api, talk.body.fields
        usage, usage_message_index = session.state.usage_for(talk.messages)
        return CompactRequest(
            format=api.format,
            session_id=talk.session_id,
            parent_session_id=talk.parent_session_id,
            model=talk.model,
            context_window=options.context_window or talk.window_tokens(options.host_window),
            max_output_tokens=next(filter(None, map(fields.get, _OUTPUT_NAMES)), None),
            system=fields.get(api.system_name),
            tools=fields.get("tools"),
            usage=usage,
            usage_message_index=usage_message_index,
            policy=options.policy or "default",
            settings={"thinking": "strip" if talk.has_bound_thinking else "keep"},
            summarizer="extractive",
        )

    async def _compact(
        self, talk: Conversation, request: CompactRequest, model: CallerModel | None = None
    ) -> CompactResult:
        return await compact(talk.messages, request, archive=await self.archives(), model=model)

    async def _caught(self, work: Awaitable[_T]) -> _T | None:
        """Return the result of `work`; None after a failure, which is counted.

        Every failure is caught, because the host must get its answer.
        """
        try:
            return await work
        except CompactionError as error:
            reason = str(error).partition(". ")[0]
        except Exception as error:  # noqa: BLE001
            reason = f"a fault ({type(error).__name__})"
        self.status.fell_back(reason)
        return None

    async def _original(self, talk: Conversation, session: Session) -> Outgoing:
        """Return the request with the original list, without thinking that is no longer valid."""
        if session.state.is_edited:
            state = replace(session.state, is_edited=False, strip_before=len(talk.messages))
            await self._change(session, state)
        sent = Outgoing(talk.data, is_fallback=True)
        return await self._with_messages(talk, session, talk.messages, sent)

    async def _with_messages(
        self, talk: Conversation, session: Session, messages: Sequence[JsonObject], sent: Outgoing
    ) -> Outgoing:
        """Return `sent` with `messages`; with its own bytes if the list is the original."""
        state, given = session.state, talk.messages
        if state.strip_before and talk.has_bound_thinking:
            own = set(map(id, given[: state.strip_before]))
            messages = [m for old in messages for m in (_bare(old) if id(old) in own else [old])]
        if list(map(id, messages)) == list(map(id, given)):
            return sent
        reword = str if talk.has_tool(_READ_TOOL) else _without_tool_names
        data = await to_thread.run_sync(talk.body.with_messages, messages, reword)
        return replace(sent, data=data)

    async def _change(self, session: Session, state: State) -> None:
        """Change the state of a session, and write it if it is different."""
        if state == session.state:
            return
        session.state = state
        try:
            await save_json(session.path, asdict(state))
        except OSError as error:
            self.status.note(f"The state of a session cannot be written: {error.strerror}")


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
    for part, form in _POINTERS.items():
        text = text.replace(part, form)
    return text


def _read_state(path: Path) -> State:
    try:
        return State(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return State()
