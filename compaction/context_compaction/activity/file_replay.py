"""Files as the calls of a conversation leave them: the text last seen, and every change since.

A whole read or a write gives the text, reads in parts are joined, and each edit is applied to it
exactly: where its old text does not stand there just as the tool must have found it, or where a
later read shows something else, the text is given up, and it is said since when. What commands may
have changed stays with a doubt. Pure; it knows nothing of what stands on disk.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from context_compaction.activity import file_changes as change
from context_compaction.activity import file_commands as shell
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
_OUTSIDE = re.compile(r"^Note: (\S+) was modified, either by the user or by a linter", re.MULTILINE)
_HELPERS = (frozenset({"task"}), frozenset({"agent"}))
_COPY = re.compile(r"^File: ([^\n]+)\n(.*?)\nEnd of file: ([^\n]+)$", re.DOTALL | re.MULTILINE)
# Before the reason for a doubt, in the note of a file that is put back.
UNSURE = "; unsure: "
_TOUCHED_PARTS = 8
_COMMAND_CHARS = 30
_FOLDER_FIRST = re.compile(r"\Acd [^;&|\n]{1,200}(?:&&|;|\n)\s*")
# So many lines that begin with numbers in order are numbered by the tool.
_TELLING_LINES = 3
_ANSWER_CHARS = 300


@dataclass(frozen=True, slots=True)
class FilePart:
    """Lines of a file whose other lines are not known: `text` begins with line `start_line`."""

    start_line: int
    text: str

    @property
    def stop_line(self) -> int:
        """The number of its last line."""
        return self.start_line + self.text.count("\n")


@dataclass(frozen=True, slots=True)
class ReplayedFile:
    """What a conversation tells of one file.

    Positions are those of messages in the list, from 0; -1 is never.

    Attributes:
        path: The path as the calls name it.
        text: All of it; None where that is not known. Only whether a last line ends with a newline
            is not always shown.
        parts: Where the whole is not known, the lines that are.
        seen_at: The message that showed or wrote what the changes were applied to.
        edits: How many changes were applied to that.
        changed_at: The last message that changed it.
        used_at: The last message that read or changed it.
        read_at: The last message that read it.
        reads: How often it was read.
        writes: How often it was written or edited.
        doubt: Why `text` may be wrong all the same: what may have changed it since; "" if nothing.
        doubt_at: The message of that.
        lost: Why the whole is not known any more; "" where it never was, or still is.
        lost_at: The message of that.
        touched: First and last line of what was changed last, newest first.
        is_deleted: Whether it is no more.
    """

    path: str
    text: str | None = None
    parts: tuple[FilePart, ...] = ()
    seen_at: int = -1
    edits: int = 0
    changed_at: int = -1
    used_at: int = -1
    read_at: int = -1
    reads: int = 0
    writes: int = 0
    doubt: str = ""
    doubt_at: int = -1
    lost: str = ""
    lost_at: int = -1
    touched: tuple[tuple[int, int], ...] = ()
    is_deleted: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether `text` is the file, unless somebody else has changed it."""
        return self.text is not None and not self.doubt

    @property
    def is_changed(self) -> bool:
        """Whether the conversation itself changed it."""
        return self.writes > 0


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


