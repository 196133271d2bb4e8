"""A deterministic inventory of messages: files, commands, errors, plans, calls without a result.

It is read from calls and results alone, so it cannot invent anything. Receipts contain it.
"""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from context_compaction.activity.calls import Deletes, ToolUse, changes_of, classify, words_in_name
from context_compaction.activity.commands import command_effects
from context_compaction.activity.outcome import (
    arguments_line,
    error_line,
    is_failed,
    json_line,
    parsed_json,
)
from context_compaction.messages import model, placeholders
from context_compaction.messages.names import kind_of, names_in
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids

_logger = logging.getLogger(__name__)

_MEMORY_WORDS = frozenset({"memory", "recall", "remember"})
_PLAN_WORDS = frozenset({"todo", "todos", "plan"})
_PLAN_KEYS = ("todos", "plan", "items", "tasks", "steps")
_ENDED = frozenset({"completed", "done", "cancelled", "canceled", "deleted"})
# Lists in notes and receipts have at most this many entries.
MAX_LISTED = 20
_TURN_IDS = re.compile(r"\bturn_ids?\"?\s*[:=]\s*(\[[^\]]{0,400}\]|\"[^\"\n]{0,80}\"|[\w.-]{1,80})")
# Names under which hosts give an artifact's path, its type, and its sources.
_PATH_KEYS = ("path", "filename", "title", "name", "displayName", "fileUri", "file_id", "url")
_TYPE_KEYS = ("mime", "mime_type", "media_type", "mimeType")
_SOURCE_KEYS = ("sources_used", "sources")
# Media types of files that are made to be looked at, by their endings.
_ARTIFACT_TYPES = {
    "csv": "text/csv", "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml"
    ".document", "gif": "image/gif", "html": "text/html", "jpeg": "image/jpeg",
    "jpg": "image/jpeg", "md": "text/markdown", "mp3": "audio/mpeg", "mp4": "video/mp4",
    "pdf": "application/pdf", "png": "image/png", "svg": "image/svg+xml", "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One command, and how it ended.

    Attributes:
        command: The command on one line.
        failed: Whether it failed; None if it has no result.
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
        sources: The sources that the host names; else the call that returned it.
    """

    path: str
    media_type: str
    visibility: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """One lookup in a memory.

    Attributes:
        call: The call with its query.
        paths: The paths in its result.
        turn_ids: The IDs of turns in its result.
    """

    call: str
    paths: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class Digest:
    """Events in a part of a conversation; every list is in order of first appearance.

    Attributes:
        read: Paths of files that were read.
        written: Paths of files that were created or overwritten.
        edited: Paths of files that were changed.
        deleted: Paths that commands removed.
        runs: Commands, with how they ended.
        errors: Failures of other tools: tool and error line.
        memory_reads: Lookups in a memory, with the paths and turns in their results.
        other_calls: How often each other tool was called.
        plan: The newest todo list or plan, as lines.
        in_flight: Calls without a result.
        hidden: Texts that replace hidden content: placeholders of results that earlier layers
            replaced, and the replacement texts of blocks that the host hides (`meta.hidden`).
        artifacts: Pictures, documents and files that the user gave or tools made.
    """

    read: list[str] = field(default_factory=list[str])
    written: list[str] = field(default_factory=list[str])
    edited: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    runs: list[CommandRun] = field(default_factory=list[CommandRun])
    errors: list[str] = field(default_factory=list[str])
    memory_reads: list[MemoryRead] = field(default_factory=list[MemoryRead])
    other_calls: dict[str, int] = field(default_factory=dict[str, int])
    plan: tuple[str, ...] = ()
    in_flight: list[str] = field(default_factory=list[str])
    hidden: list[str] = field(default_factory=list[str])
    artifacts: list[Artifact] = field(default_factory=list[Artifact])

    def as_json(self) -> model.JsonObject:
        """Return the digest for a receipt."""
        fields: model.JsonObject = json.loads(json.dumps(asdict(self)))
        files = {name: fields.pop(name) for name in ("read", "written", "edited", "deleted")}
        return {"files": files, **fields}


def digest(messages: model.Messages) -> Digest:
    """Return the inventory of `messages`, without calls that cannot be read."""
    messages = with_unique_call_ids(messages)
    calls = index_calls(messages).calls
    results = {
        result.call_id: result for message in messages for result in model.tool_results(message)
    }
    inventory = Digest()
    for call in calls.values():
        try:
            _add_call(inventory, call, results.get(call.call_id), classify(call))
        except Exception:  # the arguments of a call may have any shape
            _logger.exception("a call of %r is not in the digest", call.name[: model.SHOWN_CHARS])
    for message in messages:
        inventory.hidden += _hidden_by_host(message)
        for block in message.blocks:
            if isinstance(block, model.Image | model.Document):
                inventory.artifacts.append(_artifact_of(block, "", "user", ()))
            elif isinstance(block, model.ToolResult):
                source = calls.get(block.call_id)
                use = classify(source) if source else ToolUse("other")
                inventory.artifacts += _artifacts_in(block, source, use)
                if placeholders.is_placeholder(block):
                    inventory.hidden.append(model.result_text(block))
    for name in ("read", "written", "edited", "deleted", "artifacts"):
        setattr(inventory, name, list(dict.fromkeys(getattr(inventory, name))))
    return inventory


def _add_call(
    inventory: Digest, call: model.ToolCall, result: model.ToolResult | None, use: ToolUse
) -> None:
    line = _call_line(call, use)
    if result is None:
        inventory.in_flight.append(line)
    inventory.plan = plan_of(call) or inventory.plan
    failed = is_failed(result)
    error = error_line(model.result_text(result)) if failed and result else ""
    paths = list(filter(None, [use.path, *(change.path for change in changes_of(call, use))]))
    if use.kind == "execute" and use.command:
        inventory.runs.append(CommandRun(model.one_line(use.command), failed, error))
        if not failed:
            effects = command_effects(call, use).effects
            inventory.deleted += [each.path for each in effects if isinstance(each, Deletes)]
    elif failed:
        inventory.errors.append(f"{line}: {error}")
    elif paths and use.kind in ("read", "write", "edit", "notebook"):
        if use.kind == "write":
            inventory.artifacts += _written_artifacts(call, paths, line)
        lists = {"read": inventory.read, "write": inventory.written}
        lists.get(use.kind, inventory.edited).extend(paths)
    elif words_in_name(call.name) & _MEMORY_WORDS:
        inventory.memory_reads.append(_memory_read(line, result))
    else:
        inventory.other_calls[call.name] = inventory.other_calls.get(call.name, 0) + 1


def _hidden_by_host(message: model.Message) -> Iterator[str]:
    """Yield the replacement texts of a message or its blocks that the host marks as hidden."""
    for source in (message.source, *(block.source for block in message.blocks)):
        meta = (source or {}).get("meta")
        if model.is_object(meta) and meta.get("hidden") is True:
            text = _first(meta, ("replacement_text", "replacement"))
            yield model.one_line(text) or "hidden by the host, without a replacement text"


def _written_artifacts(call: model.ToolCall, paths: Sequence[str], line: str) -> Iterator[Artifact]:
    """Yield the pictures, pages and documents that a call writes; source code is no artifact."""
    entries = model.named_arguments(call)
    given = _first(entries, _TYPE_KEYS)
    for path in paths:
        media_type = given or _ARTIFACT_TYPES.get(path.rpartition(".")[2].lower(), "")
        if media_type:
            yield _artifact(entries, path, media_type, "user", (line,))


def _artifacts_in(
    result: model.ToolResult, call: model.ToolCall | None, use: ToolUse
) -> Iterator[Artifact]:
    sources = (_call_line(call, use),) if call else ()
    for part in result.content:
        if isinstance(part, model.Image | model.Document):
            yield _artifact_of(part, use.path or "", "model", sources)
    text = model.result_text(result)
    if not any(f'"{key}"' in text[: model.SEARCHED_CHARS] for key in _TYPE_KEYS):
        return
    values: list[object] = [parsed_json(text, model.SEARCHED_CHARS)]
    for value in values:  # the list grows by the values inside
        if model.is_list(value):
            values += value
        elif model.is_object(value):
            media_type, path = _first(value, _TYPE_KEYS), _first(value, _PATH_KEYS)
            if media_type and path:
                yield _artifact(value, path, media_type, "model", sources)
            values += value.values()


def _artifact_of(
    part: model.Image | model.Document, path: str, visibility: str, sources: tuple[str, ...]
) -> Artifact:
    source = part.source or {}
    entries = dict(source)  # the entries of the objects in it come second
    for inner in filter(model.is_object, source.values()):
        entries = {**inner, **entries}
    url = part.url if part.url and not part.url.startswith("data:") else ""
    path = _first(entries, _PATH_KEYS) or path or url
    return _artifact(entries, path, part.media_type, visibility, sources)


def _artifact(
    entries: model.JsonObject, path: str, media_type: str, visibility: str, sources: tuple[str, ...]
) -> Artifact:
    given = next((entries[key] for key in _SOURCE_KEYS if model.is_list(entries.get(key))), None)
    if given:
        sources = tuple(model.one_line(json_line(item)) for item in given[:MAX_LISTED])
    visibility = _first(entries, ("visibility",)) or visibility
    return Artifact(
        model.one_line(path), model.one_line(media_type), model.one_line(visibility), sources
    )


def _first(entries: model.JsonObject, keys: Sequence[str]) -> str:
    """Return the first text under one of `keys` that is no data address; "" if none."""
    texts = (entries[key] for key in keys if isinstance(entries.get(key), str))
    return next((text for text in texts if text and not text.startswith("data:")), "")


def _memory_read(call: str, result: model.ToolResult | None) -> MemoryRead:
    text = model.result_text(result)[: model.SEARCHED_CHARS] if result else ""
    id_lists: list[str] = _TURN_IDS.findall(text)
    turns = (turn.strip('[]" \n') for ids in id_lists for turn in ids.split(","))
    paths = dict.fromkeys(name for name in names_in(text) if kind_of(name) == "path")
    turn_ids = dict.fromkeys(filter(None, turns))
    return MemoryRead(call, tuple(paths)[:MAX_LISTED], tuple(turn_ids)[:MAX_LISTED])


def _call_line(call: model.ToolCall, use: ToolUse) -> str:
    """Return the beginning of a call on one line."""
    content = use.path or use.command
    if content is None:
        content = arguments_line(model.named_arguments(call))
    return model.one_line(f"{call.name}({content})")


def plan_of(call: model.ToolCall) -> tuple[str, ...]:
    """Return the items of a todo list or plan that `call` writes, each as "[state] text"."""
    if not words_in_name(call.name) & _PLAN_WORDS:
        return ()
    arguments = model.named_arguments(call)
    for key in _PLAN_KEYS:
        items = arguments.get(key)
        if model.is_list(items):
            return tuple(map(_plan_item, items))
        if isinstance(items, str) and items.strip():
            return tuple(line.strip() for line in items.splitlines() if line.strip())
    return ()


def open_todos(messages: model.Messages) -> tuple[str, ...]:
    """Return the open items of the newest todo list in `messages`.

    The list is in a call, or in a note that an earlier compaction added.
    """
    for message in reversed(messages):
        if noted := placeholders.todos_in(message):
            return noted
        for call in reversed(model.tool_calls(message)):
            parts = [item.partition("] ") for item in plan_of(call) if item.startswith("[")]
            states = [
                (state[1:].lower(), f"{state}{sign}{text}") for state, sign, text in parts if sign
            ]
            if states:
                return tuple(item for state, item in states if state not in _ENDED)
    return ()


def _plan_item(item: Any) -> str:
    if not model.is_object(item):
        return model.one_line(json_line(item))
    text = next((item[k] for k in ("content", "step", "text", "title", "task") if k in item), "")
    state = item.get("status") or item.get("state")
    return model.one_line(f"[{json_line(state)}] {json_line(text)}" if state else json_line(text))
