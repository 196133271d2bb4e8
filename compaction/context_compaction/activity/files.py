"""Files as the calls of a conversation leave them: the last known text of each.

Reads, writes, exact edits, patches, and what simple shell commands show, write or delete are
followed. After anything else that may have changed a file its text is unsure; a whole read or a
write ends the doubt. Pure; it reads nothing from disk.

One budget limits the work of a whole conversation. When it is spent, the texts known by then are
unsure, and nothing fails.
"""

import logging
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch

from context_compaction.activity import edits
from context_compaction.activity.calls import (
    ToolUse,
    arguments_by_name,
    classify,
    first_text,
    has_drive,
    is_absolute,
    plain_path,
)
from context_compaction.activity.commands import (
    CommandEffects,
    Effect,
    MayChange,
    Shows,
    command_effects,
)
from context_compaction.activity.known_file import (
    FAST_CHARS,
    FILE_CHARS,
    Budget,
    BudgetSpentError,
    FollowedFile,
    KnownFile,
)
from context_compaction.activity.outcome import (
    begins_with_failure,
    command_output,
    is_unchanged,
    rewrote_files,
)
from context_compaction.activity.shown import (
    ShownLines,
    is_cut,
    lines_asked,
    numbered_lines,
    shown_lines,
    tools_that_number,
)
from context_compaction.messages import placeholders
from context_compaction.messages.model import (
    Message,
    Messages,
    Text,
    ToolCall,
    ToolResult,
    is_synthetic_result,
    memoized_on_call,
    tool_results,
)
from context_compaction.messages.names import pieces_of
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.messages.tool_results import result_text

_logger = logging.getLogger(__name__)

# Work for one conversation, in characters that are read line by line: about a tenth of a second.
WORK_CHARS = 8_000_000
# Work for reading one line, beside its characters.
_LINE_CHARS = 50
_FOLDER_KEYS = ("workdir", "cwd", "workingdirectory", "workingdir", "dirpath", "directory")
_UNSURE = "text unsure since"
_LEFT_OUT = "\n[…]"  # the mark of lines that a restored file lacks
_OUTSIDE_NOTE = " was modified, either by the user or by a linter"
_FAILURES = (
    "No such file", "Permission denied", "Is a directory", "Not a directory", "cannot ",
    "Read-only file", "command not found", "couldn't ", "can't ",
)  # fmt: skip
_PROGRAMS = ("cat: ", "head: ", "sed: ", "nl: ", "bash: ", "sh: ", "zsh: ")
_GLOB = frozenset("*?[")
# Files with keys and passwords: by name, by the folder of a program that keeps them, by ending.
_SECRET_FILE = re.compile(
    r"(?:.*/)?(?:"
    r"[^/]*\.env(?!\.(?:example|sample|template|dist))(?:\.[^/]+)?|\.?env(?:rc|\.(?:prod|local)[^/]*)"
    r"|[^/]*_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:\.bak|\.old)?"
    r"|[._]netrc|\.pgpass(?:\.conf)?|\.npmrc|\.yarnrc(?:\.yml)?|\.pypirc|\.htpasswd|\.dockercfg"
    r"|\.dockerconfigjson|\.my\.cnf|\.s3cfg|\.boto|\.renviron|auth\.json|kubeconfig|wallet\.dat"
    r"|\.(?:ssh|gnupg|aws|azure|kube|docker)/[^/]+(?<!\.pub)(?<!known_hosts)"
    r"|[^/]+\.(?:pem|key|p8|p12|pfx|ppk|asc|jks|keystore|kdbx|ovpn|tfvars|tfstate)"
    r")",
    re.IGNORECASE,
)
# The same by the words of a name, which "_" joins here.
_SECRET_WORDS = re.compile(
    r"(?:\A|_)(?:(?:secret|credential|password|passwd|token|apikey|service_account|adminsdk"
    r"|(?:api|access|private)_key)s?(?:\Z|_)|keys?_(?:json|txt)\Z)",
    re.IGNORECASE,
)
_CODE_ENDINGS = (".py", ".ts", ".tsx", ".js", ".go", ".rs", ".java", ".rb", ".md", ".c", ".cpp")


def unsure_note(number: int | None) -> str:
    """The note of a file whose text may be out of date since message `number` of the transcript."""
    return f"{_UNSURE} {'an earlier compaction' if number is None else f'[{number}]'}"


