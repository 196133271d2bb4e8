"""Files as the calls of a conversation leave them: the last known text of each.

Reads, writes, exact edits, patches, and what simple shell commands show, write or delete are
followed. After anything else that may have changed a file its text is unsure; a whole read or a
write makes it certain again. Pure; it reads nothing from disk.

One budget limits the work of a whole conversation. When it is spent, the texts known by then are
unsure, and nothing fails.
"""

import logging
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from context_compaction.activity import calls, outcome
from context_compaction.activity.commands import EXPANDED, Effect, MayChange, Shows, command_effects
from context_compaction.activity.known_file import FAST_CHARS, Budget, BudgetSpentError, KnownFile
from context_compaction.messages import model, placeholders
from context_compaction.messages.tool_pairs import index_calls, with_unique_call_ids
from context_compaction.redaction import redact

_logger = logging.getLogger(__name__)

# Work for one conversation, in characters that are read line by line: about a tenth of a second.
WORK_CHARS = 8_000_000
# Work for reading one line, in addition to its characters.
_LINE_CHARS = 50
_FOLDER_KEYS = ("workdir", "cwd", "workingdirectory", "workingdir", "dirpath", "directory")
_FILE_KINDS = ("read", "write", "edit")
_UNSURE = "text unsure since"
_OMITTED = "\n[…]"  # the mark of lines that a restored file lacks
_OUTSIDE_NOTE = " was modified, either by the user or by a linter"
# A shell that reports an error under these names may still return a status of 0.
_COMPLAINTS = (
    "bash: ", "/bin/bash: ", "sh: ", "zsh: ", "cat: ", "head: ", "sed: ", "nl: ", "rm: ", "tee: ",
    "cd: ",
)  # fmt: skip
# Words of formatters, which a commit's hook may run.
_REWROTE = ("reformatted", "modified by this hook", "Fixed ")
# Files with nothing but keys and passwords: by name, by the folder of a program that keeps them, by
# ending. In other files, the rules of `find_secrets` find them.
_SECRET_FILE = re.compile(
    r"(?:.*/)?(?:"
    r"[^/]*\.env(?:\.[^/]+)?|\.?env(?:rc|\.(?:prod|local)[^/]*)"
    r"|[^/]*_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:\.bak|\.old)?"
    r"|[._]netrc|\.pgpass(?:\.conf)?|\.npmrc|\.yarnrc(?:\.yml)?|\.pypirc|\.htpasswd|\.dockercfg"
    r"|\.dockerconfigjson|\.vault_pass|(?:wp-config|local\.settings)\.(?:php|json)|\.my\.cnf|\.s3cfg|\.boto|\.renviron|auth\.json|kubeconfig|wallet\.dat|g?shadow-?"
    r"|\.(?:ssh|gnupg|aws|azure|kube|docker)/[^/]+(?<!\.pub)(?<!known_hosts)"
    r"|[^/]+\.(?:pem|key|p8|p12|pfx|ppk|asc|gpg|jks|jceks|keystore|kdbx?|ovpn|tfvars|tfstate)"
    r")",
    re.IGNORECASE,
)
_SECRET_WORDS = frozenset({
    "secret", "secrets", "credential", "credentials", "password", "passwords", "passwd", "token",
    "tokens", "apikey", "apikeys", "adminsdk", "vault",
})  # fmt: skip
# The same in several words, which "_" joins here.
_SECRET_NAMES = (
    "_service_account", "_api_key", "_access_key", "_private_key", "_key_json", "_keys_json",
    "_key_txt", "_keys_txt",
)  # fmt: skip
# Code, documents, and examples with values that nobody uses.
_OPEN_ENDINGS = (
    ".py", ".ts", ".tsx", ".js", ".go", ".rs", ".java", ".rb", ".md", ".c", ".cpp",
    ".example", ".sample", ".template", ".dist",
)  # fmt: skip


def unsure_note(number: int | None) -> str:
    """Return the note of a file whose text may be out of date.

    Args:
        number: Number in the transcript of the message that made it unsure; None if an earlier
            compaction has replaced that message.
    """
    return f"{_UNSURE} {'an earlier compaction' if number is None else f'[{number}]'}"


def holds_secrets(path: str) -> bool:
    """Whether files with this name usually contain secrets."""
    if path.lower().endswith(_OPEN_ENDINGS):
        return False
    words = [word.lower() for word in calls.pieces_of(posixpath.basename(path)[-200:])]
    return bool(
        _SECRET_FILE.fullmatch(path[-400:])
        or not _SECRET_WORDS.isdisjoint(words)
        or any(map("_".join(["", *words]).__contains__, _SECRET_NAMES))
    )


