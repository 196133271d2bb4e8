"""Every benchmark of speed in one run, beside peers and floors: a page and its pictures.

Run: python benchmarks/run.py [NAME …]

Without names all of them, which takes about half an hour alone on two cores. Each has a process of
its own and prints what it measured; that is put on results/performance.md, with the machine and its
load, and three pictures are drawn of it: cost by size, cost by age, cost beside peers.
"""

import argparse
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "startup": ("startup.py",),
    "stdio": ("stdio.py",),
    "cost": ("cost.py",),
    "peers": ("peers/run.py",),
    "age": ("age.py",),
    "counting": ("counting.py",),
    "http_load": ("http_load.py",),
    "search": ("search.py", "--messages", "50000"),
    "postgres": ("postgres.py", "--messages", "50000", "--seconds", "240"),
    "team": ("team.py", "--turns", "60"),
}
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_OURS, _THEIRS = "#2a7", "#c43"
_WIDTH, _MARGIN, _BAR = 760, 60, 26


def run(name: str) -> str:
    """What a benchmark printed, between fences where it is no Markdown."""
    script, *arguments = BENCHMARKS[name]
    load, began = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout.strip() or "(nothing)"
    if done.returncode:
        text += f"\n\nIt failed:\n\n{done.stderr.strip()[-1500:]}"
    if "| ---" not in text and "|---" not in text:
        text = f"```\n{text}\n```"
    command = " ".join(["python", f"benchmarks/{script}", *arguments])
    seconds = time.monotonic() - began
    return f"## {name}\n\n`{command}`: {seconds:.0f} s, load {load:.1f} before\n\n{text}\n"


def rows_of(text: str) -> list[tuple[str, list[float]]]:
    """The rows of a printed table: what stands before the first number, and the numbers."""
    rows: list[tuple[str, list[float]]] = []
    for line in text.splitlines():
        cells = line.strip("| ")
        if cells.startswith(("#", "`")):
            continue
        name = re.split(r"\||\s{2,}", cells)[0].strip()
        numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(cells[len(name) :])]
        if name and numbers:
            rows.append((name, numbers))
    return rows


def bars(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """Bars of milliseconds on a logarithmic scale, ours in another color, as SVG."""
    least = min(value for _, value in rows) / 2
    ratio = max(value for _, value in rows) / least
    height = 60 + _BAR * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(rows):
        y = 40 + _BAR * number
        width = max(2.0, (_WIDTH - 400) * _log(value / least) / _log(ratio))
        color = _OURS if name.startswith("ours") else _THEIRS
        parts.append(f'<text x="270" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="280" y="{y}" width="{width:.1f}" height="18" fill="{color}"/>')
        parts.append(f'<text x="{290 + width:.1f}" y="{y + 14}">{value:,.1f} ms</text>')
    return "\n".join([*parts, "</svg>", ""])


def line(title: str, points: Sequence[tuple[float, float]], axes: tuple[str, str]) -> str:
    """A line through points, both axes from nothing, as SVG."""
    height = 320
    right, top = max(x for x, _ in points), max(y for _, y in points)
    scale_x, scale_y = (_WIDTH - 2 * _MARGIN) / right, (height - 2 * _MARGIN) / top
    places = [
        (round(_MARGIN + x * scale_x, 1), round(height - _MARGIN - y * scale_y, 1))
        for x, y in points
    ]
    drawn = " ".join(f"{x},{y}" for x, y in places)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{escape(title)}</text>',
        f'<path d="M{_MARGIN} {_MARGIN}V{height - _MARGIN}H{_WIDTH - _MARGIN}" fill="none" '
        'stroke="#888"/>',
        f'<text x="{_WIDTH // 2}" y="{height - 20}" text-anchor="middle">{escape(axes[0])} '
        f"(right end: {right:,.0f})</text>",
        f'<text x="{_MARGIN}" y="{_MARGIN - 8}">{escape(axes[1])} (top: {top:,.0f})</text>',
        f'<polyline points="{drawn}" fill="none" stroke="{_OURS}" stroke-width="2"/>',
    ]
    return "\n".join([*parts, "</svg>", ""])


def _log(value: float) -> float:
    return max(math.log(value), 1e-9)


def pictures(texts: dict[str, str]) -> dict[str, str]:
    """What can be drawn of the run, by file name."""
    drawn: dict[str, str] = {}
    if "peers" in texts:
        largest = rows_of(texts["peers"].rpartition("\n## ")[2])
        rows = [(name, values[2]) for name, values in largest if len(values) >= 4]
        if rows:
            drawn["performance-peers.svg"] = bars("A list grown by a turn", rows)
    if "cost" in texts:
        sized = [(name, values) for name, values in rows_of(texts["cost"]) if len(values) >= 2]
        rows = [
            (f"ours, {name}, {size}", value)
            for name, values in sized
            if "grown" in name or "delta" in name or "same" in name
            for size, value in zip(("200K", "1M", "5M"), values, strict=False)
        ]
        if rows:
            drawn["performance-size.svg"] = bars("Cost of a call by size", rows)
    if "age" in texts:
        table = texts["age"].partition("compaction")[2].partition("\n\n")[0]
        numbers = [
            [float(n.replace(",", "")) for n in _NUMBER.findall(one)] for one in table.splitlines()
        ]
        points = [(one[0], one[3]) for one in numbers if len(one) == 5]
        if points:
            axes = ("compactions of one session", "CPU ms of a compaction")
            drawn["performance-age.svg"] = line("Cost by age", points, axes)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []])
    names = parser.parse_args().names or [*BENCHMARKS]
    texts: dict[str, str] = {}
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        texts[name] = run(name)
    cores = len(os.sched_getaffinity(0))
    head = (
        "# Performance\n\nWritten by `python benchmarks/run.py`; look at the ratios to the floor "
        f"or peer of the same run.\n\n{time.strftime('%Y-%m-%d')}, {cores} cores, "
        f"{platform.machine()}, Python {platform.python_version()}\n"
    )
    drawn = pictures(texts)
    for name, svg in drawn.items():
        (RESULTS / name).write_text(svg, encoding="utf-8")
    shown = "".join(f"\n![{name}]({name})\n" for name in drawn)
    page = "\n".join([head + shown, *texts.values()])
    (RESULTS / "performance.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
