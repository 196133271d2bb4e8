"""Actions of tool calls: the kind of tool, its file, its command line, its changes of files.

Hosts call one tool `Read`, `read_file`, `mcp__fs__read_text_file` or `functions.read`. The last
segment of the name is split into words. Verbs decide the kind, and arguments settle the rest.

A change is exact if the arguments contain the whole text of a file, an old text with its
replacement, or a patch in Codex's format. The module `commands` reads command lines.
"""

import json
import logging
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast, get_args

from context_compaction.messages import placeholders
from context_compaction.messages.model import ToolCall, is_list, memoized_on_call, strings_in
from context_compaction.request import ToolKind

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
# Argument names in the form that `arguments_by_name` returns: hosts write file_path and filePath.
_PATH_KEYS = (
    "filepath", "path", "filename", "file", "notebookpath", "targetfile", "absolutepath",
    "relativepath",
)  # fmt: skip
_COMMAND_KEYS = ("command", "cmd", "script", "code", "input")
_RANGE_KEYS = (
    "offset", "limit", "startline", "endline", "viewrange", "line", "lines", "range",
)  # fmt: skip
_TEXT_KEYS = ("content", "filetext", "contents", "text")
_OLD_KEYS = ("oldstring", "oldtext", "oldstr", "search", "find")
_NEW_KEYS = ("newstring", "newtext", "newstr", "replace", "replacement")
# Some hosts let a read name its lines after the path ("src/a.py:10-20").
LINES_NAMED = re.compile(r":(\d{1,7})(?:-(\d{1,7}))?((?:,\d{1,7}(?:-\d{1,7})?)*)\Z")
# The `command` argument of Anthropic's text editor is the verb of the call.
_EDITOR_COMMANDS: Mapping[str, ToolKind] = {
    "view": "read", "create": "write", "str_replace": "edit", "insert": "edit", "undo_edit": "edit",
}  # fmt: skip
_QUESTION_WORDS = frozenset({"ask", "question"})
_STEERING_WORDS = _QUESTION_WORDS | {"skill", "todo", "todos", "plan", "approval"}
_AGENT_WORDS = frozenset({"task", "agent", "subagent", "delegate"})
_RECALLING_TOOLS = ("read_persisted_output", "search_transcript")
_PATCH_START = "*** Begin Patch"
_PATCH_END = "\n*** End Patch"
_MOVED = "*** Move to: "
# Verb and path of each file in a patch.
_PATCHED_FILE = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+)$", re.MULTILINE)
# The pieces of a name in camelCase or with digits.
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The action of one call.

    Attributes:
        kind: The kind of tool.
        path: The file that the call names, normalized by `plain_path`, or None.
        command: The command line or code that the call runs, or None.
        range: The part that a read asks for, as its arguments name it; "" for the whole file.
    """

    kind: ToolKind
    path: str | None = None
    command: str | None = None
    range: str = ""


def pieces_of(name: str) -> list[str]:
    """Return the pieces of a name: `parseHTML5` gives `parse`, `HTML` and `5`."""
    return _PIECE.findall(name)


@lru_cache(maxsize=1_000)  # a conversation has few tools and many calls
def words_in_name(name: str) -> frozenset[str]:
    """Return the lower-case words of a tool's name, without the prefixes that hosts add."""
    segment = name.replace("__", "/").replace(".", "/").replace(":", "/").rpartition("/")[2]
    return frozenset(word.lower() for word in pieces_of(segment or name))


def classify(call: ToolCall, extra_kinds: Mapping[str, str] | None = None) -> ToolUse:
    """Return what `call` does; `extra_kinds` (tool name to kind) takes precedence."""
    return memoized_on_call(call, _use_or_other, extra_kinds or None)


def _use_or_other(call: ToolCall, extra_kinds: Mapping[str, str] | None) -> ToolUse:
    try:
        return _use_of(call, extra_kinds or {})
    except Exception:  # the arguments of a call may have any shape
        _logger.exception("a call of %r cannot be classified", call.name[:80])
        return ToolUse("other")


