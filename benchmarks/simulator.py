"""What a whole session costs under each policy, and what the model still knows.

Run: python benchmarks/simulator.py [number of a case [policy ...]]

Every session is replayed call by call as its host would send it (server/.../replay.py), with a
prompt cache like Anthropic's: reads at 0.1, writes at 1.25 of the plain price, prefixes from 1,024
tokens, and calls close enough together that nothing expires. Summaries are the extractive writer's,
so that no policy pays a model. The named peers are the four papers' policies; the floor of the same
run is the session without any compaction. `economy` also runs with another share of the window
as its trigger, so that the line from it to `default` can be drawn (results/simulator-*.svg).

"In context" is recall where words that stood near a name before stand near it in the request.
"Beaten" says whether `economy` is at least 25 % cheaper than that policy, or as cheap with higher
recall; `default` is to know at least as much as the papers' policies, for at most 1.1 times the
cost of `claude-code`. "Between compactions" is the part of the input that is read from the cache in
calls that break no prefix; it follows from the two columns before it, what is new in such a call
and what it carries in all: 95 % needs twenty times as much context as is new. The sets "joined" are
real runs one after the other, as of one user with many tasks. Figures are counts: they do not
depend on the load. Each run's are kept in results/simulator-*.json, from which this page is made.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import formats
from context_compaction.archive.local.archive import open_archive
from context_compaction.request import CompactRequest
from context_compaction.tokens.counter import counter_for
from mcp_server_compaction.compare.replay import READ_PRICE, WRITE_PRICE, call_positions, replay

from benchmarks.simulator_page import Figures, figures_of, picture, section
from tests.support.corpus import all_transcripts
from tests.support.synthetic import synthetic_session

RESULTS = Path(__file__).resolve().parent / "results"
POLICIES = (
    "default", "economy", "claude-code", "three-layer", "four-layer", "timeline",
    "timeline-checkpoint",
)  # fmt: skip
OTHER_SHARES = (0.25, 0.7)


@dataclass(frozen=True, slots=True)
class Case:
    """One session through one window."""

    name: str
    load: Callable[[], list[Any]]
    format: str
    window: int


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


def variants(number: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Policy and constants of each run, by its label."""
    named: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in POLICIES}
    if number in LONG_CASES:
        return named
    others = {
        f"economy, trigger at {share} of the window": ("economy", {"conversation_fraction": share})
        for share in OTHER_SHARES
    }
    return named | others | {"gentle": ("gentle", {})}


async def run(
    case: Case, payload: list[Any], label: str, policy: str, settings: dict[str, Any]
) -> Figures:
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
            return figures_of(label, await replay(payload, request, archive))


def uncompacted(case: Case, payload: list[Any]) -> Figures:
    """The floor, by arithmetic: everything is sent, as if no window were there."""
    sizes = list(map(counter_for().message, formats.parse(payload, format=case.format)))
    stops = call_positions(payload, case.format)
    read = written = sent = 0
    for stop in stops:
        total = sum(sizes[:stop])
        read, written, sent = read + sent, written + total - sent, total
    billed = read * READ_PRICE + written * WRITE_PRICE
    hits, calls = read / (read + written), len(stops)
    new, carried = written / calls, (read + written) / calls
    return Figures(
        "no compaction, no window", calls, billed, 1.0, 1.0, hits, new, carried, 0, 0, calls
    )


def write(number: int, case: Case, payload: list[Any], runs: dict[str, Figures]) -> None:
    """This case's figures and picture, and its section of the page beside those of the others."""
    kept = {label: asdict(figures) for label, figures in runs.items()}
    (RESULTS / f"simulator-{number}.json").write_text(
        json.dumps(kept, indent=1) + "\n", encoding="utf-8"
    )
    ordered = [runs[label] for label in variants(number) if label in runs]
    (RESULTS / f"simulator-{number}.svg").write_text(picture(case.name, ordered), encoding="utf-8")
    text = section(number, case.name, len(payload), [*ordered, uncompacted(case, payload)])
    page = RESULTS / "simulator.md"
    old = page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []
    sections = {f"## {part}".split(".")[0]: f"## {part}" for part in old} | {f"## {number}": text}
    parts = ["# Session simulator", (__doc__ or "").strip()]
    parts += [sections[key].strip() for key in sorted(sections)]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def stored(number: int) -> dict[str, Figures]:
    path = RESULTS / f"simulator-{number}.json"
    text = path.read_text(encoding="utf-8") if path.exists() else "{}"
    kept: dict[str, dict[str, Any]] = json.loads(text)
    return {label: Figures(**figures) for label, figures in kept.items()}


async def main() -> None:
    number_wanted, labels_wanted = sys.argv[1:2], sys.argv[2:]
    for number, case in enumerate(CASES, 1):
        if number_wanted and number != int(number_wanted[0]):
            continue
        payload = case.load()
        runs = stored(number)
        for label, (policy, settings) in variants(number).items():
            if labels_wanted and label not in labels_wanted:
                continue
            figures = await run(case, payload, label, policy, settings)
            print(f"{case.name}: {figures}", flush=True)
            runs[label] = figures
        write(number, case, payload, runs)


anyio.run(main)
