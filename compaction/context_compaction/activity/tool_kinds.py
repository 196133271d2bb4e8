"""What kind of tool a call uses, derived from its name and arguments, not from a list of names.

Hosts call one tool `Read`, `read_file`, `mcp__fs__read_text_file` or `functions.read`. The name
is cut to its last segment and into words; verbs decide, and arguments settle what verbs leave open.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast, get_args

from context_compaction.activity.file_paths import plain_path
from context_compaction.activity.script_calls import made_call
from context_compaction.messages.model import ToolCall
from context_compaction.messages.names import pieces_of
from context_compaction.settings import ToolKind

TOOL_KINDS: tuple[str, ...] = get_args(ToolKind)

# The first row that shares a word with the name decides, so the order is from special to general.
_WORDS: tuple[tuple[ToolKind, frozenset[str]], ...] = (
    ("notebook", frozenset({"notebook", "jupyter", "ipython", "cell"})),
    ("web", frozenset({"web", "fetch", "url", "http", "browse", "browser", "navigate", "crawl"})),
    ("edit", frozenset({"edit", "multiedit", "patch", "replace", "insert", "modify", "rewrite"})),
    ("search", frozenset({"grep", "search", "find", "ripgrep", "rg", "query", "lookup"})),
    ("list", frozenset({"ls", "list", "glob", "dir", "tree", "listdir"})),
    ("execute", frozenset({"bash", "shell", "exec", "execute", "run", "terminal", "powershell"})),
    ("execute", frozenset({"sh", "cmd", "command", "python", "repl", "script", "stdin"})),
    ("read", frozenset({"read", "view", "cat", "open", "head", "tail", "show"})),
    ("write", frozenset({"write", "create", "save", "touch", "append"})),
)
# Names of arguments, as `arguments_by_name` spells them: hosts write file_path and filePath.
_PATH_KEYS = (
    "filepath", "path", "filename", "file", "notebookpath", "targetfile", "absolutepath",
    "relativepath",
)  # fmt: skip
_COMMAND_KEYS = ("command", "cmd", "script", "code", "input")
_RANGE_KEYS = (
    "offset", "limit", "startline", "endline", "viewrange", "line", "lines", "range",
)  # fmt: skip
# Some hosts let a read name its lines behind the path ("src/a.py:10-20").
LINES_NAMED = re.compile(r":(\d{1,7})(?:-(\d{1,7}))?((?:,\d{1,7}(?:-\d{1,7})?)*)\Z")
# One editor tool with a `command` argument (Anthropic's text editor): the argument is the verb.
_EDITOR_COMMANDS: Mapping[str, ToolKind] = {
    "view": "read", "create": "write", "str_replace": "edit", "insert": "edit", "undo_edit": "edit",
}  # fmt: skip
# Results of these steer the work itself; clearing them loses a promise, not a text.
_QUESTION_WORDS = frozenset({"ask", "question"})
_STEERING_WORDS = _QUESTION_WORDS | {"skill", "todo", "todos", "plan", "approval"}
# A tool that keeps the agent's own list of tasks; one behind a prefix keeps somebody's.
_OWN_LIST = re.compile(r"\A(?:Task|Todo)[A-Z]|\Aupdate_plan\Z")
# In names of tools that start another agent, or ask it.
_AGENT_WORDS = frozenset({"task", "agent", "subagent", "delegate"})
# Our own tools that give what left the context back, as every host's name for them ends.
_RECALLING_TOOLS = ("read_persisted_output", "search_transcript")
_SEGMENT = re.compile(r"__|[.:/]")
_PATCH_START = "*** Begin Patch\n"
# Of a long path these parts, the last ones, tell it from others.
_SHOWN_PARTS = 3
_PATCH_PATH = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What one call does.

    Attributes:
        kind: The kind of tool.
        path: The file it concerns, as the call names it but for its form, or None.
        command: The command line or code it runs, as a shell takes it, or None.
        range: The part that a read asks for, as its arguments name it; "" for the whole file.
    """

    kind: ToolKind
    path: str | None = None
    command: str | None = None
    range: str = ""


@lru_cache(maxsize=1_000)  # a conversation has few tools and many calls
def words_in_name(name: str) -> frozenset[str]:
    """The lower-case words of a tool's name, without the prefixes that hosts add."""
    segment = _SEGMENT.split(name)[-1] or name
    return frozenset(word.lower() for word in pieces_of(segment))


def classify(call: ToolCall, extra_kinds: Mapping[str, str] | None = None) -> ToolUse:
    """What `call` does; `extra_kinds` (tool name to kind) takes precedence."""
    # Some name no kinds, and some none of none. As `worked_out`, which takes longer: it is asked
    # ten times as often as all else.
    extra_kinds = extra_kinds or None
    known = call.known.get("use")
    if known is None or known[0] is not extra_kinds:
        known = call.known["use"] = extra_kinds, _use_of(call, extra_kinds)
    return known[1]


