"""The simulator's figures as a table and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass

from mcp_server_compaction.compare.replay import Replay

PAPERS = ("claude-code", "three-layer", "four-layer", "timeline", "timeline-checkpoint")
WITHIN_CALLS = 20
_OURS = ("default", "economy")


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one replay.

    Attributes:
        label: The policy, or `economy` with the constant that was changed.
        calls: Of the model.
        billed_tokens: All input, in tokens at the plain price.
        recall: Part of the names needed again that stood in the request ...
        recall_in_context: ... beside words that stood near them before.
        hit_share: Part of all input that was read from the cache.
        new_tokens: Of a call that broke no prefix, on average: what was not in the cache ...
        carried_tokens: ... and all of its input.
        compactions: How often the list was changed.
        breaks: The most prefix breaks in any `WITHIN_CALLS` calls.
        calls_over: Requests that did not fit the window beside the answer.
    """

    label: str
    calls: int
    billed_tokens: float
    recall: float
    recall_in_context: float
    hit_share: float
    new_tokens: float
    carried_tokens: float
    compactions: int
    breaks: int
    calls_over: int


def figures_of(label: str, replay: Replay) -> Figures:
    """The figures of one replay."""
    steady = [call for call in replay.calls if not call.breaks_prefix]
    breaks = [call.breaks_prefix for call in replay.calls]
    new_tokens = sum(call.written_tokens for call in steady)
    read_tokens = sum(call.read_tokens for call in steady)
    return Figures(
        label,
        len(replay.calls),
        replay.billed_tokens,
        replay.recall,
        replay.recall_with_context,
        replay.hit_share,
        new_tokens / len(steady),
        (new_tokens + read_tokens) / len(steady),
        replay.compactions,
        max(sum(breaks[at : at + WITHIN_CALLS]) for at in range(len(breaks))),
        replay.calls_over,
    )


def section(number: int, name: str, message_count: int, runs: Sequence[Figures]) -> str:
    """One case of the page, with `economy` and `claude-code` among its runs."""
    by_label = {run.label: run for run in runs}
    economy, usual = by_label["economy"], by_label["claude-code"]
    lines = [
        f"## {number}. {name} ({message_count:,} messages, {economy.calls:,} calls)",
        "",
        f"| policy | billed input tokens | of {usual.label}'s | beaten | recall | in context | "
        "cache hits | new tokens a call | carried | between compactions | compactions | "
        f"prefix breaks in {WITHIN_CALLS} calls | calls over the window |",
        f"|---|--:|--:|:-:|{'--:|' * 9}",
        *(_line(run, economy, usual) for run in runs),
        "",
        f"![cost against recall](simulator-{number}.svg)",
    ]
    return "\n".join(lines)


def _line(run: Figures, economy: Figures, usual: Figures) -> str:
    between = 1 - run.new_tokens / run.carried_tokens
    cells = (
        run.label,
        f"{run.billed_tokens:,.0f}",
        f"{run.billed_tokens / usual.billed_tokens:.2f}",
        _beaten(run, economy),
        f"{run.recall:.3f}",
        f"{run.recall_in_context:.3f}",
        f"{run.hit_share:.1%}",
        f"{run.new_tokens:,.0f}",
        f"{run.carried_tokens:,.0f}",
        f"{between:.1%}",
        run.compactions,
        run.breaks,
        run.calls_over if run.compactions else "-",
    )
    return f"| {' | '.join(map(str, cells))} |"


def _beaten(run: Figures, economy: Figures) -> str:
    if run.label not in PAPERS:
        return "-"
    share = economy.billed_tokens / run.billed_tokens
    return "yes" if share <= 0.75 or (share <= 1 and economy.recall > run.recall) else "no"


def picture(name: str, runs: Sequence[Figures]) -> str:
    """Cost against recall as SVG; the line joins the runs of `economy` and `default`."""
    width, height, margin = 760, 440, 60
    most = max(item.billed_tokens for item in runs) * 1.08
    least = min(item.recall for item in runs) * 0.95

    def place(item: Figures) -> tuple[float, float]:
        x = margin + (width - 2 * margin) * item.billed_tokens / most
        y = height - margin - (height - 2 * margin) * (item.recall - least) / (1 - least)
        return round(x, 1), round(y, 1)

    ours = sorted(place(item) for item in runs if item.label.startswith(_OURS))
    line = " ".join(f"{x},{y}" for x, y in ours)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{margin}" y="24" font-size="15">{name}: cost against recall</text>',
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
        color = "#2a7" if item.label.startswith(_OURS) else "#c43"
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{color}"/>')
        anchor = ' text-anchor="end"' if x > width - 200 else ""
        shift = -8 if anchor else 8
        parts.append(f'<text x="{x + shift}" y="{y - 6}"{anchor}>{item.label}</text>')
    return "\n".join([*parts, "</svg>", ""])
