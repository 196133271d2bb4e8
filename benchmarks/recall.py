"""Measure how many strings an agent needs next and still has in its context after a compaction.

Run: python benchmarks/recall.py [PROCESSES] [--limit CASES]

It needs the dependency group `bench`. A real transcript is cut before a message of the agent.
*Needed* are the strings that the agent writes in the next 80 messages and could only know from
before the cut (needed.py). The default pipeline compacts the messages before the cut. Every control
(controls.py) gets the same number of tokens (o200k_base). System prompts are passed separately and
count as always visible.

There are two kinds of needed strings: rare tokens (the headline) and names by pattern (entities).
The figure of a transcript is the share of its needed strings that are kept with their surroundings.
The figure of a group is the mean over its transcripts, or over the cuts of the single long session,
with a 95 % interval by bootstrap.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.messages.model import Messages
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.tokens.counter import counter_for, request_count

from benchmarks.controls import CONTROLS
from benchmarks.needed import (
    are_preserved,
    index_text,
    is_entity,
    is_rare,
    needed_after,
    ordinary_words,
    texts_of,
)
from tests.support.corpus import Transcript, all_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive

MODEL = "gpt-4o"
HORIZON_MESSAGES = 80
MIN_NEEDED = 3
CUT_SHARES = (0.45, 0.6, 0.75)  # of the messages of a short transcript
TITLES = {
    "pi": "pi session at 8,000 tokens",
    "tau-bench": "tau-bench at 20 % of the tokens",
    "swe-agent": "swe-agent at 20 % of the tokens",
}
BOOTSTRAP_SAMPLES = 2_000
PRODUCT = "ours (default)"


@dataclass(frozen=True, slots=True)
class Case:
    """One transcript with a cut and a target.

    Attributes:
        group: Key of `TITLES`.
        transcript: Name of the transcript.
        cut_index: Number of messages before the cut.
        share: Target as a share of the tokens before the cut, if `target_tokens` is 0.
        target_tokens: Target in tokens, or 0.
    """

    group: str
    transcript: str
    cut_index: int
    share: float = 1.0
    target_tokens: int = 0

    @property
    def sample(self) -> str:
        """Unit of the bootstrap: the transcript, or the cut in the single long session."""
        return f"{self.cut_index}" if self.group == "pi" else self.transcript


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one case.

    Attributes:
        case: The case.
        needed: Number of needed strings by kind ("rare", "entity").
        recall: Share of the needed strings that are kept, by kind and method.
        before_tokens: Tokens before the cut.
        after_tokens: Tokens of the result.
    """

    case: Case
    needed: dict[str, int]
    recall: dict[tuple[str, str], float]
    before_tokens: int
    after_tokens: int


def all_cases() -> list[Case]:
    """Return the cuts of all transcripts that are long enough."""
    cases: list[Case] = []
    for transcript in all_transcripts():
        size = len(transcript.payload)
        if transcript.name.startswith("pi/"):
            cuts = [_agent_index(transcript, start) for start in range(150, size - 60, 75)]
            cases.extend(Case("pi", transcript.name, cut, target_tokens=8_000) for cut in cuts)
        for group, prefix, min_messages in (
            ("tau-bench", "tau-bench/airline-task", 24),
            ("swe-agent", "swe-agent/", 15),
        ):
            if transcript.name.startswith(prefix) and size >= min_messages:
                cuts = [_agent_index(transcript, int(size * share)) for share in CUT_SHARES]
                cases.extend(Case(group, transcript.name, cut, share=0.2) for cut in cuts)
    return cases


