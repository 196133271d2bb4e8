"""The writer that needs no model: verbatim extracts in the fixed structure, deterministic.

It spends its budget on two goals: what binds (the user's requests, rules and corrections) and what
will be needed by name (lines that carry paths, identifiers, numbers and errors, each whole enough
to be understood, greedily covering the most not yet covered per token). The ledger of files,
commands and plans comes from the digest. Cost is linear in the text.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_compaction import markers
from context_compaction.messages import Message, Messages, Text, ToolResult, text_of
from context_compaction.summarizers import SummaryRequest
from context_compaction.summarizers.ledger import lines as ledger_lines
from context_compaction.summarizers.ledger import shortened, within
from context_compaction.tokens import MessageCounter

# Shares of the budget, in the order of the sections. What a section leaves goes to the facts.
_REQUEST_SHARE = 0.28
_BINDING_SHARE = 0.17
_DECISION_SHARE = 0.08
_LEDGER_SHARE = 0.17
_NEXT_SHARE = 0.08
_MIN_LINE_CHARS = 12
_MAX_LINE_CHARS = 240
_MAX_RESULT_LINES = 4_000  # of one result: beyond it, its head and tail speak for it

_BINDING = re.compile(
    r"\b(must|never|always|don'?t|do not|should(n'?t| not)?|only|prefer|avoid|instead|no longer|"
    r"please|make sure|ensure|keep|require[sd]?|forbid|allowed|not allowed|remember|from now on|"
    r"actually|rather|without|deadline|at (most|least)|no more than|"
    r"nunca|siempre|debe|no debes|prefiero|niemals|immer|muss|darf nicht|bitte|"
    r"jamais|toujours|doit|нельзя|всегда|никогда|нужно)\b"
    r"|不要|必须|请|务必|只能|不能|禁止|记住|してください|しないで|必ず|禁止|ないで",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(decided|decision|chose|choose|going with|we('ll| will) use|i('ll| will) use|instead of|"
    r"because|root cause|the (problem|issue|bug|fix) (is|was)|turns out|approach)\b",
    re.IGNORECASE,
)
# What an agent will name again: paths, identifiers with inner structure, numbers, quoted strings.
_ENTITY = re.compile(
    r"[\w.~-]*/[\w./-]+|\b\w+[._-]\w[\w.-]*|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*"
    r"|\b[A-Z0-9_]{4,}\b|\b\d[\d.,:]{2,}\b|\"[^\"\n]{3,40}\"|`[^`\n]{2,60}`|#\d+"
)
_FAILURE = re.compile(r"\b(error|failed|failure|exception|traceback|denied|not found)\b", re.I)


@dataclass(frozen=True, slots=True)
class _Line:
    """A candidate line: where it stands, who says it, what it names, its weight per token."""

    order: int
    speaker: str
    text: str
    entities: tuple[str, ...]
    weight: float


def write(request: SummaryRequest, count: MessageCounter) -> str:
    """The text of a summary, at most `request.max_tokens` by `count`; may be empty."""
    budget = request.max_tokens
    sections: list[tuple[str, list[str]]] = []
    used: set[str] = set()

    def add(title: str, lines: Iterable[str], tokens: float) -> int:
        chosen = within(lines, int(tokens), count)
        if chosen:
            sections.append((title, chosen))
            used.update(line.strip() for line in chosen)
        return _cost(chosen, count)

    spent = 0
    if not request.is_turn_prefix:
        requests = _requests(request.messages, int(budget * _REQUEST_SHARE), count)
        spent += add("Goal and latest request (verbatim)", requests, budget * _REQUEST_SHARE)
        binding = _matching(request.messages, _BINDING, "user", used)
        spent += add("Constraints and preferences (verbatim)", binding, budget * _BINDING_SHARE)
    decisions = _matching(request.messages, _DECISION, "assistant", used)
    spent += add("Decisions and findings", decisions, budget * _DECISION_SHARE)
    spent += add("Files, commands, plan", ledger_lines(request.digest), budget * _LEDGER_SHARE)
    closing = _closing(request.messages, used)
    next_lines = within(closing, int(budget * _NEXT_SHARE), count)
    spent += _cost(next_lines, count)
    if request.previous:
        spent += add("From the summary before", request.previous.splitlines(), (budget - spent) / 2)
    facts = _facts(request.messages, budget - spent - 40, count, used)
    add("Facts, errors and exact values (verbatim lines)", facts, budget - spent)
    if next_lines:
        sections.append(("Where the work stood", next_lines))
    return _assembled(sections, budget, count)


def _requests(messages: Messages, budget: int, count: MessageCounter) -> list[str]:
    """The first and the last request whole where they fit, then the others, newest first."""
    texts = [
        (at, text_of(message.blocks).strip())
        for at, message in enumerate(messages)
        if markers.is_request(message)
    ]
    texts = [(at, text) for at, text in texts if text]
    if not texts:
        return []
    order = [texts[0], *([texts[-1]] if len(texts) > 1 else []), *reversed(texts[1:-1])]
    chosen: dict[int, str] = {}
    left = budget
    for rank, (at, text) in enumerate(order):
        share = left // 2 if rank == 0 and len(order) > 1 else left
        shown = shortened(" ".join(text.split("\n")), share, count)
        if not shown:
            break
        chosen[at] = f"- {shown}"
        left -= count.text(shown) + 4
    return [chosen[at] for at in sorted(chosen)]


def _matching(messages: Messages, pattern: re.Pattern[str], role: str, used: set[str]) -> list[str]:
    """Lines of one role that match, newest first, each once."""
    found: dict[str, None] = {}
    for message in reversed(messages):
        if message.role != role or markers.is_made(message):
            continue
        for line in reversed(_sentences(text_of(message.blocks))):
            if len(line) >= _MIN_LINE_CHARS and pattern.search(line) and f"- {line}" not in used:
                found.setdefault(f"- {line[:_MAX_LINE_CHARS]}")
    return list(found)


def _sentences(text: str) -> list[str]:
    """Lines, the long ones cut into sentences."""
    out: list[str] = []
    for line in text.splitlines():
        stripped = line.strip(" \t-*>")
        if len(stripped) <= _MAX_LINE_CHARS:
            out.append(stripped)
        else:
            out.extend(part.strip() for part in re.split(r"(?<=[.!?。！？])\s*", stripped))
    return [line for line in out if line]


def _closing(messages: Messages, used: set[str]) -> list[str]:
    """The assistant's last words: what it was about to do."""
    for message in reversed(messages):
        if message.role == "assistant" and (text := text_of(message.blocks).strip()):
            lines = [f"- {line[:_MAX_LINE_CHARS]}" for line in _sentences(text)]
            return [line for line in lines[-6:] if line not in used]
    return []


