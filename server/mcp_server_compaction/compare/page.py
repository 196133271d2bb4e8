"""A comparison as one HTML page that needs nothing else: a table and charts as inline SVG.

Colours and text follow the reader's light or dark scheme; nothing is fetched, nothing is run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mcp_server_compaction.compare.comparison import PolicyRow, Share

_WIDTH, _ROW, _LABEL, _VALUE = 520, 24, 140, 90
_COLORS = ("#3d9970", "#5b8fd0", "#d8694f", "#9d7fc7", "#c29a1b", "#4fa8a0", "#c0597f", "#8a8a8a")
# A label of the scatter is moved down until it has so much room, in pixels.
_LABEL_HEIGHT, _LABEL_REACH = 15, 130

_STYLE = """
:root { color-scheme: light dark; --text: #222; --back: #fff; --soft: #f2f2ee; --line: #888; }
@media (prefers-color-scheme: dark) {
  :root { --text: #ddd; --back: #1b1b1b; --soft: #262626; --line: #777; }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem;
  max-width: 1160px; color: var(--text); background: var(--back); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
td, th { padding: .3rem .5rem; text-align: right; vertical-align: top; white-space: pre; }
th { border-bottom: 2px solid var(--line); white-space: normal; }
tr:nth-child(even) td { background: var(--soft); }
td:first-child, th:first-child { text-align: left; } h2 { font-size: 1.05rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(500px, 100%), 1fr));
  gap: 0 2rem; }
figure { margin: 1rem 0; } figcaption { font-weight: 600; margin-bottom: .3rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); }
.legend { font-size: 13px; margin: 0 0 .3rem; } .legend svg { margin: 0 .3em 0 .9em; }
"""


# Two tables, since one of all columns is wider than a terminal and a page.
_LEFT = ("policy", "tokens after", "user turns", "results", "files", "seconds")
_SESSION = (
    "policy", "acts", "over", "recall", "in context", "cached", "re-billed", "cost USD",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of each line names what it is of."""

    title: str
    headings: Sequence[str]
    cells: Sequence[Sequence[str]]


def tables_of(rows: Sequence[PolicyRow]) -> list[Table]:
    """What was measured, in figures."""
    return [
        Table("What one compaction of the whole leaves", _LEFT, [_left(row) for row in rows]),
        Table("The session, replayed call by call", _SESSION, [_session(row) for row in rows]),
    ]


def note_of(row: PolicyRow, price_usd: float, window: int) -> str:
    """What was measured and how, for people."""
    return (
        f"{row.tokens_before:,} tokens and {row.calls} calls through a window of {window:,} "
        f"tokens. Cost: input at ${price_usd:g} a million, cache reads at 0.1 and writes at 1.25 "
        "of it, without summaries of a model. Recall: of the names that the model used again, the "
        "part that stood in its request; in context: beside words that stood near them before. "
        "Acts: how often it changed the list; over: calls that did not fit; cached: input read "
        "from the cache; re-billed: tokens written to it again."
    )


def _left(row: PolicyRow) -> list[str]:
    return [
        row.policy,
        f"{row.tokens_after:,}" + ("" if row.fits else " (too many)"),
        _share(row.user_turns),
        _share(row.results),
        _share(row.files),
        f"{row.compact_seconds:.2f}",
    ]


def _session(row: PolicyRow) -> list[str]:
    return [
        row.policy,
        str(row.compactions),
        str(row.calls_over),
        f"{row.recall:.3f}",
        f"{row.recall_with_context:.3f}",
        f"{row.cache_hit_share:.1%}",
        f"{row.rebilled_tokens:,}",
        f"{row.cost_usd:.2f}",
    ]


def _share(share: Share) -> str:
    return f"{share.kept}/{share.total}"


