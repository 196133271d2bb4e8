"""What the loss report costs, and whether search finds what it names.

Run: python benchmarks/losses.py

The longest real session and some short ones are summarised to 8,000 tokens. The cost is CPU time,
best of five, beside the floor: parting the same texts into words. A name is found where one search
by it leads to a message or an output that holds it.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import CompactRequest, compact, formats
from context_compaction.archive import Archive, Query
from context_compaction.messages.model import Messages
from context_compaction.pipeline.dropped_names import dropped_names
from context_compaction.tokens.counter import counter_for

from benchmarks.needed import spoken
from tests.support.corpus import Transcript, all_transcripts
from tests.support.json_types import Json
from tests.support.promises import temporary_archive

TARGET_TOKENS = 8_000
PREFIXES = ("pi/", "swe-agent/ctf", "tau-bench/airline-task-1")
EACH = 8


def best_ms(run: Callable[[], object]) -> float:
    """CPU milliseconds of the fastest of five runs."""
    times: list[float] = []
    for _ in range(5):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times) * 1_000


def after_of(before: Messages, messages: list[Json], format: str) -> Messages:
    """The list that came out, untouched messages as the very objects of `before`."""
    known = {id(message.source): message for message in before}
    return tuple(known.get(id(m.source), m) for m in formats.parse(messages, format=format))


async def found_of(names: list[str], archive: Archive) -> int:
    """How many of `names` one search finds."""
    found = 0
    for name in names:
        page = await archive.search(Query(name, session_id="s"))
        for hit in page.hits:
            if hit.kind == "output":
                held = name in (await archive.read_output(hit.pointer)).data.decode()
            else:
                [message] = await archive.read_messages("s", hit.seq, hit.seq)
                raw = json.dumps(message.raw, ensure_ascii=False)
                held = name in raw or json.dumps(name, ensure_ascii=False)[1:-1] in raw
            if held:
                found += 1
                break
    return found


async def row_of(transcript: Transcript) -> str:
    """One line of the table."""
    request = CompactRequest(
        mode="full", format=transcript.format, session_id="s", target_tokens=TARGET_TOKENS
    )
    async with temporary_archive() as archive:
        result = await compact(transcript.payload, request, archive=archive)
        before = formats.parse(transcript.payload, format=transcript.format)
        after = after_of(before, result.messages, transcript.format)
        losses = dropped_names(before, after)
        names = [name for kind in losses.shown.values() for name in kind]
        found = await found_of(names, archive)
    texts = list(spoken(before))
    cost = best_ms(lambda: dropped_names(before, after))
    floor = best_ms(lambda: [text.split() for text in texts])
    tokens = counter_for("gpt-4o").messages(before)
    return (
        f"| {transcript.name} | {tokens:,} | {cost:.1f} | {floor:.1f} | {cost / floor:.1f} | "
        f"{losses.total:,} | {len(names)} | {found} |"
    )


def main() -> None:
    print("| session | tokens (o200k) | report, ms | floor, ms | ratio | gone | named | found |")
    print("| --- " * 8 + "|")
    for prefix in PREFIXES:
        mine = [item for item in all_transcripts() if item.name.startswith(prefix)]
        for transcript in mine[:EACH]:
            print(anyio.run(row_of, transcript), flush=True)


if __name__ == "__main__":
    main()
