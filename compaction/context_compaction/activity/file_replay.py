"""Files as the calls of a conversation leave them: the text last seen, and every change since.

A whole read or a write gives the text, reads in parts are joined, and each edit is applied to it
exactly: where its old text does not stand there just as the tool must have found it, or where a
later read shows something else, the text is given up, and it is said since when. What commands may
have changed stays with a doubt. Pure; it knows nothing of what stands on disk.
"""

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from context_compaction.activity import file_changes as change
from context_compaction.activity import file_commands as shell
from context_compaction.activity.known_file import KnownFile, ReplayedFile
from context_compaction.activity.script_edits import edited_rows, written_by_python
from context_compaction.activity.shown_text import (
    ShownText,
    is_cut,
    is_laid_out,
    numbered_text,
    shell_text,
    shown_text,
)
from context_compaction.activity.tool_kinds import (
    ToolUse,
    arguments_by_name,
    classify,
    plain_path,
    words_of,
)
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    is_stand_in,
    named_arguments,
)
from context_compaction.messages.tool_results import result_text

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
_DONE = re.compile(
    r"\b(?:success\w*|updated|replaced|edited|written|wrote|created|saved|applied)\b", re.IGNORECASE
)
_SAYS_FAILED = re.compile(
    r"^(?:fatal|error|usage|Traceback|[\w/]{1,20}: (?:line \d+: )?\S[^\n]*: )|No such file|denied"
    r"|Is a directory|can't read|Error: |cannot ",
    re.MULTILINE,
)
_OUTSIDE = re.compile(r"^Note: (\S+) was modified, either by the user or by a linter", re.MULTILINE)
_HELPERS = (frozenset({"task"}), frozenset({"agent"}))
_COPY = re.compile(r"^File: ([^\n]+)\n(.*?)\nEnd of file: ([^\n]+)$", re.DOTALL | re.MULTILINE)
# Before the reason for a doubt, in the note of a file that is put back.
UNSURE = "; unsure: "
_COMMAND_CHARS = 30
_FOLDER_FIRST = re.compile(r"\Acd [^;&|\n]{1,200}(?:&&|;|\n)\s*")
# So many lines that begin with numbers in order are numbered by the tool.
_TELLING_LINES = 3
_ANSWER_CHARS = 300


def replay_files(
    messages: Messages,
    extra_kinds: Mapping[str, str] | None = None,
    *,
    until: int | None = None,
) -> dict[str, ReplayedFile]:
    """Each file that `messages` read or change, by path, in order of last use.

    Args:
        messages: The list.
        extra_kinds: Kinds of tools by name.
        until: The position of the last message that counts; all of them without it.
    """
    shown = messages if until is None else messages[: until + 1]
    files = _Replay(shown, extra_kinds).run()
    used = sorted(files.values(), key=lambda file: file.used_at)
    return {file.path: file.replayed() for file in used if file.used_at >= 0}


