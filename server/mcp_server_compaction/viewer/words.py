"""Figures and receipts as people read them."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from context_compaction.layers import LAYERS

from mcp_server_compaction.protocol.sessions import iso_time

_UNITS = ((86_400 * 365, "year"), (86_400 * 30, "month"), (86_400, "day"), (3_600, "hour"),
          (60, "minute"))  # fmt: skip


def count(number: float) -> str:
    """`12,345`."""
    return f"{number:,.0f}"


def tokens(number: float) -> str:
    """`950`, `12.3k`, `1.2M`: estimates need no more digits."""
    if number < 1_000:
        return f"{number:.0f}"
    if number < 999_500:
        return f"{number / 1_000:.1f}k" if number < 99_950 else f"{number / 1_000:.0f}k"
    return f"{number / 1_000_000:.1f}M"


def size(number: float) -> str:
    """A number of bytes; units are powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def plural(number: int, one: str, many: str = "") -> str:
    """`1 message`, `2 messages`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def ago(seconds: float) -> str:
    """`3 hours ago`."""
    past = max(0.0, time.time() - seconds)
    for length, name in _UNITS:
        if past >= length:
            return plural(int(past // length), name) + " ago"
    return "just now"


def minute(seconds: float) -> str:
    """`2026-11-22 06:16`, in UTC."""
    return iso_time(seconds)[:16].replace("T", " ")


def day(date: str) -> str:
    """`Today`, `Yesterday`, or the day itself, of a day as 2026-11-22 by this machine's clock."""
    today = datetime.now().astimezone().date()
    names = {today.isoformat(): "Today", (today - timedelta(days=1)).isoformat(): "Yesterday"}
    return names.get(date, date)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "count": count,
    "day": day,
    "tokens": tokens,
    "size": size,
    "plural": plural,
    "ago": ago,
    "minute": minute,
    "iso": iso_time,
}


def is_compaction(receipt: Mapping[str, Any]) -> bool:
    """Whether a receipt reports a compaction, and not repairs alone."""
    return receipt.get("status") == "compacted"


# What is done besides the layers of a policy.
_OTHERS = {
    "repair": "repaired what no provider accepts",
    "project_rules": "shortened rules of the project that the host handed over",
    "request": "put an extract in the place of a request that was too long",
    "fill": "put back the newest of what was cleared, where there was room",
    "offload": "moved pictures and documents to the archive",
    "acknowledge": "added the answer that acknowledges the summary",
    "changed_files": "told of files that changed since they were read",
    "open_todos": "told which todos are open",
    "thinking": "left out thinking that no longer fits what precedes it",
}
_DONE = {name: layer.description for name, layer in LAYERS.items()} | _OTHERS
_WRITERS = {
    "extractive": "No model wrote the summary: it is made of the conversation's own words.",
    "host": "The host's own model wrote the prose of the summary.",
    "memory": "A summary that was written earlier stands there again, with what came since.",
}


def sentences(receipt: Mapping[str, Any]) -> Iterator[str]:
    """What a compaction did, and what it cost."""
    if receipt.get("tokens"):
        yield from _size(receipt["tokens"], fits=receipt.get("fits", True))
    for layer in receipt.get("layers") or ():
        saved = layer["tokens_before"] - layer["tokens_after"]
        what = _DONE.get(layer["name"], "acted")
        gain = f"{count(abs(saved))} tokens {'less' if saved >= 0 else 'more'}"
        yield f"{layer['name']} {what} ({plural(layer['edit_count'], 'edit')}, {gain})."
    writer = receipt.get("writer")
    model: Mapping[str, Any] = receipt.get("model") or {}
    if writer:
        named = f" ({model['name']})" if model.get("name") else ""
        yield _WRITERS.get(writer, f"The summary was written by {writer}{named}.")
    if model.get("failure"):
        yield f"The model {model.get('name', '')} failed: {model['failure']}"
    if cache := receipt.get("cache"):
        yield (
            f"The provider's cache holds up to message {cache['first_changed']} of the new list; "
            f"{count(cache['rebilled_tokens'])} tokens are written to it once, and "
            f"{count(max(0, cache['saved_tokens']))} are no longer sent with every call."
        )
    if restored := receipt.get("restored"):
        yield f"Put back from disk or the transcript: {', '.join(restored)}."
    losses: Mapping[str, Any] = receipt.get("losses") or {}
    if losses.get("total"):
        yield (
            f"{plural(losses['total'], 'name')} of the conversation (paths, identifiers, errors, "
            "numbers) no longer stand in the context; all are found by search."
        )
    for piece in receipt.get("irreducible") or ():
        yield f"Could not be made smaller: {piece['description']}, {count(piece['tokens'])} tokens."
    yield from receipt.get("warnings") or ()


def _size(tokens: Mapping[str, int], *, fits: bool) -> Iterator[str]:
    is_due = tokens["before_upper"] > tokens["trigger"]
    yield (
        f"The context held about {count(tokens['before'])} tokens (at most "
        f"{count(tokens['before_upper'])}), {'more' if is_due else 'less'} than the trigger of "
        f"{count(tokens['trigger'])}{'' if is_due else ': it was asked for'}."
    )
    saved = tokens["before"] - tokens["after"]
    share = 100 * saved / tokens["before"] if tokens["before"] else 0
    change = f"{share:.0f}% less" if saved >= 0 else f"{count(-saved)} more"
    yield (
        f"It now holds about {count(tokens['after'])}: {change}. The target was "
        f"{count(tokens['target'])}{'' if fits else ', which it misses'}."
    )
