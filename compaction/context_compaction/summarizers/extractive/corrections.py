"""Which of the agent's words a later message takes back: the agent's own, or the user's "no".

Only plain words count, and only what was said in the same turn or the one before: a mark that is
wrong costs more trust than one that is missing.
"""

import re
from collections.abc import Mapping, Sequence

from context_compaction.summarizers.extractive.said import named_in
from context_compaction.summarizers.extractive.turns import Turn

# How agents take back what they have said; other words are no sure sign.
_TAKES_BACK = re.compile(
    r"\b(?:I was (?:wrong|mistaken)|correct myself|I (?:had )?(?:claimed|assumed)"
    r"|my (?:\S{1,20} ){1,4}(?:was|were|is) (?:\S{1,20} ){0,3}(?:wrong|mistaken|a guess)"
    r"|Korrektur zu (?:\S{1,20} )?meine[rn]?|habe mich geirrt"
    r"|meine? (?:\S{1,20} ){1,3}war(?:en)? falsch)\b",
    re.IGNORECASE,
)
_ABOUT_CHARS = 240
_DISAGREES = re.compile(
    r"\W{0,3}(?:no|nope|nah|nein|non|нет|wrong|that'?s not)\b(?! (?:problem|worries|need|rush))",
    re.IGNORECASE,
)


def marks_of(turns: Sequence[Turn]) -> Mapping[int, str]:
    """By the number of a message of the agent what precedes its words in the log."""
    marks: dict[int, str] = {}
    before: list[tuple[int, str]] = []
    for turn in turns:
        here: list[tuple[int, str]] = []
        if before and _DISAGREES.match(turn.asked):
            marks[before[-1][0]] = f" (the user disagrees at [{turn.number}])"
        for step in turn.steps:
            if found := _TAKES_BACK.search(step.said):
                start = max(0, found.start() - _ABOUT_CHARS // 2)
                about = named_in(step.said[start : found.end() + _ABOUT_CHARS])
                shared = {number: len(about & named_in(said)) for number, said in (*before, *here)}
                most = max(shared.values(), default=0)
                mark = f" (corrected at [{step.number}])"
                marks.update({n: mark for n, size in shared.items() if size == most > 0})
            if step.said.strip():
                here.append((step.number, step.said))
        before = here
    return marks