def _use_of(call: ToolCall, extra_kinds: Mapping[str, str]) -> ToolUse:
    arguments = arguments_by_name(call.arguments)
    path = first_text(arguments, _PATH_KEYS) or _patched_path(call.arguments)
    kind = _kind(call.name, arguments, path, extra_kinds)
    command = _command(call.arguments, arguments) if kind == "execute" else None
    keys = [key for key in _RANGE_KEYS if kind == "read" and arguments.get(key) is not None]
    part = ",".join(f"{key}={json.dumps(arguments[key])}" for key in keys)
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
    """Return arguments by their names without case and underscores; empty unless an object."""
    if not isinstance(arguments, dict):
        return {}
    given = cast(Mapping[str, Any], arguments)
    return {_plain_name(name): value for name, value in given.items()}


@lru_cache(maxsize=1_000)  # tools have few arguments
def _plain_name(name: str) -> str:
    return str(name).lower().replace("_", "")


def first_text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first string under one of `keys`; or None."""
    values = (arguments.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str)), None)


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
    """Return the first file that a patch in Codex's format names, in any argument, or None."""
    texts = [given] if isinstance(given, str) else arguments_by_name(given).values()
    patches = (text for text in texts if isinstance(text, str) and text.startswith(_PATCH_START))
    match = _PATCHED_FILE.search(next(patches, ""))
    return match[2].strip() if match else None


def gist_of(text: str) -> str:
    """Return the files of a patch, because its beginning does not show them; else `text`."""
    paths = _PATCHED_FILE.findall(text) if _PATCH_START in text else ()
    # The last parts of a long path tell it from other paths.
    names = dict.fromkeys("/".join(path.split("/")[-3:]) for _, path in paths)
    return f"patch of {', '.join(names)}" if names else text


@lru_cache(maxsize=1_000)
def is_steering(name: str) -> bool:
    """Whether the tool asks the user, keeps the plan, or loads a skill: never cleared."""
    return bool(words_in_name(name) & _STEERING_WORDS) or is_question(name)


def is_question(name: str) -> bool:
    """Whether the tool asks the user a question, so that its results are the user's words."""
    words = words_in_name(name)
    return bool(words & _QUESTION_WORDS) or {"request", "user", "input"} <= words


def is_bookkeeping(name: str) -> bool:
    """Whether the tool keeps the plan or the list of tasks, asks the user, or loads a skill."""
    return is_steering(name) or (name[:4] in ("Task", "Todo") and name[4:5].isupper())


def brings_report(name: str) -> bool:
    """Whether the tool delegates work to another agent, or returns that agent's report."""
    return bool(words_in_name(name) & _AGENT_WORDS) and not is_bookkeeping(name)


def is_recalling(name: str) -> bool:
    """Whether the tool is this server's own and returns archived content, under any prefix."""
    return name.lower().endswith(_RECALLING_TOOLS)


# Paths ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def plain_path(path: str) -> str:
    r"""Return `path` without "./" and double slashes; with slashes and an upper-case drive.

    A backslash separates folders only in a path without slashes, and only if no blank follows it:
    in a shell, a backslash may escape a blank.
    """
    if "://" in path:
        return path
    if has_drive(path):
        path = path[0].upper() + path[1:].replace("\\", "/")
        return posixpath.normpath(path) if len(path) > 3 else path[:2] + "/"
    if "/" not in path and "\\ " not in path and not path.startswith("\\"):
        path = path.replace("\\", "/")
    return posixpath.normpath(path)


def has_drive(path: str) -> bool:
    """Whether `path` begins with a drive of Windows."""
    is_letter = path[:1].isascii() and path[:1].isalpha()
    return is_letter and path[1:2] == ":" and path[2:3] in ("", "/", "\\")


def is_absolute(path: str) -> bool:
    """Whether `path` does not depend on a working folder."""
    return path.startswith(("/", "~/")) or has_drive(path)


# Changes of files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Writes:
    """A write of the whole file, or of text at its end.

    Attributes:
        path: The file; "" if the call does not name it.
        text: The new text; None if the call does not specify the change exactly.
        appends: Whether `text` follows the old text.
    """

    path: str
    text: str | None
    appends: bool = False