def _use_of(call: ToolCall, extra_kinds: Mapping[str, str] | None) -> ToolUse:
    call = made_call(call)
    arguments = arguments_by_name(call.arguments)
    path = _first_string(arguments, _PATH_KEYS) or _patched_path(call.arguments)
    command = _command(call.arguments, arguments)
    kind = _kind(call.name, arguments, path, extra_kinds or {})
    if kind != "execute":
        command = None
    named = [key for key in _RANGE_KEYS if kind == "read" and arguments.get(key) is not None]
    part = ",".join(f"{key}={json.dumps(arguments[key])}" for key in named)
    if kind == "read" and path and (lines := LINES_NAMED.search(path)):
        path, part = path[: lines.start()], lines[0]
    return ToolUse(kind, path and plain_path(path), command, part)


def gist_of(call: ToolCall, text: str) -> str:
    """What `text`, an argument of `call`, is about where not its beginning tells that.

    Of a patch the files, and of a script what it runs.
    """
    made = made_call(call)
    if made is not call:
        text = _command(made.arguments, arguments_by_name(made.arguments)) or text
    paths = _PATCH_PATH.findall(text) if _PATCH_START in text else ()
    names = dict.fromkeys("/".join(path.split("/")[-_SHOWN_PARTS:]) for path in paths)
    return f"patch of {', '.join(names)}" if names else text


@lru_cache(maxsize=1_000)
def is_steering(name: str) -> bool:
    """Whether the tool asks the user, keeps the plan, or loads a skill: never cleared."""
    return bool(words_in_name(name) & _STEERING_WORDS) or is_question(name)


def is_question(name: str) -> bool:
    """Whether the tool asks the user something; what it answers are their words."""
    words = words_in_name(name)
    return bool(words & _QUESTION_WORDS) or {"request", "user", "input"} <= words


def is_bookkeeping(name: str) -> bool:
    """Whether the tool steers the work itself: its plan and tasks, its questions, its skills."""
    return is_steering(name) or _OWN_LIST.match(name) is not None


def brings_report(name: str) -> bool:
    """Whether the tool hands a part of the work to another agent, or brings what that one says."""
    return bool(words_in_name(name) & _AGENT_WORDS) and not is_bookkeeping(name)


def is_recalling(name: str) -> bool:
    """Whether the tool is ours and returns what left the context, whatever the host's prefix."""
    return name.lower().endswith(_RECALLING_TOOLS)


def _kind(
    name: str, arguments: Mapping[str, Any], path: str | None, extra_kinds: Mapping[str, str]
) -> ToolKind:
    named = extra_kinds.get(name) or extra_kinds.get(name.lower())
    if named in TOOL_KINDS:
        return cast(ToolKind, named)
    verb = arguments.get("command")
    if path and isinstance(verb, str) and verb in _EDITOR_COMMANDS:
        return _EDITOR_COMMANDS[verb]
    words = words_in_name(name)
    for kind, vocabulary in _WORDS:
        if words & vocabulary:
            return _settled(kind, path)
    if path and ("content" in arguments or "filetext" in arguments):
        return "write"
    return "read" if path and words & {"get", "file", "load"} else "other"


def _settled(kind: ToolKind, path: str | None) -> ToolKind:
    """Without a path, `open_issue` reads no file and `create_ticket` writes none."""
    return "other" if kind in ("read", "write") and path is None else kind


def arguments_by_name(arguments: object) -> Mapping[str, Any]:
    """Arguments by their names without case and underscores; empty where they have none."""
    if not isinstance(arguments, dict):
        return {}
    named = cast(Mapping[str, Any], arguments)
    return {_spelled(name): value for name, value in named.items()}


@lru_cache(maxsize=1_000)  # tools have few arguments
def _spelled(name: str) -> str:
    return name.lower().replace("_", "")


def _first_string(arguments: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _command(given: Any, arguments: Mapping[str, Any]) -> str | None:
    if isinstance(given, str):
        return given or None
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            words = [
                word if isinstance(word, str) else json.dumps(word, ensure_ascii=False)
                for word in cast("list[object]", value)
            ]
            is_line = len(words) == 3 and words[1] in ("-lc", "-c")
            return words[2] if is_line else shlex.join(words)
    return None


def _patched_path(given: Any) -> str | None:
    """The first file that a patch in Codex's format names, whatever the argument is called."""
    texts = [given] if isinstance(given, str) else arguments_by_name(given).values()
    patches = (text for text in texts if isinstance(text, str) and text.startswith(_PATCH_START))
    found = _PATCH_PATH.search(next(patches, ""))
    return found.group(1).strip() if found else None
