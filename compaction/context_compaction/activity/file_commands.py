"""What a shell command does to files, as far as its text determines it.

What of a file it prints (`cat FILE`, `sed -n '1,20p' FILE`), what it writes into one (`cat > FILE
<<'EOF'`), what each of its programs does (program_effects.py), where it leaves the shell, and what
of all that is certain.
"""

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from context_compaction.activity import powershell
from context_compaction.activity.file_changes import Deletes, Writes
from context_compaction.activity.git_commands import Git
from context_compaction.activity.program_effects import (
    CommandEffect,
    EditsLines,
    GoesTo,
    MayChange,
    Moves,
    RunsPython,
    Shows,
    changed_by_code,
    program_effects,
    words_in,
)
from context_compaction.activity.shell_words import (
    HEREDOC,
    line_words,
    pipelines,
    placed,
    program_of,
    redirections,
    temporary_variables,
    variable_in,
)

_DOCUMENT = "HEREDOC"
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
# Commands of so many characters whose effects are kept, and how many: each compaction of a session
# asks for those of all that stand in its list.
_REMEMBERED_CHARS = 1_000
_REMEMBERED = 1_000
_LINES_WANTED = re.compile(r"(\d+)(?:,(\d+|\$))?p;?\Z")
_CHANGES_FOLDER = re.compile(r"(?:^|[;&|(\n])[ \t]{0,20}(?:cd|pushd|popd)\b")
_NOWHERE = ("/dev/", "$null")
_VISITS = re.compile(r"git (?:checkout|switch)\b")
# What is longer, documents apart, was written by no hand. `shlex` puts words together a character
# at a time, which takes the square of the longest.
_MAX_COMMAND_CHARS = 10_000


def may_change_folder(command: str) -> bool:
    """Whether `command` may leave the shell in another folder."""
    return _CHANGES_FOLDER.search(command) is not None


def command_effects(command: str, *, folder: str | None = "") -> Sequence[CommandEffect]:
    """What `command` does to files, in order, and last where it leaves the shell.

    Args:
        command: The command line.
        folder: Where its relative paths start, as seen from where those of other calls do; None
            where that is not known.
    """
    is_short = len(command) <= _REMEMBERED_CHARS
    return _known_effects(command, folder) if is_short else _effects_of(command, folder)


@lru_cache(maxsize=_REMEMBERED)
def _known_effects(command: str, folder: str | None) -> Sequence[CommandEffect]:
    return _effects_of(command, folder)


def _effects_of(command: str, folder: str | None) -> Sequence[CommandEffect]:
    inner = _inner_line(command)
    if inner is not None:
        made = command_effects(inner, folder=folder)
        return [effect for effect in made if not isinstance(effect, GoesTo)]
    documents: list[str] = []

    def kept(found: re.Match[str]) -> str:
        # What the shell would expand in it is not known.
        body = found[4] + ("\n" if found[4] else "")
        is_plain = bool(found[1]) or not re.search(r"[$`\\]", body)
        documents.append(body if is_plain else "\0" + body)
        return f"<< {_DOCUMENT}{len(documents) - 1} {found[3]}"

    bare = HEREDOC.sub(kept, command)
    if len(bare) > _MAX_COMMAND_CHARS:
        return _unread(command)
    try:
        words = line_words(bare)
    except ValueError:
        return _unread(command)
    return _effects(words, documents, command, folder)


def _unread(command: str) -> list[CommandEffect]:
    """What a command that cannot be read may have done: anything to whatever it names."""
    may = MayChange(tuple(words_in(command)))
    return [may, GoesTo(None)] if may_change_folder(command) else [may]


def _effects(
    words: Sequence[str], documents: Sequence[str], command: str, folder: str | None
) -> list[CommandEffect]:
    found: list[CommandEffect] = []
    outer: list[str | None] = []  # folders of the shells around this one
    shows, start = 0, folder
    temporary = temporary_variables(words)
    for pipeline, is_certain in pipelines(words):
        first, last = pipeline[0][0], pipeline[-1][-1]
        outer += [folder] * (len(first) - len(first.lstrip("(")))
        closed = min(max(0, last.count(")") - last.count("(")), len(outer))
        if closed:
            pipeline[-1][-1] = last[: len(last) - closed] if last.endswith(")" * closed) else last
        program, arguments = program_of(pipeline[0])
        if program in ("cd", "pushd", "popd") and len(pipeline) == 1:
            folder = _entered(folder, arguments) if is_certain and program == "cd" else None
            folder = _left(outer, folder, closed)
            continue
        made = [
            told
            for part in pipeline
            for effect in _of_command(part, documents, folder, command)
            for told in _told(effect, part, temporary)
        ]
        shown = _shown(pipeline, folder)
        shows += 1
        found += [shown] if shown else []
        found += made if is_certain else [other for effect in made for other in _doubts(effect)]
        folder = _left(outer, folder, closed)
    found = _without_round_trip(found)
    # The output belongs to files only where nothing else prints, and to several by their counts.
    told = [effect for effect in found if isinstance(effect, Shows)]
    are_all = len(told) == shows and (shows == 1 or all(effect.count for effect in told))
    if not are_all or any("&" in word and word != "&&" for word in words if word.startswith("&")):
        found = [effect for effect in found if not isinstance(effect, Shows)]
    return [*found, GoesTo(folder)] if folder != start else found