class _Replay:
    """The walk through the messages."""

    def __init__(self, messages: Messages, extra_kinds: Mapping[str, str] | None) -> None:
        self._messages = messages
        self._kinds = extra_kinds
        self._call_of, self._unanswered_calls = _paired(messages)
        self._files: dict[str, KnownFile] = {}
        self._numbered = self._tools_that_number()
        self._has_moved = False

    def run(self) -> dict[str, KnownFile]:
        for at, message in enumerate(self._messages):
            self._restored(at, message)
            for n, block in enumerate(message.blocks):
                if isinstance(block, ToolCall) and (at, n) in self._unanswered_calls:
                    self._unanswered(at, block)
                elif isinstance(block, ToolResult) and (at, n) in self._call_of:
                    self._answered(at, self._call_of[at, n], block)
                elif isinstance(block, Text) and message.role != "assistant":
                    self._told(at, block.text)
        return self._files

    def _file(self, path: str) -> KnownFile:
        return self._files.setdefault(path, KnownFile(path))

    def _restored(self, at: int, message: Message) -> None:
        """What a compaction has put back is what the file was like, as far as that was known."""
        if not placeholders.is_restored_files(message):
            return
        [block] = message.blocks
        for head, text, path in _COPY.findall(block.text if isinstance(block, Text) else ""):
            if head != path and not head.startswith(f"{path} ("):
                continue
            file = self._file(path)
            file.used_at = at
            file.see(at, text.split("\n"), is_exact=True)
            if UNSURE in head:
                file.doubted(at, "it was put back with a doubt")

    def _told(self, at: int, text: str) -> None:
        for path in _OUTSIDE.findall(text) if "was modified" in text else ():
            self._doubt([plain_path(path)], at, "it was changed outside of the conversation")

    def _unanswered(self, at: int, call: ToolCall) -> None:
        use = classify(call, self._kinds)
        paths = [made.path for made in change.changes_of(call, use)]
        self._doubt(paths, at, "a change has no answer")

    def _doubt(self, paths: Sequence[str], at: int, reason: str) -> None:
        for path in paths:
            for file in self._related(path):
                file.doubted(at, reason)

    def _related(self, path: str) -> Iterator[KnownFile]:
        """The file at `path` and those that may be the same under another spelling."""
        for known, file in self._files.items():
            if known == path or known.endswith(f"/{path}") or path.endswith(f"/{known}"):
                yield file

    def _answered(self, at: int, call: ToolCall, result: ToolResult) -> None:
        use = classify(call, self._kinds)
        text = result_text(result)
        made = change.changes_of(call, use)
        if made:
            self._changed(at, use, made, result, text)
        elif use.kind == "execute" and (command := _command_line(call, use)):
            self._ran(at, call, command, result, text)
        elif use.kind == "read" and use.path:
            self._read(at, call, use, result, text)
        elif words_of(call.name) in _HELPERS:
            for file in self._files.values():
                file.doubted(at, "a helper's work, which is not told here")

    def _changed(
        self,
        at: int,
        use: ToolUse,
        changes: Sequence[change.FileChange],
        result: ToolResult,
        text: str,
    ) -> None:
        paths = [made.path for made in changes]
        if result.is_error or _tells_failure(text):
            # A patch of several files may have changed some of them.
            if len(set(paths)) > 1 or use.kind == "execute":
                self._doubt(paths, at, "a patch has failed on the way")
            return
        window = shown_text(text, start=None, limit=None) if "[File: " in text else None
        for made in changes:
            path = made.path or (plain_path(window.path) if window else "")
            if not path:
                for file in self._files.values():
                    file.doubted(at, "a change does not tell its file")
                continue
            self._change(at, path, made)
        if is_stand_in(result) or placeholders.seems_placeholder(result):
            self._doubt(paths, at, "whether a change succeeded is not told any more")
        elif len(set(paths)) == 1 and paths[0]:
            self._check_snippet(at, self._file(paths[0]), text)
        if window is not None:
            self._file(plain_path(window.path)).see_part(at, window)

    def _change(self, at: int, path: str, made: change.FileChange) -> None:
        file = self._file(path)
        file.apply(at, made)
        for other in self._related(path):
            if other is not file:
                other.doubted(at, f"{path} was changed, which may be the same file")
        if isinstance(made, change.Patches) and made.moved_to:
            self._rename(at, file, made.moved_to)

    def _check_snippet(self, at: int, file: KnownFile, text: str) -> None:
        """Hold what the tool shows of a change against what replaying it gave."""
        found = numbered_text(text)
        start = found.start_line if found else None
        if found is None or start is None or not file.segments or file.seen_at == at:
            return
        rows = found.rows
        if not file.agrees(start, rows, ends=False):
            file.lose(at, "what the tool shows of a change differs from what replaying it gives")

    def _read(self, at: int, call: ToolCall, use: ToolUse, result: ToolResult, text: str) -> None:
        if result.is_error or is_stand_in(result) or use.path is None:
            return
        file = self._file(use.path)
        file.used_at = file.read_at = at
        file.reads += 1
        if placeholders.seems_placeholder(result) or use.path.endswith(".ipynb"):
            return
        if "[File: " not in text and _FAILED.match(text) and text.count("\n") < 3:
            return
        start, limit, is_known = _wanted(named_arguments(call))
        if not is_known:
            return
        shown = self._shown(call.name, text, start, limit)
        if shown is None or not shown.rows or shown.rows == ("",):
            return
        if shown.is_whole:
            rows, before = list(shown.rows), file.rows
            same = before is not None and [r.rstrip() for r in rows] == [r.rstrip() for r in before]
            if same and not file.doubt:
                return  # as it was: the text stays with the changes that led to it
            file.see(at, rows, is_exact=not shown.is_numbered)
        else:
            file.see_part(at, shown)

    def _ran(self, at: int, call: ToolCall, command: str, result: ToolResult, text: str) -> None:
        output, succeeded = shell_text(text)
        succeeded = succeeded and not result.is_error
        # The exit code is that of the last in a list, which need not be the one that writes.
        may_tell = re.search(r"[;\n]", command.strip()) and _SAYS_FAILED.search(output) is None
        relative_is_sure = not self._has_moved
        label = " ".join(_FOLDER_FIRST.sub("", command).split())[:_COMMAND_CHARS]
        reason = f"a command may have changed it: {label}"
        for effect in shell.command_effects(command, relative_is_sure=relative_is_sure):
            match effect:
                case shell.Shows(path, start, count):
                    if succeeded and not placeholders.seems_placeholder(result):
                        self._printed(at, call, path, start, count, output)
                case change.Writes() | change.Deletes():
                    if succeeded or may_tell:
                        self._change(at, effect.path, effect)
                    else:
                        self._doubt([effect.path], at, reason)
                case shell.MayChange():
                    self._may_change(at, effect, reason)
                case _:
                    self._scripted(at, effect, reason, succeeded=bool(succeeded or may_tell))
        if shell.rewrote_files(output):
            self._may_change(at, shell.MayChange(), reason)
        self._has_moved = self._has_moved or shell.changes_folder(command)

    def _scripted(
        self, at: int, effect: shell.CommandEffect, reason: str, *, succeeded: bool
    ) -> None:
        match effect:
            case shell.Runs(path):
                script = self._files.get(path)
                rows = script.rows if script else None
                for other in shell.changed_by_code("\n".join(rows or ())):
                    self._may_change(at, other, reason)
            case shell.RunsPython(code, folder):
                self._ran_python(at, code, folder, reason, succeeded=succeeded)
            case shell.EditsLines():
                self._edited_lines(at, effect, reason, succeeded=succeeded)
            case shell.Moves(old, new) if succeeded:
                self._moved(at, old, new)
            case _:
                pass

    def _moved(self, at: int, old: str, new: str) -> None:
        """A file or folder got another name, or went into a folder that is known."""
        if any(path.startswith(f"{new}/") for path in self._files):
            new = f"{new}/{posixpath.basename(old)}"
        if new == old:
            return
        is_folder = any(path.startswith(f"{old}/") for path in self._files)
        if not is_folder and posixpath.splitext(old)[1] != posixpath.splitext(new)[1]:
            return  # It may have gone into a folder.
        for path, file in list(self._files.items()):
            if path == old or path.startswith(f"{old}/"):
                self._rename(at, file, new + path.removeprefix(old))

    def _rename(self, at: int, file: KnownFile, path: str) -> None:
        moved = self._file(path)
        moved.used_at = moved.changed_at = at
        moved.writes += 1
        if file.rows is None:
            moved.lose(at, "another file was moved here")
        else:
            moved.see(at, file.rows, is_exact=file.is_exact)
            moved.seen_at, moved.edits = file.seen_at, file.edits
            moved.doubt, moved.doubt_at = file.doubt, file.doubt_at
        file.lose(at, "it was moved")
        file.is_deleted = True

    def _ran_python(self, at: int, code: str, folder: str, reason: str, *, succeeded: bool) -> None:
        """A script was run; what it writes is followed, or doubted."""

        def text_of(path: str) -> str | None:
            file = self._named(posixpath.join(folder, path))
            rows = file.rows if file else None
            is_known = file is not None and rows is not None and (file.is_exact or not rows[-1])
            return "\n".join(rows) if rows is not None and is_known else None

        written = written_by_python(code, text_of) if succeeded else None
        for path, text in (written or {}).items():
            placed = posixpath.normpath(posixpath.join(folder, path))
            file = self._named(placed) or self._file(placed)
            file.rewrite(at, text.split("\n"))
        if written is None:
            for effect in shell.changed_by_code(code):
                self._may_change(at, effect, reason)

    def _edited_lines(
        self, at: int, effect: shell.EditsLines, reason: str, *, succeeded: bool
    ) -> None:
        """A stream editor changed lines."""
        file = self._named(effect.path)
        rows = file.rows if file else None
        if file is None or rows is None or not succeeded:
            self._may_change(at, shell.MayChange((effect.path,)), reason)
            return
        ended = not rows[-1]
        changed, times = edited_rows(rows[:-1] if ended else rows, effect.edits)
        if times:
            file.rewrite(at, [*changed, ""] if ended else changed)

    def _named(self, path: str) -> KnownFile | None:
        """The file that a command names as `path`: under this name, or from the work's folder."""
        path = posixpath.normpath(path)
        if path in self._files or path.startswith("/"):
            return self._files.get(path)
        found = [file for known, file in self._files.items() if known.endswith(f"/{path}")]
        folders = {file.path.removesuffix(path) for file in found if file.path.startswith("/")}
        if len(found) != 1 or len(folders) != 1:
            return None
        # Another folder may have a file of that name: most of the others must lie in this one.
        [folder] = folders
        inside = [known for known in self._files if known.startswith(folder)]
        absolute = [known for known in self._files if known.startswith("/")]
        return found[0] if len(inside) > 1 and 2 * len(inside) > len(absolute) else None

    def _may_change(self, at: int, effect: shell.MayChange, reason: str) -> None:
        for path, file in self._files.items():
            if effect.concerns(path) and file.changed_at != at:
                file.doubted(at, reason)

    def _printed(
        self, at: int, call: ToolCall, path: str, start: int | None, count: int | None, text: str
    ) -> None:
        file = self._file(path)
        file.used_at = file.read_at = at
        file.reads += 1
        if is_cut(text) or not text:
            return
        shown = self._shown(call.name, text.removesuffix("\n"), start, count)
        if shown is None:
            return
        # Hosts cut empty lines off the end, so fewer lines than asked for need not be the last.
        ends = shown.is_to_end and (count is None or text.endswith("\n"))
        rows = shown.rows
        if not shown.is_numbered and ends and rows[-1]:
            rows = (*rows, "")
        if shown.start_line == 1 and ends:
            file.see(at, rows, is_exact=False)
        else:
            file.see_part(at, ShownText(rows, shown.start_line, ends))

    def _shown(
        self, name: str, text: str, start: int | None, limit: int | None
    ) -> ShownText | None:
        votes = self._numbered[name]
        may_number = None if not votes else votes > 0
        return shown_text(text, start=start, limit=limit, may_number=may_number)

    def _tools_that_number(self) -> Counter[str]:
        """By tool how many more of its answers number their lines than do not."""
        votes: Counter[str] = Counter()
        for (at, n), call in self._call_of.items():
            result = self._messages[at].blocks[n]
            if classify(call, self._kinds).kind == "read" and isinstance(result, ToolResult):
                text = result_text(result)
                found = numbered_text(text)
                if found is None:
                    votes[call.name] -= text.count("\n") > 1
                elif len(found.rows) >= _TELLING_LINES or is_laid_out(text):
                    votes[call.name] += 1
        return votes


