"""Compact generated conversations and import damaged session files; count every fault.

Run: python benchmarks/fuzz.py [--random 2000] [--damaged 1000] [--rows 10000] [--only NAME]

Conversations: each has a random mode, policy, window and target. The validators in `tests/support`
were written from the providers' documentation and know nothing of the product. Each string of the
input must be in the archive, and each string that left the context must be readable through the
pointers in the result.

Session files: each row has a unique word in every text, and is damaged or torn. After the import, a
search must find each word that the file still holds. Exits with 1 if there is a fault.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from context_compaction import POLICIES, CompactRequest, CompactResult, Mode, compact
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from mcp_server_compaction.hosts.importing import Importer

from tests.support.json_types import Json
from tests.support.promises import check_readback, refusable, strings_in, temporary_archive
from tests.support.provider_rules import problems
from tests.support.session_rows import HOSTS, ROWS_PER_FILE, missing_words, session_file
from tests.support.strategies import FORMATS, conversations, hostile_conversations

SOURCES = {"random": conversations, "damaged": hostile_conversations}
FAULTS = ("raised", "invalid", "lost")
# A new conversation has no compaction to undo.
MODES = [mode for mode in get_args(Mode) if mode != "undo"]
REQUESTS = st.builds(
    CompactRequest,
    mode=st.sampled_from(MODES),
    policy=st.sampled_from(list(POLICIES)),
    context_window=st.sampled_from([8_000, 200_000]),
    target_tokens=st.sampled_from([100, 400, 1_500, None]),
)


class FaultError(Exception):
    """A broken promise, with its kind and the evidence."""


def main() -> int:
    """Fuzz all formats and hosts; return 1 if there is a fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", type=int, default=2_000)
    parser.add_argument("--damaged", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--only", default="", help="one format, or one host")
    options = parser.parse_args()
    faults: list[str] = []
    print_line("input", "cases", *FAULTS, "seconds")
    print_line(*["---"] * 6)
    for format in FORMATS:
        if options.only in ("", format):
            for source, count in (("random", options.random), ("damaged", options.damaged)):
                faults += fuzz_conversations(format, source, count) if count else []
    for host in HOSTS:
        if options.only in ("", host):
            faults += fuzz_session_files(host, options.rows)
    print("\n".join(["", *faults[:100], f"{len(faults)} faults"]))
    return 1 if faults else 0


def print_line(*cells: object) -> None:
    """Print a line of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_figures(name: str, cases: int, faults: list[str], start: float) -> None:
    """Print the numbers of faults by kind."""
    kinds = Counter(fault.split(":", 1)[0] for fault in faults)
    print_line(name, cases, *(kinds[kind] for kind in FAULTS), round(time.monotonic() - start))


def fuzz_conversations(format: str, source: str, count: int) -> list[str]:
    """Compact `count` conversations of one format; return a line for each fault."""
    start, cases, faults = time.monotonic(), 0, list[str]()

    @seed(1)
    @settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    @given(SOURCES[source](format), REQUESTS)
    def run(payload: list[Json], request: CompactRequest) -> None:
        nonlocal cases
        cases += 1
        try:
            anyio.run(check_conversation, payload, request, format)
        except Exception as error:  # noqa: BLE001 - every error is a finding
            fault = str(error) if isinstance(error, FaultError) else f"raised: {error!r}"
            faults.append(f"{fault[:300]} [{format}, {request.mode}, {request.policy}]")

    run()
    print_figures(f"{format}, {source}", cases, faults, start)
    return faults


async def check_conversation(payload: list[Json], request: CompactRequest, format: str) -> None:
    """Compact one conversation and check that the result is valid and nothing is lost."""
    request = replace(request, format=format)
    async with temporary_archive() as archive:
        results: list[CompactResult] = []
        with refusable(payload):  # system messages alone can exceed a target
            results.append(await compact(payload, request, archive=archive))
        if not results:
            return
        result = results[0]
        violations = problems(result.messages, format, original=payload)
        if violations and request.mode not in ("plan", "record"):  # because these modes only report
            raise FaultError(f"invalid: {violations}")
        try:
            await check_readback(payload, result, format, archive)
        except AssertionError as error:
            raise FaultError(f"lost: {error}") from error
        if request.mode == "plan" or not payload:
            return  # because a plan writes nothing
        archived = await archive.read_messages(result.session_id, 0, 2 * len(payload) + 1)
        known = strings_in([message.raw for message in archived]) | strings_in(result.messages)
        if missing := strings_in(payload) - known:
            raise FaultError(f"lost: {sorted(missing)[:3]}")


def fuzz_session_files(host: str, count: int) -> list[str]:
    """Import files with `count` damaged rows of one host; return a line for each fault."""
    start = time.monotonic()
    faults = anyio.run(import_and_search, host, count)
    print_figures(f"{host}, rows", count, faults, start)
    return faults


async def import_and_search(host: str, count: int) -> list[str]:
    """Import damaged files and search each word that they still have."""
    faults: list[str] = []
    with TemporaryDirectory() as folder:
        async with temporary_archive() as archive:
            importer = Importer(archive, Path(folder, "positions"))
            for number in range(count // ROWS_PER_FILE):
                ending = "json" if host == "opencode" else "jsonl"
                path = Path(folder, f"{host}-{number}.{ending}")
                data = session_file(host, number)
                await anyio.Path(path).write_bytes(data)
                try:
                    outcome = await importer.import_file(path)
                except Exception as error:  # noqa: BLE001 - every error is a finding
                    faults.append(f"raised: {error!r} [{path.name}]"[:300])
                    continue
                missing = await missing_words(archive, data)
                faults += [f"lost: {line} [{outcome.problem}]" for line in missing]
    return faults


if __name__ == "__main__":
    sys.exit(main())
