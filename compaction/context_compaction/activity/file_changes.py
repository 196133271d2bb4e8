"""What a call changes in files, read from its arguments, in every vocabulary that hosts use.

Whole texts, replacements of an old text by a new one, inserted lines, and patches in Codex's format
or as search and replace blocks. A change that the arguments do not specify exactly is `Unclear`.
And whether the answer to a call reports that nothing was changed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from context_compaction.activity.file_paths import plain_path
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.tool_kinds import ToolUse, arguments_by_name, words_in_name
from context_compaction.messages import placeholders
from context_compaction.messages.model import ToolCall, worked_out

_TEXT_KEYS = ("content", "filetext", "contents", "text")
_OLD_KEYS = ("oldstring", "oldtext", "oldstr", "search", "find")
_NEW_KEYS = ("newstring", "newtext", "newstr", "replace", "replacement")
_INSERTED_KEYS = ("inserttext", "newstr", "newtext", "text")
_PATCH = re.compile(r"\*\*\* Begin Patch\n(.*?)\n\*\*\* End Patch", re.DOTALL)
_PATCH_SIGN = "*** Begin Patch"  # looked for first, which is far faster
_PATCHED_FILE = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+)$", re.MULTILINE)
_UNIFIED_FILE = re.compile(r"^\+\+\+ (?:b/)?([^\t\n]+)", re.MULTILINE)
_SEARCH_BLOCK = re.compile(
    r"^(?:<{7}|-{7}) SEARCH>?\n(.*?)^={7}\n(.*?)^(?:>{7}|\+{7}) REPLACE>?$",
    re.DOTALL | re.MULTILINE,
)
_MOVED = "*** Move to: "
_AT_END = "*** End of File"
_FAILED = re.compile(
    r"\A\W*(?:<tool_use_error>|(?:\w+ ){0,3}(?:error|failed|failure|cannot|could not|unable"
    r"|no match|not found|invalid|denied|exception|rejected|aborted|cancelled))",
    re.IGNORECASE,
)
_UNDONE = re.compile(
    r"(?:was|were) (?:not|NOT) (?:applied|made|written|changed)|introduced new syntax error"
    r"|no (?:replacement|change)s? (?:was|were) (?:performed|made)|not found in|did not match"
    r"|string to replace|must be unique|multiple occurrences",
    re.IGNORECASE,
)
# One of these is in it; to look for them first is much faster.
_UNDONE_SIGNS = (
    "not ",
    "new syntax",
    "no replace",
    "no change",
    "string to",
    "must be",
    "multiple",
)
_DONE = re.compile(
    r"\b(?:success\w*|updated|replaced|edited|written|wrote|created|saved|applied)\b", re.IGNORECASE
)
_ANSWER_CHARS = 300
ALL = 0  # times that a text is replaced: wherever it stands


@dataclass(frozen=True, slots=True)
class Writes:
    """The text replaces that of the file; or, with `appends`, follows it."""

    path: str
    text: str
    appends: bool = False


@dataclass(frozen=True, slots=True)
class Replaces:
    """`new` replaces `old`, which the file contained `times` times (`ALL`: at least once)."""

    path: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Inserts:
    """Lines were inserted after line `after_line`."""

    path: str
    after_line: int
    text: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines of a patch: where to look, the old lines, the new lines."""

    anchors: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    is_at_end: bool = False


@dataclass(frozen=True, slots=True)
class Patches:
    """The hunks were applied in order; the file may have another name since."""

    path: str
    hunks: tuple[Hunk, ...]
    moved_to: str = ""


@dataclass(frozen=True, slots=True)
class Deletes:
    """The file was deleted."""

    path: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The file was changed, and the call does not specify how."""

    path: str


FileChange: TypeAlias = Writes | Replaces | Inserts | Patches | Deletes | Unclear


def changes_of(call: ToolCall, use: ToolUse) -> Sequence[FileChange]:
    """What `call`, which does `use`, changes in files where it succeeds; "" is an unknown path."""
    return worked_out(call, _changes_of, use)


def _changes_of(call: ToolCall, use: ToolUse) -> Sequence[FileChange]:
    call = made_call(call)
    patch = patch_in(call.arguments, use.command)
    if patch is not None:
        return list(patched(patch))
    if use.kind not in ("write", "edit", "notebook"):
        return []
    arguments = arguments_by_name(call.arguments)
    path = use.path or ""
    if arguments.get("dryrun") is True:
        return []
    if any(isinstance(v, str) and placeholders.is_clipped(v) for v in arguments.values()):
        return [Unclear(path)]
    if use.kind == "write":
        text = _string(arguments, _TEXT_KEYS)
        appends = "append" in words_in_name(call.name) or arguments.get("append") is True
        return [Unclear(path) if text is None else Writes(path, text, appends)]
    if use.kind == "notebook":
        return [Unclear(path)]
    return _edits(path, arguments)


def patch_in(arguments: object, command: str | None) -> str | None:
    """The patch in Codex's format that a call contains, by itself or inside a command."""
    texts = [command, arguments if isinstance(arguments, str) else None]
    texts += [v for v in arguments_by_name(arguments).values() if isinstance(v, str)]
    patches = (_PATCH.search(text) for text in texts if text and _PATCH_SIGN in text)
    found = next(filter(None, patches), None)
    return found[1] if found else None


