"""Whether what the user laid down is still in the context after compaction, word for word.

Run: python benchmarks/constraints.py SET [--ours] [--lost], with a SET of `SETS`, else building;
`--ours` leaves the controls out.

Into real histories of about 40,000 tokens (a coding session, joined runs of a coding agent, joined
calls of a service agent) rules are put at the top, in the middle and at the bottom, half of them
as turns of their own, half inside another request. The default pipeline brings each history to
2,000 tokens: at once, and in five rounds on the growing transcript. A rule is kept where the output
has each of its sentences word for word.

Of each correction the older rule is looked for in the words of the compaction (a message of the
user that is kept as it was is not ours to change). It is *dropped* where they have it no more,
*marked* where each place that has it says that it is replaced, *before* the newer one where it
stands as it was said and the newer one after it, else left *standing*.
Companions are two rules on one subject that both hold: both must be kept; a mark on the older one
does no harm, but is counted, and so is one on a rule that has nothing to do with any other.
The controls get the same number of tokens. Tokens are those of o200k_base.
"""

import random
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeAlias

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.messages import placeholders
from context_compaction.messages.model import text_of
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.summarizers.instructions.sentences import sentences_of
from context_compaction.tokens.counter import counter_for

from benchmarks.constraint_phrasings import (
    BUILDING,
    CORRECTIONS,
    SECOND,
    SECOND_CORRECTIONS,
)
from benchmarks.constraint_rewordings import COMPANIONS, REWORDED
from benchmarks.constraints_fourth import (
    FOURTH,
    FOURTH_COMPANIONS,
    FOURTH_CORRECTIONS,
)
from benchmarks.constraints_held_back import HELD_BACK, HELD_BACK_CORRECTIONS
from benchmarks.constraints_third import THIRD, THIRD_COMPANIONS, THIRD_CORRECTIONS
from benchmarks.controls import CONTROLS
from benchmarks.needed import spoken
from tests.support.corpus import all_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive

Pair: TypeAlias = tuple[str, str]

MODEL = "gpt-4o"
HISTORY_TOKENS = 40_000
TARGET_TOKENS = 2_000
ROUNDS = 5
POSITIONS = {"top": 0.04, "middle": 0.5, "bottom": 0.85}
RULES_EACH = 5  # rules at each position of one history
CORRECTIONS_EACH = 3
COMPANIONS_EACH = 3
# Joined histories: which transcripts, from which of them on.
JOINED = (
    ("swe-agent/", 0),
    ("swe-agent/", 9),
    ("tau-bench/airline-task", 0),
    ("tau-bench/airline-task", 40),
    ("tau-bench/airline-task", 75),
)
TRIALS = 3  # draws of rules for each history
# Rules, corrections (older, newer), companions (older, newer).
SETS: dict[str, tuple[Sequence[str], Sequence[Pair], Sequence[Pair]]] = {
    "building": (BUILDING, CORRECTIONS, ()),
    "second": (SECOND, SECOND_CORRECTIONS, ()),
    "held-back": (HELD_BACK, HELD_BACK_CORRECTIONS, ()),
    "third": (THIRD, THIRD_CORRECTIONS, THIRD_COMPANIONS),
    "fourth": (FOURTH, FOURTH_CORRECTIONS, FOURTH_COMPANIONS),
    "reworded": ((*BUILDING, *SECOND), REWORDED, COMPANIONS),
}
OURS = "ours"
_MARK_END = re.compile(r"\((?:changed|replaced)(?:: \[\d+\]| later)\) \Z")
_MARK_CHARS = 40
STANDING = "older standing"
# What a share near 0 is wanted of; of everything else, one near 1.
UNWANTED = (STANDING, "rules marked", "companions marked")
COLUMNS = (
    *POSITIONS,
    "corrections",
    "companions",
    STANDING,
    "older before",
    "older marked",
    "older dropped",
    "rules marked",
    "companions marked",
)
NAMED_CONTROLS = ("random lines", "keep last", "head + tail", "TextRank (sumy)")


@dataclass(frozen=True, slots=True)
class Laid:
    """What was put into one history: rules by position, and corrections."""

    payload: list[Json]
    format: str
    rules: dict[str, list[str]]
    corrections: list[Pair]
    companions: list[Pair]


