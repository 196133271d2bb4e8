"""A deterministic inventory of messages: files, commands, errors, plans, calls without an answer.

It is read from calls and results alone, so it cannot invent anything. Both the summary's machine
parts and the receipt are made of it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from context_compaction import markers
from context_compaction.file_ledger import FileEntry, FileState, file_content, joined, touch
from context_compaction.kept_results import result_text
from context_compaction.messages import (
    Document,
    Image,
    JsonObject,
    Messages,
    ToolCall,
    ToolResult,
    named_arguments,
)
from context_compaction.pairing import index_calls
from context_compaction.preview import error_line
from context_compaction.tool_kinds import ToolUse, classify, words_of

_EXIT_STATUS = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)\D{0,4}(\d+)", re.I
)
_MEMORY_WORDS = frozenset({"memory", "recall", "remember"})
_PLAN_WORDS = frozenset({"todo", "todos", "plan"})
_COMMAND_CHARS = 160
_FILE_STATES: dict[str, FileState] = {"read": "read", "write": "created", "edit": "changed"}
# Commands that change something which no undo of a file brings back.
_EFFECT_COMMAND = re.compile(
    r"\bgit\s+(commit|push|merge|rebase|reset|tag|revert|cherry-pick|checkout\s+-b|branch\s+-[dD])\b"
    r"|\b(npm|pnpm|yarn|pip3?|uv|cargo|gem|go|apt(-get)?|brew|conda|poetry)\s+(\w+\s+)?"
    r"(install|add|remove|uninstall|publish|upgrade|update)\b"
    r"|\b(migrate|alembic|flyway|terraform\s+(apply|destroy)|kubectl\s+(apply|delete|scale)|"
    r"helm\s+(install|upgrade)|docker\s+(push|run|rm|compose\s+(up|down))|twine\s+upload|"
    r"gh\s+(pr|issue|release)\s+(create|merge|close|comment)|systemctl|createdb|dropdb|psql\s|"
    r"mail|sendmail|scp|rsync)\b"
    r"|\bcurl\b.*(-X\s*(POST|PUT|PATCH|DELETE)|--data|\s-d\s)"
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
class Run:
    """One command or call, and how it ended.

    Attributes:
        command: The command, or the call with its arguments, on one line.
        failed: Whether it failed; None where the answer is missing.
        error: The line that says what failed.
        resolved: Whether the same command ran without failing later.
    """

    command: str
    failed: bool | None
    error: str = ""
    resolved: bool = False


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
        errors: What failed besides commands: tool and the telling line.
        memory_reads: Queries of memory tools.
        other_calls: How often each other tool was called.
        plan: The newest todo list or plan, as lines.
        in_flight: Calls without an answer.
        hidden: Placeholders that stood in it: results that earlier layers had replaced.
        artifacts: Pictures and documents in it, by kind and media type, with how many there were.
        files: Each file of the four lists with what was done to it last, newest use last.
    """

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    effects: tuple[Run, ...] = ()
    errors: tuple[str, ...] = ()
    memory_reads: tuple[str, ...] = ()
    other_calls: tuple[tuple[str, int], ...] = ()
    plan: tuple[str, ...] = ()
    in_flight: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    artifacts: tuple[tuple[str, int], ...] = ()
    files: tuple[FileEntry, ...] = ()

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
            "memory_reads": list(self.memory_reads),
            "other_calls": dict(self.other_calls),
            "plan": list(self.plan),
            "in_flight": list(self.in_flight),
            "hidden": list(self.hidden),
            "artifacts": dict(self.artifacts),
        }


