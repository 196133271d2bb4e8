"""Figures as people read them."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

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
