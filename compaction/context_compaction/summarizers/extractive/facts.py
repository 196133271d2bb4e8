"""Facts under what they belong to: files with what they define, tools with their records, commands.

Nothing stands here without its owner. A file is told by its last state, so far as that is known;
the same call is told by its newest answer; records of one shape share one header.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from context_compaction.activity.digest import Digest
from context_compaction.activity.file_ledger import FileEntry
from context_compaction.activity.file_replay import ReplayedFile
from context_compaction.messages.model import is_list, is_object, named_arguments
from context_compaction.summarizers.extractive.fit import Line, head_of, versions
from context_compaction.summarizers.extractive.turns import Action, Turn
from context_compaction.summarizers.instructions.typed_text import LEFT_OUT

# So much of a file's hash tells two states of it apart.
HASH_CHARS = 8
_PATHS_ON_A_LINE = 6
_ROW_CHARS = (120, 400)
_RECORD_CHARS = (200, 600, 2_000)
_RECORD_WANTS = (0.0, 1.0, 4.0)
# What is nested deeper is left out.
_MOST_DEPTH = 8
# Fewer records than these are told with their keys.
_TABLE_ROWS = 3
# A longer member of a record is told by its own members.
_MEMBER_CHARS = 160
_OUTPUT_CHARS = 240
_OUTPUT_LINES = 3
_SIGNATURE_CHARS = 140
_JSON_CHARS = 100_000
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
        value = _parsed(action.text)
        if value is not None:
            records.setdefault(action.name, {}).pop(action.label, None)
            records[action.name][action.label] = action, value
        else:
            outputs.pop(action.label, None)
            outputs[action.label] = action
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
    data = _parsed(text)
    if data is not None:
        return [head_of(told, _ROW_CHARS[-1]) for told in _members(data)]
    found = (
        f"{'  ' * line[:1].isspace()}{line.strip(_INDENT_AND_BRACE)}"
        for line in text.splitlines()
        if _DEFINITION.match(line)
    )
    return [line[:_SIGNATURE_CHARS] for line in dict.fromkeys(found)][:_MOST_DEFINITIONS]


def _members(data: Any, depth: int = 0) -> Iterator[str]:
    """The members of a JSON value, one line each; those of a long one by its own members."""
    members = data if is_list(data) else []
    pairs = data.items() if is_object(data) else ((n, item) for n, item in enumerate(members, 1))
    for key, value in pairs:
        told = _shown(value)
        if len(told) > _MEMBER_CHARS and is_object(value) and depth < _MOST_DEPTH:
            yield from (f"{key} {member}" for member in _members(value, depth + 1))
        elif told:
            yield f"{key}: {told}"


def _record_lines(
    place: tuple[int, ...], name: str, found: Sequence[tuple[Action, Any]]
) -> Iterator[Line]:
    """The answers of one tool: one header and a row each, where all have one shape."""
    shapes = {tuple(value) if is_object(value) else () for _, value in found}
    if len(found) >= _TABLE_ROWS and len(shapes) == 1 and (keys := next(iter(shapes))):
        head = (*place, 0)
        for number, (action, value) in enumerate(reversed(found)):
            values = " | ".join(_shown(value[key]) for key in keys)
            # A header alone says nothing: it stands with the first row.
            label = f"[{action.number}] "
            label = f"  {label}" if number else f"{name}: {' | '.join(keys)}\n{label}"
            wants = number * 0.2, 2 + number * 0.5
            under = head if number else None
            yield from versions((*place, number), label, values, _ROW_CHARS, wants, under)
        return
    for number, (action, value) in enumerate(found):
        head = (*place, number)
        # The newest first; but the first record of all says who it is about.
        rank = 1 if place[1] + number == 0 else 2 * (len(found) - 1 - number)
        label = f"{action.label} [{action.number}]: "
        records = _rows(value)
        if not records:
            told = "; ".join(_members(value)) or "nothing"
            when = [rank * 0.5 + want for want in _RECORD_WANTS]
            yield from versions(head, label, told, _RECORD_CHARS, when)
            continue
        yield Line(head, rank * 0.5, f"{label}{' | '.join(records[0])}\n{_row(records[0])}")
        for at, record in enumerate(records[1:], 1):
            yield Line((*head, at), rank * 0.5 + at * 0.3, f"  {_row(record)}", head)


def _row(record: Mapping[str, Any]) -> str:
    return f"{head_of(' | '.join(map(_shown, record.values())), _ROW_CHARS[-1])}"


def _rows(value: Any) -> list[dict[str, Any]]:
    """The records of a list in which all have one shape; none otherwise."""
    if not is_list(value) or len(value) < _TABLE_ROWS or not all(is_object(item) for item in value):
        return []
    return value if len({tuple(item) for item in value}) == 1 and value[0] else []


def _shown(value: Any, depth: int = 0) -> str:
    """A JSON value without the signs that its words do not need."""
    if depth > _MOST_DEPTH:
        return LEFT_OUT
    if is_object(value):
        inner = ", ".join(f"{key}: {_shown(item, depth + 1)}" for key, item in value.items())
        return f"({inner})" if inner else ""
    if records := _rows(value):
        rows = ("/".join(_shown(item, depth + 1) for item in row.values()) for row in records)
        return f"[{'/'.join(records[0])}: {'; '.join(rows)}]"
    if is_list(value):
        return ", ".join(_shown(item, depth + 1) for item in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())


def _output_lines(action: Action, age: int) -> Iterator[Line]:
    """What a command or a tool answered: all where it is short, else how it begins and ends."""
    lines = [line.strip() for line in action.text.splitlines() if line.strip()]
    if not lines:
        return
    shown = " / ".join(lines)
    is_short = len(lines) <= _OUTPUT_LINES and len(shown) <= _OUTPUT_CHARS
    if shown.strip("(). ").lower() == "no output":
        return
    if not is_short:
        if action.use.kind == "execute" and not action.is_look and not _OUTCOME.search(lines[-1]):
            return  # the chatter of a build
        half = _OUTPUT_CHARS // 2
        last = lines[-1] if len(lines) > 1 else ""
        shown = f"{head_of(lines[0], half)} … {head_of(last, half)}".strip(" …")
    want = 3 + age * 0.5 + (12 if action.is_look or not is_short else 0)
    yield Line((2, action.number, -age), want, f"{action.label} [{action.number}] -> {shown}")


def _parsed(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[") or len(text) > _JSON_CHARS:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_object(value) or is_list(value) else None


def _first(given: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((given[key] for key in keys if isinstance(given.get(key), str)), None)