def _facts(messages: Messages, budget: int, count: MessageCounter, used: set[str]) -> list[str]:
    """Lines that name things, chosen to cover the most not yet covered per token."""
    if budget <= 0:
        return []
    lines = _candidates(messages, used)
    frequency = Counter(entity for line in lines for entity in line.entities)
    size = max(1, len(lines))
    # What each name not yet covered is worth. One that recurs is worked with; one that stands
    # everywhere is noise.
    worth = {
        entity: 1 + math.log(times)
        for entity, times in frequency.items()
        if times <= max(8, size // 20)
    }

    def gain(line: _Line) -> float:
        recent = 0.6 + 0.4 * line.order / size
        names = sum(worth.get(entity, 0.0) for entity in line.entities)
        return names * recent * line.weight

    heap = [(-gain(line), line.order, line) for line in lines]
    heap = [entry for entry in heap if entry[0] < 0]
    heapq.heapify(heap)
    chosen: list[_Line] = []
    left = budget
    while heap and left > 12:
        _, order, line = heapq.heappop(heap)
        now = gain(line)
        if now <= 0:
            continue
        if heap and -now > heap[0][0]:
            heapq.heappush(heap, (-now, order, line))
            continue
        cost = count.text(line.text) + 3
        if cost > left:
            continue
        chosen.append(line)
        for entity in line.entities:
            worth.pop(entity, None)
        left -= cost
    chosen.sort(key=lambda line: line.order)
    return [f"- {line.speaker}: {line.text}" for line in chosen]


def _candidates(messages: Messages, used: set[str]) -> list[_Line]:
    lines: list[_Line] = []
    seen: set[str] = {line.removeprefix("- ") for line in used}
    for message in messages:
        if markers.is_made(message):
            continue
        for speaker, text in _spoken(message):
            raw = text.splitlines()
            if len(raw) > _MAX_RESULT_LINES:
                half = _MAX_RESULT_LINES // 2
                raw = raw[:half] + raw[-half:]
            for part in raw:
                line = part.strip()[:_MAX_LINE_CHARS]
                if len(line) < _MIN_LINE_CHARS or line in seen:
                    continue
                seen.add(line)
                # A tuple, not a set: sums over it must not depend on the hash seed.
                entities = tuple(dict.fromkeys(_ENTITY.findall(line)))
                if entities:
                    weight = (1.4 if _FAILURE.search(line) else 1.0) / (6 + len(line) / 3.5)
                    lines.append(_Line(len(lines), speaker, line, entities, weight))
    return lines


def _spoken(message: Message) -> Iterable[tuple[str, str]]:
    for block in message.blocks:
        if isinstance(block, Text):
            yield message.role, block.text
        elif isinstance(block, ToolResult) and not markers.is_placeholder(block):
            for part in block.content:
                if isinstance(part, Text):
                    yield "tool", part.text


def _cost(lines: Sequence[str], count: MessageCounter) -> int:
    return sum(count.text(line) + 1 for line in lines)


def _assembled(
    sections: list[tuple[str, list[str]]], max_tokens: int, count: MessageCounter
) -> str:
    """The sections as text; lines go from the longest section until all is within the budget."""
    while sections:
        text = "\n".join(f"## {title}\n" + "\n".join(lines) for title, lines in sections)
        excess = count.text(text) - max_tokens
        if excess <= 0:
            return text
        longest = max(range(len(sections)), key=lambda at: (len(sections[at][1]), at))
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
