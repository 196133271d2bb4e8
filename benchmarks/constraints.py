"""Measure whether the user's rules survive a compaction word for word.

Run: python benchmarks/constraints.py SET [--ours] [--lost]

SET is one of the sets in benchmarks/data/rules.json. `--ours` omits the controls, `--lost` lists
the rules that were lost.

Rules are inserted at the top, in the middle and near the bottom of real histories of about 40,000
tokens. Half of them are messages of their own, half are added to another request. The default
pipeline compacts each history to 2,000 tokens (o200k_base): in one round, and in five rounds on the
growing list. A rule is kept if the result has each of its sentences word for word. The controls
(controls.py) get as many tokens.

A correction is an older rule and a newer rule in its place. The columns say whether, in the text
that the compaction wrote, the older rule is dropped, marked as replaced, unmarked before
the newer rule, or still in force. Companions are two rules on one subject. Both must be kept, and a
mark on the older is an error.
"""

import argparse
import json
import random
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.messages import placeholders
from context_compaction.messages.model import text_of
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.summarizers.instructions.sentences import sentences_of
from context_compaction.tokens.counter import counter_for

from benchmarks.controls import CONTROLS
from benchmarks.needed import texts_of
from tests.support.corpus import all_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive

RULES = Path(__file__).resolve().parent / "data" / "rules.json"
MODEL = "gpt-4o"
HISTORY_TOKENS = 40_000
TARGET_TOKENS = 2_000
ROUNDS = 5
POSITIONS = {"top": 0.04, "middle": 0.5, "bottom": 0.85}
RULES_EACH = 5  # at each position of one history
CORRECTIONS_EACH = 3
COMPANIONS_EACH = 3
# Prefix of the transcripts that are joined to one history, and how many of them are skipped.
JOINED = (
    ("swe-agent/", 0),
    ("swe-agent/", 9),
    ("tau-bench/airline-task", 0),
    ("tau-bench/airline-task", 40),
    ("tau-bench/airline-task", 75),
)
TRIALS = 3  # random choices of rules for each history
PRODUCT = "ours"
NAMED_CONTROLS = ("random lines", "keep last", "head + tail", "TextRank (sumy)")
_MARK_END = re.compile(r"\((?:changed|replaced)(?: by \[\d+\]| later)\) \Z")
_MARK_CHARS = 40
IN_FORCE = "older in force"
# These shares should be near 0, all others near 1.
UNWANTED = (IN_FORCE, "rules marked", "companions marked")
COLUMNS = (
    *POSITIONS,
    "corrections",
    "companions",
    IN_FORCE,
    "older before",
    "older marked",
    "older dropped",
    "rules marked",
    "companions marked",
)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A set of rules.

    Attributes:
        about: Who wrote the set, and when.
        rules: Rules that hold.
        corrections: Pairs of an older rule and a newer rule that replaces it.
        companions: Pairs of rules on one subject that both hold.
    """

    about: str
    rules: list[str]
    corrections: list[tuple[str, str]]
    companions: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class History:
    """A history with inserted rules.

    Attributes:
        payload: Messages in the host's format.
        format: Name of that format.
        rules: Inserted rules by position.
        corrections: Inserted pairs of an older and a newer rule that replaces it.
        companions: Inserted pairs of an older and a newer rule that both hold.
    """

    payload: list[Json]
    format: str
    rules: dict[str, list[str]]
    corrections: list[tuple[str, str]]
    companions: list[tuple[str, str]]


def real_histories() -> Iterator[tuple[str, list[Json]]]:
    """Yield the format and the messages of each real history."""
    transcripts = all_transcripts()
    pi = next(item for item in transcripts if item.format == "pi")
    for start in (0, 250, 500):
        yield "pi", _of_size("pi", pi.payload[start:])
    for prefix, skip in JOINED:
        runs = [item.payload for item in transcripts if item.name.startswith(prefix)][skip:]
        joined = [message for run in runs for message in run if message["role"] != "system"]
        yield "openai-chat", _of_size("openai-chat", joined)


def _of_size(format: str, payload: list[Json]) -> list[Json]:
    """Return `HISTORY_TOKENS` of messages, from the first request up to before a response."""
    start = next(index for index, message in enumerate(payload) if message["role"] == "user")
    payload = payload[start:]
    count = counter_for(MODEL)
    sizes = accumulate(count.message(message) for message in formats.parse(payload, format=format))
    stop = sum(1 for total in sizes if total <= HISTORY_TOKENS) - 1
    while payload[stop]["role"] != "assistant":
        stop -= 1
    return payload[:stop]


def insert_rules(
    format: str, payload: list[Json], rule_set: RuleSet, draw: random.Random
) -> History:
    """Insert a random choice of the set's rules, corrections and companions into `payload`."""
    rules = draw.sample(rule_set.rules, RULES_EACH * len(POSITIONS))
    corrections = draw.sample(rule_set.corrections, CORRECTIONS_EACH)
    companions = draw.sample(rule_set.companions, min(COMPANIONS_EACH, len(rule_set.companions)))
    texts: list[tuple[float, str]] = []
    by_position: dict[str, list[str]] = {}
    for name, share in POSITIONS.items():
        by_position[name] = [rules.pop() for _ in range(RULES_EACH)]
        texts += [(share + 0.01 * step, rule) for step, rule in enumerate(by_position[name])]
    for step, (older, newer) in enumerate(corrections):
        texts += [(0.15 + 0.05 * step, older), (0.6 + 0.05 * step, newer)]
    for step, (older, newer) in enumerate(companions):
        texts += [(0.25 + 0.05 * step, older), (0.7 + 0.05 * step, newer)]
    by_request: defaultdict[int, list[str]] = defaultdict(list)
    for share, text in texts:
        by_request[_request_index(payload, int(len(payload) * share))].append(text)
    messages: list[Json] = []
    for index, message in enumerate(payload):
        own_messages, additions = by_request[index][::2], by_request[index][1::2]
        for text in own_messages:
            messages += [
                _message(format, "user", text),
                _message(format, "assistant", "Understood."),
            ]
        messages.append(_with_text(message, additions) if additions else message)
    return History(messages, format, by_position, corrections, companions)