def histories() -> Iterator[tuple[str, list[Json]]]:
    """Real histories of the wished size, by format."""
    transcripts = all_transcripts()
    pi = next(item for item in transcripts if item.format == "pi")
    for start in (0, 250, 500):
        yield "pi", _of_size("pi", pi.payload[start:])
    for prefix, skip in JOINED:
        runs = [item.payload for item in transcripts if item.name.startswith(prefix)][skip:]
        joined = [message for run in runs for message in run if message["role"] != "system"]
        yield "openai-chat", _of_size("openai-chat", joined)


def _of_size(format: str, payload: list[Json]) -> list[Json]:
    """From the first request on, as many messages as make `HISTORY_TOKENS`; ends with an answer."""
    start = next(at for at, message in enumerate(payload) if message["role"] == "user")
    payload = payload[start:]
    count = counter_for(MODEL)
    sizes = accumulate(count.message(message) for message in formats.parse(payload, format=format))
    stop = sum(1 for total in sizes if total <= HISTORY_TOKENS) - 1
    while payload[stop]["role"] != "assistant":
        stop -= 1
    return payload[:stop]


def lay(
    format: str,
    payload: list[Json],
    rules: Sequence[str],
    corrections: Sequence[Pair],
    companions: Sequence[Pair],
    draw: random.Random,
) -> Laid:
    """`payload` with some of the rules, corrections and companions put into it."""
    chosen = draw.sample(list(rules), RULES_EACH * len(POSITIONS))
    pairs = draw.sample(list(corrections), CORRECTIONS_EACH)
    both = draw.sample(list(companions), min(COMPANIONS_EACH, len(companions)))
    texts: list[tuple[float, str]] = []
    by_position: dict[str, list[str]] = {}
    for name, share in POSITIONS.items():
        mine = [chosen.pop() for _ in range(RULES_EACH)]
        by_position[name] = mine
        texts += [(share + 0.01 * step, rule) for step, rule in enumerate(mine)]
    for step, (older, newer) in enumerate(pairs):
        texts += [(0.15 + 0.05 * step, older), (0.6 + 0.05 * step, newer)]
    for step, (older, newer) in enumerate(both):
        texts += [(0.25 + 0.05 * step, older), (0.7 + 0.05 * step, newer)]
    inserted: dict[int, list[str]] = {}
    for share, text in texts:
        inserted.setdefault(_request_at(payload, int(len(payload) * share)), []).append(text)
    out: list[Json] = []
    for at, message in enumerate(payload):
        said = inserted.get(at, [])
        apart, inside = said[::2], said[1::2]
        for text in apart:
            out += [_message(format, "user", text), _message(format, "assistant", "Understood.")]
        out.append(_with_text(message, inside) if inside else message)
    return Laid(out, format, by_position, pairs, both)


def _request_at(payload: list[Json], at: int) -> int:
    """The first message of the user from `at` on; the last one before it where there is none."""
    places = [place for place, message in enumerate(payload) if message["role"] == "user"]
    return next((place for place in places if place >= at), places[-1])


def _message(format: str, role: str, text: str) -> Json:
    if format == "pi":
        return {"role": role, "content": [{"type": "text", "text": text}]}
    return {"role": role, "content": text}


def _with_text(message: Json, texts: list[str]) -> Json:
    content = message["content"]
    more = " ".join(texts)
    if isinstance(content, str):
        return {**message, "content": f"{content}\n\n{more}"}
    return {**message, "content": [*content, {"type": "text", "text": more}]}