def digest(messages: Messages, extra_kinds: Mapping[str, str] | None = None) -> Digest:
    """The inventory of `messages`; every list is in order of first appearance."""
    index = index_calls(messages)
    results = {
        block.call_id: block
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }
    files: dict[str, dict[str, None]] = {"read": {}, "write": {}, "edit": {}}
    ledger: dict[str, FileEntry] = {}
    runs: list[Run] = []
    effects: list[Run] = []
    deleted: dict[str, None] = {}
    errors: list[str] = []
    memory: list[str] = []
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
            run = Run(_one_line(use.command), failed, error)
            runs.append(run)
            if _EFFECT_COMMAND.search(use.command):
                effects.append(run)
            for path in _deleted_by(use.command, failed):
                deleted[path] = None
                touch(ledger, path, "deleted", None)
        elif use.kind == "other" and words_of(call.name) & _EFFECT_WORDS:
            effects.append(Run(_short(call, use), failed, error))
        elif failed:
            errors.append(f"{_short(call, use)}: {error}")
        elif use.path and (kind := "edit" if use.kind == "notebook" else use.kind) in files:
            files[kind].setdefault(use.path)
            text = None if use.is_partial else file_content(call, result, kind)
            touch(ledger, use.path, _FILE_STATES[kind], text)
        elif words_of(call.name) & _MEMORY_WORDS:
            memory.append(_short(call, use))
        else:
            others[call.name] = others.get(call.name, 0) + 1
    return Digest(
        tuple(files["read"]),
        tuple(files["write"]),
        tuple(files["edit"]),
        tuple(deleted),
        _with_resolved(runs),
        tuple(effects),
        tuple(errors),
        tuple(memory),
        tuple(others.items()),
        plan,
        tuple(in_flight),
        tuple(result_text(result) for result in results.values() if markers.is_placeholder(result)),
        _artifacts(messages),
        tuple(ledger.values()),
    )


def merged(older: Digest, newer: Digest) -> Digest:
    """One inventory of two parts of a conversation that follow each other."""

    def both(name: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys((*getattr(older, name), *getattr(newer, name))))

    return Digest(
        read=both("read"),
        written=both("written"),
        edited=both("edited"),
        deleted=both("deleted"),
        runs=_with_resolved((*older.runs, *newer.runs)),
        effects=(*older.effects, *newer.effects),
        errors=both("errors"),
        memory_reads=both("memory_reads"),
        other_calls=newer.other_calls,
        plan=newer.plan or older.plan,
        in_flight=both("in_flight"),
        hidden=both("hidden"),
        artifacts=newer.artifacts,
        files=tuple(joined(older.files, newer.files)),
    )


def _artifacts(messages: Messages) -> tuple[tuple[str, int], ...]:
    found: Counter[str] = Counter()
    for message in messages:
        for block in message.blocks:
            parts = block.content if isinstance(block, ToolResult) else (block,)
            found.update(
                f"{type(part).__name__.lower()} {part.media_type}"
                for part in parts
                if isinstance(part, Image | Document)
            )
    return tuple(found.items())


def _with_resolved(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs; one that failed is resolved where the same command passed later."""
    passed: set[str] = set()
    out: list[Run] = []
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
    if result.is_error:
        return True
    found = _EXIT_STATUS.search(result_text(result)[-400:])
    return found is not None and found.group(1) != "0"


def _short(call: ToolCall, use: ToolUse) -> str:
    what = use.path or use.command
    if what is None:
        what = ", ".join(f"{key}={value}" for key, value in named_arguments(call).items())
    return _one_line(f"{call.name}({what or ''})")


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _COMMAND_CHARS else flat[: _COMMAND_CHARS - 1] + "…"


def plan_of(call: ToolCall) -> tuple[str, ...]:
    """The items of a todo list or plan that `call` writes, each as "[state] text"."""
    if not words_of(call.name) & _PLAN_WORDS:
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
        return _one_line(str(item))
    fields = cast("dict[str, Any]", item)
    text = next(
        (fields[k] for k in ("content", "step", "text", "title", "task") if k in fields), ""
    )
    state = fields.get("status") or fields.get("state")
    return _one_line(f"[{state}] {text}" if state else str(text))
