"""Facts under what they belong to: files with what they define, tools with their records, commands.

Every fact has its owner. A file is described by its last state, so far as that is known; the same
call by its newest answer; records of one shape share one header.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from context_compaction.activity.digest import Digest
from context_compaction.activity.file_changes import Inserts, Patches, Replaces, changes_of
from context_compaction.activity.file_ledger import FileEntry
from context_compaction.activity.json_rows import MOST_DEPTH, members, parsed_json, table_of
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.tool_kinds import is_steering
from context_compaction.messages.model import is_list, is_object
from context_compaction.summarizers.extractive.fit import Line, head_of, versions
from context_compaction.summarizers.extractive.turns import Action, Turn, command_key

# So much of a file's hash tells two states of it apart.
HASH_CHARS = 8
_PATHS_ON_A_LINE = 6
_ROW_CHARS = (120, 400)
_RECORD_CHARS = (100, 240, 600, 2_000)
_RECORD_WANTS = (0.0, 1.0, 2.5, 6.0)
_OUTPUT_CHARS = 240
_OUTPUT_LINES = 3
_SIGNATURE_CHARS = 140
_TOLD_FILES = 8
_MOST_FILES = 40
_MOST_EDITS = 4
_EDIT_CHARS = 220
_MOST_DEFINITIONS = 60
_PROSE = (".md", ".mdx", ".markdown", ".txt", ".rst", ".org", ".adoc")
_TEST = re.compile(r"(?:^|[/_.-])tests?(?:[/_.-]|\Z)", re.IGNORECASE)

_DEFINITION = re.compile(
    r"^(?:[ \t]{0,8}(?:export |default |declare |pub(?:\(\w+\))? |public |private |protected "
    r"|static |abstract |async |override |final )*(?:def|class|function|interface|enum|struct|trait"
    r"|impl|fn|func|namespace) [\w<]|(?:export )?type \w+[^=\n]{0,80}=|export const \w+"
    r"|(?:\t|    |  )(?:(?:public|private|protected|static|readonly|async|get|set|override) )*"
    r"(?!if|for|while|switch|catch|return|function)\w+\([^()\n]*\)(?:: [^{;\n]+)? \{$"
    r"|#{1,3} \S)"
)
# A last line that tells what came of a run.
_OUTCOME = re.compile(r"\d")
# What hosts put around the output of a command.
_CHATTER = re.compile(
    r"(?:Wall time|Chunk ID|Output|Original token count|Total output lines|Exit code: 0"
    r"|Process exited with code 0)\b.{0,40}\Z|[.sFExX]{1,200} *\[ *\d{1,3}%\]\Z"
)
# An identifier with figures in it, or a date.
_CODE = re.compile(r"\b(?=(?:\w{0,40}?\d){2})(?=\w{0,40}[A-Za-z_])\w{5,60}\b|\b\d{4}-\d\d-\d\d")
# A value that is nothing but a code: no words, with figures in it or in capitals.
_CODE_VALUE = re.compile(r"(?=\D{0,40}\d)[\w.:@#/-]{4,60}|[A-Z]{4,12}")
# One that names something.
_ID = re.compile(r"(?=[^A-Za-z]{0,40}[A-Za-z])[\w/-]{4,60}")
_CODES_CHARS = 400
_WHOLE_WANT = 2.0
# The first record of all says who it is about: its codes go before what binds, the rest after
_FIRST_WANT = -0.05
_SHORT_FIRST_WANT = -0.4
_FIRST_CHARS = 160
_INDENT_AND_BRACE = " \t{:"


def fact_lines(
    turns: Sequence[Turn], digest: Digest, files: Mapping[str, ReplayedFile]
) -> list[Line]:
    """The lines of the facts: files, then JSON records, then answers of commands and tools."""
    actions = [action for turn in turns for action in turn.actions]
    lines = list(_file_lines(actions, digest, files))
    records: dict[str, dict[str, tuple[Action, Any]]] = {}
    outputs: dict[str, Action] = {}
    for action in actions:
        if not action.text or action.failed or action.use.kind in ("read", "write", "edit"):
            continue
        if action.is_look or is_steering(action.name) or (action.effect and action.use.command):
            continue  # what was committed stands in the log
        value = parsed_json(action.text)
        if value is not None:
            records.setdefault(action.name, {}).pop(action.label, None)
            records[action.name][action.label] = action, value
        else:
            key = command_key(action.label)
            outputs.pop(key, None)
            outputs[key] = action
    for at, (name, found) in enumerate(records.items()):
        lines += _record_lines((1, at), name, list(found.values()))
    for age, action in enumerate(reversed(outputs.values())):
        lines += _output_lines(action, age)
    return lines


def _file_lines(
    actions: Sequence[Action], digest: Digest, replayed: Mapping[str, ReplayedFile]
) -> Iterator[Line]:
    """Lines of the files, newest use first: their state, their definitions, their last edits.

    Of a file that existed before only what the work added: the rest can be read. What was taken
    back, and names that a file no longer contains, are left out.
    """
    edits: dict[str, list[_PutIn]] = {}
    for action in actions:
        for path, put_in in _put_in(action):
            edits.setdefault(path, []).append(put_in)
    files = list(reversed(digest.files))
    changed = [file for file in files if not file.is_only_read and _stands(file, replayed)]
    for at, file in enumerate(changed[:_TOLD_FILES]):
        place = (0, at, 0)
        known = replayed.get(file.path)
        text = known.text if known is not None and known.is_sure else None
        standing = [
            put_in
            for age, put_in in enumerate(reversed(edits.get(file.path, [])))
            if ((put_in.text in text) if text is not None else age == 0)
        ]
        yield Line(place, at * 0.5, f"{file.path} ({_states(file)})")
        is_new = "created" in file.states and text is not None
        built = text if is_new and text else "\n".join(one.added for one in reversed(standing))
        # What tests are called says less than what they test.
        later = 4 if _TEST.search(file.path) else 2
        for number, told in enumerate(_definitions(built, file.path)):
            yield Line((0, at, 1, number), later + at + number * 0.2, f"  {told}", place)
        for number, told in enumerate(_told(standing[:_MOST_EDITS], file.path)):
            yield Line((0, at, 2, -number), 1.5 + at + number * 2, told, place)
    others = [file.path for file in changed[_TOLD_FILES:][:_MOST_FILES]]
    yield from _path_lines("changed too: ", others, (0, _MOST_FILES), 4.0)
    read = [file.path for file in files if file.is_only_read]
    yield from _path_lines("only read: ", read[:_MOST_FILES], (0, _MOST_FILES + 1), 5.0)


def _path_lines(
    label: str, paths: Sequence[str], place: tuple[int, ...], want: float
) -> Iterator[Line]:
    for start in range(0, len(paths), _PATHS_ON_A_LINE):
        some = ", ".join(paths[start : start + _PATHS_ON_A_LINE])
        yield Line((*place, start), want + start * 0.5, f"{label}{some}")


def _stands(file: FileEntry, replayed: Mapping[str, ReplayedFile]) -> bool:
    """Whether the change of `file` still exists under its name; True where that is not known."""
    known = replayed.get(file.path)
    if known is None:
        return True
    is_moved = known.is_deleted and file.states[-1] != "deleted"
    return not is_moved and (known.is_deleted or known.is_changed)


@dataclass(frozen=True, slots=True)
class _PutIn:
    """What an edit put in: the number of its message, all of the new text, and the lines added."""

    number: int
    text: str
    added: str


def _put_in(action: Action) -> Iterator[tuple[str, _PutIn]]:
    """The texts that an edit put into files, by path."""
    if action.call is None or action.failed is not False:
        return
    for made in changes_of(action.call, action.use):
        match made:
            case Replaces(path, old, new):
                held = set(old.split("\n"))
                added = "\n".join(line for line in new.split("\n") if line not in held)
                parts = [(new, added)]
            case Inserts(path, _, new):
                parts = [(new, new)]
            case Patches(path, hunks):
                added_lines = [[row for row in hunk.new if row not in hunk.old] for hunk in hunks]
                parts = [("\n".join(rows), "\n".join(rows)) for rows in added_lines]
            case _:
                continue
        for text, added in parts:
            if added.strip():
                yield path, _PutIn(action.number, text, added)


def _told(edits: Sequence[_PutIn], path: str) -> Iterator[str]:
    """The texts that edits added, newest first, without those that are mostly definitions."""
    for put_in in edits:
        defined = len(_definitions(put_in.added, path))
        if not defined or put_in.added.count("\n") > 2 * defined + _MOST_EDITS:
            shown = head_of(" ".join(put_in.added.split()), _EDIT_CHARS)
            yield f"  put in at [{put_in.number}]: {shown}"


def _states(file: FileEntry) -> str:
    known = f"; sha256 {file.sha256[:HASH_CHARS]}" if file.sha256 else ""
    return f"{', '.join(file.states)}{known}"


def _definitions(text: str, path: str) -> list[str]:
    """The lines of `text` that define something; of data, its keys and values."""
    data = parsed_json(text)
    if data is not None:
        return [head_of(told, _ROW_CHARS[-1]) for told in members(data)]
    is_prose = path.lower().endswith(_PROSE)
    found = (
        f"{'  ' * line[:1].isspace()}{line.strip(_INDENT_AND_BRACE)}"
        for line in text.splitlines()
        if _DEFINITION.match(line) and (is_prose or not line.startswith("#"))
    )
    return [line[:_SIGNATURE_CHARS] for line in dict.fromkeys(found)][:_MOST_DEFINITIONS]


def _record_lines(
    place: tuple[int, ...], name: str, found: Sequence[tuple[Action, Any]]
) -> Iterator[Line]:
    """The answers of one tool: one header and a row each, where all have one shape."""
    table = table_of([value for _, value in reversed(found)])
    if table:
        keys, rows = table
        for number, ((action, _), row) in enumerate(zip(reversed(found), rows, strict=True)):
            # A header alone says nothing: it stands with the first row.
            label = f"[{action.number}] "
            label = f"  {label}" if number else f"{name}: {keys}\n{label}"
            wants = number * 0.2, 2 + number * 0.5
            under = (*place, 0) if number else None
            yield from versions((*place, number), label, row, _ROW_CHARS, wants, under)
        return
    for number, (action, value) in enumerate(found):
        head = (*place, number)
        # The newest first; but the first record of all says who it is about.
        rank = 0.5 if place[1] + number == 0 else len(found) - 1 - number
        label = f"{action.label} [{action.number}]: "
        table = table_of(value) if is_list(value) else None
        if not table:
            # What is asked for by its code goes before what can be said in words.
            told = sorted(members(value), key=lambda member: not _CODE.search(member))
            when = [rank + want for want in _RECORD_WANTS]
            if codes := head_of(_codes(value), _CODES_CHARS):
                is_first = place[1] + number == 0
                short = head_of(codes, _FIRST_CHARS)
                if is_first and short != codes:
                    yield Line(head, _SHORT_FIRST_WANT, f"{label}{short}")
                    yield Line(head, _FIRST_WANT, f"{label}{codes}", is_fuller=True)
                else:
                    yield Line(head, _FIRST_WANT if is_first else rank, f"{label}{codes}")
                full = "; ".join(told)
                if len(full) > _RECORD_CHARS[-1]:  # what is told already stays
                    full = f"{codes}; {head_of(full, _RECORD_CHARS[-1])}"
                yield Line(head, rank + _WHOLE_WANT, f"{label}{full}", is_fuller=True)
            else:
                yield from versions(head, label, "; ".join(told) or "nothing", _RECORD_CHARS, when)
            continue
        keys, rows = table
        yield Line(head, rank, f"{label}{keys}\n{head_of(rows[0], _ROW_CHARS[-1])}")
        for at, row in enumerate(rows[1:], 1):
            text = f"  {head_of(row, _ROW_CHARS[-1])}"
            yield Line((*head, at), rank + at * 0.3, text, head)


def _codes(data: Any) -> str:
    """The codes in a JSON value, each once, under the key that it is the value of."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for key, value in _leaves(data):
        if value not in seen and _CODE_VALUE.fullmatch(value):
            seen.add(value)
            found.setdefault(key, []).append(value)
    # Times, dates and addresses last: they are long, and nothing is asked for by them.
    keys = sorted(found, key=lambda key: not _ID.fullmatch(found[key][0]))
    return "; ".join(f"{key} {', '.join(found[key])}" for key in keys)