def _request_index(payload: list[Json], start: int) -> int:
    """Return the index of the first user message from `start` on, or else of the last one."""
    indices = [index for index, message in enumerate(payload) if message["role"] == "user"]
    return next((index for index in indices if index >= start), indices[-1])


def _message(format: str, role: str, text: str) -> Json:
    if format == "pi":
        return {"role": role, "content": [{"type": "text", "text": text}]}
    return {"role": role, "content": text}


def _with_text(message: Json, texts: list[str]) -> Json:
    content = message["content"]
    addition = " ".join(texts)
    if isinstance(content, str):
        return {**message, "content": f"{content}\n\n{addition}"}
    return {**message, "content": [*content, {"type": "text", "text": addition}]}


async def compacted(history: History, rounds: int) -> list[Json]:
    """Return the messages after `rounds` compactions of the growing list."""
    size = len(history.payload)
    stops = [_answer_index(history.payload, size * n // rounds) for n in range(1, rounds)]
    context: list[Json] = []
    async with temporary_archive() as archive:
        for start, stop in pairwise([0, *stops, size]):
            context = [*context, *history.payload[start:stop]]
            request = CompactRequest(
                format=history.format, model=MODEL, target_tokens=TARGET_TOKENS, session_id="bench"
            )
            context = (await compact(context, request, archive=archive)).messages
    return context


def _answer_index(payload: list[Json], start: int) -> int:
    while payload[start]["role"] != "assistant":
        start += 1
    return start


def normalized(*texts: str) -> str:
    """Join `texts` with single spaces, for comparison."""
    return " ".join(" ".join(texts).split())


def results(history: History, *, with_controls: bool) -> Iterator[tuple[str, str, str]]:
    """Yield each method's name, its result, and the part that the compaction wrote."""
    count = counter_for(MODEL)
    tokens = 0
    for rounds in (1, ROUNDS):
        output = formats.parse(anyio.run(compacted, history, rounds), format=history.format)
        tokens = tokens or count.messages(output)
        written = tuple(m for m in output if placeholders.seems_synthetic(text_of(m.blocks)))
        yield (
            f"{PRODUCT}, rounds: {rounds}",
            normalized(*texts_of(output)),
            normalized(*texts_of(written)),
        )
    parsed = formats.parse(history.payload, format=history.format)
    lines = [line for text in texts_of(parsed) for line in text.splitlines() if line.strip()]
    for name in NAMED_CONTROLS if with_controls else ():
        text = normalized(*CONTROLS[name](lines, tokens, count))
        yield name, text, text


def judge(history: History, text: str, written: str) -> Iterator[tuple[str, str, bool]]:
    """Yield a column, a rule and whether the column is true of it, for each inserted rule.

    Args:
        history: The history with the inserted rules.
        text: The whole result on one line.
        written: The part of the result that the compaction wrote.
    """
    expected = [(name, rule) for name, rules in history.rules.items() for rule in rules]
    expected += [("corrections", newer) for _, newer in history.corrections]
    expected += [("companions", rule) for pair in history.companions for rule in pair]
    for column, rule in expected:
        yield column, rule, is_preserved(rule, text)
    for older, newer in history.corrections:
        unmarked = is_unmarked(older, written)
        yield IN_FORCE, older, unmarked and not is_before(older, newer, text)
        yield "older before", older, unmarked and is_before(older, newer, text)
        yield "older marked", older, is_marked(older, written)
        yield "older dropped", older, normalized(older) not in written
    for rules in history.rules.values():
        yield from (("rules marked", rule, is_marked(rule, written)) for rule in rules)
    for older, _ in history.companions:
        yield "companions marked", older, is_marked(older, written)


def is_preserved(rule: str, text: str) -> bool:
    """Whether `text` has every sentence of `rule` word for word, not necessarily together."""
    return all(normalized(sentence.text) in text for sentence in sentences_of(rule))


def is_unmarked(rule: str, written: str) -> bool:
    """Whether `written` has `rule` at least one time without a mark that it was replaced."""
    starts = (match.start() for match in re.finditer(re.escape(normalized(rule)), written))
    return any(not _MARK_END.search(written, max(0, at - _MARK_CHARS), at) for at in starts)


def is_before(older: str, newer: str, text: str) -> bool:
    """Whether the last `newer` in `text` comes after the last `older`."""
    return text.rfind(normalized(newer)) > text.rfind(normalized(older))


def is_marked(rule: str, written: str) -> bool:
    """Whether `written` has `rule`, and always with a mark that it was replaced."""
    return normalized(rule) in written and not is_unmarked(rule, written)


def report(scores: Mapping[tuple[str, str], list[bool]]) -> str:
    """Return a Markdown table without the columns that the set has no rules for."""
    columns = [column for column in COLUMNS if any(key[1] == column for key in scores)]
    rows = ["| method | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for method in dict.fromkeys(method for method, _ in scores):
        cells = [f"{statistics.fmean(scores[method, column]):.3f}" for column in columns]
        rows.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    """Print the table of one set."""
    content = json.loads(RULES.read_text(encoding="utf-8"))
    sets = {name: RuleSet(**fields) for name, fields in content.items()}
    parser = argparse.ArgumentParser()
    parser.add_argument("set", choices=sets, nargs="?", default="building")
    parser.add_argument("--ours", action="store_true", help="omit the controls")
    parser.add_argument("--lost", action="store_true", help="list the rules that were lost")
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    scores: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    failed: list[str] = []
    for number, (format, payload) in enumerate(real_histories()):
        for trial in range(options.trials):
            draw = random.Random(number * 100 + trial)
            history = insert_rules(format, payload, sets[options.set], draw)
            with_controls = trial == 0 and not options.ours
            for method, text, written in results(history, with_controls=with_controls):
                for column, rule, verdict in judge(history, text, written):
                    scores[method, column].append(verdict)
                    if method.startswith(PRODUCT) and verdict == (column in UNWANTED):
                        failed.append(f"{method}, {column}: {rule}")
    print(f"Set: {options.set}\n\n{report(scores)}")
    if options.lost:
        print("\n".join(sorted(failed)))


if __name__ == "__main__":
    main()
