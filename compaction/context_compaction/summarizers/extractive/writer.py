"""The writer that needs no model: verbatim extracts in a fixed structure, deterministic.

It spends its budget on two goals that pull apart: what binds (the user's requests, rules and
corrections) and what will be needed by name, what the caller wants dwelt on first. The ledger of
files, commands and plans comes from the digest. Each section has a share of the budget; what the
others leave goes to the facts. Cost is linear in the text.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from context_compaction.messages import placeholders
from context_compaction.messages.model import Messages, text_of
from context_compaction.messages.speakers import LABELS, user_text
from context_compaction.summarizers import SummaryInput
from context_compaction.summarizers.extractive import action_log
from context_compaction.summarizers.extractive.fit import cost_of, head_of, within
from context_compaction.summarizers.extractive.focus import focus_of
from context_compaction.summarizers.extractive.key_lines import key_lines
from context_compaction.summarizers.extractive.user_requests import request_lines
from context_compaction.summarizers.instructions.find import (
    UserInstruction,
    UserInstructions,
    find_instructions,
)
from context_compaction.summarizers.instructions.typed_text import sentences_of, without_bullet
from context_compaction.summarizers.line_index import LineIndex, index_lines
from context_compaction.tokens.counter import MessageCounter

REQUESTS = "Goal, requests"
BINDING = "Constraints, preferences"
DECISIONS = "Decisions and findings"
LEDGER = "Done, files, plan"
PREVIOUS = "From the summary before"
FACTS = "Facts, errors, values"
NEXT = "Where the work stood"
DETAILS = "Where to find details"

# What the user said.
_USERS = (REQUESTS, BINDING)

# Shares of the budget. They are bounds: what a section does not use goes to the facts.
_REQUEST_SHARE = 0.12
_BINDING_SHARE = 0.7
_BINDING_TOKENS = 1_500
_DECISION_SHARE = 0.06
_LEDGER_SHARE = 0.16
# A short checkpoint is nothing without its ledger: what the running turn has done already.
_CHECKPOINT_LEDGER_SHARE = 0.25
_NEXT_SHARE = 0.06
_PREVIOUS_SHARE = 0.5
# Below this many tokens a section of its own costs more than its lines are worth.
_SMALL_TOKENS = 600
_TITLE_TOKENS = 6
# Only so many of the newest compete for their share of the room.
_MOST_DECISIONS = 60
_CLOSING_LINES = 6
_MIN_LINE_CHARS = 12
_MAX_LINE_CHARS = 240
# For the search anchors, and for naming what is empty.
_ANCHOR_TOKENS = 40
# A sentence of the user below this rank is chatter.
_RULE_RANK = 0.5

_DECISION = re.compile(
    r"\b(decided|decision|chose|choose|going with|we('ll| will) use|i('ll| will) use|instead of|"
    r"because|root cause|the (problem|issue|bug|fix) (is|was)|turns out|approach|rejected|"
    r"ruled out|won't work|doesn't work|the (answer|result|flag|cause) is)\b"
    r"|因为|决定|原因|理由|決定"
    r"|weil|Ursache|entschieden|porque|decidido|parce que|потому что|решил",
    re.IGNORECASE,
)


def write(request: SummaryInput, count: MessageCounter) -> str:
    """The text of a summary, at most `request.max_tokens` by `count`; may be empty."""
    budget = request.max_tokens
    index = index_lines(request.messages)
    focus = focus_of(request.instructions, [line.text for line in index.lines])
    bindings = find_instructions(request.messages, later=request.later, index=index)
    pinned = _sentences(request.pinned)
    sections: dict[str, list[str]] = {}
    told: set[str] = set()
    left = budget

    def add(title: str, lines: Iterable[str], share: float) -> None:
        nonlocal left
        allowed = min(left, int(budget * share)) - _TITLE_TOKENS
        chosen = within(_untold(lines, told), allowed, count) if allowed > 0 else []
        if chosen:
            sections[title] = chosen
            left -= cost_of(chosen, count) + _TITLE_TOKENS

    is_large = budget >= _SMALL_TOKENS
    if budget > 0 and not request.is_turn_prefix:
        room_tokens = int(budget * _REQUEST_SHARE)
        asked = request_lines(request.messages, room_tokens, count, bindings, pinned)
        add(REQUESTS, asked.lines, _REQUEST_SHARE)
        share = min(_BINDING_SHARE, _BINDING_TOKENS / budget)
        add(BINDING, _binding_lines(bindings, pinned | asked.sentences), share)
        _in_order(sections, bindings, request.messages)
    if is_large or request.is_turn_prefix:
        share = _LEDGER_SHARE if is_large else _CHECKPOINT_LEDGER_SHARE
        add(LEDGER, action_log.lines(request.digest), share)
    else:
        add(LEDGER, action_log.short_lines(request.digest), _LEDGER_SHARE)
    if is_large:
        add(NEXT, _closing_lines(request.messages), _NEXT_SHARE)
        closing = "\n".join(sections.get(NEXT, ()))
        decided = sorted(_decision_lines(index, closing), key=focus, reverse=True)
        add(DECISIONS, decided, _DECISION_SHARE)
    if request.previous:
        add(PREVIOUS, request.previous.splitlines(), _PREVIOUS_SHARE)
    left -= _TITLE_TOKENS + (_ANCHOR_TOKENS if is_large else 0)
    replaced = bindings.superseded | bindings.earlier
    written = "\n".join(line for lines in sections.values() for line in lines)
    facts = key_lines(index, left, count, "\n".join((written, *request.pinned)), replaced, focus)
    if facts.lines:
        sections[FACTS] = list(facts.lines)
    order = (REQUESTS, BINDING, DECISIONS, LEDGER, PREVIOUS, FACTS, NEXT)
    if is_large:
        wanted = () if request.is_turn_prefix else (REQUESTS, BINDING)
        empty = [title for title in (*wanted, DECISIONS, LEDGER, FACTS) if title not in sections]
        sections[DETAILS] = _detail_lines(facts.left_out, empty)
    return _assembled(
        [(title, sections[title]) for title in (*order, DETAILS) if sections.get(title)],
        budget,
        count,
    )


def _sentences(texts: Sequence[str]) -> frozenset[str]:
    """The sentences of `texts`, and these themselves."""
    found = (sentence.text for text in texts for sentence in sentences_of(text))
    return frozenset((*texts, *found))


def _untold(lines: Iterable[str], told: set[str]) -> Iterator[str]:
    """Those of `lines` that are not told yet; they are from then on."""
    for line in lines:
        if line not in told:
            told.add(line)
            yield line


def _binding_lines(bindings: UserInstructions, said: Collection[str]) -> Iterable[str]:
    """What binds, best first, without the sentences that the summary has already."""
    for binding in bindings.standing:
        if binding.rank >= _RULE_RANK and binding.text not in said:
            yield f"- {bindings.shown(binding.text)}"


def _in_order(
    sections: dict[str, list[str]], bindings: UserInstructions, messages: Messages
) -> None:
    """What binds, in the order in which it was said; what was said together, on one line."""
    flat: dict[int, str] = {}
    chosen = {line.removeprefix("- ") for line in sections.pop(BINDING, ())}
    said = [binding for binding in bindings.standing if bindings.shown(binding.text) in chosen]
    whole = chosen - {bindings.shown(binding.text) for binding in said}  # the first, shortened
    lines = [f"- {text}" for text in whole]
    last: UserInstruction | None = None
    for binding in sorted(said, key=lambda binding: binding.order):
        if binding.turn not in flat:
            flat[binding.turn] = " ".join(user_text(messages[binding.turn]).split())
        if last and f"{last.text} {binding.text}" in flat[binding.turn]:
            lines[-1] += f" {bindings.shown(binding.text)}"
        else:
            lines.append(f"- {bindings.shown(binding.text)}")
        last = binding
    if lines:
        sections[BINDING] = lines


def _detail_lines(left_out: Sequence[str], empty: Sequence[str]) -> list[str]:
    """How to find what is not here, and which parts had nothing to say."""
    lines = [f"- search_transcript finds more: {', '.join(left_out)}"] if left_out else []
    if empty:
        lines.append(f"- Nothing found for: {'; '.join(empty)}")
    return lines


def _decision_lines(index: LineIndex, closing: str) -> Iterator[str]:
    """The agent's lines that give reasons, newest first, but for those of his last words."""
    said = (line for line in reversed(index.lines) if line.speaker == "agent")
    texts = (without_bullet(line.text) for line in said if _DECISION.search(line.text))
    found = (f"- {LABELS['agent']}{text}" for text in texts if text not in closing)
    return islice(found, _MOST_DECISIONS)