def _paired(
    messages: Messages,
) -> tuple[dict[tuple[int, int], ToolCall], set[tuple[int, int]]]:
    """By the place of a result its call, and the places of calls without one.

    Ids that a host uses again belong to the last call before the result.
    """
    waiting: dict[str, tuple[tuple[int, int], ToolCall]] = {}
    call_of: dict[tuple[int, int], ToolCall] = {}
    unanswered: set[tuple[int, int]] = set()
    for at, message in enumerate(messages):
        for n, block in enumerate(message.blocks):
            if isinstance(block, ToolCall):
                unanswered.add((at, n))
                waiting[block.call_id] = (at, n), block
            elif isinstance(block, ToolResult) and block.call_id in waiting:
                place, call_of[at, n] = waiting.pop(block.call_id)
                unanswered.discard(place)
    return call_of, unanswered


def _command_line(call: ToolCall, use: ToolUse) -> str | None:
    """The command that a call runs, as a shell takes it."""
    given = arguments_by_name(call.arguments)
    for key in ("command", "cmd"):
        words = given.get(key)
        if isinstance(words, list):
            line = [str(word) for word in cast("list[object]", words)]
            return line[2] if len(line) == 3 and line[1] in ("-lc", "-c") else shlex.join(line)
    return use.command


def _tells_failure(text: str) -> bool:
    """Whether the answer to a change says that nothing was changed."""
    head = text[:_ANSWER_CHARS]
    return bool(_UNDONE.search(head) or (_FAILED.match(head) and not _DONE.search(head)))