@dataclass(frozen=True, slots=True)
class Replaces:
    """A replacement of a text that occurs once in the file.

    Attributes:
        path: The file; "" if the call does not name it.
        old: The replaced text.
        new: The text in its place.
        is_every: Whether each of several occurrences is replaced.
    """

    path: str
    old: str
    new: str
    is_every: bool = False


@dataclass(frozen=True, slots=True)
class Deletes:
    """The removal of a file, or of a folder with its files."""

    path: str


FileChange: TypeAlias = Writes | Replaces | Deletes


def changes_of(call: ToolCall, use: ToolUse) -> Sequence[FileChange]:
    """Return what `call`, whose use is `use`, changes in files if the call succeeds."""
    return memoized_on_call(call, _changes_of, use)


def _changes_of(call: ToolCall, use: ToolUse) -> Sequence[FileChange]:
    patch = _patch_in(call.arguments, use.command)
    if patch is not None:
        return list(_patched(patch))
    if use.kind not in ("write", "edit", "notebook"):
        return []
    arguments = arguments_by_name(call.arguments)
    path = use.path or ""
    if arguments.get("dryrun") is True:
        return []
    is_clipped = any(placeholders.is_clipped(text) for text in strings_in(call.arguments))
    if is_clipped or use.kind == "notebook":
        return [Writes(path, None)]
    if use.kind == "write":
        text = first_text(arguments, _TEXT_KEYS)
        appends = "append" in words_in_name(call.name) or arguments.get("append") is True
        return [Writes(path, text, appends)]
    edits = arguments.get("edits")
    parts = [arguments_by_name(edit) for edit in edits] if is_list(edits) else [arguments]
    return [_edit(path, part) for part in parts] or [Writes(path, None)]


def _edit(path: str, arguments: Mapping[str, Any]) -> FileChange:
    old, new = first_text(arguments, _OLD_KEYS), first_text(arguments, _NEW_KEYS)
    if old is None:
        return Writes(path, None)
    expected = arguments.get("expectedreplacements")
    is_every = any(arguments.get(key) is True for key in ("replaceall", "allowmultiple"))
    is_every = is_every or (isinstance(expected, int) and expected > 1)
    return Replaces(path, old, new or "", is_every)


def _patch_in(arguments: object, command: str | None) -> str | None:
    """Return the lines of a patch that a call contains, also inside a command; or None."""
    for text in (command or "", *strings_in(arguments)):
        start = text.find(f"{_PATCH_START}\n")
        stop = text.find(_PATCH_END, start) if start >= 0 else -1
        patch = text[start + len(_PATCH_START) + 1 : stop]
        if stop >= 0:
            # A text about patches names no file.
            return patch if _PATCHED_FILE.search(patch) else None
    return None


def _patched(patch: str) -> Iterator[FileChange]:
    heads = list(_PATCHED_FILE.finditer(patch))
    stops = [*(head.start() for head in heads[1:]), len(patch) + 1]
    for head, stop in zip(heads, stops, strict=True):
        path = plain_path(head[2].strip())
        lines = patch[head.end() + 1 : stop - 1].split("\n")
        if head[1] == "Delete":
            yield Deletes(path)
        elif head[1] == "Add":
            yield Writes(path, "".join(f"{line[1:]}\n" for line in lines if line[:1] == "+"))
        elif lines[0].startswith(_MOVED):
            yield Writes(plain_path(lines[0].removeprefix(_MOVED).strip()), None)
            yield Deletes(path)
        else:
            yield from _hunks(path, lines)


def _hunks(path: str, lines: Sequence[str]) -> Iterator[FileChange]:
    """Yield each hunk as a replacement of its lines, whose text must occur once in the file."""
    hunk: list[str] = []
    for line in (*lines, "@@"):
        if not line.startswith(("@@", "*** ", "\\")):
            hunk.append(line or " ")
        elif hunk:
            yield _hunk(path, hunk)
            hunk = []


def _hunk(path: str, lines: Sequence[str]) -> FileChange:
    old = "\n".join(line[1:] for line in lines if line[0] != "+")
    new = "\n".join(line[1:] for line in lines if line[0] != "-")
    if not old or any(line[0] not in " +-" for line in lines):
        return Writes(path, None)
    if not any(line[0] != "-" for line in lines):
        old += "\n"  # the lines disappear with their ends
    return Replaces(path, old, new)
