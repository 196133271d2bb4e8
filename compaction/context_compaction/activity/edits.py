"""What a call changes in files, read from its arguments, in the spellings that hosts use.

Whole texts, replacements of an old text by a new one, inserted lines, and patches in Codex's
format. A change that the arguments do not specify exactly is `Unclear`. Commands are read in
`commands`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from context_compaction.activity.calls import (
    PATCH_START,
    PATCHED_FILE,
    ToolUse,
    arguments_by_name,
    plain_path,
    strings_in,
    words_in_name,
)
from context_compaction.messages import placeholders
from context_compaction.messages.model import ToolCall, is_list, memoized_on_call

_TEXT_KEYS = ("content", "filetext", "contents", "text")
_OLD_KEYS = ("oldstring", "oldtext", "oldstr", "search", "find")
_NEW_KEYS = ("newstring", "newtext", "newstr", "replace", "replacement")
_INSERTED_KEYS = ("inserttext", "newstr", "newtext", "text")
_EVERY_KEYS = ("replaceall", "allowmultiple")
_PATCH_END = "\n*** End Patch"
_MOVED = "*** Move to: "
_AT_END = "*** End of File"


@dataclass(frozen=True, slots=True)
class Writes:
    """The text replaces the text of the file; if `appends`, it follows that text."""

    path: str
    text: str
    appends: bool = False


@dataclass(frozen=True, slots=True)
class Replaces:
    """`new` replaces `old`, which occurs once; if `is_every`, each occurrence is replaced."""

    path: str
    old: str
    new: str
    is_every: bool = False


@dataclass(frozen=True, slots=True)
class Inserts:
    """Lines were inserted after line `after_line`, counted from 1; 0 is the beginning."""

    path: str
    after_line: int
    text: str


@dataclass(frozen=True, slots=True)
class Hunk:
    """A part of a patch: text that comes before it, the old lines, the new lines."""

    anchors: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    is_at_end: bool = False


@dataclass(frozen=True, slots=True)
class Patches:
    """The hunks were applied in order; `moved_to` is the new path, "" if it stays."""

    path: str
    hunks: tuple[Hunk, ...]
    moved_to: str = ""


@dataclass(frozen=True, slots=True)
class Deletes:
    """The file, or the folder with its files, was deleted."""

    path: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The file was changed in a way that the call does not specify."""

    path: str


FileChange: TypeAlias = Writes | Replaces | Inserts | Patches | Deletes | Unclear


def changes_of(call: ToolCall, use: ToolUse) -> Sequence[FileChange]:
    """What `call`, whose use is `use`, changes in files if it succeeds; "" is an unknown path."""
    return memoized_on_call(call, _changes_of, use)


def _changes_of(call: ToolCall, use: ToolUse) -> Sequence[FileChange]:
    patch = patch_in(call.arguments, use.command)
    if patch is not None and PATCHED_FILE.search(patch):  # else a text about patches
        return list(_patched(patch))
    if use.kind not in ("write", "edit", "notebook"):
        return []
    arguments = arguments_by_name(call.arguments)
    path = use.path or ""
    if arguments.get("dryrun") is True:
        return []
    is_clipped = any(placeholders.is_clipped(text) for text in strings_in(call.arguments))
    if is_clipped or use.kind == "notebook":
        return [Unclear(path)]
    if use.kind == "write":
        text = _text(arguments, _TEXT_KEYS)
        appends = "append" in words_in_name(call.name) or arguments.get("append") is True
        return [Unclear(path) if text is None else Writes(path, text, appends)]
    return _edits(path, arguments)


def _edits(path: str, arguments: Mapping[str, Any]) -> list[FileChange]:
    """The changes that the arguments of an edit tool specify."""
    edits = arguments.get("edits")
    if is_list(edits):
        # One level: an edit has no edits of its own.
        made = [_edit(path, arguments_by_name(edit)) for edit in edits]
        return [change for changes in made for change in changes] or [Unclear(path)]
    return _edit(path, arguments)


