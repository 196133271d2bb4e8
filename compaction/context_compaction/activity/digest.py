"""A deterministic inventory of messages: files, commands, errors, plans, calls without an answer.

It is read from calls and results alone, so it cannot invent anything. Both the summary's machine
parts and the receipt are made of it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from context_compaction.activity.error_line import error_line
from context_compaction.activity.file_changes import changes_of
from context_compaction.activity.file_paths import Drives
from context_compaction.activity.json_rows import are_records, lines, named, shown
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.shown_text import says_failed
from context_compaction.activity.tool_kinds import ToolUse, classify, is_steering, words_in_name
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.model import (
    Document,
    Image,
    JsonObject,
    Messages,
    ToolCall,
    ToolResult,
    named_arguments,
)
from context_compaction.messages.names import kind_of, names_in
from context_compaction.messages.tool_pairs import CallIndex, index_calls
from context_compaction.messages.tool_results import result_text

# On a line of its own: prose and code speak of exit codes too.
_EXIT_STATUS = re.compile(
    r"^.{0,32}\b(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)\D{0,4}(\d+)\W{0,3}$",
    re.I | re.MULTILINE,
)
# `gh pr checks` ends so while none has failed and some still run.
_PENDING_STATUS = re.compile(r"^.{0,32}\bexit(?:ed)?(?: with)? code:? ?8$", re.I | re.MULTILINE)
_MEMORY_WORDS = frozenset({"memory", "recall", "remember"})
_PLAN_WORDS = frozenset({"todo", "todos", "plan"})
_COMMAND_CHARS = 160
# Of a result that is searched for what it names, and how many names of it are told.
_SEARCHED_CHARS = 100_000
_NAMES_FOUND = 20
_TURN_IDS = re.compile(r"\bturn_ids?\"?\s*[:=]\s*(\[[^\]]{0,400}\]|\"[^\"\n]{0,80}\"|[\w.-]{1,80})")
# Under these names hosts say where an artifact is, of what kind, who sees it, and what it is from.
_PATH_KEYS = ("path", "filename", "title", "name", "displayName", "fileUri", "file_id", "url")
_TYPE_KEYS = ("mime", "mime_type", "media_type", "mimeType")
_SOURCE_KEYS = ("sources_used", "sources")
# Commands that change something which no undo of a file brings back; not what only asks for a
# program, or lists what is installed.
_EFFECT_COMMAND = re.compile(
    r"\bgit\s+(commit|push|merge|rebase|reset|revert|cherry-pick|checkout\s+-b|branch\s+-[dD]|"
    r"tag(?=\s+(?:(?!\d>)[\w$'\"]|-[adfmsuF]|--(?:annotate|delete|force|sign))))\b(?!-)"
    r"|\b(npm|pnpm|yarn|pip3?|uv|cargo|gem|go|apt(-get)?|brew|conda|poetry)\s+(\w+\s+)?"
    r"(install|add|remove|uninstall|publish|upgrade|update)\b(?! --(?:list|help|dry-run))"
    r"|\b(migrate|alembic|flyway|terraform\s+(apply|destroy)|kubectl\s+(apply|delete|scale)|"
    r"helm\s+(install|upgrade)|twine\s+upload|"
    r"docker\s+(push|run(?![^|\n]*\s--rm\s)|rm|compose\s+(up|down))|"
    r"gh\s+(pr|issue|release)\s+(create|merge|close|comment)|createdb|dropdb|psql\s|"
    r"systemctl\s+(--\S+\s+)*(?!status|show|cat|is-|list-)|"
    r"(?<!command -v )(?<!which )(mail|sendmail|scp|rsync))\b"
    r"|\bcurl\b[^|\n]*(-X\s*(POST|PUT|PATCH|DELETE)|--data|\s-d\s)"
    r"|\b(DROP|TRUNCATE|DELETE\s+FROM|INSERT\s+INTO|ALTER\s+TABLE)\b"
)
# Verbs in the names of tools that act outside the conversation.
_EFFECT_WORDS = frozenset({
    "add", "approve", "assign", "book", "cancel", "change", "charge", "close", "comment",
    "create", "delete", "deploy", "exchange", "invite", "merge", "modify", "order", "pay",
    "post", "publish", "refund", "reject", "remove", "reopen", "reply", "reserve", "return",
    "schedule", "send", "set", "submit", "transfer", "update", "upload",
})  # fmt: skip
_DELETE_COMMAND = re.compile(r"(?:^|[;&|]\s*)(?:git\s+)?rm\s+((?:-\w+\s+)*)([^;&|<>\n]+)")


@dataclass(frozen=True, slots=True)
class CommandRun:
    """One command or call, and how it ended.

    Attributes:
        command: The command, or the call with its arguments, on one line.
        failed: Whether it failed; None where the answer is missing.
        error: The line that names the error.
        resolved: Whether the same command ran without failing later.
    """

    command: str
    failed: bool | None
    error: str = ""
    resolved: bool = False


@dataclass(frozen=True, slots=True)
class Artifact:
    """A picture, a document or a file in a conversation.

    Attributes:
        path: Its path, name or address; "" where it has none.
        media_type: As "image/png".
        visibility: The value that the host gives; else "user" for what a message contains, and
            "model" for what only a tool's result contains.
        sources: What it was made from, as the host names it; else the call that returned it.
    """

    path: str
    media_type: str
    visibility: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """One look into a memory.

    Attributes:
        call: The call with its query, on one line.
        paths: The paths that its result names ...
        turn_ids: ... and the turns, where it names any.
    """

    call: str
    paths: tuple[str, ...] = ()
    turn_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Digest:
    """What happened in a part of a conversation.

    Attributes:
        read: Paths of files that were read, oldest first.
        written: Paths of files that were created or overwritten.
        edited: Paths of files that were changed.
        deleted: Paths that commands removed.
        runs: Commands, with how they ended.
        effects: Of commands and calls those that changed something outside the conversation
            and its files: commits, installs, messages, bookings. They must not be repeated.
        errors: What failed besides commands: tool and error line.
        memory_reads: What was looked up in a memory, and what was found there.
        other_calls: How often each other tool was called.
        plan: The newest todo list or plan, as lines.
        in_flight: Calls without an answer.
        hidden: Placeholders that it contained: results that earlier layers had replaced.
        artifacts: Pictures, documents and files that it was given or that its tools made.
    """

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    runs: tuple[CommandRun, ...] = ()
    effects: tuple[CommandRun, ...] = ()
    errors: tuple[str, ...] = ()
    memory_reads: tuple[MemoryRead, ...] = ()
    other_calls: tuple[tuple[str, int], ...] = ()
    plan: tuple[str, ...] = ()
    in_flight: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def as_json(self) -> JsonObject:
        """The digest for a receipt."""
        return {
            "files": {
                "read": list(self.read),
                "written": list(self.written),
                "edited": list(self.edited),
                "deleted": list(self.deleted),
            },
            "runs": [
                {"command": run.command, "failed": run.failed, "resolved": run.resolved}
                for run in self.runs
            ],
            "effects": [{"call": run.command, "failed": run.failed} for run in self.effects],
            "errors": list(self.errors),
            "memory_reads": [
                {"call": read.call, "paths": list(read.paths), "turn_ids": list(read.turn_ids)}
                for read in self.memory_reads
            ],
            "other_calls": dict(self.other_calls),
            "plan": list(self.plan),
            "in_flight": list(self.in_flight),
            "hidden": list(self.hidden),
            "artifacts": [
                {**asdict(artifact), "sources": list(artifact.sources)}
                for artifact in self.artifacts
            ],
        }


def digest(messages: Messages, extra_kinds: Mapping[str, str] | None = None) -> Digest:
    """The inventory of `messages`; every list is in order of first appearance."""
    messages = with_own_ids(messages)
    index = index_calls(messages)
    results = {
        block.call_id: block
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }
    files: dict[str, dict[str, None]] = {"read": {}, "write": {}, "edit": {}}
    runs: list[CommandRun] = []
    effects: list[CommandRun] = []
    deleted: dict[str, None] = {}
    errors: list[str] = []
    memory: list[MemoryRead] = []
    others: dict[str, int] = {}
    plan: tuple[str, ...] = ()
    in_flight: list[str] = []
    for call in index.calls.values():
        result = results.get(call.call_id)
        use = classify(call, extra_kinds)
        if result is None:
            in_flight.append(_short(call, use))
        plan = plan_of(call) or plan
        failed = is_failed(result)
        error = error_line(result_text(result)) if failed and result else ""
        if use.kind == "execute" and use.command:
            run = CommandRun(_one_line(use.command), failed, error)
            runs.append(run)
            if has_effect(call.name, use):
                effects.append(run)
            deleted |= dict.fromkeys(_deleted_by(use.command, failed))
        elif has_effect(call.name, use):
            effects.append(CommandRun(_short(call, use), failed, error))
        elif failed:
            errors.append(f"{_short(call, use)}: {error}")
        elif use.path and (kind := "edit" if use.kind == "notebook" else use.kind) in files:
            # A patch may change several.
            beside = (made.path for made in changes_of(call, use) if made.path)
            files[kind] |= dict.fromkeys((use.path, *beside))
        elif words_in_name(call.name) & _MEMORY_WORDS:
            memory.append(_memory_read(_short(call, use), result))
        else:
            others[call.name] = others.get(call.name, 0) + 1
    plain = Drives.named_in(path for paths in files.values() for path in paths).plain
    hidden = filter(placeholders.is_placeholder, results.values())
    return Digest(
        read=tuple(dict.fromkeys(map(plain, files["read"]))),
        written=tuple(dict.fromkeys(map(plain, files["write"]))),
        edited=tuple(dict.fromkeys(map(plain, files["edit"]))),
        deleted=tuple(deleted),
        runs=_with_resolved(runs),
        effects=tuple(effects),
        errors=tuple(errors),
        memory_reads=tuple(memory),
        other_calls=tuple(others.items()),
        plan=plan,
        in_flight=tuple(in_flight),
        hidden=tuple(map(result_text, hidden)),
        artifacts=tuple(dict.fromkeys(_artifacts(messages, index, extra_kinds))),
    )


def acts_outside(command: str) -> bool:
    """Whether a command line changes something outside the conversation and its files."""
    return _EFFECT_COMMAND.search(command) is not None


def has_effect(tool_name: str, use: ToolUse) -> bool:
    """Whether a call changes something outside the conversation and its files."""
    if use.command:
        return acts_outside(use.command)
    return use.kind == "other" and bool(words_in_name(tool_name) & _EFFECT_WORDS)


def _artifacts(
    messages: Messages, index: CallIndex, extra_kinds: Mapping[str, str] | None
) -> Iterator[Artifact]:
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Image | Document):
                yield _artifact(block, "", "user", ())
            if not isinstance(block, ToolResult):
                continue
            media = [part for part in block.content if isinstance(part, Image | Document)]
            text = result_text(block)
            may_tell = _may_tell_artifacts(text)
            if not media and not may_tell:
                continue
            call = index.calls.get(block.call_id)
            use = classify(call, extra_kinds) if call else None
            sources = (_short(call, use),) if call and use else ()
            for part in media:
                yield _artifact(part, (use.path if use else "") or "", "model", sources)
            if may_tell:
                yield from _told_artifacts(text, sources)


def _artifact(
    part: Image | Document, path: str, visibility: str, sources: tuple[str, ...]
) -> Artifact:
    told = _flat(part.source or {})
    url = part.url if part.url and not part.url.startswith("data:") else ""
    named = _first(told, _PATH_KEYS) or path or url
    return _artifact_of(told, named, part.media_type, visibility, sources)


def _told_artifacts(text: str, sources: tuple[str, ...]) -> Iterator[Artifact]:
    """The artifacts that a tool's JSON contains: objects with a path and a media type."""
    try:
        values: list[object] = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    for value in values:  # which grows by what stands in it
        if isinstance(value, list):
            values += cast("list[object]", value)
        elif isinstance(value, dict):
            told = cast("dict[str, Any]", value)
            media_type = _first(told, _TYPE_KEYS)
            if media_type and (path := _first(told, _PATH_KEYS)):
                yield _artifact_of(told, path, media_type, "model", sources)
            values += told.values()


