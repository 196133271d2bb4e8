"""Files as the calls of a conversation leave them: the text last seen, and every change since.

A whole read or a write contains the text, reads in parts are joined, and each edit is applied to it
exactly: where the text does not contain the old one just as the tool must have found it, or where
a later read shows something else, the text is dropped, and the position recorded. What commands may
have changed stays with a doubt. Pure; it reads nothing from disk.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from context_compaction.activity import file_changes as change
from context_compaction.activity import program_effects as shell
from context_compaction.activity.file_commands import command_effects
from context_compaction.activity.file_paths import joined_path
from context_compaction.activity.formatters import rewrote_files
from context_compaction.activity.git_commands import Git
from context_compaction.activity.git_state import GitState
from context_compaction.activity.known_file import KnownFile
from context_compaction.activity.named_files import NamedFiles
from context_compaction.activity.outline import is_prose
from context_compaction.activity.python_edits import written_by_python
from context_compaction.activity.replayed_file import ReplayedFile
from context_compaction.activity.script_calls import makes_several
from context_compaction.activity.shell_folder import shell_folder
from context_compaction.activity.shell_words import without_comments
from context_compaction.activity.shown_text import (
    ShownText,
    is_cut,
    lines_asked,
    numbered_text,
    shell_text,
    shown_text,
    tools_that_number,
)
from context_compaction.activity.tool_kinds import ToolUse, classify, words_in_name
from context_compaction.messages import placeholders
from context_compaction.messages.call_ids import with_own_ids
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    is_stand_in,
    named_arguments,
    tool_results,
)
from context_compaction.messages.tool_pairs import index_calls
from context_compaction.messages.tool_results import result_text

# All parts of a patch are looked for before the first file is written.
_NOT_BEGUN = re.compile(r"[Ff]ailed to find (?:expected lines|context)|verification failed")
_SAYS_FAILED = re.compile(
    r"^(?:fatal|error|usage|Traceback|[\w/]{1,20}: (?:line \d+: )?\S[^\n]*: )|No such file|denied"
    r"|Is a directory|can't read|Error: |cannot ",
    re.MULTILINE,
)
# What a program prints for a file that it cannot read, also where a pipe hides that it failed.
_UNREADABLE = re.compile(
    r"^[\w.-]{1,30}: [^\n]{1,500}: "
    r"(?:No such file or directory|Permission denied|Is a directory|Not a directory)$",
    re.MULTILINE,
)
_OUTSIDE = re.compile(r"^Note: (\S+) was modified, either by the user or by a linter", re.MULTILINE)
_HELPERS = (frozenset({"task"}), frozenset({"agent"}))
# Before the reason for a doubt, in the note of a file that is put back: a doubt, or a slight one.
UNSURE = "unsure"
NEARLY_SURE = "nearly sure"
_NOTE = re.compile(rf"\b({UNSURE}|{NEARLY_SURE})(?: since \[\d{{1,9}}\])?: (.*)\)\Z")
_REFORMATTED = "perhaps reformatted"
_COMMAND_CHARS = 60
_FOLDER_FIRST = re.compile(r"\Acd [^;&|\n]{1,200}(?:&&|;|\n)\s*")
# So many empty lines formatters leave in a row.
_MOST_EMPTY = 2
_ENDING = re.compile(r"\.[A-Za-z]\w*\Z")


def replay_files(
    messages: Messages,
    extra_kinds: Mapping[str, str] | None = None,
    *,
    until: int | None = None,
    newest: int | None = None,
) -> dict[str, ReplayedFile]:
    """Each file that `messages` read or change, by path, in order of last use.

    Args:
        messages: The list.
        extra_kinds: Kinds of tools by name.
        until: The position of the last message that counts; all of them without it.
        newest: Of so many files used last, and of prose, the text is followed; of older ones it
            is only recorded when they were used. Without it that of all.
    """
    shown = messages if until is None else messages[: until + 1]
    files = _Replay(shown, extra_kinds, newest).run()
    used = sorted(files.values(), key=lambda file: file.used_at)
    return {file.path: file.replayed() for file in used if file.used_at >= 0}


class _Replay:
    """The walk through the messages."""

    def __init__(
        self, messages: Messages, extra_kinds: Mapping[str, str] | None, newest: int | None
    ) -> None:
        self._messages = messages = with_own_ids(messages)
        self._kinds = extra_kinds
        self._index = index_calls(messages)
        answered = [
            (self._index.calls[result.call_id], result)
            for message in messages
            for result in tool_results(message)
            if result.call_id in self._index.calls
        ]
        kinds = (classify(call, extra_kinds).kind for call, _ in answered)
        reads = [one for one, kind in zip(answered, kinds, strict=True) if kind == "read"]
        self._numbered = tools_that_number(reads)
        self._git = GitState()
        commands, paths = self._commands(answered)
        self._shell = shell_folder(commands, frozenset(paths))
        self._names = NamedFiles(self._shell, paths)
        self._files = self._names.files
        used = self._names.used
        older = used[: max(0, len(used) - newest)] if newest is not None else ()
        self._older = frozenset(path for path in older if not is_prose(path))

    def run(self) -> dict[str, KnownFile]:
        for at, message in enumerate(self._messages):
            self._restored(at, message)
            for block in message.blocks:
                if isinstance(block, ToolCall) and block.call_id not in self._index.result_at:
                    self._unanswered(at, block)
                elif isinstance(block, ToolResult) and block.call_id in self._index.calls:
                    self._answered(at, self._index.calls[block.call_id], block)
                elif isinstance(block, Text) and message.role != "assistant":
                    self._told(at, block.text)
        return self._files

    def _restored(self, at: int, message: Message) -> None:
        """Take the files that a compaction restored as their last known content."""
        if not placeholders.is_restored_files(message):
            return
        [block] = message.blocks
        whole = block.text if isinstance(block, Text) else ""
        for found in placeholders.RESTORED_FILE.finditer(whole):
            path = placeholders.restored_path(found)
            if path is None:
                continue
            file = self._names.file(self._names.spelled(path))
            file.used_at = at
            file.see(at, found[2].split("\n"), is_exact=False)
            if note := _NOTE.search(found[1].removeprefix(path)):
                file.doubted(at, note[2], is_slight=note[1] == NEARLY_SURE)

    def _told(self, at: int, text: str) -> None:
        outside = _OUTSIDE.findall(text) if "was modified" in text else ()
        paths = [self._names.spelled(path) for path in outside]
        self._doubt(paths, at, "it was changed outside of the conversation")

    def _unanswered(self, at: int, call: ToolCall) -> None:
        use = classify(call, self._kinds)
        paths = [self._names.spelled(made.path) for made in change.changes_of(call, use)]
        self._doubt(paths, at, "a change has no answer")

    def _doubt(self, paths: Sequence[str], at: int, reason: str) -> None:
        for path in paths:
            for file in self._names.related(path):
                file.doubted(at, reason)

    def _answered(self, at: int, call: ToolCall, result: ToolResult) -> None:
        use = classify(call, self._kinds)
        text = result_text(result)
        made = change.changes_of(call, use)
        if made:
            self._changed(at, use, made, result, text)
        elif use.command:
            self._ran(at, call, use.command, result, text)
        elif use.kind == "read" and use.path:
            self._read(at, call, use, result, text)
        elif words_in_name(call.name) in _HELPERS:
            for file in self._files.values():
                file.doubted(at, "a helper's work, which is not told here", is_slight=True)

    def _changed(
        self,
        at: int,
        use: ToolUse,
        changes: Sequence[change.FileChange],
        result: ToolResult,
        text: str,
    ) -> None:
        paths = [made.path and self._names.spelled(made.path) for made in changes]
        text, ended_well = shell_text(text)
        if result.is_error or not ended_well or change.tells_failure(text):
            # A patch of several files may have changed some of them, if it was begun at all.
            is_begun = len(set(paths)) > 1 and not _NOT_BEGUN.search(text)
            if is_begun or (use.kind == "execute" and not _NOT_BEGUN.search(text)):
                self._doubt(paths, at, "a patch has failed on the way")
            return
        window = shown_text(text, start=None, limit=None) if "[File: " in text else None
        shown_path = self._names.spelled(window.path) if window else ""
        for made, named in zip(changes, paths, strict=True):
            path = named or shown_path
            if not path:
                for file in self._files.values():
                    file.doubted(at, "a change does not tell its file")
                continue
            self._change(at, path, made)
        if is_stand_in(result) or placeholders.seems_placeholder(result):
            self._doubt(paths, at, "whether a change succeeded is not told any more")
        elif len(set(paths)) == 1 and paths[0]:
            self._check_snippet(at, self._names.file(paths[0]), text)
        if window is not None:
            self._names.file(shown_path).see_part(at, window)

    def _change(self, at: int, path: str, made: change.FileChange) -> None:
        file = self._names.file(path)
        if path in self._older and not isinstance(made, change.Deletes | change.Patches):
            made = change.Unclear(path)
        self._git.found(file)
        file.apply(at, made)
        for other in self._names.related(path):
            if other is not file:
                other.doubted(at, f"{path} was changed, which may be the same file")
        if isinstance(made, change.Patches) and made.moved_to:
            self._rename(at, file, self._names.spelled(made.moved_to))

    def _check_snippet(self, at: int, file: KnownFile, text: str) -> None:
        """Compare what the tool shows of a change with the replayed text."""
        found = numbered_text(text)
        start = found.start_line if found else None
        if found is None or start is None or not file.parts or file.seen_at == at:
            return
        rows = found.rows
        if not file.agrees(start, rows, ends=False):
            file.lose(at, "what the tool shows of a change differs from what replaying it gives")

    def _read(self, at: int, call: ToolCall, use: ToolUse, result: ToolResult, text: str) -> None:
        if result.is_error or is_stand_in(result) or use.path is None:
            return
        if "[File: " not in text and change.begins_with_failure(text) and text.count("\n") < 3:
            return
        file = self._names.file(self._names.spelled(use.path))
        file.used_at = file.read_at = at
        file.reads += 1
        if file.path in self._older or file.path.endswith(".ipynb"):
            return
        if placeholders.seems_placeholder(result):
            return
        start, limit, is_known = lines_asked(named_arguments(call))
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
            file.see(at, rows, is_exact=not (shown.is_numbered or rows[-1]))
        else:
            file.see_part(at, shown)

    def _ran(self, at: int, call: ToolCall, command: str, result: ToolResult, text: str) -> None:
        output, succeeded = shell_text(text)
        succeeded = succeeded and not result.is_error
        # The exit code is that of the last in a list, which need not be the one that writes.
        may_tell = re.search(r"[;\n]", command.strip()) and _SAYS_FAILED.search(output) is None
        is_done = bool(succeeded or may_tell)
        folder = self._shell.of(call)
        is_guess = folder is None and self._shell.may_start_at_top(command)
        folder = "" if is_guess else folder
        reason = _reason(command)
        effects = command_effects(command, folder=folder)
        shows = [effect for effect in effects if isinstance(effect, shell.Shows)]
        if succeeded and not placeholders.seems_placeholder(result):
            for part, text in zip(shows, _outputs(shows, call, output), strict=False):
                self._printed(at, call, self._names.seen(part.path), part.start, part.count, text)
        for effect in effects:
            match effect:
                case shell.GoesTo(ended_in):
                    self._shell.went(call, ended_in if is_done else None)
                case Git():
                    self._by_git(at, effect, reason, output, succeeded=is_done)
                case _:
                    self._did(at, effect, reason, succeeded=is_done)
        if rewrote_files(output):
            self._rewrote(at, command)
        for file in self._files.values() if is_guess else ():
            if at == file.settled_at != file.agreed_at:
                file.doubted(at, "a command that changed it may have run in another folder")

    def _did(self, at: int, effect: shell.CommandEffect, reason: str, *, succeeded: bool) -> None:
        match effect:
            case change.Writes(path):
                if succeeded:
                    path = self._names.seen(path)
                    self._change(at, path, replace(effect, path=path))
                else:
                    self._doubt([path], at, reason)
            case change.Deletes(path):
                self._deleted(at, path, reason, succeeded=succeeded)
            case shell.MayChange():
                self._may_change(at, effect, reason)
            case shell.Runs(path, folder):
                script = self._files.get(self._names.seen(path))
                code = "\n".join((script and script.rows) or ())
                is_done = succeeded and folder is not None
                self._ran_python(at, code, folder or "", reason, succeeded=is_done)
            case shell.RunsPython(code, folder):
                self._ran_python(at, code, folder, reason, succeeded=succeeded)
            case shell.EditsLines():
                self._edited_lines(at, effect, reason, succeeded=succeeded)
            case shell.Moves():
                self._moved(at, effect, reason, succeeded=succeeded)
            case _:
                pass

    def _deleted(self, at: int, path: str, reason: str, *, succeeded: bool) -> None:
        """Delete a file, or a folder with its content."""
        found = self._names.matching(path)
        if not found and "*" not in path:
            found = [self._names.file(self._names.seen(path))]
        for file in found:
            if succeeded:
                self._change(at, file.path, change.Deletes(file.path))
            else:
                file.doubted(at, reason)

    def _by_git(self, at: int, done: Git, reason: str, output: str, *, succeeded: bool) -> None:
        """Follow git: it recorded the state of files, or restored another."""
        done = replace(done, paths=tuple(self._names.seen(path) for path in done.paths))
        if done.verb == "stash" and "No local changes" in output:
            return
        if done.verb == "commit" and "nothing to commit" in output:
            return
        if done.is_sure and succeeded:
            for path, file in self._files.items():
                if done.concerns(path):
                    self._git.found(file)
            inside = {
                path: file for path, file in self._files.items() if self._names.is_inside(path)
            }
            self._git.follow(at, inside, done, reason)
            return
        if done.verb not in ("add", "commit", "drop", "forget"):
            for path, file in self._files.items():
                if done.concerns(path):
                    file.doubted(at, reason)
        self._git.forget()
        if done.verb in ("stash", "pop", "drop"):
            self._git.stashes.clear()

    def _moved(self, at: int, made: shell.Moves, reason: str, *, succeeded: bool) -> None:
        """Rename, copy or move a file or folder, also into a known folder."""
        old, new = self._names.seen(made.old), self._names.seen(made.new)
        if any(path.startswith(f"{new}/") for path in self._files):
            new = f"{new}/{posixpath.basename(old)}"
        if new == old:
            return
        moved = {file.path: new + file.path.removeprefix(old) for file in self._names.under(old)}
        may_be_folder = "." in posixpath.basename(old) and not _ENDING.search(new)
        if not succeeded or (may_be_folder and list(moved) == [old]) or (not moved):
            # It may have gone into a folder of that name, or nobody has seen what came here.
            names = (new,) if made.by == "cp" else (old, new)
            for name in names:
                self._doubt([name], at, reason)
                for file in self._names.under(name):
                    file.doubted(at, reason)
            return
        for path, to in moved.items():
            self._rename(at, self._files[path], to, by=made.by)

    def _rename(self, at: int, file: KnownFile, path: str, *, by: str = "mv") -> None:
        moved = self._names.file(path)
        self._git.found(file)
        self._git.found(moved)
        writes = max(1, moved.writes + 1)
        if by == "cp":
            moved.put_back(at, file.state)
        else:
            self._git.moved(file.path, path, by_git=by == "git")
            moved.put_back(at, file.state)
            moved.read_at, moved.reads = file.read_at, file.reads
            writes = file.writes + 1
            file.lose(at, "it was moved", is_gone=True)
            file.is_deleted, file.settled_at = True, at
            file.doubt = None
        moved.used_at = moved.changed_at = at
        moved.writes = writes
        if not moved.parts and not moved.is_deleted:
            moved.lost, moved.lost_at = "another file was moved here", at

    def _ran_python(self, at: int, code: str, folder: str, reason: str, *, succeeded: bool) -> None:
        """A script was run; what it writes is followed, or doubted."""

        def texts_of(path: str) -> Sequence[str]:
            file = self._names.called(joined_path(folder, path))
            return file.texts if file else ()

        written = written_by_python(code, texts_of) if succeeded else None
        if written is None:
            for effect in shell.changed_by_code(code):
                self._may_change(at, effect, reason)
            return
        for path, text in written.texts.items():
            file = self._names.file(self._names.seen(joined_path(folder, path)))
            self._git.found(file)
            is_guess = path in written.guessed
            file.rewrite(at, text, is_guess=is_guess, is_exact=path not in written.unended)
        if unclear := written.unclear | written.may_write:
            self._may_change(at, shell.MayChange(tuple(sorted(unclear))), reason)

    def _edited_lines(
        self, at: int, effect: shell.EditsLines, reason: str, *, succeeded: bool
    ) -> None:
        """A stream editor changed lines."""
        for file in self._names.matching(effect.path):
            self._git.found(file)
            done = succeeded and file.edit_lines(at, effect.edits)
            if not done:
                file.doubted(at, reason)

    def _may_change(self, at: int, effect: shell.MayChange, reason: str) -> None:
        is_layout = bool(effect.endings)
        if effect.by:
            reason = _reason(effect.by, _REFORMATTED) if is_layout else _reason(effect.by)
        for path, file in self._files.items():
            if effect.concerns(path) and file.settled_at != at:
                file.doubted(at, reason, is_slight=is_layout)

    def _rewrote(self, at: int, command: str) -> None:
        """A formatter has changed files by itself: such as were changed here."""
        reason = _reason(command, _REFORMATTED)
        for path, file in self._files.items():
            if file.writes and self._names.is_inside(path):
                file.doubted(at, reason, is_slight=True)

    def _printed(
        self, at: int, call: ToolCall, path: str, start: int | None, count: int | None, text: str
    ) -> None:
        file = self._names.file(path)
        file.used_at = file.read_at = at
        file.reads += 1
        if is_cut(text) or not text or _UNREADABLE.search(text):
            return
        shown = self._shown(call.name, text.removesuffix("\n"), start, count)
        if shown is None:
            return
        # Hosts cut empty lines off the end, so fewer lines than asked for need not be the last.
        ends = shown.is_to_end and (count is None or text.endswith("\n"))
        rows = shown.rows
        if not shown.is_numbered and ends and rows[-1]:
            rows = (*rows, "")
        missing = (count or 0) - len(rows)
        if shown.start_line == 1 and ends:
            file.see(at, rows, is_exact=False)
        elif missing > 0 and not (shown.is_numbered or start in (None, 1) or text[-1:] == "\n"):
            # They cut them off the beginning, too.
            file.see_about(at, shown, min(missing, _MOST_EMPTY))
        else:
            file.see_part(at, ShownText(rows, shown.start_line, ends))

    def _shown(
        self, name: str, text: str, start: int | None, limit: int | None
    ) -> ShownText | None:
        votes = self._numbered[name]
        may_number = None if not votes else votes > 0
        return shown_text(text, start=start, limit=limit, may_number=may_number)

    def _commands(
        self, answered: Sequence[tuple[ToolCall, ToolResult]]
    ) -> tuple[list[tuple[ToolCall, str]], list[str]]:
        """The calls that run commands, with these, and the files that others use, newest last."""
        commands: list[tuple[ToolCall, str]] = []
        paths: dict[str, None] = {}
        for call, result in answered:
            use = classify(call, self._kinds)
            if use.command:
                # One that has failed may have begun in another folder than it says.
                if not result.is_error:
                    commands.append((call, use.command))
            elif use.kind in ("read", "write", "edit") and use.path:
                paths.pop(use.path, None)
                paths[use.path] = None
        return commands, list(paths)


def _outputs(shows: Sequence[shell.Shows], call: ToolCall, output: str) -> Sequence[str]:
    """What each of `shows` has printed; nothing where several have printed less than was asked for.

    Which lines are whose nobody knows then: a host may have cut empty ones off.
    """
    if len(shows) < 2:
        return [output]
    rows = output.removesuffix("\n").split("\n")
    counts = [part.count or 0 for part in shows]
    if len(rows) != sum(counts) or is_cut(output) or makes_several(call):
        return []
    stops = list(accumulate(counts))
    return [
        "".join(f"{row}\n" for row in rows[stop - count : stop])
        for count, stop in zip(counts, stops, strict=True)
    ]


def _reason(command: str, what: str = "perhaps changed") -> str:
    """Why a file may differ from its known text."""
    command = _FOLDER_FIRST.sub("", without_comments(command).lstrip())
    label = " ".join(command.strip().partition("\n")[0].split())
    cut = "…" if len(label) > _COMMAND_CHARS else ""
    return f"{what} by {label[:_COMMAND_CHARS]}{cut}"