def holds_secrets(path: str) -> bool:
    """Whether a file is one in which secrets are kept, by its path."""
    if path.lower().endswith(_CODE_ENDINGS):
        return False
    words = "_".join(pieces_of(posixpath.basename(path)[-200:]))
    return bool(_SECRET_FILE.fullmatch(path[-400:]) or _SECRET_WORDS.search(words))


def follow_files(
    messages: Messages,
    extra_kinds: Mapping[str, str] | None = None,
    *,
    work_chars: int = WORK_CHARS,
) -> dict[str, KnownFile]:
    """Each file that `messages` use, by path, in order of last use. Nothing is raised.

    Args:
        messages: The messages.
        extra_kinds: Kinds of tools by name.
        work_chars: The budget of work.
    """
    walk = _Walk(extra_kinds, Budget(work_chars))
    try:
        walk.begin(messages)
    except Exception:  # the arguments of calls may be anything
        _logger.exception("the calls of a conversation cannot be read")
        return {}
    for at, message in enumerate(walk.messages):
        try:
            walk.take(at, message)
        except BudgetSpentError:
            walk.stop(at, message)
        except Exception:
            _logger.exception("the calls of message %d cannot be followed", at)
            walk.stop(at, message)
    walk.add_names()
    used = [file for file in walk.files.values() if file.touched_at >= 0]
    return {file.path: file.known() for file in sorted(used, key=lambda file: file.touched_at)}