def _edit(path: str, arguments: Mapping[str, Any]) -> list[FileChange]:
    old, new = _text(arguments, _OLD_KEYS), _text(arguments, _NEW_KEYS)
    line = arguments.get("insertline")
    if isinstance(line, int):
        text = _text(arguments, _INSERTED_KEYS)
        return [Unclear(path) if text is None else Inserts(path, line, text)]
    if old is not None:
        expected = arguments.get("expectedreplacements")
        is_every = any(arguments.get(key) is True for key in _EVERY_KEYS)
        is_every = is_every or (isinstance(expected, int) and expected > 1)
        return [Replaces(path, old, new or "", is_every)]
    whole = _text(arguments, ("filetext",))
    return [Unclear(path) if whole is None else Writes(path, whole)]


def _text(arguments: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    values = (arguments.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str)), None)


def patch_in(arguments: object, command: str | None) -> str | None:
    """The lines of a patch in Codex's format that a call contains, also inside a command."""
    for text in (command or "", *strings_in(arguments)):
        start = text.find(PATCH_START + "\n")
        stop = text.find(_PATCH_END, start) if start >= 0 else -1
        if stop >= 0:
            return text[start + len(PATCH_START) + 1 : stop]
    return None


def _patched(patch: str) -> Iterator[FileChange]:
    heads = list(PATCHED_FILE.finditer(patch))
    for head, following in zip(heads, [*heads, None][1:], strict=True):
        path = plain_path(head[2].strip())
        lines = patch[head.end() : following.start() if following else len(patch)].split("\n")[1:]
        if following and lines and not lines[-1]:
            lines.pop()
        if head[1] == "Delete":
            yield Deletes(path)
        elif head[1] == "Add":
            yield Writes(path, "".join(f"{line[1:]}\n" for line in lines if line[:1] == "+"))
        else:
            yield _updated(path, lines)


def _updated(path: str, lines: Sequence[str]) -> FileChange:
    moved_to = ""
    if lines and lines[0].startswith(_MOVED):
        moved_to = plain_path(lines[0].removeprefix(_MOVED).strip())
        lines = lines[1:]
    hunks: list[Hunk] = []
    anchors: list[str] = []
    body: list[str] = []
    for line in (*lines, "@@"):
        if line.startswith("@@") or line == _AT_END:
            if body:
                old = tuple(row[1:] for row in body if row[0] != "+")
                new = tuple(row[1:] for row in body if row[0] != "-")
                hunks.append(Hunk(tuple(anchors), old, new, line == _AT_END))
                anchors, body = [], []
            anchor = line[2:].rpartition("@@")[2].strip()  # a unified diff has "@@ -1,2 +1,3 @@"
            if anchor and line != _AT_END:
                anchors.append(anchor)
        elif line.startswith("\\"):
            continue  # "\ No newline at end of file"
        elif line and line[0] not in " +-":
            return Unclear(path)
        else:
            body.append(line or " ")
    return Patches(path, tuple(hunks), moved_to)


def patched_text(text: str, hunks: Sequence[Hunk]) -> tuple[str, int] | None:
    """`text` after `hunks`, and the offset of the last one; None if a hunk's lines are missing."""
    text = f"\n{text}"
    cursor = 0
    for hunk in hunks:
        for anchor in hunk.anchors:
            found = text.find(anchor, cursor)
            cursor = cursor if found < 0 else max(0, text.rfind("\n", 0, found))
        old = "".join(f"\n{row}" for row in hunk.old)
        new = "".join(f"\n{row}" for row in hunk.new)
        if old:
            at = _place(text, old, cursor, is_at_end=hunk.is_at_end)
        else:
            at = len(text) - text.endswith("\n")
        if at is None:
            return None
        text = text[:at] + new + text[at + len(old) :]
        cursor = at + len(new)
    return text[1:], max(0, cursor - 1)


def _place(text: str, old: str, start: int, *, is_at_end: bool) -> int | None:
    """Offset of the whole lines `old`, from `start` on; None if they are not there."""
    if is_at_end:
        body = text.removesuffix("\n")
        return len(body) - len(old) if body.endswith(old) else None
    at = text.find(old, start)
    while at >= 0 and text[at + len(old) : at + len(old) + 1] not in ("", "\n"):
        at = text.find(old, at + 1)
    return at if at >= 0 else None