def page(rows: Sequence[PolicyRow], tables: Sequence[Table], note: str) -> str:
    """The whole page.

    Args:
        rows: What was measured, for the charts.
        tables: The same in figures.
        note: What was measured and how, for people.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Policies compared</title><style>{_STYLE}</style></head><body>"
        f"<h1>Policies compared</h1><p>{escape(note)}</p>{body(rows, tables)}</body></html>\n"
    )


def body(rows: Sequence[PolicyRow], tables: Sequence[Table]) -> str:
    """The tables and charts alone, as HTML without styles of its own."""
    names = [row.policy for row in rows]
    charts = "".join([
        _bars("Tokens after one compaction of the whole", names,
              {"tokens": [row.tokens_after for row in rows]}, ",.0f"),
        _layers(rows),
        _bars("What is kept of it, in percent", names, {
            "user turns": [_percent(row.user_turns) for row in rows],
            "results": [_percent(row.results) for row in rows],
            "files": [_percent(row.files) for row in rows],
        }, ".0f"),
        _bars("Recall over the session", names, {
            "bare": [row.recall for row in rows],
            "with context": [row.recall_with_context for row in rows],
        }, ".3f"),
        _bars("Cost of the session's input, USD", names,
              {"cost": [row.cost_usd for row in rows]}, ",.2f"),
        _bars("Tokens written to the cache again", names,
              {"tokens": [row.rebilled_tokens for row in rows]}, ",.0f"),
        _bars("Time of one compaction, seconds", names,
              {"time": [row.compact_seconds for row in rows]}, ",.2f"),
        _scatter(rows),
    ])  # fmt: skip
    return f'{"".join(map(_table, tables))}<div class="charts">{charts}</div>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in table.headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
        for line in table.cells
    )
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide" tabindex="0" role="region" '
        f'aria-label="{escape(table.title)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _percent(share: Share) -> float:
    return 100 * share.kept / share.total if share.total else 100.0


def _bars(title: str, names: Sequence[str], series: dict[str, list[float]], form: str) -> str:
    """For each name a bar of each series, side by side."""
    most = max((value for values in series.values() for value in values), default=0) or 1
    thick = (_ROW - 6) / len(series) if len(series) < 3 else 8
    height = max(_ROW, thick * len(series) + 6)
    parts: list[str] = []
    for at, name in enumerate(names):
        top = at * height + 3
        parts.append(_text(_LABEL - 8, top + height / 2 + 1, name, "end"))
        for number, values in enumerate(series.values()):
            color = _COLORS[(number if len(series) > 1 else at) % len(_COLORS)]
            length = (_WIDTH - _LABEL - _VALUE) * values[at] / most
            y = top + number * thick
            parts.append(_rect(_LABEL, y, length, thick - 1, color))
            small = 9 if len(series) > 1 else 12
            value = f"{values[at]:{form}}"
            parts.append(_text(_LABEL + length + 6, y + thick / 2 + small / 3, value, size=small))
    legend = _legend(list(series)) if len(series) > 1 else ""
    return _figure(title, legend, height * len(names) + 6, parts)


def _layers(rows: Sequence[PolicyRow]) -> str:
    """For each policy what its layers saved, one behind the other."""
    layers = list(dict.fromkeys(name for row in rows for name in row.saved_by_layer))
    layers = [name for name in layers if any(row.saved_by_layer.get(name, 0) > 0 for row in rows)]
    saved = [[max(0, row.saved_by_layer.get(name, 0)) for name in layers] for row in rows]
    most = max(map(sum, saved), default=0) or 1
    parts: list[str] = []
    for at, (row, amounts) in enumerate(zip(rows, saved, strict=True)):
        x, y = float(_LABEL), at * _ROW + 3
        parts.append(_text(_LABEL - 8, y + 13, row.policy, "end"))
        for number, amount in enumerate(amounts):
            length = (_WIDTH - _LABEL - _VALUE) * amount / most
            parts.append(_rect(x, y, length, _ROW - 7, _COLORS[number % len(_COLORS)]))
            x += length
        parts.append(_text(x + 6, y + 13, f"{sum(amounts):,}"))
    return _figure("Tokens that each layer saved", _legend(layers), _ROW * len(rows) + 6, parts)


def _scatter(rows: Sequence[PolicyRow]) -> str:
    """Cost to the right, recall upwards: the best stand at the upper left."""
    height, left, bottom = 320, 50, 40
    most = max((row.cost_usd for row in rows), default=0) * 1.05 or 1
    least = int(min((row.recall for row in rows), default=0) * 20) / 20
    wide, high = _WIDTH - left - 110, height - bottom - 16
    parts = [
        f'<path d="M{left} 10V{height - bottom}H{_WIDTH - 10}" fill="none" stroke="var(--line)"/>',
        _text(left + wide / 2, height - 6, "cost of the session's input, USD", "middle"),
        _text(left + 6, 14, "recall"),
    ]
    for step in range(5):
        share = step / 4
        parts.append(_text(left + wide * share, height - bottom + 16, f"{most * share:.2f}"))
        recall = least + (1 - least) * share
        y = height - bottom - high * share
        parts.append(_text(left - 6, y + 4, f"{recall:.2f}", "end"))
    placed: list[tuple[float, float]] = []
    for at, row in enumerate(rows):
        x = left + wide * row.cost_usd / most
        y = height - bottom - high * (row.recall - least) / ((1 - least) or 1)
        label_y = y + 4
        while any(
            abs(x - x2) < _LABEL_REACH and abs(label_y - y2) < _LABEL_HEIGHT for x2, y2 in placed
        ):
            label_y += 3
        placed.append((x, label_y))
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_COLORS[at % len(_COLORS)]}"/>'
        )
        parts.append(_text(x + 9, label_y, row.policy))
    return _figure("Cost against recall", "", height, parts)


def _figure(title: str, legend: str, height: float, parts: Sequence[str]) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{legend}"
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}" role="img" aria-label="{escape(title)}" '
        f'font-family="system-ui, sans-serif" font-size="12">{"".join(parts)}</svg></figure>'
    )


def _legend(names: Sequence[str]) -> str:
    keys = "".join(
        f'<svg viewBox="0 0 10 10" width="11" height="11" aria-hidden="true"><rect width="10" '
        f'height="10" fill="{_COLORS[at % len(_COLORS)]}"/></svg>{escape(name)}'
        for at, name in enumerate(names)
    )
    return f'<p class="legend">{keys}</p>'


def _rect(x: float, y: float, length: float, thick: float, color: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(length, 1):.1f}" height="{thick:.1f}" '
        f'fill="{color}"/>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
