"""The gates at which secrets are looked for in one call: what is archived, shown, written. Pure.

The archive itself takes them out of what it keeps; here what a writer is shown and what we put into
the context is searched. With "warn" nothing is altered, and everything is counted all the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from context_compaction.archive import AppendResult
from context_compaction.context import EditedMessages, Originals, SummaryText
from context_compaction.messages.model import JsonObject, Message, Messages
from context_compaction.redaction import (
    Gates,
    RedactionMode,
    count_secrets,
    redact_message,
    secret_values,
)
from context_compaction.result import CompactResult


def safe_words(gates: Gates, words: SummaryText) -> SummaryText:
    """A summary's text as it may stand in the context."""
    if gates.mode != "on":
        return words
    return replace(
        words,
        summary=gates.json(words.summary),
        checkpoint=gates.json(words.checkpoint),
        prose=gates.json(words.prose),
        memory=gates.json(words.memory),
    )


def safe_edits(gates: Gates, edited: EditedMessages) -> EditedMessages:
    """A list with what we wrote or edited in it as it may stand in the context."""
    if gates.mode != "on":
        return edited
    messages = tuple(redact_message(message, gates.json) for message in edited.messages)
    changed = any(new is not old for new, old in zip(messages, edited.messages, strict=True))
    return replace(edited, messages=messages) if changed else edited


def gates_of(mode: RedactionMode, parsed: Messages) -> Gates:
    """The gates of a call with this list."""
    if mode != "on":
        return Gates(mode)

    @cache
    def secrets() -> Mapping[str, str]:
        return dict(pair for m in parsed for pair in secret_values(m.source).items())

    return Gates(mode, secrets)


def redaction_report(
    mode: RedactionMode,
    parsed: Messages,
    appended: AppendResult,
    originals: Originals,
    words: SummaryText,
) -> JsonObject | None:
    """For the receipt: the mode, and how many secrets of each kind each gate met; None if none."""
    if mode == "off":
        return None
    found = {
        "archived": _counted(_new(parsed, appended)),
        "shown": _counted((*originals.history.messages, *originals.prefix.messages)),
        "summary": count_secrets((words.summary, words.checkpoint)),
    }
    if not any(found.values()):
        return None
    return {"mode": mode, **{gate: dict(kinds) for gate, kinds in found.items()}}


def with_redaction(result: CompactResult, report: JsonObject | None) -> CompactResult:
    """`result` with the counts in its receipt, and a warning where secrets were left in place."""
    if report is None:
        return result
    warnings = (*result.warnings, *_warnings(report))
    receipt = {**result.receipt, "redaction": report, "warnings": list(warnings)}
    return replace(result, receipt=receipt, warnings=warnings)


def _warnings(report: JsonObject) -> tuple[str, ...]:
    if report["mode"] != "warn" or not report["archived"]:
        return ()
    kinds: Mapping[str, int] = report["archived"]
    told = ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))
    return (
        f"What looks like {sum(kinds.values())} secrets was archived as it stands: {told}. "
        "With redaction on, they are taken out.",
    )


def _new(parsed: Messages, appended: AppendResult) -> Sequence[Message]:
    """The messages that this call wrote into the archive."""
    newest = sorted(range(len(parsed)), key=lambda at: appended.seqs[at])
    return [parsed[at] for at in newest[len(newest) - appended.written :]]


def _counted(messages: Sequence[Message]) -> Mapping[str, int]:
    """How many different secrets of each kind each message holds, all together."""
    return Counter(kind for m in messages for kind in secret_values(m.source).values())
