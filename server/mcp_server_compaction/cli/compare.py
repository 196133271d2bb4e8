"""`compare FILE`: the policies side by side, as a table, as JSON, or as a page with charts."""

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
from context_compaction import formats
from context_compaction.errors import SettingsError
from context_compaction.policies import POLICIES, policy_named
from context_compaction.request import CompactRequest
from context_compaction.tokens.counter import counter_for

from mcp_server_compaction.cli.compact import read_input
from mcp_server_compaction.cli.terminal import awaited, progress, say
from mcp_server_compaction.compare.comparison import PolicyRow, compare
from mcp_server_compaction.compare.page import Table, note_of, page, tables_of
from mcp_server_compaction.config import Config


@dataclass(frozen=True, slots=True)
class CompareFile:
    """What the command line asks for; see `cli.compare` for each option."""

    file: Path
    names: str | None
    window: int | None
    model: str | None
    price: float
    as_json: bool
    html: Path | None


def run_compare(job: CompareFile, config: Config) -> None:
    """Replay the file under each policy and show what came of it.

    Raises:
        CompactionError: The file holds no conversation, a policy does not exist, or the price is
            no number.
    """
    if not math.isfinite(job.price):
        raise SettingsError(f"--price is {job.price}. Give dollars for a million tokens, as 3.0.")
    names = [name.strip() for name in (job.names or ",".join(POLICIES)).split(",") if name.strip()]
    for name in names:
        policy_named(name)
    rows, window = anyio.run(_compare, job, names, config)
    note = note_of(rows[0], job.price, window)
    tables = tables_of(rows)
    if job.html is not None:
        _write(job.html, page(rows, tables, f"{job.file.name}: {note}"))
    if job.as_json:
        report = {
            "file": job.file.name,
            "window": window,
            "price_usd": job.price,
            "policies": [asdict(row) for row in rows],
        }
        say(json.dumps(report, indent=1))
        return
    for table in tables:
        _print_table(table)
    say("Tokens that each layer saved in that one compaction:")
    for row in rows:
        saved = ", ".join(f"{name} {tokens:,}" for name, tokens in row.saved_by_layer.items())
        say(f"  {row.policy}: {saved or 'none'}")
    say(note)
    if job.html is not None:
        say(f"Page written to {job.html}")


async def _compare(
    job: CompareFile, names: list[str], config: Config
) -> tuple[list[PolicyRow], int]:
    given = await read_input(job.file)
    model = job.model or given.model or config.model
    format_name = given.format or formats.detect(given.payload)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    tokens = count.messages(formats.parse(given.payload, format=format_name)) + overhead
    # About half of a small window is for input, and what stands beside the messages stays.
    window = job.window or max(1_000, tokens // 2, 4 * overhead)
    request = CompactRequest(
        format=format_name,
        model=model,
        context_window=window,
        system=given.system,
        tools=given.tools,
        summarizer="extractive",
    )
    with progress("Comparing") as tell:
        return await compare(given.payload, request, names, job.price, awaited(tell)), window


def _print_table(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for at, heading in enumerate(table.headings):
        shown.add_column(heading, justify="right" if at else "left", no_wrap=True)
    for line in table.cells:
        shown.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 80).print(shown)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}. Choose another place for --html."
        ) from error
