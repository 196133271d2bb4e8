"""What a whole session costs under each policy, and what the model still knows.

Run: python benchmarks/simulator.py [number of a case ...]

Every session is replayed call by call as its host would send it (server/.../replay.py), with a
prompt cache like Anthropic's: reads at 0.1, writes at 1.25 of the plain price, prefixes from 1,024
tokens, and calls close enough together that nothing expires. Summaries are the extractive writer's,
so that no policy pays a model. The named peers are the four papers' policies; the floor of the same
run is the session without any compaction. `default` and `frugal` are two points
of one line; so that it can be drawn, `default` also runs with other shares of the window for the
conversation and other targets (results/simulator-*.svg). "In context" is recall where words that
stood near a name before stand near it in the
request. "Beaten" says whether `frugal` is at least 25 % cheaper than that policy, or as cheap with
higher recall. The sets "joined" are real runs one after the other, as of one user with many tasks.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import wire
from context_compaction.archive.local import open_archive
from context_compaction.compaction import CompactRequest
from context_compaction.tokens import counter_for
from mcp_server_compaction.replay import (
    READ_PRICE,
    WRITE_PRICE,
    Replay,
    call_positions,
    replay,
)

from tests.support.corpus import all_transcripts
from tests.support.synthetic import synthetic_session

RESULTS = Path(__file__).resolve().parent / "results"
PAPERS = ("claude-code", "three-layer", "four-layer", "timeline", "timeline-checkpoint")
WITHIN_CALLS = 20


@dataclass(frozen=True, slots=True)
class Case:
    """One session through one window."""

    name: str
    load: Callable[[], list[Any]]
    format: str
    window: int


@dataclass(frozen=True, slots=True)
class Run:
    """One replay with its label: the policy, or `default` with the constants that were changed."""

    label: str
    replay: Replay


def real_session() -> list[Any]:
    [session] = [t.payload for t in all_transcripts() if t.name == "pi/session"]
    return session


def joined(folder: str, most: int) -> list[Any]:
    """Up to `most` runs of a set as one session: their ids made unique, the first system prompt."""
    messages: list[Any] = []
    runs = [t.payload for t in all_transcripts() if t.name.startswith(folder)]
    for number, payload in enumerate(runs[:: max(1, len(runs) // most)][:most]):
        for message in payload:
            if number and message["role"] == "system":
                continue
            new = dict(message)
            if calls := message.get("tool_calls"):
                new["tool_calls"] = [{**call, "id": f"{call['id']}_{number}"} for call in calls]
            if "tool_call_id" in message:
                new["tool_call_id"] = f"{message['tool_call_id']}_{number}"
            messages.append(new)
    return messages


def generated(tokens: int, seed: int) -> Callable[[], list[Any]]:
    return partial(synthetic_session, tokens, seed)


CASES = (
    Case("real coding session, 32K window", real_session, "pi", 32_000),
    Case("real coding session, 64K window", real_session, "pi", 64_000),
    Case("generated, 400K tokens, 200K window", generated(400_000, 1), "anthropic", 200_000),
    Case("generated, 400K tokens, 64K window", generated(400_000, 2), "anthropic", 64_000),
    # About 1,000 calls each; only the named policies.
    Case("generated, 2M tokens, 200K window", generated(2_000_000, 1), "anthropic", 200_000),
    Case("generated, 2M tokens, 32K window", generated(2_000_000, 2), "anthropic", 32_000),
    Case("joined swe-agent runs, 32K window", partial(joined, "swe-agent", 22), "openai-chat",
         32_000),
    Case("joined tau-bench runs, 32K window", partial(joined, "tau-bench/airline-task", 50),
         "openai-chat", 32_000),
)  # fmt: skip
LONG_CASES = (5, 6)


def variants(number: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Label, policy and constants of each run."""
    named: list[tuple[str, str, dict[str, Any]]] = [
        ("frugal", "frugal", {}),
        ("default", "default", {}),
    ]
    named += [(name, name, {}) for name in PAPERS]
    if number in LONG_CASES:
        return named
    for share, target in ((1.0, 0.35), (0.55, 0.36), (0.25, 0.36)):
        constants = {"conversation_fraction": share, "target_fraction": target}
        named.append((f"default, {share} of the window, target {target}", "default", constants))
    return [*named, ("gentle", "gentle", {})]


async def run(
    case: Case, payload: list[Any], label: str, policy: str, settings: dict[str, Any]
) -> Run:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        async with open_archive(root / "archive", index_root=root / "index") as archive:
            request = CompactRequest(
                format=case.format,
                policy=policy,
                settings=settings,
                context_window=case.window,
                max_output_tokens=16_384,
            )
            return Run(label, await replay(payload, request, archive))


def uncompacted(case: Case, payload: list[Any]) -> str:
    """The floor, by arithmetic: everything is sent, as if no window were there."""
    sizes = list(map(counter_for().message, wire.parse(payload, format=case.format)))
    read = written = sent = 0
    for stop in call_positions(payload, case.format):
        total = sum(sizes[:stop])
        read, written, sent = read + sent, written + total - sent, total
    billed = read * READ_PRICE + written * WRITE_PRICE
    share = read / (read + written)
    rest = " - |" * 5
    return (
        f"| no compaction, no window | {billed:,.0f} | - | - | 1.000 | 1.000 | {share:.1%} |{rest}"
    )


