"""What will be needed by name: the lines that cover the most names not yet covered, per token.

What a name is worth is said in name_weights.py. One that stands everywhere is covered by any line.
"""

import heapq
import re
from collections.abc import Collection
from dataclasses import dataclass

from context_compaction.messages.speakers import LABELS
from context_compaction.summarizers.extractive.focus import Focus
from context_compaction.summarizers.extractive.name_weights import name_weights
from context_compaction.summarizers.instructions.typed_text import without_bullet
from context_compaction.summarizers.line_index import Line, LineIndex, names_of
from context_compaction.tokens.counter import MessageCounter

_ANCHORS = 5
_NO_CONTEXT_WEIGHT = 0.3
_CHARS_PER_TOKEN = 3.3
_LINE_TOKENS = 3
# Where so many lines in a row are too long for what is left, the room is full: looking through all
# the others for a shorter one would cost more than all before.
_MOST_MISSES = 30

# The signs of JSON cost a third of its tokens and say nothing that its words do not.
_JSON_FIELD = re.compile(r'"[\w-]+": ')
_JSON_SIGNS = re.compile(r'["{}\[\]]')
_CALL = "call: "


@dataclass(frozen=True, slots=True)
class KeyLines:
    """The chosen lines, in their order, and the names of most worth that none of them has."""

    lines: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def key_lines(
    index: LineIndex,
    budget: int,
    count: MessageCounter,
    told: str,
    gone: Collection[str],
    focus: Focus,
) -> KeyLines:
    """Lines of `index` within `budget` tokens.

    Args:
        index: The lines to choose from.
        budget: Tokens for all of them.
        count: The token counter.
        told: What the summary says already: its names need no other line, nor its lines another.
        gone: Sentences of the user that no longer hold.
        focus: How much more a line weighs than another, for what the caller wants dwelt on.
    """
    # A name that is covered is worth nothing from then on.
    worth = name_weights(index.uses, index.message_count)
    worth.update((name, 0.0) for name in names_of(told) if name in worth)
    worth_of = worth.__getitem__
    lines = [line for line in index.lines if not (gone and _says(line, gone))]
    shown = [_shown(line) for line in lines]
    per_token = [
        focus(line.text) / (_LINE_TOKENS + len(text) / _CHARS_PER_TOKEN)
        for line, text in zip(lines, shown, strict=True)
    ]
    # At most what a token of a line is worth: whether it can be understood is seen later.
    heap = [(-sum(map(worth_of, line.names)) * per_token[at], at) for at, line in enumerate(lines)]
    heapq.heapify(heap)
    is_read: set[int] = set()
    chosen: list[int] = []
    left = budget
    misses = 0
    while heap and left > _LINE_TOKENS * 3 and misses < _MOST_MISSES:
        _, at = heapq.heappop(heap)
        line = lines[at]
        if at not in is_read and not line.has_context():
            per_token[at] *= _NO_CONTEXT_WEIGHT
        is_read.add(at)
        gain = sum(map(worth_of, line.names)) * per_token[at]
        if gain <= 0:
            continue
        if heap and -gain > heap[0][0]:
            heapq.heappush(heap, (-gain, at))
            continue
        if without_bullet(line.text) in told:
            continue
        cost = count.text(shown[at]) + 1
        if cost > left:
            misses += 1
            continue
        misses = 0
        chosen.append(at)
        left -= cost
        worth.update(dict.fromkeys(line.names, 0.0))
    anchors = heapq.nsmallest(
        _ANCHORS,
        (name for name, odds in worth.items() if odds and name.isascii()),
        key=lambda name: (-worth[name], name),
    )
    return KeyLines(tuple(dict.fromkeys(shown[at] for at in sorted(chosen))), tuple(anchors))


def _says(line: Line, gone: Collection[str]) -> bool:
    return line.speaker == "user" and any(
        sentence in line.text or line.text in sentence for sentence in gone
    )


def _shown(line: Line) -> str:
    text = line.text
    # What somebody said stays as it was said.
    if line.speaker not in ("user", "agent") and '": ' in text and _JSON_FIELD.search(text):
        text = _JSON_SIGNS.sub("", text).strip()
    label = _CALL if line.speaker == "call" else LABELS.get(line.speaker, "")
    return f"- {label}{without_bullet(text)}"
