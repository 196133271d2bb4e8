"""A comparison as one HTML page that needs nothing else: a table and charts as inline SVG."""

from collections.abc import Callable, Sequence
from html import escape

from mcp_server_compaction.comparison import Row

_WIDTH, _BAR, _LABEL = 720, 26, 150
_COLORS = ("#2a7f62", "#4f7cac", "#c8553d", "#8a6fb0", "#b58b00", "#5b8e7d", "#a44a6a")

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1100px; color: #222; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .3rem .6rem; text-align: right; }
th { border-bottom: 2px solid #888; } tr:nth-child(even) { background: #f4f4f1; }
td:first-child, th:first-child { text-align: left; } svg { max-width: 100%; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; } tr:nth-child(even) { background: #262626; }
  svg text { fill: #ddd; }
}
"""


def page(rows: Sequence[Row], headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """The whole page.

    Args:
        rows: What was measured, for the charts.
        headings: Of the table.
        cells: Of the table, a list for each row.
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in cells
    )
    charts = "".join([
        _bars(
            "Tokens after one compaction of the whole", rows, lambda row: row.tokens_after, ",.0f"
        ),
        _bars("Cost of the session's input, USD", rows, lambda row: row.cost_usd, ",.2f"),
        _bars("Recall over the session", rows, lambda row: row.recall, ".3f"),
        _bars("Tokens written to the cache again", rows, lambda row: row.rebilled_tokens, ",.0f"),
        _scatter(rows),
    ])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Policies compared</title><style>{_STYLE}</style></head><body>"
        f"<h1>Policies compared</h1><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{charts}</body></html>\n"
    )


def _bars(title: str, rows: Sequence[Row], value: Callable[[Row], float], form: str) -> str:
    most = max((value(row) for row in rows), default=0) or 1
    height = _BAR * len(rows)
    parts = [f"<h2>{escape(title)}</h2>", _svg(height)]
    for at, row in enumerate(rows):
        length = (_WIDTH - _LABEL - 120) * value(row) / most
        y = at * _BAR
        parts.append(
            f'<text x="{_LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(row.policy)}</text>'
            f'<rect x="{_LABEL}" y="{y + 4}" width="{max(length, 1):.1f}" height="{_BAR - 8}" '
            f'fill="{_COLORS[at % len(_COLORS)]}"/>'
            f'<text x="{_LABEL + length + 6:.1f}" y="{y + 17}">{value(row):{form}}</text>'
        )
    return "".join([*parts, "</svg>"])


def _scatter(rows: Sequence[Row]) -> str:
    """Cost to the right, recall upwards: the best stand at the upper left."""
    height, margin = 360, 50
    most = max((row.cost_usd for row in rows), default=0) * 1.1 or 1
    least = min((row.recall for row in rows), default=0) * 0.95
    parts = [
        "<h2>Cost against recall</h2>",
        _svg(height),
        f'<path d="M{margin} 10V{height - margin}H{_WIDTH - 10}" fill="none" stroke="#888"/>',
        f'<text x="{_WIDTH / 2}" y="{height - 14}" text-anchor="middle">USD</text>',
        f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" '
        'text-anchor="middle">recall</text>',
    ]
    for at, row in enumerate(rows):
        x = margin + (_WIDTH - margin - 120) * row.cost_usd / most
        y = height - margin - (height - margin - 20) * (row.recall - least) / ((1 - least) or 1)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{_COLORS[at % len(_COLORS)]}"/>'
            f'<text x="{x + 9:.1f}" y="{y - 6:.1f}">{escape(row.policy)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _svg(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13">'
    )