def breaks_within(replay: Replay) -> int:
    """The most prefix breaks in any 20 calls."""
    breaks = [call.breaks_prefix for call in replay.calls]
    return max(sum(breaks[at : at + WITHIN_CALLS]) for at in range(len(breaks)))


def beaten(item: Run, ours: Replay) -> str:
    if item.label not in PAPERS:
        return "-"
    share = ours.billed_tokens / item.replay.billed_tokens
    wins = share <= 0.75 or (share <= 1 and ours.recall > item.replay.recall)
    return "yes" if wins else "no"


def table(runs: Sequence[Run]) -> list[str]:
    ours = runs[0].replay
    lines = [
        "| policy | billed input tokens | of frugal's | beaten | recall | in context | "
        "cache hits | between "
        f"compactions | compactions | prefix breaks in {WITHIN_CALLS} calls | repeated edits | "
        "calls over the window |",
        "|---|--:|--:|:-:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for item in runs:
        done = item.replay
        lines.append(
            f"| {item.label} | {done.billed_tokens:,.0f} | "
            f"{done.billed_tokens / ours.billed_tokens:.2f} | {beaten(item, ours)} | "
            f"{done.recall:.3f} | {done.recall_with_context:.3f} | "
            f"{done.hit_share:.1%} | {done.steady_hit_share:.1%} | "
            f"{done.compactions} | {breaks_within(done)} | "
            f"{sum(call.repeated_edits for call in done.calls)} | {done.calls_over} |"
        )
    return lines


def picture(case: Case, runs: Sequence[Run]) -> str:
    """Cost against recall as SVG; the line joins the runs of `default`."""
    width, height, margin = 760, 440, 60
    most = max(item.replay.billed_tokens for item in runs) * 1.08
    least = min(item.replay.recall for item in runs) * 0.95

    def place(item: Run) -> tuple[float, float]:
        x = margin + (width - 2 * margin) * item.replay.billed_tokens / most
        y = height - margin - (height - 2 * margin) * (item.replay.recall - least) / (1 - least)
        return round(x, 1), round(y, 1)

    ours = sorted(place(item) for item in runs if item.label.startswith(("default", "frugal")))
    line = " ".join(f"{x},{y}" for x, y in ours)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{margin}" y="24" font-size="15">{case.name}: cost against recall</text>',
        f'<path d="M{margin} {margin}V{height - margin}H{width - margin}" fill="none" '
        'stroke="#888"/>',
        f'<text x="{width // 2}" y="{height - 16}" text-anchor="middle">billed input tokens '
        f"(right end: {most:,.0f})</text>",
        f'<text x="16" y="{height // 2}" transform="rotate(-90 16 {height // 2})" '
        f'text-anchor="middle">recall ({least:.2f} to 1)</text>',
        f'<polyline points="{line}" fill="none" stroke="#2a7" stroke-dasharray="4 3"/>',
    ]
    for item in runs:
        x, y = place(item)
        color = "#2a7" if item.label.startswith(("default", "frugal")) else "#c43"
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{color}"/>')
        anchor = ' text-anchor="end"' if x > width - 200 else ""
        shift = -8 if anchor else 8
        parts.append(f'<text x="{x + shift}" y="{y - 6}"{anchor}>{item.label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def write(number: int, case: Case, payload: list[Any], runs: Sequence[Run]) -> None:
    """This case's picture, and its section of the page, beside those of the other cases."""
    calls = len(runs[0].replay.calls)
    picture_name = f"simulator-{number}.svg"
    section = [
        f"## {number}. {case.name} ({len(payload):,} messages, {calls:,} calls)",
        "",
        *table(runs),
        uncompacted(case, payload),
        "",
        f"![cost against recall]({picture_name})",
        "",
    ]
    page = RESULTS / "simulator.md"
    old = page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []
    sections = {f"## {text}".splitlines()[0].split(".")[0]: f"## {text}" for text in old}
    sections[f"## {number}"] = "\n".join(section)
    about = ["# Session simulator", "", (__doc__ or "").strip(), ""]
    ordered = [sections[key].rstrip() + "\n" for key in sorted(sections)]
    page.write_text("\n".join([*about, *ordered]), encoding="utf-8")
    (RESULTS / picture_name).write_text(picture(case, runs), encoding="utf-8")


async def main() -> None:
    wanted = [int(argument) for argument in sys.argv[1:]]
    for number, case in enumerate(CASES, 1):
        if wanted and number not in wanted:
            continue
        payload, runs = case.load(), list[Run]()
        for label, policy, settings in variants(number):
            runs.append(await run(case, payload, label, policy, settings))
            print(f"{case.name}: {label}", flush=True)
            write(number, case, payload, runs)
        print("\n".join(table(runs)), flush=True)


anyio.run(main)