def without_secrets(path: str, text: str) -> str:
    """Return the text of a file with a mark in place of each secret; "" if its name tells of them.

    Code and examples are returned as they are.
    """
    if holds_secrets(path):
        return ""
    return text if path.lower().endswith(_OPEN_ENDINGS) else redact(text)


def follow_files(
    messages: model.Messages,
    extra_kinds: Mapping[str, str] | None = None,
    *,
    work_chars: int = WORK_CHARS,
) -> dict[str, KnownFile]:
    """Return each file that `messages` use, by path, in order of last use. Nothing is raised.

    Args:
        messages: The messages.
        extra_kinds: Kinds of tools by name.
        work_chars: The budget of work.
    """
    try:
        walk = _Walk(messages, extra_kinds, Budget(work_chars))
    except Exception:  # the arguments of calls may have any shape
        _logger.exception("the calls of a conversation cannot be read")
        return {}
    for message in walk.messages:
        walk.position += 1
        try:
            walk.take(message)
        except BudgetSpentError:
            walk.mark_unsure(walk.files.values())
            break
        except Exception:  # the arguments of calls may have any shape
            _logger.exception("the calls of message %d cannot be followed", walk.position)
            walk.mark_unsure(walk.files.values())
    walk.add_names()
    used = [file for file in walk.files.values() if file.used_at >= 0]
    return {file.path: file for file in sorted(used, key=lambda file: file.used_at)}