class _Walk:
    """The walk through the messages."""

    def __init__(self, extra_kinds: Mapping[str, str] | None, budget: Budget) -> None:
        self.messages: Messages = ()
        self.files: dict[str, FollowedFile] = {}  # by absolute path, if the top folder is known
        self._kinds = extra_kinds
        self._budget = budget
        self._by_name: defaultdict[str, list[FollowedFile]] = defaultdict(list)
        # The file that each spelling of a path means in calls of file tools; None if several.
        self._spelled: dict[str, FollowedFile | None] = {}
        self._shell = ""  # the folder in which the last command left its shell
        self._is_stopped = False  # whether all texts are unsure for good

    def begin(self, messages: Messages) -> None:
        """Look at all calls once: which tools number lines, from where relative paths start."""
        self.messages = messages = with_unique_call_ids(messages)
        self._index = index_calls(messages)
        reads: list[tuple[str, str]] = []
        for message in messages:
            for result in tool_results(message):
                call = self._index.calls.get(result.call_id)
                if call and classify(call, self._kinds).kind == "read":
                    reads.append((call.name, result_text(result)[:20_000]))
        self._numbers = tools_that_number(reads)
        self._top, self._drives = self._folders()

    def _folders(self) -> tuple[str, frozenset[str]]:
        """The folder from which relative paths start, and the drives of Windows that are named."""
        paths: Counter[str] = Counter()
        entered: Counter[str] = Counter()
        for call in self._index.calls.values():
            use = classify(call, self._kinds)
            if use.path and use.kind in ("read", "write", "edit"):
                # A longer path is not compared with others.
                if len(use.path) <= 1_000:
                    paths[use.path] += 1
            elif use.command:
                folder = (
                    _given_folder(call) or memoized_on_call(call, _effects_of, use).folder or ""
                )
                if is_absolute(folder):
                    entered[plain_path(folder)] += 1
        drives = frozenset(path[0] for path in (*paths, *entered) if has_drive(path))
        relative = {path for path in paths if not is_absolute(path)}
        votes: Counter[str] = Counter()
        for path in paths if relative else ():
            # Each end of an absolute path may be one of the relative paths.
            at = path.find("/", 1) if is_absolute(path) else -1
            while at >= 0:
                if path[at + 1 :] in relative and "/" in path[at + 1 :]:
                    votes[path[:at]] += 1
                at = path.find("/", at + 1)
        votes = votes or entered
        top, count = votes.most_common(1)[0] if votes else ("", 0)
        is_sure = 2 * count > votes.total()
        return (top if is_sure else ""), drives

    def take(self, at: int, message: Message) -> None:
        """Take one message.

        Raises:
            BudgetSpentError: The budget of work is spent.
        """
        if self._is_stopped:
            self._touch(at, message)
        elif placeholders.is_restored_files(message):
            self._take_restored(at, message)
        else:
            for block in message.blocks:
                if isinstance(block, ToolCall) and block.call_id not in self._index.result_at:
                    for change in edits.changes_of(block, classify(block, self._kinds)):
                        self.doubt(self._named(change.path), at)
                elif isinstance(block, ToolResult) and block.call_id in self._index.calls:
                    self._take_result(at, self._index.calls[block.call_id], block)
                elif isinstance(block, Text) and message.role != "assistant":
                    self._take_note(at, block.text)

    def stop(self, at: int, message: Message) -> None:
        """Follow nothing from this message on: all texts are unsure, and uses are only noted."""
        self._is_stopped = True
        self.doubt(self.files.values(), at)
        self._touch(at, message)

    def _touch(self, at: int, message: Message) -> None:
        """Note which files a message uses, without their texts."""
        for result in tool_results(message):
            call = self._index.calls.get(result.call_id)
            use = classify(call, self._kinds) if call else None
            if use and use.path and use.kind in ("read", "write", "edit"):
                file = self._spelled_file(use.path)
                file.touched_at = at
                file.doubt(at)

    def _take_restored(self, at: int, message: Message) -> None:
        """Take files that an earlier compaction restored as their last known texts."""
        text = "".join(block.text for block in message.blocks if isinstance(block, Text))
        self._budget.spend(len(text))
        for found in placeholders.RESTORED_FILE.finditer(text):
            path = placeholders.restored_path(found)
            if path is not None:
                file = self._spelled_file(path)
                file.touched_at = at
                file.set_text(found[2])
                if _UNSURE in found[1].removeprefix(path) or _LEFT_OUT in f"\n{found[2]}":
                    file.doubt(at)

    def _take_note(self, at: int, text: str) -> None:
        """Take a host's note that a file was changed outside of the conversation."""
        stop = text.find(_OUTSIDE_NOTE)
        while stop >= 0:
            start = text.rfind(" ", max(0, stop - 400), stop) + 1
            self.doubt(self._named(text[start:stop]), at)
            stop = text.find(_OUTSIDE_NOTE, stop + 1)

    def _take_result(self, at: int, call: ToolCall, result: ToolResult) -> None:
        use = classify(call, self._kinds)
        text = result_text(result)
        changes = edits.changes_of(call, use)
        if changes:
            self._take_changes(at, call, changes, result, text)
        elif use.command:
            self._take_command(at, call, use, result, text)
        elif use.kind == "read" and use.path:
            self._take_read(at, call, use, result, text)

    def _take_changes(
        self,
        at: int,
        call: ToolCall,
        changes: Sequence[edits.FileChange],
        result: ToolResult,
        text: str,
    ) -> None:
        folder = _given_folder(call) or ""
        is_told = not (is_synthetic_result(result) or placeholders.seems_placeholder(result))
        output, code = command_output(text)
        if result.is_error or code or is_unchanged(output):
            # A patch of several files may have changed some of them.
            for change in changes if len({change.path for change in changes}) > 1 else ():
                self.doubt(self._named(change.path, folder), at)
            return
        for change in changes:
            if not change.path:
                self._spend_files()
                self.doubt(self.files.values(), at)
                continue
            file = self._spelled_file(change.path, folder)
            try:
                file.apply(at, change)
            finally:
                file.touched_at = at
            if not is_told or code is None:
                file.doubt(at)
            if isinstance(change, edits.Patches) and change.moved_to:
                self._move(at, file, self._file(change.moved_to, folder))
        if len(changes) == 1 and changes[0].path and (shown := numbered_lines(output)):
            self._check(at, self._file(changes[0].path, folder), shown)

    def _move(self, at: int, old: FollowedFile, new: FollowedFile) -> None:
        new.apply(at, edits.Writes(new.path, old.text or ""))
        if old.text is None:
            new.text = None
        new.unsure_since = old.unsure_since
        old.apply(at, edits.Deletes(old.path))

    def _check(self, at: int, file: FollowedFile, shown: ShownLines) -> None:
        """Compare the lines that a tool shows of a change with the text that it should leave."""
        text = file.text
        if text is not None and len(shown.rows) > 1:
            self._budget.spend(len(text) // FAST_CHARS)
            if "\n".join(shown.rows).rstrip() not in text:
                file.doubt(at)

    def _take_read(
        self, at: int, call: ToolCall, use: ToolUse, result: ToolResult, text: str
    ) -> None:
        if result.is_error or is_synthetic_result(result) or not use.path:
            return
        if begins_with_failure(text) and text.count("\n") < 3:
            return
        file = self._spelled_file(use.path)
        file.touched_at = file.read_at = at
        start, limit, is_known = lines_asked(call.arguments)
        if is_known and not placeholders.seems_placeholder(result):
            self._show(at, file, call.name, text, start, limit)

    def _show(
        self,
        at: int,
        file: FollowedFile,
        tool: str,
        text: str,
        start: int | None,
        limit: int | None,
    ) -> None:
        self._budget.spend(len(text) + _LINE_CHARS * text.count("\n"))
        may_number = self._numbers.get(tool)
        shown = shown_lines(text, start=start, limit=limit, may_number=may_number)
        if shown is not None and shown.rows not in ((), ("",)):
            file.show(at, shown)

    def _take_command(
        self, at: int, call: ToolCall, use: ToolUse, result: ToolResult, text: str
    ) -> None:
        output, code = command_output(text)
        succeeded = code == 0 and not result.is_error
        effects = memoized_on_call(call, _effects_of, use)
        self._budget.spend(len(use.command or "") + len(output) // FAST_CHARS)
        complains = any(sign in output for sign in _FAILURES)
        given = _given_folder(call)
        # Some tools start each command in the same folder, others keep one shell for all.
        folders = [given] if given else ["", self._shell]
        if succeeded and not placeholders.seems_placeholder(result) and not is_cut(output):
            for shown, part in _outputs(effects.shows, output):
                self._print(at, shown, part, folders)
        for effect in effects.effects:
            is_done = succeeded or (effect.certainty == "always" and not complains)
            is_done = is_done and effect.certainty != "maybe"
            self._take_effect(at, effect, folders, is_done=is_done)
        if rewrote_files(output):
            self._spend_files()
            self.doubt((file for file in self.files.values() if file.was_written), at)
        if effects.folder and not given:
            self._shell = effects.folder

    def _print(self, at: int, shown: Shows, output: str, folders: Sequence[str]) -> None:
        """Take what a command prints of a file."""
        files, is_certain = self._files_in(shown.path, folders)
        for file in files:
            file.touched_at = file.read_at = at
        if not is_certain or not output.strip() or _is_unreadable(output):
            return
        [file] = files
        self._budget.spend(len(output) + _LINE_CHARS * output.count("\n"))
        text = output.removesuffix("\n")
        if shown.is_numbered:
            lines = numbered_lines(text)
            rows = list(lines.rows) if lines and lines.start == shown.start else []
        else:
            rows = text.split("\n")
        if not rows:
            return
        # Hosts cut empty lines off the end, so fewer lines than asked for need not be the last.
        missing = 0 if shown.count is None else shown.count - len(rows)
        is_to_end = shown.count is None or (missing > 0 and output.endswith("\n"))
        if missing > 0 and not is_to_end and not shown.is_numbered and shown.start > 1:
            return  # they also cut them off the beginning: the number of the first is not known
        rows = [*rows, ""] if is_to_end else rows
        file.show(at, ShownLines(tuple(rows), shown.start, is_to_end))

    def _take_effect(
        self, at: int, effect: Effect, folders: Sequence[str], *, is_done: bool
    ) -> None:
        does = effect.does
        if isinstance(does, MayChange):
            self.doubt(self._may_concern(does, at), at)
            return
        files, is_certain = self._files_in(does.path, folders)
        if isinstance(does, edits.Deletes):
            files += [inner for file in files for inner in self._inside(file.path)]
        for changed in files:
            if is_done and is_certain:
                changed.apply(at, does)
            else:
                changed.doubt(at)

    def _may_concern(self, may: MayChange, at: int) -> Iterable[FollowedFile]:
        """The known files that a command may have changed and did not itself write."""
        found: list[FollowedFile] = []
        for word in may.words:
            name = posixpath.basename(plain_path(word) if word else "").casefold()
            if not _GLOB.isdisjoint(name) or "$" in name:
                self._spend_files()
                pattern = "*" if "$" in name else name
                found += [
                    f for f in self.files.values() if fnmatch(posixpath.basename(f.path), pattern)
                ]
            elif self._by_name.get(name):
                self._budget.spend(FILE_CHARS * len(self._by_name[name]))
                end = "" if "$" in word else f"/{plain_path(word).lstrip('./')}".casefold()
                same_name = self._by_name[name]
                found += [f for f in same_name if f"/{f.path}".casefold().endswith(end)]
            elif may.or_any:
                found += self._inside("" if word in (".", "..") else word.rstrip("/"))
        if not may.words or (may.or_any and not found):
            self._spend_files()
            found = list(self.files.values())
        return [file for file in found if file.written_at != at]

    def _inside(self, folder: str) -> list[FollowedFile]:
        """The known files in a folder, wherever its path starts."""
        self._spend_files()
        if not folder:
            return list(self.files.values())
        inner = f"/{folder.lstrip('/')}/"
        return [file for file in self.files.values() if inner in f"/{file.path}"]

    def doubt(self, files: Iterable[FollowedFile], at: int) -> None:
        """The texts of `files` are unsure since message `at`."""
        for file in files:
            file.doubt(at)

    def _spend_files(self) -> None:
        self._budget.spend(FILE_CHARS * len(self.files))

    # Paths

    def _file(self, path: str, folder: str = "") -> FollowedFile:
        """The file at `path`, as seen from `folder`."""
        key = self._key(path, folder)
        file = self.files.get(key)
        if file is None:
            shown = plain_path(path if is_absolute(path) else posixpath.join(folder, path))
            file = self.files[key] = FollowedFile(shown, self._budget)
            self._by_name[posixpath.basename(key).casefold()].append(file)
        return file

    def _spelled_file(self, path: str, folder: str = "") -> FollowedFile:
        """The file that a call of a file tool names."""
        file = self._file(path, folder)
        if self._spelled.setdefault(path, file) is not file:
            self._spelled[path] = None
        return file

    def add_names(self) -> None:
        """Add to each file the spellings that mean no other file."""
        for name, file in self._spelled.items():
            if file is not None:
                file.names.append(name)

    def _files_in(self, path: str, folders: Sequence[str]) -> tuple[list[FollowedFile], bool]:
        """The file at `path` in one of `folders`, and True; if that is not certain, those known."""
        keys = list(dict.fromkeys(self._key(path, folder) for folder in folders))
        if len(keys) == 1:
            return [self._file(path, folders[0])], True
        return [self.files[key] for key in keys if key in self.files], False

    def _named(self, path: str, folder: str = "") -> list[FollowedFile]:
        file = self.files.get(self._key(path, folder)) if path else None
        return [file] if file else []

    def _key(self, path: str, folder: str = "") -> str:
        """One name for a file, however its path is spelled."""
        path = plain_path(path)
        if not is_absolute(path):
            if folder and not is_absolute(folder):
                folder = posixpath.join(self._top, folder)
            path = plain_path(posixpath.join(folder or self._top, path))
        if self._drives and path.startswith("/"):  # a shell on Windows: /d/work or /mnt/d/work
            below = path.removeprefix("/mnt").removeprefix("/cygdrive").lstrip("/")
            drive, slash, rest = below.partition("/")
            if drive.upper() in self._drives:
                path = plain_path(f"{drive}:{slash}{rest}")
        return path.casefold() if has_drive(path) else path


def _is_unreadable(output: str) -> bool:
    """Whether a program says that it could not read a file, which a pipe may hide."""
    lines = output[-20_000:].split("\n") if any(map(output.__contains__, _FAILURES)) else []
    return any(
        line.startswith(_PROGRAMS) and any(map(line.__contains__, _FAILURES)) for line in lines
    )


def _effects_of(_: ToolCall, use: ToolUse) -> CommandEffects:
    return command_effects(use.command or "")


def _given_folder(call: ToolCall) -> str | None:
    """The folder that a call names for its command."""
    return first_text(arguments_by_name(call.arguments), _FOLDER_KEYS)


def _outputs(shows: Sequence[Shows], output: str) -> list[tuple[Shows, str]]:
    """Each of `shows` with the part of `output` that it printed.

    The parts of several are found by the numbers of their lines; nothing if these do not add up.
    """
    if len(shows) < 2:
        return [(shown, output) for shown in shows]
    rows = output.removesuffix("\n").split("\n")
    counts = [shown.count or 0 for shown in shows]
    if len(rows) != sum(counts):
        return []
    parts: list[tuple[Shows, str]] = []
    for shown, count in zip(shows, counts, strict=True):
        parts.append((shown, "".join(f"{row}\n" for row in rows[:count])))
        rows = rows[count:]
    return parts
