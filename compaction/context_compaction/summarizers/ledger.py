"""The machine's ledger of a summary: plan, files, commands and errors, as lines within a budget."""

from collections.abc import Iterable

from context_compaction.digest import Digest
from context_compaction.tokens import MessageCounter


def lines(digest: Digest) -> list[str]:
    """One line a fact, most wanted first, newest first among equals."""
    found = [f"- plan: {item}" for item in digest.plan]
    if digest.in_flight:
        found.append("- in flight: " + "; ".join(digest.in_flight[-5:]))
    for title, paths in (
        ("changed", digest.edited),
        ("written", digest.written),
        ("read", digest.read),
    ):
        if paths:
            found.append(f"- {title}: " + ", ".join(reversed(paths)))
    for run in reversed(digest.runs):
        state = "unanswered" if run.failed is None else "failed" if run.failed else "done"
        found.append(f"- ran ({state}): {run.command}" + (f" -> {run.error}" if run.error else ""))
    found.extend(f"- failed: {error}" for error in reversed(digest.errors))
    if digest.other_calls:
        calls = ", ".join(f"{name} x{number}" for name, number in digest.other_calls)
        found.append(f"- other calls: {calls}")
    return found


def within(lines: Iterable[str], tokens: int, count: MessageCounter) -> list[str]:
    """The first lines that fit; a first line that is too long is shortened."""
    chosen: list[str] = []
    left = tokens
    for line in lines:
        cost = count.text(line) + 1
        if cost <= left:
            chosen.append(line)
            left -= cost
        elif not chosen and (shorter := shortened(line, left - 2, count)):
            return [shorter]
        if left < 8:
            break
    return chosen


def shortened(text: str, tokens: int, count: MessageCounter) -> str:
    """`text`, or its beginning and end where it is too long; empty where even that is too much."""
    if count.text(text) <= tokens:
        return text
    if tokens < 12:
        return ""
    chars = max(8, len(text) * tokens // (count.text(text) + 1) * 9 // 10)
    return f"{text[: chars * 2 // 3]} […] {text[len(text) - chars // 3 :]}"
