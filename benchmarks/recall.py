"""How much of what an agent goes on to use is still in its context after a compaction.

Run: python benchmarks/recall.py [PROCESSES]        (needs the dependency group `bench`)

A real transcript is cut before an answer of the agent. *Needed* are the strings that the agent
itself writes in the next 80 messages, that stood before the cut and that nothing shows it again
first (needed.py). The default pipeline compacts what stands before the cut; every control gets the
same number of tokens (controls.py). System prompts are given apart, as hosts do, and count as
always in sight. Tokens are those of o200k_base.

Two definitions of needed: rare tokens (the headline) and entities by pattern. The figure of a
transcript is the share of its needed strings that are kept with their context; that of a group is
the mean over its transcripts, with a 95 % interval by bootstrap over transcripts (over cuts, in
the one long session).
"""

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
from context_compaction.layers.base import LayerContext
from context_compaction.layers.microcompact import microcompact
from context_compaction.messages.model import Messages
from context_compaction.messages.pins import Pins
from context_compaction.messages.placeholders import Span
from context_compaction.pipeline.compact import compact
from context_compaction.request import CompactRequest
from context_compaction.settings import Settings
from context_compaction.tokens.counter import MessageCounter, counter_for
from context_compaction.tokens.request_count import request_count

from benchmarks.controls import CONTROLS, keep_last
from benchmarks.needed import (
    Past,
    is_entity,
    is_rare,
    kept,
    needed_after,
    ordinary_words,
    past_of,
    spoken,
)
from tests.support.corpus import Transcript, all_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive

MODEL = "gpt-4o"
HORIZON_MESSAGES = 80
MIN_NEEDED = 3
CUT_SHARES = (0.45, 0.6, 0.75)  # of a short transcript's messages
TITLES = {
    "pi": "pi session at 8,000 tokens",
    "tau-bench": "tau-bench at 20 % of the tokens",
    "swe-agent": "swe-agent at 20 % of the tokens",
}
SAMPLES = 2_000
OURS = "ours (default)"
CLEARED_TAIL = "microcompact + tail"


@dataclass(frozen=True, slots=True)
class Case:
    """One transcript cut at one place, to be brought to `target_tokens` or to `share`."""

    group: str
    transcript: str
    cut_at: int
    share: float = 1.0
    target_tokens: int = 0

    @property
    def unit(self) -> str:
        """What the bootstrap draws: transcripts; in the one long session its cuts."""
        return f"{self.cut_at}" if self.group == "pi" else self.transcript


@dataclass(frozen=True, slots=True)
class Outcome:
    """The shares kept of one case, by definition and method; sizes in tokens."""

    case: Case
    needed: dict[str, int]
    recall: dict[tuple[str, str], float]
    before_tokens: int
    after_tokens: int
    target_tokens: int


def cases() -> list[Case]:
    """Where each transcript is cut. Only transcripts with something before and after it count."""
    found: list[Case] = []
    for transcript in all_transcripts():
        size = len(transcript.payload)
        if transcript.name.startswith("pi/"):
            places = [_agent_turn(transcript, at) for at in range(150, size - 60, 75)]
            found.extend(Case("pi", transcript.name, at, target_tokens=8_000) for at in places)
        for group, prefix, least in (
            ("tau-bench", "tau-bench/airline-task", 24),
            ("swe-agent", "swe-agent/", 15),
        ):
            if transcript.name.startswith(prefix) and size >= least:
                places = [_agent_turn(transcript, int(size * share)) for share in CUT_SHARES]
                found.extend(Case(group, transcript.name, at, share=0.2) for at in places)
    return found


@dataclass(frozen=True, slots=True)
class Needs:
    """What stood before the cut of one case, and what of it is needed, by definition."""

    before: Messages
    payload: list[Json]
    format: str
    past: Past
    needed: dict[str, list[str]]


def needs_of(case: Case) -> Needs | None:
    """What is needed of one case; None where that is hardly anything."""
    transcript = _by_name()[case.transcript]
    common = ordinary()
    parsed = formats.parse(transcript.payload, format=transcript.format)
    before = tuple(message for message in parsed[: case.cut_at] if message.role != "system")
    system = "\n".join(spoken(tuple(message for message in parsed if message.role == "system")))
    after = parsed[case.cut_at : case.cut_at + HORIZON_MESSAGES]
    past = past_of("\n".join(spoken(before)), common)
    definitions = {"rare": is_rare(common), "entity": is_entity}
    needed = {
        name: needed_after(past, after, system, wanted) for name, wanted in definitions.items()
    }
    if len(needed["rare"]) < MIN_NEEDED:
        return None
    payload = _without_system(transcript, case.cut_at)
    return Needs(before, payload, transcript.format, past, needed)


