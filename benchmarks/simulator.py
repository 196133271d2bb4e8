"""What a whole session costs under each policy, and what the model still knows.

Run: python benchmarks/simulator.py [quick]

Every session is replayed call by call as its host would send it (server/.../replay.py), with a
prompt cache like Anthropic's: reads at 0.1, writes at 1.25 of the plain price, prefixes from 1,024
tokens, and calls close enough together that nothing expires. Summaries are the extractive writer's,
so that no policy pays a model. The named peers are the four papers' policies; the floor of the same
run is the session without any compaction. `default` also runs with other triggers and targets: they
are its frontier of cost against recall, drawn in results/simulator-*.svg.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction.archive.local import open_archive
from context_compaction.compaction import CompactRequest
from mcp_server_compaction.replay import Replay, replay

from tests.support.corpus import all_transcripts
from tests.support.synthetic import synthetic_session

RESULTS = Path(__file__).resolve().parent / "results"
PAPERS = ("claude-code", "three-layer", "four-layer", "timeline", "timeline-checkpoint")
WITHIN_CALLS = 20


@dataclass(frozen=True, slots=True)
class Case:
    """One session through one window."""

    name: str
    payload: list[Any]
    format: str
    window: int


@dataclass(frozen=True, slots=True)
class Run:
    """One replay with its label: the policy, or `default` with the constants that were changed."""

    label: str
    replay: Replay


def cases(quick: bool) -> list[Case]:
    [real] = [t.payload for t in all_transcripts() if t.name == "pi/session"]
    scale = 10 if quick else 1
    return [
        Case("real coding session (pi), 32K window", real, "pi", 32_000),
        Case("real coding session (pi), 64K window", real, "pi", 64_000),
        Case(
            "generated, 2M tokens, 200K window",
            synthetic_session(2_000_000 // scale, 1),
            "anthropic",
            200_000,
        ),
        Case(
            "generated, 2M tokens, 32K window",
            synthetic_session(2_000_000 // scale, 2),
            "anthropic",
            32_000,
        ),
    ]


def variants(window: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Label, policy and constants of each run."""
    named: list[tuple[str, str, dict[str, Any]]] = [("default", "default", {})]
    named += [(name, name, {}) for name in ("gentle", *PAPERS)]
    for fraction in (0.4, 0.25):
        named.append((f"default, target {fraction}", "default", {"target_fraction": fraction}))
    for share, fraction in ((0.5, 0.5), (0.3, 0.5), (0.2, 0.5)):
        trigger = int(window * share)
        label = f"default, trigger {trigger // 1000}K, target {fraction}"
        named.append((label, "default", {"trigger_tokens": trigger, "target_fraction": fraction}))
    return named


async def run(case: Case, label: str, policy: str, settings: dict[str, Any]) -> Run:
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
            return Run(label, await replay(case.payload, request, archive))


async def uncompacted(case: Case) -> Run:
    """The floor: everything is sent, as if no window were there."""
    return await run(Case(case.name, case.payload, case.format, 100_000_000), "none", "gentle", {})


def breaks_within(replay: Replay) -> int:
    """The most prefix breaks in any 20 calls."""
    breaks = [call.breaks_prefix for call in replay.calls]
    return max(sum(breaks[at : at + WITHIN_CALLS]) for at in range(len(breaks)))


def table(runs: Sequence[Run]) -> list[str]:
    ours = runs[0].replay.billed_tokens
    lines = [
        "| policy | billed input tokens | against default | recall | cache hits | between "
        f"compactions | compactions | prefix breaks in {WITHIN_CALLS} calls | repeated edits | "
        "calls over the window |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for item in runs:
        done = item.replay
        lines.append(
            f"| {item.label} | {done.billed_tokens:,.0f} | {done.billed_tokens / ours:.2f} | "
            f"{done.recall:.3f} | {done.hit_share:.1%} | {done.steady_hit_share:.1%} | "
            f"{done.compactions} | {breaks_within(done)} | "
            f"{sum(call.repeated_edits for call in done.calls)} | {done.calls_over} |"
        )
    return lines


def picture(case: Case, runs: Sequence[Run]) -> str:
    """Cost against recall as SVG; the line joins the runs of `default`."""
    width, height, margin = 760, 440, 60
    shown = [item for item in runs if item.label != "none"]
    most = max(item.replay.billed_tokens for item in shown) * 1.08
    least = min(item.replay.recall for item in shown) * 0.95

    def place(item: Run) -> tuple[float, float]:
        x = margin + (width - 2 * margin) * item.replay.billed_tokens / most
        y = height - margin - (height - 2 * margin) * (item.replay.recall - least) / (1 - least)
        return round(x, 1), round(y, 1)

    ours = sorted(place(item) for item in shown if item.label.startswith("default"))
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
    for item in shown:
        x, y = place(item)
        color = "#2a7" if item.label.startswith("default") else "#c43"
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{color}"/>')
        anchor = ' text-anchor="end"' if x > width - 200 else ""
        shift = -8 if anchor else 8
        parts.append(f'<text x="{x + shift}" y="{y - 6}"{anchor}>{item.label}</text>')
    return "\n".join([*parts, "</svg>", ""])


async def main() -> None:
    quick = "quick" in sys.argv[1:]
    page = ["# Session simulator", "", (__doc__ or "").strip().replace("\n\n", "\n"), ""]
    for number, case in enumerate(cases(quick), 1):
        runs: list[Run] = []
        for label, policy, settings in variants(case.window):
            runs.append(await run(case, label, policy, settings))
            print(case.name, *table([runs[0], runs[-1]])[-1:], flush=True)
        runs.append(await uncompacted(case))
        lines = table(runs)
        print("\n".join(lines), flush=True)
        calls = len(runs[0].replay.calls)
        page += [f"## {case.name} ({len(case.payload):,} messages, {calls:,} calls)", "", *lines]
        page += ["", f"![cost against recall](simulator-{number}.svg)", ""]
        if not quick:
            (RESULTS / f"simulator-{number}.svg").write_text(picture(case, runs), encoding="utf-8")
            (RESULTS / "simulator.md").write_text("\n".join(page), encoding="utf-8")


anyio.run(main)
