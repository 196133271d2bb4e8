"""Compare the CPU time of a call with libraries that a user could install instead.

Run: python benchmarks/peers/run.py [--tokens 200000 1000000] [--folder FOLDER]

Each peer runs in a virtual environment with the version named here. Environments in FOLDER (by
default `.benchmarks/peers`) are reused. The transcript of tests/support/synthetic.py is passed to
peers as OpenAI messages and to this library as Anthropic messages. Figures are CPU milliseconds,
medians of five; each growth of the list is 14 messages. This library is below its trigger; only it
counts, archives and validates. `left` is the number of messages for the model.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from context_compaction.formats import parse, render
from context_compaction.formats.convert import convert

from tests.support.synthetic import synthetic_session

HERE = Path(__file__).resolve().parent
GROWTHS = 5
TURN_MESSAGES = 14
# Enough for all growths, because a message has about 300 tokens.
MORE_TOKENS = 60_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A package to compare with.

    Attributes:
        requirements: Packages to install, with their versions.
        script: Script in this folder that times it.
    """

    requirements: tuple[str, ...]
    script: str


LANGCHAIN = "langchain==1.4.7"
PEERS = {
    "compact-middleware": Peer(
        ("compact-middleware==0.1.1", LANGCHAIN), "drivers/compact_middleware_layers.py"
    ),
    "LangChain's clearing": Peer((LANGCHAIN,), "drivers/langchain_clearing.py"),
    "contextgc": Peer(("contextgc==0.4.6",), "drivers/contextgc_compile.py"),
    "headroom": Peer(("headroom-ai==0.42.0",), "drivers/headroom_compress.py"),
}


def conversation(tokens: int) -> tuple[list[Any], list[list[Any]]]:
    """Return a list of about `tokens` tokens, and the messages of each growth."""
    base = len(synthetic_session(tokens, seed=7))
    longer = synthetic_session(tokens + MORE_TOKENS, seed=7)
    stops = range(base, base + GROWTHS * TURN_MESSAGES, TURN_MESSAGES)
    return longer[:base], [longer[stop : stop + TURN_MESSAGES] for stop in stops]


def for_openai(messages: list[Any]) -> list[Any]:
    """Convert Anthropic messages to Chat Completions."""
    converted = convert(parse(messages, format="anthropic"), to="openai-chat", origin="anthropic")
    return list(render(converted, format="openai-chat"))


def environment(folder: Path, peer: Peer) -> Path:
    """Return the Python of the peer's environment, which is created if it is missing."""
    home = folder / peer.requirements[0]
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *peer.requirements], check=True)
    return python


def timed(python: Path | str, script: str, *arguments: Path) -> dict[str, Any]:
    """Run a script of this folder in a subprocess and return the JSON that it prints."""
    command = [python, HERE / script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(tokens: int, pythons: dict[str, Path], folder: Path) -> None:
    """Print the table of one size."""
    messages, turns = conversation(tokens)
    files = [folder / name for name in ("anthropic", "turns", "openai", "openai-turns")]
    values = (messages, turns, for_openai(messages), [for_openai(turn) for turn in turns])
    for path, value in zip(files, values, strict=True):
        path.write_text(json.dumps(value), encoding="utf-8")
    own = timed(sys.executable, "ours.py", *files[:2])
    print(f"\n## {tokens:,} tokens, {len(messages)} messages\n")
    print("| CPU ms | cold | again | grown | ours / theirs, grown | left |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(row("ours, below the trigger", own["idle"], ""))
    print(row("ours, a compacted list grown", own["adopted"], ""))
    print(f"| floor: parse, count and hash these bytes | {own['floor']:.0f} | | | | |")
    for name, peer in PEERS.items():
        figures = timed(pythons[name], peer.script, *files[2:])
        ratio = statistics.median(own["idle"]["grown"]) / statistics.median(figures["grown"])
        print(row(f"{name} {peer.requirements[0].partition('==')[2]}", figures, f"{ratio:.2f}"))


def row(name: str, figures: dict[str, Any], ratio: str) -> str:
    """Format a table row."""
    again, grown = (statistics.median(figures[key]) for key in ("again", "grown"))
    cold = figures.get("cold")
    first = "" if cold is None else f"{cold:.1f}"
    return f"| {name} | {first} | {again:.1f} | {grown:.1f} | {ratio} | {figures['left']} |"


def main() -> None:
    """Print the tables of all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[200_000, 1_000_000])
    parser.add_argument("--folder", type=Path, default=HERE.parent.parent / ".benchmarks" / "peers")
    arguments = parser.parse_args()
    pythons = {name: environment(arguments.folder, peer) for name, peer in PEERS.items()}
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{time.strftime('%Y-%m-%d')}, {cores} cores, load {load:.1f}")
    with TemporaryDirectory() as folder:
        for tokens in arguments.tokens:
            measure(tokens, pythons, Path(folder))


if __name__ == "__main__":
    main()
