"""The work of turns that have no entries of their own any more, as one line."""

from collections import Counter
from collections.abc import Iterator, Sequence

from context_compaction.summarizers import Tally
from context_compaction.summarizers.extractive.deeds import VERBS, deeds_of, effects_of, short_names
from context_compaction.summarizers.extractive.fit import Line, versions
from context_compaction.summarizers.extractive.said import head_of
from context_compaction.summarizers.extractive.turns import Turn

# So many names and effects are counted, so much is told.
_MOST_NAMES = 24
_MOST_EFFECTS = 12
_TALLY_CHARS = (240, 800)
_TALLY_WANT = 0.0


def tallied(before: Tally, turns: Sequence[Turn], numbers: Sequence[int]) -> Tally:
    """`before` with the work of `turns`, whose messages have these `numbers`."""
    names = short_names(turns)
    done = [deed for turn in turns for action in turn.actions for deed in deeds_of(action, names)]
    deeds = {verb: Counter(name for of, name in done if of == verb) for verb in VERBS}
    effects = tuple(effect for turn in turns for effect in effects_of(turn, {}))
    first, last = min(numbers, default=-1), max(numbers, default=-1)
    return merged([before, Tally(first, last, deeds, effects)])


def merged(tallies: Sequence[Tally]) -> Tally:
    """The sum of `tallies`, which are given oldest first: the most frequent, the newest effects."""
    deeds: dict[str, Counter[str]] = {}
    for tally in tallies:
        for verb, done in tally.deeds.items():
            deeds.setdefault(verb, Counter()).update(done)
    numbers = [n for tally in tallies for n in (tally.first, tally.last) if n >= 0]
    effects = [effect for tally in tallies for effect in tally.effects]
    return Tally(
        min(numbers, default=-1),
        max(numbers, default=-1),
        {verb: dict(done.most_common(_MOST_NAMES)) for verb, done in deeds.items() if done},
        tuple(dict.fromkeys(reversed(effects)))[:_MOST_EFFECTS][::-1],
    )


def tally_lines(tally: Tally) -> Iterator[Line]:
    """The lines of turns without entries: their work, and what must not be repeated."""
    label = f"[{tally.first}-{tally.last}] "
    told = [
        f"{verb} {', '.join(map(_times, done.items()))}"
        for verb in VERBS
        if (done := tally.deeds.get(verb))
    ]
    if told:
        texts = (head_of("; ".join(told), chars) for chars in _TALLY_CHARS)
        yield from versions((-2, 0), label, texts, (_TALLY_WANT, 2.0))
    if tally.effects:
        text = f"{label}done, do not repeat: {'; '.join(tally.effects)}"
        yield Line((-2, 1), _TALLY_WANT, text)


def _times(item: tuple[str, int]) -> str:
    return item[0] if item[1] == 1 else f"{item[0]} x{item[1]}"