@dataclass(slots=True)
class _File:
    """One file while the messages are walked through: what is known of its lines by now."""

    path: str
    segments: list[tuple[int, list[str]]] = field(default_factory=list[tuple[int, list[str]]])
    end: int | None = None  # the number of its last line
    seen_at: int = -1
    edits: int = 0
    changed_at: int = -1
    used_at: int = -1
    read_at: int = -1
    reads: int = 0
    writes: int = 0
    doubt: str = ""
    doubt_at: int = -1
    lost: str = ""
    lost_at: int = -1
    touched: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_deleted: bool = False
    is_exact: bool = True  # whether its end is known to the last newline

    @property
    def rows(self) -> list[str] | None:
        """All lines; None where some are not known."""
        if len(self.segments) != 1 or self.end is None:
            return None
        start, rows = self.segments[0]
        return rows if start == 1 and len(rows) == self.end else None

    def replayed(self) -> ReplayedFile:
        rows = self.rows
        parts = () if rows is not None else tuple(
            FilePart(start, "\n".join(held)) for start, held in self.segments
        )  # fmt: skip
        return ReplayedFile(
            self.path,
            None if rows is None else "\n".join(rows),
            parts,
            self.seen_at,
            self.edits,
            self.changed_at,
            self.used_at,
            self.read_at,
            self.reads,
            self.writes,
            self.doubt,
            self.doubt_at,
            "" if rows is not None else self.lost,
            -1 if rows is not None else self.lost_at,
            tuple(self.touched),
            self.is_deleted,
        )

    def see(self, at: int, rows: Sequence[str], *, is_exact: bool) -> None:
        """All lines of it as they are now."""
        self.segments, self.end = [(1, list(rows))], len(rows)
        self.seen_at, self.edits, self.is_exact = at, 0, is_exact
        self.doubt, self.doubt_at, self.lost, self.lost_at = "", -1, "", -1
        self.is_deleted = False

    def see_part(self, at: int, shown: ShownText) -> None:
        """Some of its lines; what was known otherwise is given up where they say otherwise."""
        if shown.start_line is None:
            return
        start, rows = shown.start_line, list(shown.rows)
        if self.is_deleted or not self.agrees(start, rows, ends=shown.is_to_end):
            self.lose(at, "a read shows another text than it had before")
            self.is_deleted = False
        if self.rows is not None:
            return
        if not self.segments:
            self.seen_at, self.edits, self.doubt, self.doubt_at = at, 0, "", -1
        if shown.is_to_end:
            self.end = start + len(rows) - 1
        self._join(start, rows)
        if self.rows is not None:
            self.lost, self.lost_at, self.is_exact = "", -1, False

    def agrees(self, start: int, rows: Sequence[str], *, ends: bool) -> bool:
        """Whether lines from `start` on are those that are known."""
        stop = start + len(rows)
        if self.end is not None and not ends and stop - 1 > self.end:
            return False
        if self.end is not None and ends and abs(stop - 1 - self.end) > 1:
            return False
        for at, held in self.segments:
            first, last = max(start, at), min(stop, at + len(held))
            for line in range(first, last):
                if held[line - at].rstrip() != rows[line - start].rstrip():
                    return False
        return True

    def _join(self, start: int, rows: list[str]) -> None:
        """Put lines among those that are known, with which they agree."""
        lines = {start + n: row for n, row in enumerate(rows)}
        for at, held in self.segments:
            lines.update({at + n: row for n, row in enumerate(held)})
        joined: list[tuple[int, list[str]]] = []
        for number in sorted(lines):
            if self.end is not None and number > self.end:
                break
            if joined and joined[-1][0] + len(joined[-1][1]) == number:
                joined[-1][1].append(lines[number])
            else:
                joined.append((number, [lines[number]]))
        self.segments = joined

    def lose(self, at: int, reason: str) -> None:
        """Nothing of its text is known any more."""
        if self.segments:
            self.lost, self.lost_at = reason, at
        self.segments, self.end, self.touched = [], None, []
        self.doubt, self.doubt_at = "", -1

    def doubted(self, at: int, reason: str) -> None:
        """Something may have changed it."""
        if not self.doubt:
            self.doubt, self.doubt_at = reason, at

    def apply(self, at: int, made: change.FileChange) -> None:
        """Change it as a call that succeeded did."""
        self.writes += 1
        self.changed_at = self.used_at = at
        match made:
            case change.Writes(_, text, True):
                self._append(at, text)
            case change.Writes(_, text):
                self.see(at, text.split("\n"), is_exact=True)
                self.touched = []
            case change.Replaces(_, "", new) if self.rows in (None, [""], []):
                self.see(at, new.split("\n"), is_exact=True)
            case change.Replaces():
                self._replace(at, made)
            case change.Inserts():
                self._insert(at, made)
            case change.Patches():
                self._patch(at, made)
            case change.Deletes():
                self.lose(at, "it was deleted")
                self.is_deleted = True
            case _:
                self.lose(at, "it was changed in a way that the call does not tell")

    def _append(self, at: int, text: str) -> None:
        rows = self.rows
        if rows is None or not self.is_exact:
            self.lose(at, "text was added at its end, which is not known exactly")
            return
        self._set_text(len(rows), "\n".join(rows) + text, text.count("\n") + 1)

    def _replace(self, at: int, made: change.Replaces) -> None:
        times = made.times
        counts = ["\n".join(rows).count(made.old) for _, rows in self.segments]
        found, whole = sum(counts), self.rows is not None
        if not found and whole and not self.is_exact and self.segments[0][1][-1]:
            self.segments[0][1].append("")  # an end of the last line that was not shown
            self.end = len(self.segments[0][1])
            self._replace(at, made)
            return
        within_lines = "\n" not in made.old and "\n" not in made.new
        if not self.segments:
            return
        if whole:
            fits = found >= 1 if times == change.ALL else found == times
        elif times == 1:
            # The tool has found it once: if not here, then among what is not known.
            fits = found == 1 or (not found and within_lines)
        else:
            fits = within_lines
        if not fits:
            what = "is not there" if not found else f"is there {found} times"
            self.lose(at, f"the old text of an edit {what}")
            return
        self.edits += 1
        for n in reversed([n for n, count in enumerate(counts) if count]):
            self._replace_in(n, made.old, made.new)

    def _replace_in(self, n: int, old: str, new: str) -> None:
        start, rows = self.segments[n]
        text = "\n".join(rows)
        grown = new.count("\n") - old.count("\n")
        position = text.find(old)
        while position >= 0:
            first = start + text.count("\n", 0, position)
            text = f"{text[:position]}{new}{text[position + len(old) :]}"
            self._touch(first, old.count("\n") + 1, new.count("\n") + 1)
            for later in range(n + 1, len(self.segments)):
                at, held = self.segments[later]
                self.segments[later] = (at + grown, held)
            self.end = None if self.end is None else self.end + grown
            position = text.find(old, position + len(new))
        self.segments[n] = (start, text.split("\n"))

    def _insert(self, at: int, made: change.Inserts) -> None:
        rows = self.rows
        if rows is None or made.after_line > len(rows) or made.text.endswith("\n"):
            # Whether a last newline makes an empty line of its own, tools see differently.
            self.lose(at, "lines were put in, and how many is not certain")
            return
        lines = made.text.split("\n")
        text = "\n".join([*rows[: made.after_line], *lines, *rows[made.after_line :]])
        self._set_text(made.after_line + 1, text, len(lines), 0)

    def _patch(self, at: int, made: change.Patches) -> None:
        rows = self.rows
        if rows is None:
            self.lose(at, "a patch was applied to what is not known as a whole")
            return
        lines = list(rows[:-1]) if rows and not rows[-1] else list(rows)
        position = 0
        for hunk in made.hunks:
            for anchor in hunk.anchors:
                found = _find(lines, (anchor,), position)
                position = position if found is None else found + 1
            found = _place(lines, hunk, position)
            if found is None:
                self.lose(at, "the old lines of a patch are not there")
                return
            lines[found : found + len(hunk.old)] = hunk.new
            self._touch(found + 1, len(hunk.old), len(hunk.new))
            position = found + len(hunk.new)
            self.edits += 1
        self.segments, self.end = [(1, [*lines, ""])], len(lines) + 1

    def _set_text(self, first: int, text: str, new_lines: int, old_lines: int = 1) -> None:
        rows = text.split("\n")
        self.segments, self.end = [(1, rows)], len(rows)
        self.edits += 1
        self._touch(first, old_lines, new_lines)

    def _touch(self, first: int, old_lines: int, new_lines: int) -> None:
        """Note that lines were changed, and that those after them have other numbers now."""
        grown = new_lines - old_lines
        moved = [
            (start + grown, stop + grown) if start > first else (start, stop)
            for start, stop in self.touched
            if not first <= start <= stop <= first + old_lines - 1
        ]
        self.touched = [(first, max(first, first + new_lines - 1)), *moved][:_TOUCHED_PARTS]


