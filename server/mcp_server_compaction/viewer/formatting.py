"""Numbers, times and receipts as text for people."""

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from context_compaction import LAYERS
from markupsafe import Markup

from mcp_server_compaction.protocol.sessions import iso_time

_UNITS = (
    (86_400 * 365, "year"),
    (86_400 * 30, "month"),
    (86_400, "day"),
    (3_600, "hour"),
    (60, "minute"),
)


def count(number: float) -> str:
    """Format a number with thousands separators: `12,345`."""
    return f"{number:,.0f}"


def tokens(number: float) -> str:
    """Format a token count with three digits: `950`, `12.3k`, `1.2M`."""
    if number < 1_000:
        return f"{number:.0f}"
    if number < 999_500:
        return f"{number / 1_000:.1f}k" if number < 99_950 else f"{number / 1_000:.0f}k"
    return f"{number / 1_000_000:.1f}M"


def size(number: float) -> str:
    """Format a number of bytes; units are powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


def plural(number: int, noun: str, plural_noun: str = "") -> str:
    """Format a number with its noun: `1 message`, `2 messages`."""
    return f"{number:,} {noun if number == 1 else plural_noun or noun + 's'}"


def _local(seconds: float) -> datetime:
    """Return Unix time in this machine's time zone, or in UTC at the ends of the calendar."""
    moment = datetime.fromisoformat(iso_time(seconds))
    try:
        return moment.astimezone()
    except OverflowError:
        return moment


def local_time(seconds: float) -> str:
    """Format Unix time by this machine's clock: `2026-11-22 07:16 CET`."""
    return f"{_local(seconds):%Y-%m-%d %H:%M %Z}"


def _time_element(seconds: float, text: str, title: str) -> Markup:
    element = Markup('<time datetime="{}" title="{}">{}</time>')
    return element.format(iso_time(seconds), title, text)


def clock(seconds: float) -> Markup:
    """Return a `<time>` element that shows the local time."""
    return _time_element(seconds, local_time(seconds), iso_time(seconds))


def ago(seconds: float) -> Markup:
    """Return a `<time>` element that shows `3 hours ago`, with the local time on hover."""
    elapsed_seconds = max(0.0, time.time() - seconds)
    text = "just now"
    for unit_seconds, unit in _UNITS:
        if elapsed_seconds >= unit_seconds:
            text = plural(int(elapsed_seconds // unit_seconds), unit) + " ago"
            break
    return _time_element(seconds, text, local_time(seconds))


def day(seconds: float) -> str:
    """Format the day of a Unix time by this machine's clock: `Today`, `Yesterday` or the date."""
    today = datetime.now().astimezone().date()
    names = {today: "Today", today - timedelta(days=1): "Yesterday"}
    local_day = _local(seconds).date()
    return names.get(local_day, local_day.isoformat())


# Steps that act in addition to the layers of a policy.
_OTHER_STEPS = {
    "repair": "repaired messages that no provider accepts",
    "project_rules": "shortened project rules that the host inserted",
    "request": "replaced a request that was too long with an extract",
    "fill": "restored the newest cleared content, because there was room",
    "offload": "moved images and documents to the archive",
    "acknowledge": "added a reply that acknowledges the summary",
    "changed_files": "added a note about files that changed after they were read",
    "open_todos": "added the list of open todos",
    "thinking": "removed thinking that no longer fits the messages before it",
}
_STEPS = {name: layer.description for name, layer in LAYERS.items()} | _OTHER_STEPS
_WRITERS = {"extractive": "extracts", "host": "the host's model", "memory": "an earlier summary"}


def step_effect(name: str) -> str:
    """Describe what a layer or another step did, for example `moved large results …`."""
    return _STEPS.get(name, "changed the messages")


def writer_name(writer: str) -> str:
    """Name the writer of a summary for people."""
    return _WRITERS.get(writer, writer)


def change(number: int) -> str:
    """Format a difference with its sign: `−1,200`, `+46`, `0`."""
    sign = "−" if number < 0 else "+" if number else ""
    return f"{sign}{abs(number):,}"


def counted_model(receipt: Mapping[str, Any]) -> str | None:
    """Return the model for which a compaction counted tokens, or its family; None if unknown."""
    if receipt.get("counted_for"):
        return str(receipt["counted_for"])
    tokens: Mapping[str, Any] = receipt.get("tokens") or {}
    family = str(tokens.get("method", "")).rpartition("/")[2]
    if family in ("", "unknown"):
        return None
    return "gpt" if family == "openai" else family


def receipt_sentences(receipt: Mapping[str, Any]) -> Iterator[str]:
    """Describe the cause and the cost of a compaction; its steps have their own table."""
    if receipt.get("tokens"):
        yield from _size_sentences(receipt["tokens"], fits=receipt.get("fits", True))
    writer = receipt.get("writer")
    model: Mapping[str, Any] = receipt.get("model") or {}
    if writer:
        model_name = f" ({model['name']})" if model.get("name") else ""
        yield f"Source of the summary: {writer_name(writer)}{model_name}."
    if model.get("failure"):
        yield f"The model {model.get('name', '')} failed: {model['failure']}"
    if cache := receipt.get("cache"):
        yield (
            f"The provider's cache is valid up to message {cache['first_changed']} of the new "
            f"list. {count(cache['rebilled_tokens'])} tokens are written to the cache again, once. "
            f"{count(max(0, cache['saved_tokens']))} tokens are saved in every later request."
        )
    if restored := receipt.get("restored"):
        yield f"Restored files: {', '.join(restored)}."
    for piece in receipt.get("irreducible") or ():
        yield f"Cannot be made smaller: {piece['description']}, {count(piece['tokens'])} tokens."


def _size_sentences(tokens: Mapping[str, int], *, fits: bool) -> Iterator[str]:
    is_due = tokens["before_upper"] > tokens["trigger"]
    yield (
        f"Before: about {count(tokens['before'])} tokens (upper estimate "
        f"{count(tokens['before_upper'])}), {'above' if is_due else 'below'} the trigger of "
        f"{count(tokens['trigger'])}{'' if is_due else '. The caller asked for the compaction'}."
    )
    saved = tokens["before"] - tokens["after"]
    share = 100 * saved / tokens["before"] if tokens["before"] else 0
    change = f"{share:.0f}% less" if saved >= 0 else f"{count(-saved)} more"
    yield (
        f"After: about {count(tokens['after'])} tokens, {change}. The target of "
        f"{count(tokens['target'])} was {'met' if fits else 'missed'}."
    )


FILTERS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        ago, change, clock, count, day, plural, size, step_effect, tokens, writer_name,
    )
}  # fmt: skip