def _closing_lines(messages: Messages) -> list[str]:
    """The agent's last words: what it was about to do."""
    for message in reversed(messages):
        if message.role == "assistant" and not placeholders.is_synthetic(message):
            lines = [line.strip() for line in text_of(message.blocks).splitlines()]
            closing = [line for line in lines if len(line) >= _MIN_LINE_CHARS][-_CLOSING_LINES:]
            if closing:
                shown = (without_bullet(head_of(line, _MAX_LINE_CHARS)) for line in closing)
                return [f"- {LABELS['agent']}{line}" for line in shown]
    return []


def _assembled(
    sections: list[tuple[str, list[str]]], max_tokens: int, count: MessageCounter
) -> str:
    """The sections as text; lines go from the longest section until all is within the budget.

    What the user said goes last: its newest lines stand at the end.
    """
    while sections:
        text = "\n".join(f"## {title}\n" + "\n".join(lines) for title, lines in sections)
        excess = count.text(text) - max_tokens
        if excess <= 0:
            return text
        longest = max(
            range(len(sections)),
            key=lambda at: (sections[at][0] not in _USERS, len(sections[at][1]), at),
        )
        title, lines = sections[longest]
        while lines and excess > 0:
            excess -= count.text(lines[-1])
            lines = lines[:-1]
        sections = [
            (title, lines) if at == longest else section
            for at, section in enumerate(sections)
            if at != longest or lines
        ]
    return ""
