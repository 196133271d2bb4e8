"""Which days a query names: 2026-03-01, 1 March 2026, Mar 1st, 2026, 2026-03, March 2026."""

import re
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?P<day>\d\d?)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS = [
    re.compile(rf"\b{form}\b", re.IGNORECASE)
    for form in (
        rf"{_YEAR}[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)",
        rf"{_YEAR}-(?P<month>\d\d)(?!-)",
        rf"{_DAY}(?: of)? {_MONTH},? {_YEAR}",
        rf"{_MONTH} {_DAY},? {_YEAR}",
        rf"{_MONTH},? {_YEAR}",
    )
]


def asked_times(text: str) -> Iterator[tuple[float, float]]:
    """The days and months with their year that `text` names: first and last moment, Unix, UTC."""
    for form in _FORMS:
        for match in form.finditer(text):
            times = _times(match.groupdict())
            if times is not None:
                yield times
        text = form.sub(" ", text)  # a month is not found within a day


def _times(named: dict[str, str | None]) -> tuple[float, float] | None:
    """None where there is no such day."""
    year, month, day = named["year"], named.get("month"), named.get("day")
    number = int(month) if month else 1 + _MONTHS.index((named["name"] or "")[:3].lower())
    try:
        first = datetime(int(year or 0), number, int(day or 1), tzinfo=UTC)
    except ValueError:
        return None
    days = 1 if day else monthrange(first.year, first.month)[1]
    return first.timestamp(), (first + timedelta(days=days, microseconds=-1)).timestamp()
