"""From which folder the relative paths of a command start.

Some tools run every command anew from the same folder, others keep one shell for all. Few names
reveal which; the commands do, by the files that they name after one that has left the folder.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from context_compaction.activity.file_commands import command_effects, may_change_folder
from context_compaction.activity.file_paths import Drives, is_absolute
from context_compaction.activity.program_effects import GoesTo
from context_compaction.activity.script_calls import made_call
from context_compaction.activity.tool_kinds import arguments_by_name
from context_compaction.activity.work_folder import work_folder
from context_compaction.messages.model import ToolCall

_FOLDER_KEYS = ("workdir", "cwd", "workingdirectory", "workingdir", "dirpath", "directory")
_ANEW = frozenset({"run_shell_command", "exec_command", "shell", "local_shell", "container.exec"})
_GOES_ON = frozenset({"Bash", "execute_bash", "run_in_terminal"})
_NAMED = re.compile(r"(?<![\w./~$-])[\w][\w./-]*\w")
_FIRST_CD = re.compile(r"\A\s*cd\s+([\w][\w./-]*)\s*(?:&&|;|\n)")


@dataclass(slots=True)
class ShellFolder:
    """The folder of a shell while its commands are walked through.

    Attributes:
        top: The absolute folder that relative paths of other calls start from; "" if not known.
        drives: The drives that the conversation names.
        anew: Whether each command starts in it, by name of the tool; None where that is not known.
        known: The files that other calls name, as seen from there.
        now: The folder of the shell, as seen from there; None where that is not known.
    """

    top: str
    drives: Drives
    anew: Mapping[str, bool | None]
    known: Set[str] = frozenset()
    now: str | None = ""

    def of(self, call: ToolCall) -> str | None:
        """The folder in which the command of `call` starts; None where that is not known."""
        given = _given_folder(call)
        if given is not None:
            return self.seen(given)
        return "" if self.anew.get(call.name) else self.now

    def may_start_at_top(self, command: str) -> bool:
        """Whether `command` names a file as it is called from there."""
        return bool(_names(command) & self.known)

    def seen(self, folder: str) -> str:
        """`folder` as other calls would name it: "" for where their paths start."""
        folder = self.drives.plain(folder)
        if self.top and f"{folder}/".startswith(f"{self.top}/"):
            return folder[len(self.top) + 1 :]
        return "" if folder == "." else folder

    def went(self, call: ToolCall, folder: str | None) -> None:
        """The command of `call` has ended in `folder`."""
        if not self.anew.get(call.name) and _given_folder(call) is None:
            # Where nobody knows whether the shell stays there, the next may start from either.
            seen = None if folder is None else self.seen(folder)
            if call.name in _GOES_ON and seen is not None and seen.startswith(".."):
                seen = ""  # Outside of its folder such a shell does not stay.
            self.now = seen if seen == "" or self.anew.get(call.name) is False else None


def shell_folder(commands: Sequence[tuple[ToolCall, str]], paths: Set[str]) -> ShellFolder:
    """What is known beforehand of the shells of a conversation.

    Args:
        commands: The calls that run commands, in order, and their command lines.
        paths: The files that other calls name.
    """
    relative = {path for path in paths if not is_absolute(path) and path[:1] != "~"}
    folders = [_given_folder(call) for call, _ in commands]
    drives = Drives.named_in([*paths, *filter(None, folders), *(line for _, line in commands)])
    given = Counter(drives.plain(name) for name in folders if name)
    entered: Counter[str] = Counter()
    votes: Counter[str] = Counter()
    folder: str | None = ""
    # Where paths are absolute nobody knows from how far up commands name them.
    named = relative or {path[at + 1 :] for path in paths for at, c in enumerate(path) if c == "/"}
    for call, command in commands:
        if _given_folder(call) is None:
            votes[call.name] += _vote(command, folder, named)
        if not may_change_folder(command):
            continue
        effects = command_effects(command, folder=folder or "")
        gone = [effect.folder for effect in effects if isinstance(effect, GoesTo)]
        if gone and gone[-1] and is_absolute(gone[-1]) and relative & _names(command):
            entered[drives.plain(gone[-1])] += 1
        if gone:
            folder = gone[-1]
    tops = [name for name, _ in (given + entered).most_common(1) if is_absolute(name)]
    top = tops[0] if tops and len(relative) >= len(paths - relative) else ""
    anew = {call.name: _starts_anew(call.name, votes) for call, _ in commands}
    return ShellFolder(top, drives, anew, frozenset(relative or _below(paths)))


def _starts_anew(name: str, votes: Counter[str]) -> bool | None:
    # One command alone may have met a shell that its host had begun anew.
    if abs(votes[name]) > (name in _ANEW or name in _GOES_ON):
        return votes[name] > 0
    return True if name in _ANEW else False if name in _GOES_ON else None


def _vote(command: str, folder: str | None, known: Set[str]) -> int:
    """More than 0 where `command` starts from the top, less where from `folder`."""
    if not folder or is_absolute(folder):
        return 0
    first = _FIRST_CD.match(command)
    names = {f"{posixpath.normpath(first[1])}/"} if first else _names(command)
    anew = sum(_is_known(name, known) for name in names)
    on = sum(_is_known(posixpath.normpath(posixpath.join(folder, name)) + "/" * name.endswith("/"),
                       known) for name in names)  # fmt: skip
    return (anew > on) - (on > anew)


def _is_known(name: str, known: Set[str]) -> bool:
    return any(path.startswith(name) for path in known) if name.endswith("/") else name in known


def _names(command: str) -> set[str]:
    return {posixpath.normpath(word) for word in _NAMED.findall(command[:10_000])}


def _below(paths: Set[str]) -> set[str]:
    """`paths` as seen from the folder in which most of them lie."""
    folder = work_folder(sorted(paths))
    return {path.removeprefix(folder) for path in paths}


def _given_folder(call: ToolCall) -> str | None:
    given = arguments_by_name(made_call(call).arguments)
    found = (given.get(key) for key in _FOLDER_KEYS)
    return next((value for value in found if isinstance(value, str) and value), None)
