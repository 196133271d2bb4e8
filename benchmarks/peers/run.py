"""What a call costs beside the peers that a user would install instead, in one run.

Run: python benchmarks/peers/run.py [--tokens 200000 1000000] [--folder FOLDER]

Each peer runs in an environment of its own, of the version named here; those in FOLDER (by default
`.benchmarks/peers` here) are used again. The transcript is tests/support/synthetic.py's, handed to
peers as OpenAI messages, which they take, and to us as Anthropic's. CPU, medians of five; a list
grows by 14 messages. Ours is below its trigger, and counts, archives and validates, which no peer
does; `left` is how many messages go to the model.
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
GROWS = 5
TURN_MESSAGES = 14
# A turn has some 300 tokens a message; more than enough for those that a list grows by.
MORE_TOKENS = 60_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A package to compare with: what to install, and the file here that times it."""

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
    """A list of about `tokens` tokens, and the turns that it grows by."""
    base = len(synthetic_session(tokens, seed=7))
    longer = synthetic_session(tokens + MORE_TOKENS, seed=7)
    stops = range(base, base + GROWS * TURN_MESSAGES, TURN_MESSAGES)
    return longer[:base], [longer[stop : stop + TURN_MESSAGES] for stop in stops]


def for_openai(messages: list[Any]) -> list[Any]:
    converted = convert(parse(messages, format="anthropic"), to="openai-chat", origin="anthropic")
    return list(render(converted, format="openai-chat"))


def environment(folder: Path, peer: Peer) -> Path:
    """The Python of the peer's environment, made where it is missing."""
    home = folder / peer.requirements[0]
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *peer.requirements], check=True)
    return python


def timed(python: Path | str, script: str, *arguments: Path) -> dict[str, Any]:
    """What a script of this folder printed; it has a process of its own."""
    command = [python, HERE / script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(tokens: int, pythons: dict[str, Path], folder: Path) -> None:
    messages, turns = conversation(tokens)
    files = [folder / name for name in ("anthropic", "turns", "openai", "openai-turns")]
    values = (messages, turns, for_openai(messages), [for_openai(turn) for turn in turns])
    for path, value in zip(files, values, strict=True):
        path.write_text(json.dumps(value), encoding="utf-8")
    ours = timed(sys.executable, "ours.py", *files[:2])
    print(f"\n## {tokens:,} tokens, {len(messages)} messages\n")
    print("| CPU ms | cold | again | grown | ours / theirs, grown | left |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(row("ours, below the trigger", ours["idle"], ""))
    print(row("ours, a compacted list grown", ours["adopted"], ""))
    print(f"| floor: parse, count and hash of the same bytes | {ours['floor']:.0f} | | | | |")
    for name, peer in PEERS.items():
        found = timed(pythons[name], peer.script, *files[2:])
        ratio = statistics.median(ours["idle"]["grown"]) / statistics.median(found["grown"])
        print(row(f"{name} {peer.requirements[0].partition('==')[2]}", found, f"{ratio:.2f}"))


def row(name: str, found: dict[str, Any], ratio: str) -> str:
    again, grown = (statistics.median(found[key]) for key in ("again", "grown"))
    cold = found.get("cold")
    first = "" if cold is None else f"{cold:.1f}"
    return f"| {name} | {first} | {again:.1f} | {grown:.1f} | {ratio} | {found['left']} |"


def main() -> None:
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