def _find(lines: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    size = len(wanted)
    return next(
        (n for n in range(start, len(lines) - size + 1) if lines[n : n + size] == list(wanted)),
        None,
    )


def _place(lines: Sequence[str], hunk: change.Hunk, start: int) -> int | None:
    """Where the old lines of `hunk` stand from `start` on, as Codex looks for them."""
    if not hunk.old:
        return len(lines)
    if hunk.is_at_end:
        last = len(lines) - len(hunk.old)
        return last if last >= start and _find(lines, hunk.old, last) == last else None
    return _find(lines, hunk.old, start)


class _Replay:
    """The walk through the messages."""

    def __init__(self, messages: Messages, extra_kinds: Mapping[str, str] | None) -> None:
        self._messages = messages
        self._kinds = extra_kinds
        self._call_of, self._unanswered_calls = _paired(messages)
        self._files: dict[str, _File] = {}
        self._numbered = self._tools_that_number()
        self._has_moved = False

    def run(self) -> dict[str, _File]:
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

    def _file(self, path: str) -> _File:
        return self._files.setdefault(path, _File(path))

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

    def _related(self, path: str) -> Iterator[_File]:
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
            moved = self._file(made.moved_to)
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

    def _check_snippet(self, at: int, file: _File, text: str) -> None:
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
        relative_is_sure = not self._has_moved
        label = " ".join(_FOLDER_FIRST.sub("", command).split())[:_COMMAND_CHARS]
        reason = f"a command may have changed it: {label}"
        for effect in shell.command_effects(command, relative_is_sure=relative_is_sure):
            match effect:
                case shell.Shows(path, start, count):
                    if succeeded and not placeholders.seems_placeholder(result):
                        self._printed(at, call, path, start, count, output)
                case change.Writes() | change.Deletes():
                    if succeeded:
                        self._change(at, effect.path, effect)
                    else:
                        self._doubt([effect.path], at, reason)
                case shell.MayChange():
                    self._may_change(at, effect, reason)
                case shell.Runs(path):
                    script = self._files.get(path)
                    rows = script.rows if script else None
                    for other in shell.changed_by_code("\n".join(rows or ())):
                        self._may_change(at, other, reason)
        if shell.rewrote_files(output):
            self._may_change(at, shell.MayChange(), reason)
        self._has_moved = self._has_moved or shell.changes_folder(command)

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
