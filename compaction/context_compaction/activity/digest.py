"""A deterministic inventory of messages: files, commands, errors, plans, calls without an answer.

It is read from calls and results alone, so it cannot invent anything. Receipts contain it.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from context_compaction.activity.calls import (
    ToolUse,
    classify,
    words_in_name,
)
from context_compaction.activity.commands import command_effects
from context_compaction.activity.edits import Deletes, changes_of
from context_compaction.activity.json_rows import named, shown
from context_compaction.activity.outcome import error_line, is_failed
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Document,
    Image,
    JsonObject,
    Message,
    Messages,
    ToolCall,
    ToolResult,
    is_list,
    is_object,
    named_arguments,
    tool_calls,
    tool_results,
)
from context_compaction.messages.names import kind_of, names_in
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.messages.tool_results import result_text

_logger = logging.getLogger(__name__)

_MEMORY_WORDS = frozenset({"memory", "recall", "remember"})
_PLAN_WORDS = frozenset({"todo", "todos", "plan"})
_PLAN_KEYS = ("todos", "plan", "items", "tasks", "steps")
_STATE = re.compile(r"\[(\w{1,20})\] ")
_ENDED = frozenset({"completed", "done", "cancelled", "canceled", "deleted"})
_LINE_CHARS = 160
# This much of a result is searched for names, and this many names of it are listed.
_SEARCHED_CHARS = 100_000
_NAMES_FOUND = 20
_TURN_IDS = re.compile(r"\bturn_ids?\"?\s*[:=]\s*(\[[^\]]{0,400}\]|\"[^\"\n]{0,80}\"|[\w.-]{1,80})")
# Names under which hosts give an artifact's path, its type, and what it was made from.
_PATH_KEYS = ("path", "filename", "title", "name", "displayName", "fileUri", "file_id", "url")
_TYPE_KEYS = ("mime", "mime_type", "media_type", "mimeType")
_SOURCE_KEYS = ("sources_used", "sources")
# By their endings the media types of files that are made to be looked at.
_ARTIFACT_TYPES = {
    "csv": "text/csv", "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml"
    ".document", "gif": "image/gif", "html": "text/html", "jpeg": "image/jpeg",
    "jpg": "image/jpeg", "md": "text/markdown", "mp3": "audio/mpeg", "mp4": "video/mp4",
    "pdf": "application/pdf", "png": "image/png", "svg": "image/svg+xml", "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
# Commands that change something which no undo of a file brings back.
_EFFECT_COMMAND = re.compile(
    r"\bgit\s+(?:commit|push|merge|rebase|reset|revert|tag)\b|\b(?:psql|sendmail|scp|rsync)\s"
    r"|\b(?:npm|pnpm|yarn|pip3?|uv|cargo|go|apt|apt-get|brew)\s+(?:pip\s+)?"
    r"(?:install|add|remove|publish|upgrade)\b"
    r"|\b(?:terraform|kubectl|helm|twine|docker|gh|systemctl|alembic)\s+(?:\w{1,20}\s+)?"
    r"(?:apply|delete|install|upgrade|upload|push|up|down|create|merge|close|comment|start|stop)\b"
    r"|\bcurl\b[^|\n]{0,400}?(?:-X\s*(?:POST|PUT|PATCH|DELETE)|--data|\s-d\s)"
)
# Verbs in the names of tools that act outside the conversation.
_EFFECT_WORDS = frozenset({
    "add", "approve", "assign", "book", "cancel", "change", "charge", "close", "comment",
    "create", "delete", "deploy", "exchange", "invite", "merge", "modify", "order", "pay",
    "post", "publish", "refund", "reject", "remove", "reopen", "reply", "reserve", "return",
    "schedule", "send", "set", "submit", "transfer", "update", "upload",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One command or call, and how it ended.

    Attributes:
        command: The command, or the call with its arguments, on one line.
        failed: Whether it failed; None if it has no answer.
        error: The line that names the error.
    """

    command: str
    failed: bool | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A picture, a document or a file in a conversation.

    Attributes:
        path: Its path, name or address; "" if it has none.
        media_type: Such as "image/png".
        visibility: The host's value; else "user" for a part of a message and for a file that a call
            wrote, "model" for a part of a result.
        sources: What it was made from, as the host names it; else the call that returned it.
    """

    path: str
    media_type: str
    visibility: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """One look into a memory: the call with its query, and the paths and turns in its result."""

    call: str
    paths: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class Digest:
    """What happened in a part of a conversation; every list is in order of first appearance.

    Attributes:
        read: Paths of files that were read.
        written: Paths of files that were created or overwritten.
        edited: Paths of files that were changed.
        deleted: Paths that commands removed.
        runs: Commands, with how they ended.
        effects: Commands and calls that changed something outside the conversation and its files:
            commits, installs, messages, bookings. They must not be repeated.
        errors: Failures of other tools: tool and error line.
        memory_reads: What was looked up in a memory, and what was found there.
        other_calls: How often each other tool was called.
        plan: The newest todo list or plan, as lines.
        in_flight: Calls without an answer.
        hidden: What replaces hidden content: placeholders of results that earlier layers replaced,
            and the replacement texts of blocks that the host hides (`meta.hidden`).
        artifacts: Pictures, documents and files that it was given or that its tools made.
    """

    read: list[str] = field(default_factory=list[str])
    written: list[str] = field(default_factory=list[str])
    edited: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    runs: list[CommandRun] = field(default_factory=list[CommandRun])
    effects: list[CommandRun] = field(default_factory=list[CommandRun])
    errors: list[str] = field(default_factory=list[str])
    memory_reads: list[MemoryRead] = field(default_factory=list[MemoryRead])
    other_calls: dict[str, int] = field(default_factory=dict[str, int])
    plan: tuple[str, ...] = ()
    in_flight: list[str] = field(default_factory=list[str])
    hidden: list[str] = field(default_factory=list[str])
    artifacts: list[Artifact] = field(default_factory=list[Artifact])

    def as_json(self) -> JsonObject:
        """The digest for a receipt."""
        told: JsonObject = json.loads(json.dumps(asdict(self)))
        files = {name: told.pop(name) for name in ("read", "written", "edited", "deleted")}
        return {"files": files, **told}


def digest(messages: Messages, extra_kinds: Mapping[str, str] | None = None) -> Digest:
    """The inventory of `messages`. A call that cannot be read is left out."""
    messages = with_unique_call_ids(messages)
    index = index_calls(messages)
    results = {result.call_id: result for message in messages for result in tool_results(message)}
    found = Digest()
    for call in index.calls.values():
        try:
            _add_call(found, call, results.get(call.call_id), classify(call, extra_kinds))
        except Exception:  # the arguments of a call may be anything
            _logger.exception("a call of %r is not in the digest", call.name[:_LINE_CHARS])
    for message in messages:
        found.hidden += _hidden_by_host(message)
        for block in message.blocks:
            if isinstance(block, Image | Document):
                found.artifacts.append(_artifact_of(block, "", "user", ()))
            elif isinstance(block, ToolResult):
                made_by = index.calls.get(block.call_id)
                use = classify(made_by, extra_kinds) if made_by else ToolUse("other")
                found.artifacts += _artifacts_in(block, made_by, use)
                if placeholders.is_placeholder(block):
                    found.hidden.append(result_text(block))
    for name in ("read", "written", "edited", "deleted", "artifacts"):
        setattr(found, name, list(dict.fromkeys(getattr(found, name))))
    return found


def _add_call(found: Digest, call: ToolCall, result: ToolResult | None, use: ToolUse) -> None:
    if result is None:
        found.in_flight.append(_short(call, use))
    found.plan = plan_of(call) or found.plan
    failed = is_failed(result)
    error = error_line(result_text(result)) if failed and result else ""
    paths = list(filter(None, [use.path, *(made.path for made in changes_of(call, use))]))
    if use.kind == "execute" and use.command:
        run = CommandRun(one_line(use.command), failed, error)
        found.runs.append(run)
        if _has_effect(call.name, use):
            found.effects.append(run)
        if not failed:
            done = (effect.does for effect in command_effects(use.command).effects)
            found.deleted += [does.path for does in done if isinstance(does, Deletes)]
    elif _has_effect(call.name, use):
        found.effects.append(CommandRun(_short(call, use), failed, error))
    elif failed:
        found.errors.append(f"{_short(call, use)}: {error}")
    elif paths and use.kind in ("read", "write", "edit", "notebook"):
        if use.kind == "write":
            found.artifacts += _artifacts_made(call, use, paths)
        lists = {"read": found.read, "write": found.written}
        lists.get(use.kind, found.edited).extend(paths)
    elif words_in_name(call.name) & _MEMORY_WORDS:
        found.memory_reads.append(_memory_read(_short(call, use), result))
    else:
        found.other_calls[call.name] = found.other_calls.get(call.name, 0) + 1


def _has_effect(tool_name: str, use: ToolUse) -> bool:
    """Whether a call changes something outside the conversation and its files."""
    if use.command:
        return _EFFECT_COMMAND.search(use.command) is not None
    return use.kind == "other" and bool(words_in_name(tool_name) & _EFFECT_WORDS)


def _hidden_by_host(message: Message) -> Iterator[str]:
    """The replacement texts of a message or its blocks that the host marks as hidden."""
    for source in (message.source, *(block.source for block in message.blocks)):
        meta = (source or {}).get("meta")
        if is_object(meta) and meta.get("hidden") is True:
            text = _first(meta, ("replacement_text", "replacement"))
            yield one_line(text) or "hidden by the host, without a replacement text"


def _artifacts_made(call: ToolCall, use: ToolUse, paths: Sequence[str]) -> Iterator[Artifact]:
    """The pictures, pages and documents that a call writes; source code is no artifact."""
    entries = named_arguments(call)
    given = _first(entries, _TYPE_KEYS)
    for path in paths:
        media_type = given or _ARTIFACT_TYPES.get(path.rpartition(".")[2].lower(), "")
        if media_type:
            yield _artifact(entries, path, media_type, "user", (_short(call, use),))


def _artifacts_in(result: ToolResult, call: ToolCall | None, use: ToolUse) -> Iterator[Artifact]:
    sources = (_short(call, use),) if call else ()
    for part in result.content:
        if isinstance(part, Image | Document):
            yield _artifact_of(part, use.path or "", "model", sources)
    text = result_text(result)
    is_json = text[:1] in ("{", "[") and len(text) <= _SEARCHED_CHARS
    if not is_json or not any(f'"{key}"' in text for key in _TYPE_KEYS):
        return
    try:
        values: list[object] = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    for value in values:  # the list grows by the values inside
        if is_list(value):
            values += value
        elif is_object(value):
            media_type, path = _first(value, _TYPE_KEYS), _first(value, _PATH_KEYS)
            if media_type and path:
                yield _artifact(value, path, media_type, "model", sources)
            values += value.values()


def _artifact_of(
    part: Image | Document, path: str, visibility: str, sources: tuple[str, ...]
) -> Artifact:
    source = part.source or {}
    entries = dict(source)  # with those of the objects in it, which come second
    for inner in filter(is_object, source.values()):
        entries = {**inner, **entries}
    url = part.url if part.url and not part.url.startswith("data:") else ""
    path = _first(entries, _PATH_KEYS) or path or url
    return _artifact(entries, path, part.media_type, visibility, sources)


def _artifact(
    entries: JsonObject, path: str, media_type: str, visibility: str, sources: tuple[str, ...]
) -> Artifact:
    given = next((entries[key] for key in _SOURCE_KEYS if is_list(entries.get(key))), None)
    if given:
        sources = tuple(one_line(shown(item)) for item in given[:_NAMES_FOUND])
    visibility = _first(entries, ("visibility",)) or visibility
    return Artifact(one_line(path), one_line(media_type), one_line(visibility), sources)


def _first(entries: JsonObject, keys: Sequence[str]) -> str:
    """The first text under one of `keys` that is no data address; "" if there is none."""
    texts = (entries[key] for key in keys if isinstance(entries.get(key), str))
    return next((text for text in texts if text and not text.startswith("data:")), "")


def _memory_read(call: str, result: ToolResult | None) -> MemoryRead:
    text = result_text(result)[:_SEARCHED_CHARS] if result else ""
    turns = (name for found in _TURN_IDS.findall(text) for name in re.findall(r"[\w.-]+", found))
    paths = dict.fromkeys(name for name in names_in(text) if kind_of(name) == "path")
    return MemoryRead(call, tuple(paths)[:_NAMES_FOUND], tuple(dict.fromkeys(turns))[:_NAMES_FOUND])


def _short(call: ToolCall, use: ToolUse) -> str:
    what = use.path or use.command
    if what is None:
        what = named(named_arguments(call))
    return one_line(f"{call.name}({what or ''})")


def one_line(text: str) -> str:
    """The beginning of `text` on one line."""
    flat = " ".join(text[: 4 * _LINE_CHARS].split())
    return flat if len(flat) <= _LINE_CHARS else flat[: _LINE_CHARS - 1] + "…"


def plan_of(call: ToolCall) -> tuple[str, ...]:
    """The items of a todo list or plan that `call` writes, each as "[state] text"."""
    if not words_in_name(call.name) & _PLAN_WORDS:
        return ()
    arguments = named_arguments(call)
    for key in _PLAN_KEYS:
        items = arguments.get(key)
        if is_list(items):
            return tuple(map(_plan_item, items))
        if isinstance(items, str) and items.strip():
            return tuple(line.strip() for line in items.splitlines() if line.strip())
    return ()


def open_todos(messages: Messages) -> tuple[str, ...]:
    """The open items of the newest todo list in `messages`, from its call or a note of ours."""
    for message in reversed(messages):
        if noted := placeholders.todos_in(message):
            return noted
        for call in reversed(tool_calls(message)):
            states = [(found[1].lower(), item) for item in plan_of(call)
                      if (found := _STATE.match(item))]  # fmt: skip
            if states:
                return tuple(item for state, item in states if state not in _ENDED)
    return ()


def _plan_item(item: Any) -> str:
    if not is_object(item):
        return one_line(shown(item))
    text = next((item[k] for k in ("content", "step", "text", "title", "task") if k in item), "")
    state = item.get("status") or item.get("state")
    return one_line(f"[{shown(state)}] {shown(text)}" if state else shown(text))
