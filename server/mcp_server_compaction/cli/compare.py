"""`compare FILE`: the policies side by side, as tables or as JSON."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

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
from mcp_server_compaction.cli.terminal import awaited, config_of, json_option, progress, say
from mcp_server_compaction.compare.comparison import PolicyRow, Share
from mcp_server_compaction.compare.comparison import compare as compare_policies
from mcp_server_compaction.protocol.compaction_call import Input


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
@json_option
@click.pass_context
def compare(
    context: click.Context,
    file: str,
    names: str | None,
    window: int | None,
    model: str | None,
    price: float,
    as_json: bool,
) -> None:
    """Show side by side what each policy makes of the conversation in FILE."""
    config = config_of(context)
    if not math.isfinite(price):
        raise SettingsError(f"--price is {price}. Give dollars for a million tokens, as 3.0.")
    policies = [name.strip() for name in (names or ",".join(POLICIES)).split(",") if name.strip()]
    for name in policies:
        policy_named(name)
    given = anyio.run(read_input, file)
    request = _request(given, model or given.model or config.model, window)
    with progress("Comparing") as report:
        rows = anyio.run(compare_policies, given.payload, request, policies, price, awaited(report))
    if as_json:
        figures = {
            "file": Path(file).name,
            "window": request.context_window,
            "price_usd": price,
            "policies": [asdict(row) for row in rows],
        }
        say(json.dumps(figures, indent=1))
        return
    _print_table("What one compaction of the whole leaves", [_left(row) for row in rows])
    _print_table("The session, replayed call by call", [_session(row) for row in rows])
    say("Tokens that each layer saved in that one compaction:")
    for row in rows:
        saved = ", ".join(f"{name} {tokens:,}" for name, tokens in row.saved_by_layer.items())
        say(f"  {row.policy}: {saved or 'none'}")
    say(_note(rows[0], price, request.context_window or 0))


def _request(given: Input, model: str | None, window: int | None) -> CompactRequest:
    format_name = given.format or detect(given.payload)
    count = counter_for(model)
    overhead = count.overhead(system=given.system, tools=given.tools)
    tokens = count.messages(parse(given.payload, format=format_name)) + overhead
    return CompactRequest(
        format=format_name,
        model=model,
        # About half of a small window is for input, and what stands beside the messages stays.
        context_window=window or max(1_000, tokens // 2, 4 * overhead),
        system=given.system,
        tools=given.tools,
        summarizer="extractive",
    )


def _left(row: PolicyRow) -> dict[str, str]:
    return {
        "policy": row.policy,
        "tokens after": f"{row.tokens_after:,}" + ("" if row.fits else " (too many)"),
        "user turns": _share(row.user_turns),
        "results": _share(row.results),
        "files": _share(row.files),
        "seconds": f"{row.compact_seconds:.2f}",
    }


def _session(row: PolicyRow) -> dict[str, str]:
    return {
        "policy": row.policy,
        "acts": str(row.compactions),
        "over": str(row.calls_over),
        "recall": f"{row.recall:.3f}",
        "in context": f"{row.recall_with_context:.3f}",
        "cached": f"{row.cache_hit_share:.1%}",
        "re-billed": f"{row.rebilled_tokens:,}",
        "cost USD": f"{row.cost_usd:.2f}",
    }


def _share(share: Share) -> str:
    return f"{share.kept}/{share.total}"


def _note(row: PolicyRow, price_usd: float, window: int) -> str:
    """What was measured and how, for people."""
    return (
        f"{row.tokens_before:,} tokens and {row.calls} calls through a window of {window:,} "
        f"tokens. Cost: input at ${price_usd:g} a million, cache reads at 0.1 and writes at 1.25 "
        "of it, without summaries of a model. Recall: of the names that the model used again, the "
        "part that stood in its request; in context: beside words that stood near them before. "
        "Acts: how often it changed the list; over: calls that did not fit; cached: input read "
        "from the cache; re-billed: tokens written to it again."
    )


def _print_table(title: str, rows: Sequence[dict[str, str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for at, heading in enumerate(rows[0]):
        shown.add_column(heading, justify="right" if at else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*row.values())
    Console(width=None if sys.stdout.isatty() else 80).print(shown)