def _without_round_trip(found: list[CommandEffect]) -> list[CommandEffect]:
    """`found` without what git checked out between a stash and its pop, which take it back.

    Without these too, where nothing else was done in between.
    """
    verbs = [effect.verb if isinstance(effect, Git) else "" for effect in found]
    if "stash" not in verbs or "pop" not in verbs:
        return found
    start, stop = verbs.index("stash"), len(verbs) - 1 - verbs[::-1].index("pop")
    inside = found[start + 1 : stop]
    visits = [one for one in inside if isinstance(one, MayChange) and _VISITS.match(one.by)]
    if start > stop or len(visits) < 2:  # there and back
        return found
    kept = [one for one in inside if one not in visits and one != Git("forget")]
    if all(isinstance(one, Shows) for one in kept):
        return [*found[:start], *kept, *found[stop + 1 :]]
    return [*found[: start + 1], *kept, *found[stop:]]


def _entered(folder: str | None, arguments: Sequence[str]) -> str | None:
    """The folder after `cd` with `arguments` in `folder`."""
    names = [word for word in arguments if word and word != "--"]
    found = placed(names[0], folder) if len(names) == 1 and names[0] != "-" else None
    return "" if found == "." else found


def _left(outer: list[str | None], folder: str | None, closed: int) -> str | None:
    """The folder after so many shells have ended that were opened in brackets."""
    for _ in range(closed):
        folder = outer.pop()
    return folder


def _told(
    effect: CommandEffect, words: Sequence[str], temporary: Collection[str]
) -> list[CommandEffect]:
    """`effect`; an uncertain one by what part of a line, and without files that are its own."""
    if not isinstance(effect, MayChange):
        return [effect]
    named = tuple(word for word in effect.words if variable_in(word) not in temporary)
    is_done = effect.words and not named
    return [] if is_done else [replace(effect, words=named, by=" ".join(redirections(words)[0]))]


def _doubts(effect: CommandEffect) -> Iterator[CommandEffect]:
    """The possible changes of `effect` where it is not certain that it took place."""
    match effect:
        case Writes(path) | Deletes(path) | EditsLines(path):
            yield MayChange((path,))
        case Moves(old, new):
            yield MayChange((old, new))
        case Git():
            yield replace(effect, is_sure=False)
        case RunsPython(code):
            yield from changed_by_code(code)
        case _:
            yield effect


def _inner_line(command: str) -> str | None:
    """The argument of a shell's `-c`, `-lc` and the like; None for any other command."""
    if posixpath.basename(command.partition(" ")[0]) not in _SHELLS:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    has_line = len(words) == 3 and re.match(r"-\w*c\Z", words[1])
    return words[2] if has_line else None


def _of_command(
    words: Sequence[str], documents: Sequence[str], folder: str | None, command: str
) -> Iterator[CommandEffect]:
    """What one simple command changes."""
    kept, redirects = redirections(words)
    kept = powershell.command_in(kept)
    program, arguments = program_of(kept)
    bodies = (_document(to, documents) for op, to in redirects if op == "<<")
    body = next((text for text in bodies if text is not None), None)
    for operator, target in redirects:
        copies_stream = "&" in operator and (target.isdigit() or target == "-")
        if ">" not in operator or copies_stream or target.startswith(_NOWHERE):
            continue
        path = placed(target, folder)
        is_copied = program == "cat" and not arguments and body is not None
        if is_copied and body is not None and path and not body.startswith("\0"):
            yield Writes(path, body, appends=operator == ">>")
        else:
            yield MayChange((target,))
    yield from program_effects(program, arguments, body, folder, " ".join(kept), command)


def _shown(pipeline: Sequence[Sequence[str]], folder: str | None) -> Shows | None:
    """What of a file a pipeline prints, and nothing but that."""
    first, redirects = redirections(pipeline[0])
    program, arguments = program_of(first)
    names = [word for word in arguments if not word.startswith("-") and word != "a"]
    if any(">" in operator and "&" not in operator for operator, _ in redirects):
        return None
    if len(pipeline) == 2 and program in ("cat", "nl"):
        second, given = program_of(pipeline[1])
        if second in ("sed", "head") and len(names) == 1:
            return _lines_of(second, [*given, names[0]], folder)
        return None
    if len(pipeline) != 1:
        return None
    if program in ("cat", "nl"):
        path = placed(names[0], folder) if len(names) == 1 else None
        return Shows(path) if path else None
    return _lines_of(program, arguments, folder)


def _lines_of(program: str, arguments: Sequence[str], folder: str | None) -> Shows | None:
    path = placed(arguments[-1], folder) if arguments else None
    if path is None:
        return None
    if program == "sed" and list(arguments[:-2]) == ["-n"]:
        wanted = _LINES_WANTED.match(arguments[-2])
        if wanted is None:
            return None
        start = int(wanted[1])
        if wanted[2] == "$":
            return Shows(path, start)
        return Shows(path, start, int(wanted[2] or start) - start + 1)
    if program == "head":
        count = re.match(r"(?:-n ?|-|--lines=)(\d+)\Z", " ".join(arguments[:-1]) or "-10")
        return Shows(path, 1, int(count[1])) if count else None
    return None


def _document(word: str, documents: Sequence[str]) -> str | None:
    number = word.removeprefix(_DOCUMENT)
    is_ours = number != word and number.isdigit() and int(number) < len(documents)
    return documents[int(number)] if is_ours else None
