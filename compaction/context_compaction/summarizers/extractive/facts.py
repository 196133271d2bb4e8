"""Facts under what they belong to: paths, tools with their records, commands with their answers.

Every fact has its owner. The same call is told by its newest answer; records of one shape share one
header. What files contain stands with the files; what came of finished turns, in the log.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from context_compaction.activity.digest import Digest
from context_compaction.activity.file_ledger import FileEntry
from context_compaction.activity.json_rows import MOST_DEPTH, members, parsed_json, table_of
from context_compaction.activity.known_file import ReplayedFile
from context_compaction.activity.shell_folder import is_scratch, work_folder
from context_compaction.messages.model import is_list, is_object
from context_compaction.summarizers.extractive.commands import is_nameless
from context_compaction.summarizers.extractive.fit import Line, versions
from context_compaction.summarizers.extractive.said import ends_of, head_of
from context_compaction.summarizers.extractive.turns import Action, Turn, is_bookkeeping

_PATHS_ON_A_LINE = 6
_MOST_FILES = 40
_ROW_CHARS = (120, 400)
_RECORD_CHARS = (100, 240, 1_000)
_RECORD_WANTS = (0.0, 1.0, 2.5)
# Where answers of commands and tools stand, behind files and records.
OUTPUTS = 2
_OUTPUT_CHARS = 300
_OUTPUT_WANT = 3.0
# What files contain stands with them, and what was found in them is looked for anew.
_TOLD_ELSEWHERE = ("read", "write", "edit", "notebook", "search", "list")
# A last line that tells what came of a run.
_OUTCOME = re.compile(r"\d")
# What hosts put around the output of a command.
_CHATTER = re.compile(
    r"(?:Wall time|Chunk ID|Output|Original token count|Total output lines"
    r"|Script (?:completed|running)|Exit code: 0|Process exited with code 0)\b.{0,40}\Z"
    r"|[.sFExX]{1,200} *\[ *\d{1,3}%\]\Z"
)
# An identifier with figures in it, or a date.
_CODE = re.compile(r"\b(?=(?:\w{0,40}?\d){2})(?=\w{0,40}[A-Za-z_])\w{5,60}\b|\b\d{4}-\d\d-\d\d")
# A value of one word, or a number that is no count; times and addresses are long and asked by none.
_CODE_VALUE = re.compile(r"(?=[^A-Za-z]{0,40}[A-Za-z])[\w/-]{4,60}|\d{4,16}")
_CODES_CHARS = 400
_WHOLE_WANT = 2.0
# The first record of all says who it is about: its codes go before what binds, the rest after
_FIRST_WANT = -0.05
_SHORT_FIRST_WANT = -0.4
_FIRST_CHARS = 160


def fact_lines(
    turns: Sequence[Turn],
    digest: Digest,
    files: Mapping[str, ReplayedFile],
    keys_later: Set[str] | None,
) -> list[Line]:
    """The lines of the facts: paths, then JSON records, then answers of commands and tools.

    Args:
        turns: The turns.
        digest: Their inventory.
        files: The files as the calls leave them.
        keys_later: The commands that what stays in full runs again; None where that begins
            another turn. What came of a finished turn stands in the log.
    """
    lines = list(_file_lines(digest, files))
    newest = turns[-1:] if keys_later is not None else ()
    running = {action.number for turn in newest for action in turn.actions}
    records: dict[str, dict[str, tuple[Action, Any]]] = {}
    outputs: dict[str, Action] = {}
    for action in (action for turn in turns for action in turn.actions):
        is_running = action.number in running
        if not action.text or action.use.kind in _TOLD_ELSEWHERE or is_bookkeeping(action.name):
            continue
        if action.failed and not (action.is_compound and is_running):
            continue  # it stands with the state
        if action.is_look or (action.effect and action.use.command):
            continue  # what was committed stands in the log
        value = parsed_json(action.text) if is_running or not action.use.command else None
        if value is not None:
            records.setdefault(action.name, {}).pop(action.label, None)
            records[action.name][action.label] = action, value
        elif is_running and not is_nameless(key := action.keys[-1]):
            outputs.pop(key, None)
            if key not in (keys_later or ()):
                outputs[key] = action
    for at, (name, found) in enumerate(records.items()):
        lines += _record_lines((1, at), name, list(found.values()))
    for age, action in enumerate(reversed(outputs.values())):
        lines += _output_lines(action, age)
    return lines


def _file_lines(digest: Digest, replayed: Mapping[str, ReplayedFile]) -> Iterator[Line]:
    """The paths of the files that were changed and deleted, newest use first."""
    files = [file for file in reversed(digest.files) if not file.is_only_read]
    folder = work_folder([file.path for file in digest.files])
    files = [file for file in files if _stands(file, replayed, folder)]
    below = f" (in {folder})" if folder else ""
    for number, (label, want) in enumerate((("changed", 1.0), ("deleted", 4.5))):
        paths = [
            file.path.removeprefix(folder)
            for file in files
            if (file.states[-1] == "deleted") == (label == "deleted")
        ][:_MOST_FILES]
        for size in dict.fromkeys((min(_PATHS_ON_A_LINE, len(paths)), len(paths))):
            if size:
                some = ", ".join(paths[:size])
                more = f" and {len(paths) - size} more" if size < len(paths) else ""
                text, is_fuller = f"{label}{below}: {some}{more}", size > _PATHS_ON_A_LINE
                yield Line((0, number), want + 2 * is_fuller, text, is_fuller=is_fuller)


def _stands(file: FileEntry, replayed: Mapping[str, ReplayedFile], folder: str) -> bool:
    """Whether the change of `file` is still one of the work; True where that is not known."""
    known = replayed.get(file.path)
    is_folder = file.states == ("deleted",) and "." not in file.path.rpartition("/")[2]
    if is_folder or file.path.startswith("../") or "*" in file.path:
        return False
    if is_scratch(file.path, folder):
        return False
    if known is None:
        return True
    if not known.is_deleted:
        return known.is_changed
    # What the conversation itself made, or moved away, has left nothing behind.
    return file.states[-1] == "deleted" and known.writes == 1


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
        is_first = place[1] + number == 0
        rank = 0.5 if is_first else len(found) - 1 - number
        label = f"{action.label} [{action.number}]: "
        codes = head_of(_codes(value), _CODES_CHARS)
        # What is asked for by its code goes before what can be said in words.
        told = "; ".join(sorted(members(value), key=lambda member: not _CODE.search(member)))
        if not codes:
            when = [rank + want for want in _RECORD_WANTS]
            yield from versions(head, label, told or "nothing", _RECORD_CHARS, when)
            continue
        short = head_of(codes, _FIRST_CHARS)
        if is_first:
            yield Line(head, _SHORT_FIRST_WANT, f"{label}{short}")
        if not is_first or short != codes:
            want = _FIRST_WANT if is_first else rank
            yield Line(head, want, f"{label}{codes}", is_fuller=is_first)
        if len(told) > _RECORD_CHARS[-1]:  # what is told already stays
            told = f"{codes}; {head_of(told, _RECORD_CHARS[-1])}"
        yield Line(head, rank + _WHOLE_WANT, f"{label}{told}", is_fuller=True)


def _codes(data: Any) -> str:
    """The codes in a JSON value, each once, under the key that it is the value of."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for key, value in _leaves(data):
        if value not in seen and _CODE_VALUE.fullmatch(value):
            seen.add(value)
            found.setdefault(key, []).append(value)
    return "; ".join(f"{key} {', '.join(values)}" for key, values in found.items())


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
    """The answer of a command or a tool; of a long one the outcome, or a report's two ends.

    What stands in a long output, the agent told in its words.
    """
    rows = (row.strip()[:_OUTPUT_CHARS] for row in action.text.splitlines())
    lines = [row for row in rows if row and not _CHATTER.match(row)]
    shown = " / ".join(lines)
    if shown.strip("(). ").lower() in ("", "no output"):
        return
    if len(shown) > _OUTPUT_CHARS and action.use.kind == "execute":
        if action.is_compound or not _OUTCOME.search(lines[-1]):
            return  # nobody knows whose it is, or chatter of a build
        shown = f"… {lines[-1]}"
    text = f"{action.label} [{action.number}] -> {ends_of(shown, _OUTPUT_CHARS)}"
    yield Line((OUTPUTS, action.number, -age), _OUTPUT_WANT + age * 0.5, text)
