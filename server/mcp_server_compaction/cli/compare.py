"""`compare FILE`: the policies side by side, as a table, as JSON, or as a page with charts."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
from context_compaction import formats
from context_compaction.errors import SettingsError
from context_compaction.policies import POLICIES, policy_named
from context_compaction.request import CompactRequest
from context_compaction.tokens.counter import counter_for

from mcp_server_compaction.cli.terminal import say
from mcp_server_compaction.compare.comparison import PolicyRow, Share, compare
from mcp_server_compaction.compare.page import page
from mcp_server_compaction.config import Config
from mcp_server_compaction.protocol.compaction_call import input_of_file

_HEADINGS = (
    "policy", "tokens after", "saved by layer", "user turns", "results", "files", "seconds",
    "compactions", "calls over", "recall", "in context", "cache hits", "re-billed", "cost USD",
)  # fmt: skip


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
        CompactionError: The file holds no conversation, or a policy does not exist.
    """
    names = [name.strip() for name in (job.names or ",".join(POLICIES)).split(",") if name.strip()]
    for name in names:
        policy_named(name)
    rows, window = anyio.run(_compare, job, names, config)
    cells = [_cells(row) for row in rows]
    note = _note(rows[0], job, window) if rows else ""
    if job.html is not None:
        _write(job.html, page(rows, _HEADINGS, cells, f"{job.file.name}: {note}"))
    if job.as_json:
        report = {
            "file": job.file.name,
            "window": window,
            "price_usd": job.price,
            "policies": [asdict(row) for row in rows],
        }
        say(json.dumps(report, indent=1))
        return
    _print_table(cells)
    say(note)
    if job.html is not None:
        say(f"Page written to {job.html}")


def _note(row: PolicyRow, job: CompareFile, window: int) -> str:
    return (
        f"{row.tokens_before:,} tokens and {row.calls} calls through a window of {window:,} "
        f"tokens. Cost: input at ${job.price:g} a million, cache reads at 0.1 and writes at 1.25 "
        "of it, without summaries of a model. Recall: of the names that the model used again, the "
        "part that stood in its request; in context: beside words that stood near them before."
    )


async def _compare(
    job: CompareFile, names: list[str], config: Config
) -> tuple[list[PolicyRow], int]:
    data = await anyio.Path(job.file).read_bytes()
    given = await input_of_file(data, job.file.name)
    model = job.model or given.model or config.model
    format_name = given.format or formats.detect(given.payload)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    tokens = count.messages(formats.parse(given.payload, format=format_name)) + overhead
    window = job.window or max(1_000, tokens // 2)
    request = CompactRequest(
        format=format_name,
        model=model,
        context_window=window,
        system=given.system,
        tools=given.tools,
        summarizer="extractive",
    )
    return await compare(given.payload, request, names, job.price), window


def _cells(row: PolicyRow) -> list[str]:
    layers = "\n".join(f"{name} {saved:,}" for name, saved in row.saved_by_layer.items())
    return [
        row.policy,
        f"{row.tokens_after:,}" + ("" if row.fits else " (too many)"),
        layers or "-",
        _share(row.user_turns),
        _share(row.results),
        _share(row.files),
        f"{row.compact_seconds:.2f}",
        str(row.compactions),
        str(row.calls_over),
        f"{row.recall:.3f}",
        f"{row.recall_with_context:.3f}",
        f"{row.cache_hit_share:.1%}",
        f"{row.rebilled_tokens:,}",
        f"{row.cost_usd:.2f}",
    ]


def _share(share: Share) -> str:
    return f"{share.kept}/{share.total}"


def _print_table(cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Policies compared")
    for at, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if at in (0, 2) else "right", overflow="fold")
    for line in cells:
        table.add_row(*line)
    # A pipe has no width of its own: the table must not be squeezed into 80 columns.
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written: {error.strerror}. Choose another place for --html."
        ) from error
