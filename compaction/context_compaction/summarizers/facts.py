"""What will be needed by name: the lines that cover the most names not yet covered, per token.

What a name is worth is said in worth.py. One that stands everywhere is covered by any line.
"""

import heapq
import re
from collections.abc import Collection
from dataclasses import dataclass

from context_compaction.summarizers.focus import Focus
from context_compaction.summarizers.lines import Line, LineIndex, names_of
from context_compaction.summarizers.worth import worth_of
from context_compaction.tokens import MessageCounter

_ANCHORS = 5
_NO_CONTEXT_WEIGHT = 0.3
_CHARS_PER_TOKEN = 3.3
_LINE_TOKENS = 3

# The signs of JSON cost a third of its tokens and say nothing that its words do not.
_JSON_FIELD = re.compile(r'"[\w-]+": ')
_JSON_SIGNS = re.compile(r'["{}\[\]]')
_BULLETS = " -*\t"
_PREFIXES = {"user": "user: ", "assistant": "agent: "}


@dataclass(frozen=True, slots=True)
class Facts:
    """The chosen lines, in their order, and the names of most worth that none of them has."""

    lines: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def fact_lines(
    index: LineIndex,
    budget: int,
    count: MessageCounter,
    told: str,
    gone: Collection[str],
    focus: Focus,
) -> Facts:
    """Lines of `index` within `budget` tokens.

    Args:
        index: The lines to choose from.
        budget: Tokens for all of them.
        count: The token counter.
        told: What the summary says already: its names need no other line.
        gone: Sentences of the user that no longer hold.
        focus: How much more a line weighs than another, for what the caller wants dwelt on.
    """
    worth = {name: worth_of(name, use, index.message_count) for name, use in index.uses.items()}
    for name in names_of(told):
        worth.pop(name, None)

    def gain(line: Line) -> float:
        """At most what a token of `line` is worth: whether it can be understood is seen later."""
        names = sum(worth.get(name, 0.0) for name in line.names)
        return names * wanted[line.order]

    lines = [line for line in index.lines if not _says(line, gone)]
    shown = {line.order: _shown(line) for line in lines}
    wanted = {
        line.order: focus(line.text) / (_LINE_TOKENS + len(shown[line.order]) / _CHARS_PER_TOKEN)
        for line in lines
    }
    heap = [(-gain(line), line.order, line) for line in lines]
    heapq.heapify(heap)
    chosen: list[Line] = []
    left = budget
    while heap and left > _LINE_TOKENS * 3:
        _, order, line = heapq.heappop(heap)
        now = gain(line) * (1.0 if line.has_context() else _NO_CONTEXT_WEIGHT)
        if now <= 0:
            continue
        if heap and -now > heap[0][0]:
            heapq.heappush(heap, (-now, order, line))
            continue
        cost = count.text(shown[order]) + 1
        if cost > left:
            continue
        chosen.append(line)
        left -= cost
        for name in line.names:
            worth.pop(name, None)
    chosen.sort(key=lambda line: line.order)
    anchors = sorted(
        (name for name in worth if worth[name] and name.isascii()), key=lambda n: (-worth[n], n)
    )
    return Facts(tuple(shown[line.order] for line in chosen), tuple(anchors[:_ANCHORS]))


def _says(line: Line, gone: Collection[str]) -> bool:
    return line.speaker == "user" and any(
        sentence in line.text or line.text in sentence for sentence in gone
    )


def _shown(line: Line) -> str:
    text = line.text
    if '": ' in text and _JSON_FIELD.search(text):
        text = _JSON_SIGNS.sub("", text)
    return f"- {_PREFIXES.get(line.speaker, '')}{text.strip(_BULLETS)}"