class _Walk:
    """The walk through the messages.

    Attributes:
        messages: The messages.
        position: Index of the message that is taken.
        files: The files by a key that all spellings of a path share.
    """

    def __init__(
        self, messages: model.Messages, extra_kinds: Mapping[str, str] | None, budget: Budget
    ) -> None:
        """Pair calls with results, and find the folder where relative paths start."""
        self.messages: model.Messages = with_unique_call_ids(messages)
        self.position = -1
        self.files: dict[str, KnownFile] = {}
        self._kinds = extra_kinds
        self._budget = budget
        self._by_name: defaultdict[str, list[KnownFile]] = defaultdict(list)
        # The file that each spelling of a path means in calls of file tools; None if several.
        self._spelled: dict[str, KnownFile | None] = {}
        self._shell = ""  # the folder in which the last command left its shell
        self._numbering: Counter[str] = Counter()
        self._index = index_calls(self.messages)
        self._top = self._top_folder()

    def _top_folder(self) -> str:
        """Return the folder where relative paths start; "" if that is not sure."""
        paths: set[str] = set()
        entered: Counter[str] = Counter()
        for call in self._index.calls.values():
            use = calls.classify(call, self._kinds)
            if use.path and use.kind in _FILE_KINDS and len(use.path) <= 1_000:
                paths.add(use.path)
            elif use.command:
                folder = _given_folder(call) or command_effects(call, use).folder or ""
                if calls.is_absolute(folder):
                    entered[calls.plain_path(folder)] += 1
        relative = {path for path in paths if not calls.is_absolute(path) and "/" in path}
        votes: Counter[str] = Counter()
        for path in paths - relative if relative else ():
            # Each end of an absolute path may be one of the relative paths.
            start = path.find("/", 1)
            while start >= 0:
                votes[path[:start]] += path[start + 1 :] in relative
                start = path.find("/", start + 1)
        votes = +votes or entered
        top, count = votes.most_common(1)[0] if votes else ("", 0)
        return top if 2 * count > votes.total() else ""

    def take(self, message: model.Message) -> None:
        """Take one message.

        Raises:
            BudgetSpentError: The budget of work is spent.
        """
        if placeholders.is_restored_files(message):
            self._take_restored(message)
        else:
            for block in message.blocks:
                if isinstance(block, model.ToolCall) and block.call_id not in self._index.result_at:
                    for change in calls.changes_of(block, calls.classify(block, self._kinds)):
                        self.mark_unsure(self._known_at(change.path))
                elif isinstance(block, model.ToolResult) and block.call_id in self._index.calls:
                    self._take_result(self._index.calls[block.call_id], block)
                elif isinstance(block, model.Text) and message.role != "assistant":
                    self._take_note(block.text)

    def _take_restored(self, message: model.Message) -> None:
        """Take files that an earlier compaction restored as their last known texts."""
        text = "".join(block.text for block in message.blocks if isinstance(block, model.Text))
        self._budget.spend(len(text))
        for match in placeholders.RESTORED_FILE.finditer(text):
            path = placeholders.restored_path(match)
            if path is not None:
                file = self._spelled_file(path)
                file.used_at = self.position
                file.set_text(match[2])
                if _UNSURE in match[1].removeprefix(path) or _OMITTED in f"\n{match[2]}":
                    file.mark_unsure(self.position)

    def _take_note(self, text: str) -> None:
        """Take a host's note that a file was changed outside of the conversation."""
        stop = text.find(_OUTSIDE_NOTE)
        while stop >= 0:
            start = text.rfind(" ", max(0, stop - 400), stop) + 1
            self.mark_unsure(self._known_at(text[start:stop]))
            stop = text.find(_OUTSIDE_NOTE, stop + 1)

    def _take_result(self, call: model.ToolCall, result: model.ToolResult) -> None:
        use = calls.classify(call, self._kinds)
        text = model.result_text(result)
        changes = calls.changes_of(call, use)
        if changes:
            self._take_changes(call, changes, result, text)
        elif use.command:
            self._take_command(call, use, result, text)
        elif use.kind == "read" and use.path:
            self._take_read(call, use.path, result, text)

    def _take_changes(
        self,
        call: model.ToolCall,
        changes: Sequence[calls.FileChange],
        result: model.ToolResult,
        text: str,
    ) -> None:
        folder = _given_folder(call) or ""
        is_shown = not (model.is_synthetic_result(result) or placeholders.seems_placeholder(result))
        output, code = outcome.command_output(text)
        if result.is_error or code or outcome.is_unchanged(output):
            # A patch of several files may have changed some of them.
            for change in changes if len({change.path for change in changes}) > 1 else ():
                self.mark_unsure(self._known_at(change.path, folder))
            return
        for change in changes:
            if not change.path:
                self._spend_files()
                self.mark_unsure(self.files.values())
                continue
            file = self._spelled_file(change.path, folder)
            file.apply(self.position, change)
            if not is_shown or code is None:
                file.mark_unsure(self.position)

    def _take_read(
        self, call: model.ToolCall, path: str, result: model.ToolResult, text: str
    ) -> None:
        if result.is_error or model.is_synthetic_result(result):
            return
        if outcome.begins_with_failure(text) and text.count("\n") < 3:
            return
        file = self._spelled_file(path)
        file.used_at = file.read_at = self.position
        if placeholders.seems_placeholder(result):
            return
        self._budget.spend(len(text) + _LINE_CHARS * text.count("\n"))
        lines = outcome.shown_lines(text, call.arguments, call.name, self._numbering)
        if lines is not None and lines.rows not in ((), ("",)):
            file.show(lines)

    def _take_command(
        self, call: model.ToolCall, use: calls.ToolUse, result: model.ToolResult, text: str
    ) -> None:
        output, code = outcome.command_output(text)
        effects = command_effects(call, use)
        self._budget.spend(len(use.command or "") + len(output) // FAST_CHARS)
        succeeded = code == 0 and not result.is_error and not _complains(output)
        given = _given_folder(call)
        # Some tools start each command in one folder, and some keep one shell for all commands.
        folders = [given] if given else ["", self._shell]
        is_complete = not placeholders.seems_placeholder(result) and not outcome.is_cut(output)
        if effects.shows and succeeded and is_complete:
            self._take_print(effects.shows, output, folders)
        for effect in effects.effects:
            self._take_effect(effect, folders, succeeded=succeeded)
        if any(map(output.__contains__, _REWROTE)):
            self._spend_files()
            written = (file for file in self.files.values() if file.was_written)
            self.mark_unsure(written)
        if effects.folder and not given:
            self._shell = effects.folder

    def _take_print(self, shows: Shows, output: str, folders: Sequence[str]) -> None:
        """Take the lines of a file that a command prints."""
        files, is_certain = self._files_in(shows.path, folders)
        for file in files:
            file.used_at = file.read_at = self.position
        if not is_certain or not output.strip():
            return
        self._budget.spend(len(output) + _LINE_CHARS * output.count("\n"))
        rows = output.removesuffix("\n").split("\n")
        # Hosts cut empty lines off the end, so fewer lines than asked for need not be the last.
        missing = 0 if shows.count is None else shows.count - len(rows)
        is_to_end = shows.count is None or (missing > 0 and output.endswith("\n"))
        if missing > 0 and not is_to_end and shows.start > 1:
            return  # they also cut them off the beginning: the number of the first is not known
        rows = [*rows, ""] if is_to_end else rows
        files[0].show(outcome.ShownLines(tuple(rows), shows.start, is_to_end))

    def _take_effect(self, effect: Effect, folders: Sequence[str], *, succeeded: bool) -> None:
        if isinstance(effect, MayChange):
            # The text of a file that this command wrote is certain.
            files = [f for f in self._may_concern(effect) if f.written_at != self.position]
            self.mark_unsure(files)
            return
        files, is_certain = self._files_in(effect.path, folders)
        if isinstance(effect, calls.Deletes):
            files += [inner for file in files for inner in self._inside(file.path.strip("/"))]
        for file in files:
            if succeeded and is_certain:
                file.apply(self.position, effect)
            else:
                file.mark_unsure(self.position)

    def _may_concern(self, may_change: MayChange) -> Iterable[KnownFile]:
        """Return the known files that a command may have changed."""
        names = [posixpath.basename(calls.plain_path(word)).casefold() for word in may_change.words]
        # Folders are ignored, because a program that copies writes a file with an equal name.
        named = [file for name in names for file in self._by_name.get(name, ())]
        self._budget.spend(FAST_CHARS * len(named))
        is_any = not names or (may_change.or_any and not named)
        if is_any or any(not EXPANDED.isdisjoint(name) for name in names):
            return self._inside("")
        return named

    def _inside(self, folder: str) -> list[KnownFile]:
        """Return the known files in a folder, wherever its path starts; all files for ""."""
        self._spend_files()
        inner = f"/{folder}/" if folder else "/"
        return [file for file in self.files.values() if inner in f"/{file.path}"]

    def mark_unsure(self, files: Iterable[KnownFile]) -> None:
        """Record that this message may have changed `files`."""
        for file in files:
            file.mark_unsure(self.position)

    def _spend_files(self) -> None:
        self._budget.spend(FAST_CHARS * len(self.files))

    # Paths

    def _file(self, path: str, folder: str = "") -> KnownFile:
        """Return the file at `path`, as seen from `folder`."""
        key = self._key(path, folder)
        file = self.files.get(key)
        if file is None:
            plain = calls.plain_path(
                path if calls.is_absolute(path) else posixpath.join(folder, path)
            )
            file = self.files[key] = KnownFile(plain, self._budget)
            self._by_name[posixpath.basename(key).casefold()].append(file)
        return file

    def _spelled_file(self, path: str, folder: str = "") -> KnownFile:
        """Return the file that a call of a file tool names."""
        file = self._file(path, folder)
        if self._spelled.setdefault(path, file) is not file:
            self._spelled[path] = None
        return file

    def add_names(self) -> None:
        """Add to each file the spellings that mean no other file."""
        for name, file in self._spelled.items():
            if file is not None:
                file.names.append(name)

    def _files_in(self, path: str, folders: Sequence[str]) -> tuple[list[KnownFile], bool]:
        """Return the files that `path` may mean in one of `folders`, and whether it is certain."""
        keys = list(dict.fromkeys(self._key(path, folder) for folder in folders))
        if len(keys) == 1:
            return [self._file(path, folders[0])], True
        return [self.files[key] for key in keys if key in self.files], False

    def _known_at(self, path: str, folder: str = "") -> list[KnownFile]:
        file = self.files.get(self._key(path, folder)) if path else None
        return [file] if file else []

    def _key(self, path: str, folder: str = "") -> str:
        """Return one name for a file, however its path is spelled."""
        path = calls.plain_path(path)
        if not calls.is_absolute(path):
            if folder and not calls.is_absolute(folder):
                folder = posixpath.join(self._top, folder)
            path = calls.plain_path(posixpath.join(folder or self._top, path))
        # A shell on Windows writes D:/work as /d/work, /mnt/d/work or /cygdrive/d/work.
        below = path.removeprefix("/mnt").removeprefix("/cygdrive")
        if below[:1] == "/" and below[1:2].isalpha() and below[2:3] in ("", "/"):
            path = calls.plain_path(f"{below[1]}:{below[2:]}")
        return path.casefold() if calls.has_drive(path) else path


def _complains(output: str) -> bool:
    """Whether a shell or a simple program reports an error, which a pipe may hide."""
    return any(line.startswith(_COMPLAINTS) for line in output[-20_000:].split("\n"))


def _given_folder(call: model.ToolCall) -> str | None:
    """Return the folder that a call names for its command, or None."""
    return calls.first_text(calls.arguments_by_name(call.arguments), _FOLDER_KEYS)