def _leaves(data: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The texts in a JSON value, each with the nearest key above it."""
    if isinstance(data, str):
        yield key, data
    elif depth < MOST_DEPTH and is_object(data):
        for name, item in data.items():
            # What is known by its own code is named after what holds it.
            is_code = _CODE.fullmatch(name) is not None
            if is_code:
                yield key, name
            yield from _leaves(item, key if is_code or name == "id" else name, depth + 1)
    elif depth < MOST_DEPTH and is_list(data):
        for item in data:
            yield from _leaves(item, key, depth + 1)


def _output_lines(action: Action, age: int) -> Iterator[Line]:
    """The answer of a command or a tool: all where it is short, else its first and last line."""
    told = (line.strip() for line in action.text.splitlines())
    lines = [line for line in told if line and not _CHATTER.match(line)]
    if not lines:
        return
    shown = " / ".join(lines)
    is_short = len(lines) <= _OUTPUT_LINES and len(shown) <= _OUTPUT_CHARS
    if shown.strip("(). ").lower() == "no output":
        return
    if not is_short:
        if action.use.kind == "execute" and not _OUTCOME.search(lines[-1]):
            return  # the chatter of a build
        half = _OUTPUT_CHARS // 2
        last = lines[-1] if len(lines) > 1 else ""
        shown = f"{head_of(lines[0], half)} … {head_of(last, half)}".strip(" …")
    want = 3 + age * 0.5 + (0 if is_short else 12)
    yield Line((2, action.number, -age), want, f"{action.label} [{action.number}] -> {shown}")
