"""What a tool call does: the kind of its tool, its file, its command line.

Hosts call one tool `Read`, `read_file`, `mcp__fs__read_text_file` or `functions.read`. The name is
cut to its last segment and into words. Verbs decide, and arguments settle what verbs leave open.
"""

import json
import logging
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast, get_args

from context_compaction.messages.model import ToolCall, is_list, is_object
from context_compaction.messages.names import pieces_of
from context_compaction.settings import ToolKind

_logger = logging.getLogger(__name__)

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
# A tool that keeps the agent's own list of tasks; one behind a prefix keeps another list.
# Words in names of tools that start another agent, or ask it.
_AGENT_WORDS = frozenset({"task", "agent", "subagent", "delegate"})
# The names of our own tools that return archived content; hosts put prefixes before them.
_RECALLING_TOOLS = ("read_persisted_output", "search_transcript")
_SEGMENT = re.compile(r"__|[.:/]")
PATCH_START = "*** Begin Patch"
# Verb and path of each file in a patch.
PATCHED_FILE = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What one call does.

    Attributes:
        kind: The kind of tool.
        path: The file it concerns, normalised by `plain_path`, or None.
        command: The command line or code it runs, or None.
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
    extra_kinds = extra_kinds or None
    known = call.memo.get("use")
    if known is None or known[0] is not extra_kinds:
        try:
            use = _use_of(call, extra_kinds)
        except Exception:  # the arguments of a call may be anything
            _logger.exception("a call of %r cannot be classified", call.name[:80])
            use = ToolUse("other")
        known = call.memo["use"] = extra_kinds, use
    return known[1]


def _use_of(call: ToolCall, extra_kinds: Mapping[str, str] | None) -> ToolUse:
    arguments = arguments_by_name(call.arguments)
    path = first_text(arguments, _PATH_KEYS) or _patched_path(call.arguments)
    kind = _kind(call.name, arguments, path, extra_kinds or {})
    command = _command(call.arguments, arguments) if kind == "execute" else None
    named = [key for key in _RANGE_KEYS if kind == "read" and arguments.get(key) is not None]
    part = ",".join(f"{key}={json.dumps(arguments[key])}" for key in named)
    if kind == "read" and path and (lines := LINES_NAMED.search(path[-200:])):
        path, part = path[: -len(lines[0])], lines[0]
    return ToolUse(kind, path and plain_path(path), command, part)


def _kind(
    name: str, arguments: Mapping[str, Any], path: str | None, extra_kinds: Mapping[str, str]
) -> ToolKind:
    given_kind = extra_kinds.get(name) or extra_kinds.get(name.lower())
    if given_kind in TOOL_KINDS:
        return cast(ToolKind, given_kind)
    verb = arguments.get("command")
    if path and isinstance(verb, str) and verb in _EDITOR_COMMANDS:
        return _EDITOR_COMMANDS[verb]
    words = words_in_name(name)
    for kind, vocabulary in _WORDS:
        if words & vocabulary:
            # Without a path, `open_issue` reads no file and `create_ticket` writes none.
            return "other" if kind in ("read", "write") and path is None else kind
    if path and ("content" in arguments or "filetext" in arguments):
        return "write"
    return "read" if path and words & {"get", "file", "load"} else "other"


def arguments_by_name(arguments: object) -> Mapping[str, Any]:
    """Arguments by their names without case and underscores; empty if they are no object."""
    if not isinstance(arguments, dict):
        return {}
    named = cast(Mapping[str, Any], arguments)
    return {_spelled(name): value for name, value in named.items()}


@lru_cache(maxsize=1_000)  # tools have few arguments
def _spelled(name: str) -> str:
    return str(name).lower().replace("_", "")


def first_text(arguments: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first string under one of `keys` that is not empty; None if there is none."""
    values = (arguments.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value), None)


def _command(given: Any, arguments: Mapping[str, Any]) -> str | None:
    if isinstance(given, str):
        return given or None
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if is_list(value):
            words = [word if isinstance(word, str) else json.dumps(word) for word in value]
            is_line = len(words) == 3 and words[1] in ("-lc", "-c")
            return words[2] if is_line else shlex.join(words)
    return None


def _patched_path(given: Any) -> str | None:
    """The first file that a patch in Codex's format names, whatever the argument is called."""
    texts = [given] if isinstance(given, str) else arguments_by_name(given).values()
    patches = (text for text in texts if isinstance(text, str) and text.startswith(PATCH_START))
    found = PATCHED_FILE.search(next(patches, ""))
    return found[2].strip() if found else None


def gist_of(text: str) -> str:
    """The content of an argument of a call if its beginning does not show it: a patch's files."""
    paths = PATCHED_FILE.findall(text) if PATCH_START in text else ()
    # The last parts of a long path tell it from other paths.
    names = dict.fromkeys("/".join(path.split("/")[-3:]) for _, path in paths)
    return f"patch of {', '.join(names)}" if names else text


@lru_cache(maxsize=1_000)
def is_steering(name: str) -> bool:
    """Whether the tool asks the user, keeps the plan, or loads a skill: never cleared."""
    return bool(words_in_name(name) & _STEERING_WORDS) or is_question(name)


def is_question(name: str) -> bool:
    """Whether the tool asks the user something; its results are the user's words."""
    words = words_in_name(name)
    return bool(words & _QUESTION_WORDS) or {"request", "user", "input"} <= words


def is_bookkeeping(name: str) -> bool:
    """Whether the tool steers the work itself: its plan and tasks, its questions, its skills."""
    return (
        is_steering(name)
        or name == "update_plan"
        or (name[:4] in ("Task", "Todo") and name[4:5].isupper())
    )


def brings_report(name: str) -> bool:
    """Whether the tool delegates work to another agent, or returns that agent's report."""
    return bool(words_in_name(name) & _AGENT_WORDS) and not is_bookkeeping(name)


def is_recalling(name: str) -> bool:
    """Whether the tool is ours and returns archived content, whatever the host's prefix."""
    return name.lower().endswith(_RECALLING_TOOLS)


# Paths ----------------------------------------------------------------------------------------

_FOLDER_NAME = re.compile(r"[\w .-]*\Z")


@lru_cache(maxsize=4_096)
def plain_path(path: str) -> str:
    r"""`path` without "./" and doubled slashes; on Windows with slashes and an upper-case drive.

    A backslash separates folders only if the path has no slash and only plain names: in a shell it
    may stand before a blank.
    """
    if "://" in path:
        return path
    if has_drive(path):
        path = path[0].upper() + path[1:].replace("\\", "/")
        return posixpath.normpath(path) if len(path) > 3 else path[:2] + "/"
    if "\\" in path and "/" not in path and not path.startswith("\\"):
        names = path.split("\\")
        if all(_FOLDER_NAME.match(name) and not name.startswith(" ") for name in names):
            path = path.replace("\\", "/")
    return posixpath.normpath(path)


def has_drive(path: str) -> bool:
    """Whether `path` begins with a drive of Windows."""
    is_letter = path[:1].isascii() and path[:1].isalpha()
    return is_letter and path[1:2] == ":" and path[2:3] in ("", "/", "\\")


def is_absolute(path: str) -> bool:
    """Whether `path` does not depend on a working folder."""
    return path.startswith(("/", "~/")) or has_drive(path)


def strings_in(value: Any) -> Iterator[str]:
    """The strings directly among the arguments of a call."""
    if isinstance(value, str):
        yield value
    elif is_object(value):
        yield from (item for item in value.values() if isinstance(item, str))
