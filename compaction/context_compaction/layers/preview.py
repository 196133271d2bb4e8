"""What stays in the context of a large output: a preview made for its kind, within a budget.

The kind is told from the text itself: JSON shows its shape, a table its header and rows, a log its
errors and end, a diff its files, code its outline; anything else its head and tail. Whatever the
kind, lines are verbatim, and gaps say how much they leave out.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

from context_compaction.activity.error_line import ERROR, LINE_CHARS, scanned

_EXIT = re.compile(r"\b(exit(ed)?( with)?( code| status)?|return ?code)\b\D{0,4}\d+", re.IGNORECASE)


_OUTLINE = re.compile(
    r"^\s*(export |public |private |protected |static |async |abstract |default )*"
    r"(def|class|function|func|fn|interface|struct|enum|impl|trait|type|module|namespace)\b"
)


_DIFF_FILE = re.compile(r"^(diff --git |\+\+\+ |--- |Index: )")


_TIMESTAMP = re.compile(
    r"^\W?\d{4}-\d\d-\d\d[T ]\d\d:|^\W?\d\d:\d\d:\d\d|^\[?(INFO|WARN|DEBUG|ERROR)"
)


def preview(text: str, *, max_chars: int = 2_000) -> str:
    """At most about `max_chars` characters that show what `text` is."""
    if len(text) <= max_chars:
        return text
    shape = _json_shape(text, max_chars)
    if shape is not None:
        return shape
    lines = scanned(text).split("\n")
    chosen = _chosen_lines(lines)
    if chosen:
        head_chars, tail_chars = max_chars // 5, max_chars // 5
        middle = _within(chosen, max_chars - head_chars - tail_chars)
        head, tail = head_and_tail(text, head_chars, tail_chars)
        return f"{head}\n… lines that matter:\n{middle}\n… end:\n{tail}"
    head, tail = head_and_tail(text, max_chars * 2 // 3, max_chars // 3)
    return f"{head}\n… {len(text) - len(head) - len(tail)} chars left out …\n{tail}"


def head_and_tail(text: str, head_chars: int, tail_chars: int) -> tuple[str, str]:
    """The beginning and the end of `text`, each cut at a line where one is near."""
    head, tail = text[:head_chars], text[len(text) - tail_chars :]
    head_break = head.rfind("\n", head_chars // 2)
    if head_break > 0:
        head = head[:head_break]
    tail_break = tail.find("\n", 0, tail_chars // 2)
    if tail_break >= 0:
        tail = tail[tail_break + 1 :]
    return head, tail


def _chosen_lines(lines: Sequence[str]) -> list[str]:
    """The lines that matter for the kind of text this is; none for plain prose."""
    head = lines[:400]
    if sum(1 for line in head if _DIFF_FILE.match(line)) >= 2:
        return _diff_stat(lines)
    stamped = sum(1 for line in head if _TIMESTAMP.match(line))
    errors = [line for line in lines if ERROR.search(line) or _EXIT.search(line)]
    if stamped >= max(5, len(head) // 3) or 0 < len(errors) <= len(lines) // 4:
        return errors
    outline = [line for line in lines if _OUTLINE.match(line)]
    if len(outline) >= 3:
        return outline
    return _table_rows(head)


def _diff_stat(lines: Sequence[str]) -> list[str]:
    """One line a file: its name, and how many lines come and go."""
    stat: list[str] = []
    name, added, removed = "", 0, 0
    for line in [*lines, "+++ "]:
        if line.startswith("+++ "):
            if name:
                stat.append(f"{name} +{added} -{removed}")
            name, added, removed = line[4:].split("\t")[0], 0, 0
        elif line.startswith("+"):
            added += 1
        elif line.startswith("-") and not line.startswith("--- "):
            removed += 1
    return stat


def _table_rows(lines: Sequence[str]) -> list[str]:
    """The header and first rows of delimited text."""
    for mark in ("\t", ",", "|", ";"):
        counts = [line.count(mark) for line in lines[:20] if line]
        if len(counts) >= 5 and counts[0] >= 2 and counts.count(counts[0]) >= len(counts) * 0.8:
            return list(lines[:12])
    return []


def _within(lines: Iterable[str], max_chars: int) -> str:
    """As many distinct `lines` as fit, the rest counted."""
    unique = list(dict.fromkeys(line.rstrip()[:LINE_CHARS] for line in lines))
    shown: list[str] = []
    used = 0
    for line in unique:
        if used + len(line) + 1 > max_chars:
            break
        shown.append(line)
        used += len(line) + 1
    if len(shown) < len(unique):
        shown.append(f"… {len(unique) - len(shown)} more such lines")
    return "\n".join(shown)


def _json_shape(text: str, max_chars: int) -> str | None:
    """Keys, types and sizes of a JSON text, with the first items; None where it is not JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "JSON " + _shape(value, depth=3, max_chars=max_chars)[:max_chars]


def _shape(value: Any, *, depth: int, max_chars: int) -> str:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        if depth == 0:
            return f"{{{len(items)} keys}}"
        share = max(40, max_chars // max(1, len(items)))
        parts = [
            f"{json.dumps(key)}: {_shape(item, depth=depth - 1, max_chars=share)}"
            for key, item in list(items.items())[:40]
        ]
        more = f", … {len(items) - 40} more keys" if len(items) > 40 else ""
        return "{" + ", ".join(parts) + more + "}"
    if isinstance(value, list):
        entries = cast("Sequence[Any]", value)
        if not entries or depth == 0:
            return f"[{len(entries)} items]"
        first = _shape(entries[0], depth=depth - 1, max_chars=max_chars // 2)
        return f"[{len(entries)} items, the first: {first}]"
    shown = json.dumps(value, ensure_ascii=False)
    limit = min(max(40, max_chars), LINE_CHARS)
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown)} chars)"