async def compacted(laid: Laid, rounds: int) -> list[Json]:
    """The output of the default pipeline, after one or several rounds on the growing list."""
    stops = [_answer_at(laid.payload, len(laid.payload) * n // rounds) for n in range(1, rounds)]
    bounds = [0, *stops, len(laid.payload)]
    context: list[Json] = []
    async with temporary_archive() as archive:
        for start, stop in pairwise(bounds):
            context = [*context, *laid.payload[start:stop]]
            request = CompactRequest(
                format=laid.format, model=MODEL, target_tokens=TARGET_TOKENS, session_id="bench"
            )
            context = (await compact(context, request, archive=archive)).messages
    return context


def _answer_at(payload: list[Json], at: int) -> int:
    while payload[at]["role"] != "assistant":
        at += 1
    return at


def flat(*texts: str) -> str:
    """`texts` on one line, for comparison."""
    return " ".join(" ".join(texts).split())


def texts_of(laid: Laid, *, with_controls: bool) -> Iterator[tuple[str, str, str]]:
    """Each method's name, its output, and what of that the compaction itself wrote."""
    count = counter_for(MODEL)
    tokens = 0
    for rounds in (1, ROUNDS):
        output = formats.parse(anyio.run(compacted, laid, rounds), format=laid.format)
        tokens = tokens or count.messages(output)
        made = tuple(m for m in output if placeholders.seems_synthetic(text_of(m.blocks)))
        yield f"{OURS}, rounds: {rounds}", flat(*spoken(output)), flat(*spoken(made))
    parsed = formats.parse(laid.payload, format=laid.format)
    lines = [line for text in spoken(parsed) for line in text.splitlines() if line.strip()]
    for name in NAMED_CONTROLS if with_controls else ():
        text = flat(*CONTROLS[name](lines, tokens, count))
        yield name, text, text


def judged(laid: Laid, text: str, made: str) -> Iterator[tuple[str, str, bool]]:
    """Column, rule and verdict for everything that was laid.

    Args:
        laid: What was laid.
        text: The whole output.
        made: What of it the compaction wrote.
    """
    wanted = [(place, rule) for place, mine in laid.rules.items() for rule in mine]
    wanted += [("corrections", newer) for _, newer in laid.corrections]
    wanted += [("companions", rule) for pair in laid.companions for rule in pair]
    for column, rule in wanted:
        yield column, rule, is_kept(rule, text)
    for older, newer in laid.corrections:
        yield STANDING, older, stands_unmarked(older, made) and not is_before(older, newer, text)
        is_told = stands_unmarked(older, made) and is_before(older, newer, text)
        yield "older before", older, is_told
        yield "older marked", older, is_marked(older, made)
        yield "older dropped", older, flat(older) not in made
    for mine in laid.rules.values():
        yield from (("rules marked", rule, is_marked(rule, made)) for rule in mine)
    for older, _ in laid.companions:
        yield "companions marked", older, is_marked(older, made)


def is_kept(rule: str, text: str) -> bool:
    """Whether `text` has every sentence of `rule` word for word; they may stand apart."""
    return all(flat(sentence.text) in text for sentence in sentences_of(rule))


def stands_unmarked(rule: str, made: str) -> bool:
    """Whether `made` has `rule` somewhere as if it still held."""
    places = (found.start() for found in re.finditer(re.escape(flat(rule)), made))
    return any(not _MARK_END.search(made, max(0, at - _MARK_CHARS), at) for at in places)


def is_before(older: str, newer: str, text: str) -> bool:
    """Whether `text` has `newer` after all that it has of `older`."""
    return text.rfind(flat(newer)) > text.rfind(flat(older))


def is_marked(rule: str, made: str) -> bool:
    """Whether `made` has `rule`, everywhere as an earlier one."""
    return flat(rule) in made and not stands_unmarked(rule, made)


def report(scores: Mapping[tuple[str, str], list[bool]]) -> str:
    """The table, as Markdown; without the columns of what the set does not have."""
    columns = [column for column in COLUMNS if any(key[1] == column for key in scores)]
    rows = ["| method | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for method in dict.fromkeys(method for method, _ in scores):
        cells = [f"{statistics.fmean(scores[method, column]):.3f}" for column in columns]
        rows.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    name = next((name for name in SETS if name in sys.argv), "building")
    scores: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    odd: list[str] = []
    for number, (format, payload) in enumerate(histories()):
        for trial in range(TRIALS):
            draw = random.Random(number * 100 + trial)
            laid = lay(format, payload, *SETS[name], draw)
            for method, text, made in texts_of(
                laid, with_controls=trial == 0 and "--ours" not in sys.argv
            ):
                for column, rule, verdict in judged(laid, text, made):
                    scores[method, column].append(verdict)
                    if method.startswith(OURS) and verdict == (column in UNWANTED):
                        odd.append(f"{method}, {column}: {rule}")
    print(f"Set: {name}\n\n{report(scores)}")
    if "--lost" in sys.argv:
        print("\n".join(sorted(odd)))


if __name__ == "__main__":
    main()
