"""Facts under what they belong to: files with what they define, tools with their records, commands.

Every fact has its owner. A file is described by its last state, so far as that is known; the same
call by its newest answer; records of one shape share one header.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from context_compaction.activity.digest import Digest
from context_compaction.activity.file_changes import Inserts, Patches, Replaces, changes_of
from context_compaction.activity.file_ledger import FileEntry
from context_compaction.activity.json_rows import MOST_DEPTH, members, parsed_json, table_of
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.outline import is_data, is_test
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.activity.tool_kinds import is_steering
from context_compaction.messages.model import is_list, is_object
from context_compaction.summarizers.extractive.fit import Line, Place, head_of, versions
from context_compaction.summarizers.extractive.turns import Action, Turn
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT

_PATHS_ON_A_LINE = 6
_ROW_CHARS = (120, 400)
_RECORD_CHARS = (100, 240, 600, 2_000)
_RECORD_WANTS = (0.0, 1.0, 2.5, 6.0)
# Where answers of commands and tools stand, behind files and records.
OUTPUTS = 2
_OUTPUT_CHARS = 240
_OUTPUT_LINES = 3
# Of a longer output so much, a third of it from its beginning.
_LONG_OUTPUT_CHARS = (300, 1_000, 3_000)
_LONG_OUTPUT_WANTS = (3.0, 4.0, 7.0)
_OUTPUT_ROW_CHARS = 240
# What files contain stands with them, and what was found in them is looked for anew.
_TOLD_ELSEWHERE = ("read", "write", "edit", "notebook", "search", "list")
_SIGNATURE_CHARS = 140
_TOLD_FILES = 8
_MOST_FILES = 40
_MOST_EDITS = 4
_EDIT_CHARS = 220
_MOST_DEFINITIONS = 60
_PROSE = (".md", ".mdx", ".markdown", ".txt", ".rst", ".org", ".adoc")

_DEFINITION = re.compile(
    r"^(?:[ \t]{0,8}(?:export |default |declare |pub(?:\(\w+\))? |public |private |protected "
    r"|static |abstract |async |override |final )*(?:def|class|function|interface|enum|struct|trait"
    r"|impl|fn|func|namespace) [\w<]|(?:export )?type \w+[^=\n]{0,80}=|export const \w+"
    r"|(?:\t|    |  )(?:(?:public|private|protected|static|readonly|async|get|set|override) )*"
    r"(?!if|for|while|switch|catch|return|function)\w+\([^()\n]*\)(?:: [^{;\n]+)? \{$"
    r"|#{1,3} \S)"
)
# A script from the input: nothing tells what its output means.
_NAMELESS = re.compile(r"\S+ -")
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
_WORD = re.compile(r"\w[\w#.%-]*")


def fact_lines(
    turns: Sequence[Turn],
    digest: Digest,
    files: Mapping[str, ReplayedFile],
    keys_later: Set[str] | None,
) -> list[Line]:
    """The lines of the facts: files, then JSON records, then answers of commands and tools.

    Args:
        turns: The turns.
        digest: Their inventory.
        files: The files as the calls leave them.
        keys_later: The commands that what stays in full runs again; None where that begins
            another turn. What came of the commands of a finished turn stands in the log.
    """
    actions = [action for turn in turns for action in turn.actions]
    lines = list(_file_lines(actions, digest, files))
    newest = turns[-1:] if keys_later is not None else ()
    running = {action.number for turn in newest for action in turn.actions}
    records: dict[str, dict[str, tuple[Action, Any]]] = {}
    outputs: dict[str, Action] = {}
    for action in actions:
        if not action.text or action.use.kind in _TOLD_ELSEWHERE or is_steering(action.name):
            continue
        if action.failed and not (action.is_compound and action.number in running):
            continue  # it stands with the state
        if action.is_look or (action.effect and action.use.command):
            continue  # what was committed stands in the log
        value = parsed_json(action.text)
        if value is not None:
            records.setdefault(action.name, {}).pop(action.label, None)
            records[action.name][action.label] = action, value
        elif action.use.kind != "execute" or (
            action.number in running and not _NAMELESS.fullmatch(action.key)
        ):
            outputs.pop(action.key, None)
            if action.key not in (keys_later or ()):
                outputs[action.key] = action
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
    folder = work_folder([file.path for file in files])
    changed = [file for file in files if not file.is_only_read and _stands(file, replayed, folder)]
    deleted = [file.path for file in changed if file.states[-1] == "deleted"]
    others: list[str] = []
    at = 0
    for file in (file for file in changed if file.states[-1] != "deleted"):
        known = replayed.get(file.path)
        text = known.text if known is not None and known.is_sure else None
        standing = [
            put_in
            for age, put_in in enumerate(reversed(edits.get(file.path, [])))
            if ((put_in.text in text) if text is not None else age == 0)
        ]
        is_new = "created" in file.states and text is not None
        built = text if is_new and text else "\n".join(one.added for one in reversed(standing))
        whole = built if known is None else known.text or known.last_text or built
        has_values = text is None if file.path.lower().endswith(_PROSE) else is_data(whole)
        # What tests are called says less than what they test.
        is_untold = is_test(file.path) or (has_values and not is_new)
        rows = [] if is_untold else _definitions(built, file.path)
        values = [*_told(standing[:_MOST_EDITS], whole)] if has_values and not rows else []
        if at == _TOLD_FILES or not (rows or values):
            others.append(file.path)
            continue
        place: Place = (0, at, 0)
        want = at + 2.0
        first, *others_of = rows or values
        yield Line(place, want, f"{file.path} ({', '.join(file.states)})\n{first}")
        step = 0.2 if rows else 2.0
        for number, told in enumerate(others_of, 1):
            yield Line((0, at, 1, number), want + number * step, f"  {told}", place)
        at += 1
    below = f" (in {folder})" if folder else ""
    read = [file.path for file in files if file.is_only_read]
    lists = ("changed too", others, 4.0), ("deleted", deleted, 4.5), ("only read", read, 9.0)
    for number, (label, paths, want) in enumerate(lists, _TOLD_FILES):
        names = [path.removeprefix(folder) for path in paths[:_MOST_FILES]]
        yield from _path_lines(f"{label}{below}: ", names, (0, number), want)


def _path_lines(
    label: str, paths: Sequence[str], place: tuple[int, ...], want: float
) -> Iterator[Line]:
    """The paths on one line, the first of them where there is no room for all."""
    for number in dict.fromkeys((min(_PATHS_ON_A_LINE, len(paths)), len(paths))):
        if number:
            some = ", ".join(paths[:number])
            more = f" and {len(paths) - number} more" if number < len(paths) else ""
            is_fuller = number > _PATHS_ON_A_LINE
            yield Line(place, want + 2 * is_fuller, f"{label}{some}{more}", is_fuller=is_fuller)


def _stands(file: FileEntry, replayed: Mapping[str, ReplayedFile], folder: str) -> bool:
    """Whether the change of `file` is still one of the work; True where that is not known."""
    known = replayed.get(file.path)
    if file.path.startswith("../") or is_scratch(file.path, folder):
        return False
    if known is None:
        return True
    if not known.is_deleted:
        return known.is_changed
    # What the conversation itself made, or moved away, has left nothing behind.
    return file.states[-1] == "deleted" and known.writes == 1


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


def _told(edits: Sequence[_PutIn], text: str) -> Iterator[str]:
    """The lines of `text` that edits changed, newest first, where they have a name and a value."""
    for put_in in edits:
        at = text.find(put_in.added)
        start = text.rfind("\n", 0, max(at, 0)) + 1
        stop = text.find("\n", at + len(put_in.added))
        lines = put_in.added if at < 0 else text[start : stop if stop >= 0 else None]
        shown = head_of(" ".join(lines.split()), _EDIT_CHARS)
        if len(_WORD.findall(shown)) > 1:
            yield f"[{put_in.number}] {shown}"


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
    """The answer of a command or a tool: on one line where it is short, else its two ends."""
    rows = (row.rstrip()[:_OUTPUT_ROW_CHARS] for row in action.text.splitlines())
    lines = [row for row in rows if row.strip() and not _CHATTER.match(row)]
    shown = " / ".join(map(str.strip, lines))
    if shown.strip("(). ").lower() in ("", "no output"):
        return
    place, label = (OUTPUTS, action.number, -age), f"{action.label} [{action.number}] ->"
    if len(lines) <= _OUTPUT_LINES and len(shown) <= _OUTPUT_CHARS:
        yield Line(place, _LONG_OUTPUT_WANTS[0] + age * 0.5, f"{label} {shown}")
    elif action.use.kind != "execute" or _OUTCOME.search(lines[-1]):  # no chatter of a build
        wants = [want + age for want in _LONG_OUTPUT_WANTS]
        text = "\n".join(lines)
        yield from versions(place, f"{label}\n", text, _LONG_OUTPUT_CHARS, wants, shorten=_ends)


def _ends(text: str, chars: int) -> str:
    """`text`, or whole lines from its beginning and its end, of about `chars`."""
    if len(text) <= chars:
        return text
    head = text.rfind("\n", 0, chars // 3) + 1
    tail = text.find("\n", len(text) - 2 * chars // 3) + 1
    return f"{text[:head]}{LEFT_OUT}\n{text[tail:]}"