def _wanted(arguments: Mapping[str, object]) -> tuple[int | None, int | None, bool]:
    """First line and number of lines that a read asks for, and whether that is understood."""
    named = arguments_by_name(arguments)
    if any(named.get(key) is not None for key in ("tail", "range", "lines", "line")):
        return None, None, False
    if (view := named.get("viewrange")) is not None:
        if not (isinstance(view, list) and len(view) == 2):  # pyright: ignore[reportUnknownArgumentType]
            return None, None, False
        first, last = view[0], view[1]  # pyright: ignore[reportUnknownVariableType]
        if not (isinstance(first, int) and isinstance(last, int)):
            return None, None, False
        return first, (last - first + 1 if last >= first else None), True
    start = _number(named, ("offset", "startline", "linenumber", "startlineoneindexed"))
    limit = _number(named, ("limit", "head"))
    stop = _number(named, ("endline", "endlineoneindexed", "endlineoneindexedinclusive"))
    if stop is not None:
        limit = stop - (start or 1) + 1 if stop >= (start or 1) else None
    return (max(start, 1) if start is not None else None), limit, True


def _number(named: Mapping[str, object], keys: Sequence[str]) -> int | None:
    found = (named.get(key) for key in keys)
    return next((value for value in found if isinstance(value, int)), None)
