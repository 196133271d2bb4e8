"""The commands `policies` and `compare`: policies, and their results next to each other."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import anyio
import click
from context_compaction import POLICIES, SettingsError, policy_named

from mcp_server_compaction.cli.compacting import read_input
from mcp_server_compaction.cli.terminal import (
    answer,
    async_report,
    config_of,
    grouped,
    progress,
    say,
)
from mcp_server_compaction.compare.comparison import PolicyRow
from mcp_server_compaction.compare.comparison import compare as compare_policies
from mcp_server_compaction.options import Positive, own_options


@click.command()
@own_options
def policies(*, as_json: bool = False) -> None:
    """List the policies with their layers, constants and sources.

    Options:
        as_json: Print JSON instead of text.
    """
    from mcp_server_compaction.protocol.resource_contents import own_constants, policies_document

    if as_json:
        answer(True, policies_document(), "")
        return
    for policy in POLICIES.values():
        say(f"{policy.name} ({policy.source})")
        say(f"  {policy.description}")
        say(f"  Layers: {' > '.join(policy.layers)}")
        if constants := own_constants(policy):
            say(f"  Constants: {', '.join(f'{k}={v}' for k, v in constants.items())}")
        for difference in policy.differences:
            say(f"  Differs: {difference}")
        say()


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@own_options
@click.pass_context
def compare(
    context: click.Context,
    file: str,
    *,
    policies: str | None = None,
    window: Positive | None = None,
    model: str | None = None,
    price: Annotated[float, click.FloatRange(0)] = 3.0,
    as_json: bool = False,
) -> None:
    """Compare policies on a conversation: size, speed, recall and cost.

    FILE is a session file or a list of messages, or `-` for standard input. The archive does not
    change. Every policy replays the whole conversation, so a long one takes minutes: choose few
    with --policies.

    Options:
        policies (A,B): Compare these policies (default: all).
        window (N): Fit a context window of N tokens (default: half of the conversation).
        model (M): Use the tokenizer of this model (default: the model in the file).
        price (USD): Calculate costs with this price of one million input tokens.
        as_json: Print JSON instead of text.
    """
    config = config_of(context)
    if not math.isfinite(price):
        raise SettingsError(f"Invalid --price {price}. Pass US dollars, for example 3.0.")
    listed = policies or ",".join(POLICIES)
    names = [policy_named(name.strip()).name for name in listed.split(",") if name.strip()]
    given = anyio.run(read_input, file)
    model = model or given.model or config.model
    overhead, tokens = given.count_tokens(model)
    # A small window has only half its tokens for input, and system and tools do not shrink.
    window = window or max(1_000, (tokens + overhead) // 2, 4 * overhead)
    request = given.request(config, model, context_window=window, summarizer="extractive")
    with progress("Comparing") as report:
        rows = anyio.run(
            compare_policies, given.payload, request, names, price, async_report(report)
        )
    if as_json:
        figures = {
            "file": Path(file).name,
            "window": request.context_window,
            "price_usd": price,
            "policies": [asdict(row) for row in rows],
            "notes": list(given.notes),
        }
        answer(True, figures, "")
        return
    for line in grouped(given.notes):
        say(f"Note: {line}")
    say("One compaction of the whole conversation:")
    for row in rows:
        saved = ", ".join(f"{name} {tokens:,}" for name, tokens in row.saved_by_layer.items())
        fits = "" if row.fits else ", too many"
        say(f"  {row.policy}: {row.tokens_after:,} tokens{fits}, {row.compact_seconds:.2f} s")
        say(f"    saved: {saved or 'nothing'}")
    say()
    say("The session, replayed request by request:")
    say(f"  {'policy':<20}compacted too long recall cached    re-billed cost USD")
    for row in rows:
        session = row.replay
        say(
            f"  {row.policy:<20}{session.compactions:>9}{session.calls_over:>9}{row.recall:>7.3f}"
            f"{row.cache_hit_share:>7.1%}{session.rebilled_tokens:>13,}{row.cost_usd:>9.2f}"
        )
    say(
        f"Input: {rows[0].tokens_before:,} tokens, {rows[0].replay.calls} requests, a window of "
        f"{request.context_window:,} tokens."
    )
    say(f"cost USD: at ${price:g} a million input tokens, without summaries by a model. Cache")
    say("  reads cost 0.1 times this price, and writes 1.25 times.")
    say("compacted: requests with a changed message list. too long: requests above the window.")
    say("recall: names that the model used again and that the request contained.")
    say("cached: input read from the cache. re-billed: tokens written to the cache again.")
    say()
    say(conclusion(rows))


def conclusion(rows: Sequence[PolicyRow]) -> str:
    """Return the result in one sentence.

    It names the policy default, or the cheapest policy whose requests all fit.
    """
    without, *policies = rows
    fitting = [row for row in policies if not row.replay.calls_over] or policies
    chosen = min(fitting, key=lambda row: (row.policy != "default", row.cost_usd))
    kept = chosen.recall / without.recall if without.recall else 1.0
    over = f", and {without.replay.calls_over} requests would have been too long without it"
    return (
        f"{chosen.policy} would have cost ${chosen.cost_usd:.2f} instead of "
        f"${without.cost_usd:.2f} and kept {kept:.0%} of the names that the model used again"
        f"{over if without.replay.calls_over else ''}."
    )
