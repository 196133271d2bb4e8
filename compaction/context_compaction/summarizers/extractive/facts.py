"""Facts under what they belong to: files with what they define, tools with their records, commands.

Nothing stands here without its owner. A file is told by its last state, so far as that is known;
the same call is told by its newest answer; records of one shape share one header.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_compaction.activity.digest import Digest
from context_compaction.activity.file_ledger import FileEntry
from context_compaction.activity.json_rows import MOST_DEPTH, members, parsed_json, table_of
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.tool_kinds import is_steering
from context_compaction.messages.model import is_list, is_object, named_arguments
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
_MOST_FILES = 40
_MOST_EDITS = 4
_EDIT_CHARS = 220
_MOST_DEFINITIONS = 60

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
# The first record of all says who it is about: it goes before what all sections have to tell.
_FIRST_WANT = -0.05
_INDENT_AND_BRACE = " \t{:"
_NEW_KEYS = ("new_string", "newText", "new_str", "newString", "new_text")


def fact_lines(
    turns: Sequence[Turn], digest: Digest, files: Mapping[str, ReplayedFile]
) -> list[Line]:
    """The facts: files, then records, then what commands and tools answered."""
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
    """The files, newest use first: their state, what was put in last, what they define."""
    texts = {path: file.text for path, file in replayed.items() if file.is_sure}
    edits: dict[str, list[tuple[int, str]]] = {}
    for action in actions:
        new = _first(named_arguments(action.call), _NEW_KEYS) if action.call else None
        if new and action.use.path and action.failed is False:
            edits.setdefault(action.use.path, []).append((action.number, new))
    files = list(reversed(digest.files))
    changed = [file for file in files if not file.is_only_read][:_MOST_FILES]
    for at, file in enumerate(changed):
        place = (0, at, 0)
        text = texts.get(file.path)
        yield Line(place, at * 0.5, f"{file.path} ({_states(file)})")
        for number, told in enumerate(_definitions(text or "")):
            yield Line((0, at, 1, number), 2 + at + number * 0.2, f"  {told}", place)
        for number, told in enumerate(_standing(edits.get(file.path, []), text)):
            yield Line((0, at, 2, -number), 1.5 + at + number * 2, told, place)
    read = [file.path for file in files if file.is_only_read]
    for start in range(0, min(len(read), _MOST_FILES), _PATHS_ON_A_LINE):
        some = read[start : start + _PATHS_ON_A_LINE]
        yield Line((0, _MOST_FILES, start), 5 + start * 0.5, f"only read: {', '.join(some)}")


def _standing(edits: Sequence[tuple[int, str]], text: str | None) -> Iterator[str]:
    """What edits put in and what still stands, newest first; of an unknown text the last alone."""
    for at, (number, new) in enumerate(reversed(edits[-_MOST_EDITS:])):
        if (new in text) if text is not None else at == 0:
            yield f"  put in at [{number}]: {head_of(' '.join(new.split()), _EDIT_CHARS)}"


def _states(file: FileEntry) -> str:
    known = f"; sha256 {file.sha256[:HASH_CHARS]}" if file.sha256 else ""
    return f"{', '.join(file.states)}{known}"


def _definitions(text: str) -> list[str]:
    """The lines of `text` that define something, as they stand; of data, its keys and values."""
    data = parsed_json(text)
    if data is not None:
        return [head_of(told, _ROW_CHARS[-1]) for told in members(data)]
    found = (
        f"{'  ' * line[:1].isspace()}{line.strip(_INDENT_AND_BRACE)}"
        for line in text.splitlines()
        if _DEFINITION.match(line)
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
    """What a command or a tool answered: all where it is short, else how it begins and ends."""
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


def _first(given: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((given[key] for key in keys if isinstance(given.get(key), str)), None)