def _may_tell_artifacts(text: str) -> bool:
    is_json = text[:1] in ("{", "[") and len(text) <= _SEARCHED_CHARS
    return is_json and any(f'"{key}"' in text for key in _TYPE_KEYS)


def _artifact_of(
    told: Mapping[str, Any], path: str, media_type: str, visibility: str, sources: tuple[str, ...]
) -> Artifact:
    given = next((told[key] for key in _SOURCE_KEYS if isinstance(told.get(key), list)), None)
    if given:
        sources = tuple(_one_line(shown(item)) for item in cast("list[Any]", given)[:_NAMES_FOUND])
    return Artifact(
        _one_line(path),
        _one_line(media_type),
        _one_line(_first(told, ("visibility",)) or visibility),
        sources,
    )


def _flat(source: JsonObject) -> JsonObject:
    """The entries of a host's block and of the objects in it, the outer ones first."""
    inner = [cast("JsonObject", value) for value in source.values() if isinstance(value, dict)]
    flat: JsonObject = {}
    for entries in (source, *inner):
        for key, value in entries.items():
            flat.setdefault(key, value)
    return flat


def _first(told: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The first text under one of `keys`; "" without one. Data in an address is none."""
    found = (told[key] for key in keys if isinstance(told.get(key), str))
    return next((text for text in found if text and not text.startswith("data:")), "")


def _memory_read(call: str, result: ToolResult | None) -> MemoryRead:
    text = result_text(result)[:_SEARCHED_CHARS] if result else ""
    turns = (name for found in _TURN_IDS.findall(text) for name in re.findall(r"[\w.-]+", found))
    paths = dict.fromkeys(name for name in names_in(text) if kind_of(name) == "path")
    return MemoryRead(call, tuple(paths)[:_NAMES_FOUND], tuple(dict.fromkeys(turns))[:_NAMES_FOUND])


def _with_resolved(runs: Sequence[CommandRun]) -> tuple[CommandRun, ...]:
    """The runs; one that failed is resolved where the same command passed later."""
    passed: set[str] = set()
    out: list[CommandRun] = []
    for run in reversed(runs):
        if run.failed is False:
            passed.add(run.command)
        out.append(replace(run, resolved=True) if run.failed and run.command in passed else run)
    return tuple(reversed(out))


def _deleted_by(command: str, failed: bool | None) -> list[str]:
    """The paths that `command` removes, unless it failed."""
    if failed:
        return []
    return [
        path
        for match in _DELETE_COMMAND.finditer(command)
        for path in match[2].split()
        if not path.startswith("-")
    ]


def is_failed(result: ToolResult | None) -> bool | None:
    """Whether a call failed, by its flag or by its exit status; None where it has no answer."""
    if result is None:
        return None
    text = result_text(result)
    if "\tpending\t" in text and _PENDING_STATUS.search(text):
        return False
    if result.is_error or says_failed(text):
        return True
    end = text[-400:]
    said = end.lower()
    if "exit" not in said and "return" not in said:  # mostly, and a pattern takes its time
        return False
    found = _EXIT_STATUS.search(end)
    return found is not None and found.group(1) != "0"


def _short(call: ToolCall, use: ToolUse) -> str:
    what = use.path or use.command
    if what is None:
        what = named(named_arguments(call))
    return _one_line(f"{call.name}({what or ''})")


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _COMMAND_CHARS else flat[: _COMMAND_CHARS - 1] + "…"


def plan_of(call: ToolCall) -> tuple[str, ...]:
    """The items of a todo list or plan that `call` writes, each as "[state] text"."""
    call = made_call(call)
    if not words_in_name(call.name) & _PLAN_WORDS:
        return ()
    arguments = named_arguments(call)
    for key in ("todos", "plan", "items", "tasks", "steps"):
        items = arguments.get(key)
        if isinstance(items, list):
            entries = cast("Sequence[Any]", items)
            return tuple(map(_plan_item, entries))
        if isinstance(items, str) and items.strip():
            return tuple(line.strip() for line in items.splitlines() if line.strip())
    return ()


def _plan_item(item: Any) -> str:
    if not isinstance(item, dict):
        return _one_line(shown(item))
    fields = cast("dict[str, Any]", item)
    text = next(
        (fields[k] for k in ("content", "step", "text", "title", "task") if k in fields), ""
    )
    state = fields.get("status") or fields.get("state")
    return _one_line(f"[{shown(state)}] {shown(text)}" if state else shown(text))


def records_in(call: ToolCall, use: ToolUse) -> list[str]:
    """The arguments of `call` as lines, where the agent put several records down in them.

    Findings, notes, tickets: a tool that reads, searches, runs and edits nothing was given them,
    and they stand nowhere else. Plans are `plan_of`, and questions are the user's to answer.
    """
    if use.kind != "other" or is_steering(call.name):
        return []
    given = {key: value for key, value in named_arguments(call).items() if value is not None}
    return list(lines(given)) if any(map(are_records, given.values())) else []