def run(case: Case) -> Outcome | None:
    """One case; None where hardly anything is needed."""
    needs = needs_of(case)
    if needs is None:
        return None
    before, past, needed = needs.before, needs.past, needs.needed
    count = counter_for(MODEL)
    sizes = request_count(before, count, overhead_tokens=0, anchor=None).estimate(before)
    target_tokens = case.target_tokens or int(sizes.upper * case.share)
    output = anyio.run(_compacted, needs.payload, needs.format, target_tokens)
    tokens = count.messages(output)
    texts = {OURS: "\n".join(spoken(output))}
    lines = [line for text in spoken(before) for line in text.splitlines() if line.strip()]
    for name, control in CONTROLS.items():
        texts[name] = "\n".join(control(lines, tokens, count))
    texts[CLEARED_TAIL] = "\n".join(_cleared_tail(before, tokens, count))
    recall: dict[tuple[str, str], float] = {}
    for method, text in texts.items():
        held = past_of(text, ordinary())
        for name, strings in needed.items():
            recall[name, method] = _share(kept(strings, past, held))
    numbers = {name: len(strings) for name, strings in needed.items()}
    return Outcome(case, numbers, recall, sizes.tokens, tokens, target_tokens)


async def _compacted(payload: list[Json], format: str, target_tokens: int) -> Messages:
    async with temporary_archive() as archive:
        request = CompactRequest(format=format, model=MODEL, target_tokens=target_tokens)
        result = await compact(payload, request, archive=archive)
    return formats.parse(result.messages, format=format)


def _cleared_tail(before: Messages, tokens: int, count: MessageCounter) -> list[str]:
    """Old results cleared as far as that goes, then the newest lines of what is left."""
    settings = Settings(min_result_tokens=50, min_savings_tokens=0)
    rules = formats.FORMATS["anthropic"].rules
    context = LayerContext(settings, count, rules, _no_span, Pins(), limit_tokens=0, limit_bytes=0)
    cleared = microcompact(before, context).messages
    lines = [line for text in spoken(cleared) for line in text.splitlines() if line.strip()]
    return keep_last(lines, tokens, count)


def _no_span(_: Messages) -> Span:
    return Span("", 0, 0)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The middle 95 % of the means of resamples."""
    draw = random.Random(7)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(SAMPLES))
    return means[int(SAMPLES * 0.025)], means[int(SAMPLES * 0.975)]


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def _agent_turn(transcript: Transcript, at: int) -> int:
    """The next position from `at` on where the agent is about to speak."""
    payload = transcript.payload
    while at < len(payload) - 1 and payload[at]["role"] != "assistant":
        at += 1
    return at


def _without_system(transcript: Transcript, stop: int) -> list[Json]:
    return [message for message in transcript.payload[:stop] if message["role"] != "system"]


@cache
def _by_name() -> dict[str, Transcript]:
    return {transcript.name: transcript for transcript in all_transcripts()}


@cache
def ordinary() -> frozenset[str]:
    """Tokens and words that stand in many of the conversations."""
    texts = (
        "\n".join(spoken(formats.parse(item.payload, format=item.format)))
        for item in all_transcripts()
    )
    return ordinary_words(texts)


def report(outcomes: Sequence[Outcome]) -> str:
    """The tables, as Markdown."""
    lines: list[str] = []
    for group, title in TITLES.items():
        chosen = [outcome for outcome in outcomes if outcome.case.group == group]
        before = statistics.fmean(outcome.before_tokens for outcome in chosen)
        after = statistics.fmean(outcome.after_tokens for outcome in chosen)
        needed = sum(outcome.needed["rare"] for outcome in chosen)
        units = len({outcome.case.unit for outcome in chosen})
        lines += [
            f"\n## {title}\n\n{len(chosen)} cuts in {units} units, {before:,.0f} tokens before, "
            f"{after:,.0f} after, {needed} needed strings\n",
            "| method | rare tokens | 95 % | entities | 95 % |",
            "| --- | --- | --- | --- | --- |",
        ]
        for method in (OURS, *CONTROLS, CLEARED_TAIL):
            cells = [method]
            for name in ("rare", "entity"):
                values = _by_unit(chosen, name, method)
                low, high = interval(values)
                cells += [f"{statistics.fmean(values):.3f}", f"{low:.3f}-{high:.3f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _by_unit(outcomes: Sequence[Outcome], name: str, method: str) -> list[float]:
    """The mean share of each unit, over its cuts at which enough is needed."""
    units: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.needed[name] >= MIN_NEEDED:
            units.setdefault(outcome.case.unit, []).append(outcome.recall[name, method])
    return [statistics.fmean(values) for values in units.values()]


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    started = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        outcomes = [done for done in pool.map(run, cases(), chunksize=4) if done is not None]
    print(report(outcomes))
    print(f"\n{len(outcomes)} cuts in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