def run(case: Case) -> Outcome | None:
    """Compact the messages before the cut with every method; None if almost nothing is needed."""
    transcript = _transcripts_by_name()[case.transcript]
    ordinary = _ordinary_words()
    parsed = formats.parse(transcript.payload, format=transcript.format)
    before = tuple(message for message in parsed[: case.cut_index] if message.role != "system")
    system = "\n".join(texts_of(tuple(message for message in parsed if message.role == "system")))
    after = parsed[case.cut_index : case.cut_index + HORIZON_MESSAGES]
    past = index_text("\n".join(texts_of(before)), ordinary)
    needed = {
        "rare": needed_after(past, after, system, is_rare(ordinary)),
        "entity": needed_after(past, after, system, is_entity),
    }
    if len(needed["rare"]) < MIN_NEEDED:
        return None
    payload = [m for m in transcript.payload[: case.cut_index] if m["role"] != "system"]
    count = counter_for(MODEL)
    sizes = request_count(before, count, overhead_tokens=0, anchor=None).estimate(before)
    target_tokens = case.target_tokens or int(sizes.upper * case.share)
    output = anyio.run(_compacted, payload, transcript.format, target_tokens)
    tokens = count.messages(output)
    texts = {PRODUCT: "\n".join(texts_of(output))}
    lines = [line for text in texts_of(before) for line in text.splitlines() if line.strip()]
    for name, control in CONTROLS.items():
        texts[name] = "\n".join(control(lines, tokens, count))
    recall: dict[tuple[str, str], float] = {}
    for method, text in texts.items():
        result = index_text(text, ordinary)
        for kind, strings in needed.items():
            recall[kind, method] = _share(are_preserved(strings, past, result))
    numbers = {kind: len(strings) for kind, strings in needed.items()}
    return Outcome(case, numbers, recall, sizes.tokens, tokens)


async def _compacted(payload: list[Json], format: str, target_tokens: int) -> Messages:
    async with temporary_archive() as archive:
        request = CompactRequest(format=format, model=MODEL, target_tokens=target_tokens)
        result = await compact(payload, request, archive=archive)
    return formats.parse(result.messages, format=format)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the bounds of the middle 95 % of the means of resamples."""
    draw = random.Random(7)
    means = sorted(
        statistics.fmean(draw.choices(values, k=len(values))) for _ in range(BOOTSTRAP_SAMPLES)
    )
    return means[int(BOOTSTRAP_SAMPLES * 0.025)], means[int(BOOTSTRAP_SAMPLES * 0.975)]


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _agent_index(transcript: Transcript, start: int) -> int:
    """Return the index of the next message of the agent from `start` on."""
    payload = transcript.payload
    while start < len(payload) - 1 and payload[start]["role"] != "assistant":
        start += 1
    return start


@cache
def _transcripts_by_name() -> dict[str, Transcript]:
    return {transcript.name: transcript for transcript in all_transcripts()}


@cache
def _ordinary_words() -> frozenset[str]:
    texts = (
        "\n".join(texts_of(formats.parse(item.payload, format=item.format)))
        for item in all_transcripts()
    )
    return ordinary_words(texts)


def report(outcomes: Sequence[Outcome]) -> str:
    """Return a Markdown table for each group."""
    lines: list[str] = []
    for group, title in TITLES.items():
        chosen = [outcome for outcome in outcomes if outcome.case.group == group]
        if not chosen:
            continue
        before = statistics.fmean(outcome.before_tokens for outcome in chosen)
        after = statistics.fmean(outcome.after_tokens for outcome in chosen)
        needed = sum(outcome.needed["rare"] for outcome in chosen)
        lines += [
            f"\n## {title}\n\n{len(chosen)} cuts, {before:,.0f} tokens before, {after:,.0f} after, "
            f"{needed} needed strings\n",
            "| method | rare tokens | 95 % | entities | 95 % |",
            "| --- | --- | --- | --- | --- |",
        ]
        for method in (PRODUCT, *CONTROLS):
            cells = [method]
            for kind in ("rare", "entity"):
                values = _mean_recalls(chosen, kind, method)
                if values:
                    low, high = interval(values)
                    cells += [f"{statistics.fmean(values):.3f}", f"{low:.3f}-{high:.3f}"]
                else:
                    cells += ["", ""]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean_recalls(outcomes: Sequence[Outcome], kind: str, method: str) -> list[float]:
    """Return the mean recall of each bootstrap unit over its cuts with enough needed strings."""
    recalls: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.needed[kind] >= MIN_NEEDED:
            recalls.setdefault(outcome.case.sample, []).append(outcome.recall[kind, method])
    return [statistics.fmean(values) for values in recalls.values()]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("processes", type=int, nargs="?", default=2)
    parser.add_argument("--limit", type=int, help="number of cases, spread over all")
    options = parser.parse_args()
    started = time.perf_counter()
    cases = all_cases()
    if options.limit:
        cases = cases[:: max(1, len(cases) // options.limit)]
    with ProcessPoolExecutor(options.processes) as pool:
        outcomes = [done for done in pool.map(run, cases, chunksize=4) if done is not None]
    print(report(outcomes))
    print(f"\n{len(outcomes)} cuts in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