def patched(patch: str) -> Iterator[FileChange]:
    """What the lines between `*** Begin Patch` and `*** End Patch` change."""
    heads = list(_PATCHED_FILE.finditer(patch))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        path = plain_path(head[2].strip())
        lines = patch[head.end() : following.start() if following else len(patch)].split("\n")[1:]
        if following and lines and not lines[-1]:
            lines.pop()
        if head[1] == "Delete":
            yield Deletes(path)
        elif head[1] == "Add":
            added = [line[1:] for line in lines if line.startswith("+")]
            yield Writes(path, "".join(f"{line}\n" for line in added))
        else:
            yield _updated(path, lines)


def _updated(path: str, lines: Sequence[str]) -> FileChange:
    moved_to = ""
    if lines and lines[0].startswith(_MOVED):
        moved_to = plain_path(lines[0].removeprefix(_MOVED).strip())
        lines = lines[1:]
    hunks: list[Hunk] = []
    anchors: list[str] = []
    held: list[str] = []
    for line in (*lines, "@@"):
        if line.startswith("@@") or line == _AT_END:
            if held:
                hunks.append(_hunk(anchors, held, is_at_end=line == _AT_END))
                anchors, held = [], []
            if line[2:].strip() and line != _AT_END:
                anchors.append(line[3:])
        elif line and line[0] not in " +-":
            return Unclear(path)
        else:
            held.append(line or " ")
    return Patches(path, tuple(hunks), moved_to)


def _hunk(anchors: Sequence[str], lines: Sequence[str], *, is_at_end: bool) -> Hunk:
    old = tuple(line[1:] for line in lines if line[0] != "+")
    new = tuple(line[1:] for line in lines if line[0] != "-")
    return Hunk(tuple(anchors), old, new, is_at_end)


def _edits(path: str, arguments: Mapping[str, Any]) -> list[FileChange]:
    edits = arguments.get("edits")
    if isinstance(edits, list):
        found: list[FileChange] = []
        for edit in cast("list[object]", edits):
            found += _edits(path, arguments_by_name(edit))
        return found or [Unclear(path)]
    old, new = _string(arguments, _OLD_KEYS), _string(arguments, _NEW_KEYS)
    line = arguments.get("insertline")
    if isinstance(line, int):
        text = _string(arguments, _INSERTED_KEYS)
        return [Unclear(path) if text is None else Inserts(path, line, text)]
    if old is not None:
        return [Replaces(path, old, new or "", _times(arguments))]
    diff = _string(arguments, ("diff",))
    if diff is not None and (blocks := _SEARCH_BLOCK.findall(diff)):
        return [Replaces(path, before, after) for before, after in blocks]
    whole = _string(arguments, ("filetext",))
    if whole is not None:
        return [Writes(path, whole)]
    named = [plain_path(name) for text in arguments.values() if isinstance(text, str)
             for name in _UNIFIED_FILE.findall(text)]  # fmt: skip
    return [Unclear(name) for name in (named if named and not path else [path])]


def _times(arguments: Mapping[str, Any]) -> int:
    if arguments.get("replaceall") or arguments.get("allowmultiple"):
        return ALL
    expected = arguments.get("expectedreplacements")
    return expected if isinstance(expected, int) and expected > 0 else 1


def _string(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    found = (arguments.get(key) for key in keys)
    return next((value for value in found if isinstance(value, str)), None)


def begins_with_failure(text: str) -> bool:
    """Whether the answer to a call is an error by its first words."""
    return _FAILED.match(text) is not None


def tells_failure(text: str) -> bool:
    """Whether the answer to a change reports that nothing was changed."""
    head = text[:_ANSWER_CHARS]
    if any(map(head.lower().__contains__, _UNDONE_SIGNS)) and _UNDONE.search(head):
        return True
    return begins_with_failure(head) and not _DONE.search(head)


def hunk_at(lines: Sequence[str], hunk: Hunk, position: int) -> int | None:
    """Index of the old lines of `hunk` after `position` and its anchors; else None."""
    for anchor in hunk.anchors:
        found = _find(lines, (anchor,), position)
        position = position if found is None else found + 1
    return _place(lines, hunk, position)


def _place(lines: Sequence[str], hunk: Hunk, start: int) -> int | None:
    """Index of the old lines of `hunk` from `start` on, by the search of Codex; else None."""
    if not hunk.old:
        return len(lines)
    if hunk.is_at_end:
        last = len(lines) - len(hunk.old)
        return last if last >= start and _find(lines, hunk.old, last) == last else None
    return _find(lines, hunk.old, start)


def _find(lines: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    """Index of `wanted` from `start` on: exact, or but for spaces around its lines; else None."""
    size = len(wanted)
    for form in (str, str.rstrip, str.strip):
        sought = [form(line) for line in wanted]
        there = [form(line) for line in lines]
        for n in range(start, len(lines) - size + 1):
            if there[n : n + size] == sought:
                return n
    return None
