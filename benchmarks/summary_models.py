"""What asking a model adds to a compaction, the model itself aside: prompts, checks, wire format.

Run: python benchmarks/summary_models.py

The model answers at once: in this process, or behind the real wire format on loopback. The floor of
the same run is the same compaction with verbatim extracts; the peer is a bare request by the SDK.
"""

import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import (
    AnthropicModel,
    CompactRequest,
    ModelAnswer,
    ModelPrompt,
    ModelUsage,
    SummaryModel,
    compact,
    open_archive,
)
from context_compaction.archive.local.archive import LocalArchive
from context_compaction.summarizers.llm.model import TellChars

from tests.support.messages_api import Says, serve
from tests.support.story import SUMMARY
from tests.support.synthetic import synthetic_session

TOKENS = 200_000
ROUNDS = 5


@dataclass
class AtOnce:
    """A model that answers without delay; it keeps the size of what it was shown."""

    shown_chars: int = 0
    writer: str = "at-once"
    model: str = "at-once"
    window_tokens: int = 1_000_000
    timeout_seconds: float = 60.0

    async def write(self, prompt: ModelPrompt, tell: TellChars) -> ModelAnswer:
        self.shown_chars = max(self.shown_chars, len(prompt.user))
        await tell(len(SUMMARY))
        return ModelAnswer(SUMMARY, ModelUsage(1, 1, 1))


async def cpu_ms(work: Callable[[], Awaitable[Any]]) -> float:
    before = time.process_time()
    await work()
    return (time.process_time() - before) * 1000


async def median_ms(archive: LocalArchive, payload: list[Any], model: SummaryModel | None) -> float:
    """Of several compactions, each of a session of its own and so of nothing known."""
    found: list[float] = []
    for number in range(ROUNDS + 1):
        name = f"{model.writer if model else 'extracts'}-{number}"
        request = CompactRequest(
            format="anthropic", mode="full", context_window=1_000_000, session_id=name
        )
        found.append(
            await cpu_ms(lambda r=request: compact(payload, r, archive=archive, model=model))
        )
    return statistics.median(found[1:])  # the first one loads code


async def main() -> None:
    payload = synthetic_session(TOKENS, seed=7)
    at_once = AtOnce()
    with TemporaryDirectory() as folder, serve(lambda _: Says(SUMMARY)) as api:
        api_model = AnthropicModel("key", base_url=api.url)
        async with open_archive(Path(folder)) as archive:
            floor = await median_ms(archive, payload, None)
            in_process = await median_ms(archive, payload, at_once)
            over_wire = await median_ms(archive, payload, api_model)
        prompt = ModelPrompt("", "x" * at_once.shown_chars, 1_000)

        async def hear(chars: int) -> None:
            """Nothing is shown."""

        bare = statistics.median([
            await cpu_ms(lambda: api_model.write(prompt, hear)) for _ in range(ROUNDS)
        ])
    print(f"{TOKENS:,} tokens, {len(payload)} messages, CPU in ms, median of {ROUNDS}\n")
    print("| compaction with | ms | of extracts |")
    print("|---|---|---|")
    for name, value in (
        ("extracts (floor)", floor),
        ("a model in this process", in_process),
        ("a model behind the wire format", over_wire),
        ("the bare request alone (client and scripted server)", bare),
    ):
        print(f"| {name} | {value:.0f} | {value / floor:.2f} |")
    print(f"\nThe model was shown {at_once.shown_chars:,} characters in one request.")


if __name__ == "__main__":
    anyio.run(main)
