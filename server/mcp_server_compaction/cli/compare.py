"""`compare FILE`: the policies side by side, as a table, as JSON, or as a page with charts."""

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
import click
from context_compaction import (
    POLICIES,
    CompactRequest,
    SettingsError,
    counter_for,
    detect,
    parse,
    policy_named,
)

from mcp_server_compaction.cli.compacting import read_input
from mcp_server_compaction.cli.terminal import awaited, config_of, progress, say
from mcp_server_compaction.compare.comparison import PolicyRow
from mcp_server_compaction.compare.comparison import compare as compare_policies
from mcp_server_compaction.compare.page import Table, note_of, page, tables_of
from mcp_server_compaction.config import Config


@dataclass(frozen=True, slots=True)
class _Job:
    """The options of `compare`."""

    file: str
    names: str | None
    window: int | None
    model: str | None
    price: float
    as_json: bool
    html: Path | None


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--policies", "names", metavar="A,B", help="Names; all if left out.")
@click.option(
    "--window", type=click.IntRange(1), metavar="N", help="Tokens; half of the file's if left out."
)
@click.option("--model", metavar="M", help="Model, for its tokenizer.")
@click.option(
    "--price",
    type=click.FloatRange(0),
    default=3.0,
    show_default=True,
    metavar="USD",
    help="Of a million input tokens.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page with charts."
)
@click.pass_context
def compare(context: click.Context, /, **options: Any) -> None:
    """Show side by side what each policy makes of the conversation in FILE."""
    job = _Job(**options)
    config = config_of(context)
    name = Path(job.file).name
    if not math.isfinite(job.price):
        raise SettingsError(f"--price is {job.price}. Give dollars for a million tokens, as 3.0.")
    names = [name.strip() for name in (job.names or ",".join(POLICIES)).split(",") if name.strip()]
    for each in names:
        policy_named(each)
    rows, window = anyio.run(_compare, job, names, config)
    note = note_of(rows[0], job.price, window)
    tables = tables_of(rows)
    if job.html is not None:
        _write(job.html, page(rows, tables, f"{name}: {note}"))
    if job.as_json:
        report = {
            "file": name,
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


async def _compare(job: _Job, names: list[str], config: Config) -> tuple[list[PolicyRow], int]:
    given = await read_input(job.file)
    model = job.model or given.model or config.model
    format_name = given.format or detect(given.payload)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    tokens = count.messages(parse(given.payload, format=format_name)) + overhead
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
    with progress("Comparing") as report:
        rows = await compare_policies(given.payload, request, names, job.price, awaited(report))
    return rows, window


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
